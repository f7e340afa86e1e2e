/* A small file of a checkpoint, whole and verified, straight from the remote. */
#pragma once

#include "manifest/manifest.h"
#include "tier/remote.h"

/*
 * config.json by what the manifest says about the model, in a new buffer (owned by the caller,
 * free()), one more NUL behind it; *ret NULL when there is none. -EFBIG above 4 MiB; -EBADMSG when
 * a block does not match its checksum; else as mc_piece_read.
 */
int mc_whole_config(struct mc_remote *r, struct mc_manifest *m, char **ret, size_t *ret_len,
	struct mc_err *err);
