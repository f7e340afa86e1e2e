/*
 * Files of a mount that a command line names: paths, directories (all files below), patterns, and
 * lists in a file. Directories are walked in the mount, whose metadata comes from memory.
 */
#pragma once

#include "tier/error.h"
#include "fs/mount-table.h"
#include "tools/options.h"

#include <stdint.h>

struct json_t;

struct mc_mount_file {
	char *path;     /* below the mount point, owned */
	uint64_t bytes; /* without holes */
	unsigned word;  /* which of the words named it */
};

struct mc_mount_files {
	struct mc_mount mount; /* found with the first path */
	struct mc_mount_file *files;
	size_t n, cap;
	char **words; /* owned; as they were given, patterns expanded */
	unsigned n_words;
	uint64_t bytes; /* of all files */
};

/* Collects what the arguments and --files-from name; links are followed only where they are named.
 * -ENOENT, -EXDEV (not all in one mount) …, described in err. The caller calls done in every case.
 */
int mc_mount_files_collect(
	const struct mc_options *o, struct mc_mount_files *ret, struct mc_err *err);
void mc_mount_files_done(struct mc_mount_files *m);

/*
 * Has the daemon carry a command out for all of them, some at a time. each: a file's entry of an
 * answer; failed: a path and why. tell: bytes dealt with so far. All may be NULL.
 */
struct mc_mount_run {
	const char *command; /* of fs/control-request.h */
	const char *tier;    /* NULL = the command takes none */
	uint64_t bytes_per_second;
	void (*each)(void *ctx, const struct mc_mount_file *f, const struct json_t *figures);
	void (*failed)(void *ctx, const char *path, const char *text);
	void (*tell)(void *ctx, uint64_t bytes, uint64_t paths);
	void *ctx;
};
/* 0 when the daemon answered, whatever failed; -errno when it did not. */
int mc_mount_files_run(
	const struct mc_mount_files *m, const struct mc_mount_run *run, struct mc_err *err);
