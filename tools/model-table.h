/* The tensors of a model as layouts and plans need them: of a directory, a revision, or one of
 * Mooncake's stored manifests. */
#pragma once

#include "manifest/layout-source.h"
#include "tools/options.h"

struct mc_remote;
struct mc_safetensors;
struct mc_weight_manifest;

struct mc_model_table {
	json_t *config;    /* owned; NULL = no config.json */
	char *config_text; /* the same as it stands there, config_len bytes; owned */
	size_t config_len;
	const struct mc_layout_tensor *tensor; /* n, owned by what is below */
	const char *const *name;               /* the same names */
	uint32_t n;
	struct mc_side held; /* all of it, by participant 0 */
	/* A revision, or Mooncake's manifest as one: */
	struct mc_manifest *manifest; /* owned reference */
	struct mc_layout_source source;
	/* A directory: */
	struct mc_safetensors **file; /* owned */
	uint32_t n_files;
};

/*
 * where: "ORG/MODEL[@REV]" on the remote of the options, or a local directory, which is one when it
 * exists as such. Only headers and config.json are read. 0, or an exit code after a message.
 */
int mc_model_table_open(const struct mc_options *o, const char *where, struct mc_model_table *ret);
/* A revision, whatever directories there are. */
int mc_model_table_open_revision(
	const struct mc_options *o, const char *where, struct mc_model_table *ret);
/* config.json is that of --model, none without it. payload: as mc_weight_payload has it. */
int mc_model_table_of_weights(const struct mc_options *o, const struct mc_weight_manifest *w,
	struct mc_remote *payload, struct mc_model_table *ret);
void mc_model_table_done(struct mc_model_table *t);
/* The same without knowing what the layouts or plans need: a whole local file; free(). */
int mc_read_file(const char *path, size_t max, char **ret, size_t *ret_len, struct mc_err *err);
