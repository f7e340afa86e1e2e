/*
 * What an administrator does to one file of the mount, by its path: the control socket's commands.
 * For threads that may wait; thread-safe.
 */
#pragma once

#include "fs/state.h"
#include "tier/store.h"

/* A file by its path in the mount: of a revision or a view, or a KV object. */
struct mc_admin_file {
	struct mc_place *place; /* owned reference; NULL: a KV object */
	uint32_t entry;         /* of the place */
	const char *key;        /* of the KV object, borrowed from the path */
	uint64_t size;          /* bytes */
	uint64_t holes;         /* bytes of it that are nowhere */
};

/*
 * [blocks] path: without the mount point and without links, "checkpoints/ORG/MODEL@REV/FILE",
 * "views/…" or "kv/KEY". -ENOENT, -EISDIR, -EINVAL (what is no such path), or the failure of the
 * catalogue. The caller calls close after success.
 */
int mc_admin_open(struct mc_fs *fs, const char *path, struct mc_admin_file *ret);
void mc_admin_close(struct mc_admin_file *f);
/* The same for a spot, which is a file (MC_NODE_ENTRY, MC_NODE_KV_FILE): everything is borrowed
 * from it and there is nothing to close. */
void mc_admin_file_of(struct mc_fs *fs, const struct mc_spot *s, struct mc_admin_file *ret);

struct mc_admin_residency {
	uint64_t size;              /* bytes that can be resident */
	uint64_t dram, nvme, block; /* bytes resident */
	uint64_t remote;            /* bytes of copies there */
	bool pinned;
};
int mc_admin_residency(
	struct mc_fs *fs, const struct mc_admin_file *f, struct mc_admin_residency *ret);

/* A put of key ended: why it failed, "" when it did not. */
void mc_admin_put_ended(struct mc_fs *fs, const char *key, const char *text);
/* Why the last of these failed for the file, "" when it did not: user.mooncake.error. */
void mc_admin_error(struct mc_fs *fs, const struct mc_admin_file *f, char *out, size_t size);

struct mc_warm_opts;
/* [blocks] As mc_store_warm. -EOPNOTSUPP: KV objects come to DRAM only, and to the other tiers from
 * there. */
int mc_admin_warm(struct mc_fs *fs, const struct mc_admin_file *f, const struct mc_warm_opts *opts);
/* [blocks] Never the last good copy. -EBUSY with a sentence in *ret_why, static text. */
int mc_admin_evict(
	struct mc_fs *fs, const struct mc_admin_file *f, enum mc_tier tier, const char **ret_why);
/* [blocks] */
int mc_admin_pin(struct mc_fs *fs, const struct mc_admin_file *f, bool pinned);
/* What is remembered of the catalogue is asked for again by whoever needs it next. */
void mc_admin_refresh(struct mc_fs *fs);
