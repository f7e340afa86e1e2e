/* A small file of a checkpoint, whole and verified, straight from the remote. */
#pragma once

#include "manifest/manifest.h"
#include "tier/remote.h"

/*
 * The bytes of a FILE entry in a new buffer (owned by the caller, free()), one more NUL behind
 * them. -EFBIG above max bytes; -EBADMSG when a block does not match its checksum; else as
 * mc_range_read.
 */
int mc_whole_file(struct mc_remote *r, struct mc_manifest *m, uint32_t entry, uint64_t max,
	char **ret, size_t *ret_len, struct mc_err *err);
/* config.json by what the manifest says about the model; *ret NULL when there is none. */
int mc_whole_config(struct mc_remote *r, struct mc_manifest *m, char **ret, size_t *ret_len,
	struct mc_err *err);
