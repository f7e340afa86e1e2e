/* A source tree, a dir: remote and a state directory below one temporary directory, for import
 * tests. */
#pragma once

#include "manifest/import.h"
#include "tier/remote.h"

struct tree {
	char top[64]; /* holds src/, remote/, state/ and what a test adds */
	char url[80];
	char src[128];
	struct mc_remote *remote;
};

void tree_open(struct tree *t);
void tree_close(struct tree *t); /* removes everything */
/* Runs a command with top as the working directory; aborts the test when it fails. */
void tree_shell(const struct tree *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same, for a question: the exit code. */
int tree_ask(const struct tree *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A safetensors file of n U8 tensors "<prefix>0" …, of these sizes, with patterned bytes. */
void tree_weights(
	const struct tree *t, const char *path, const char *prefix, const size_t *sizes, size_t n);
/* Imports src as o/m@rev (rev NULL = from the content). */
int tree_import(
	const struct tree *t, const char *rev, struct mc_import_result *ret, struct mc_err *err);
/* Loads o/m@rev. */
struct mc_manifest *tree_load(const struct tree *t, const char *rev);
/* Fills src: two shards with an index, a config, a stray weight file, odd names, links, holes,
 * empty things.
 */
void tree_fill(const struct tree *t);
/* Exports o/m@rev to dest below top. */
void tree_export(const struct tree *t, const char *rev, const char *dest);
