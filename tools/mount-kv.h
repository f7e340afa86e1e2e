/* The KV store of a mount: its share of the tiers, opening and closing it. */
#pragma once

#include "tier/error.h"
#include "tier/kv.h"
#include "tools/options.h"

struct mc_mount_kv {
	char *dram_dir, *nvme_dir;       /* owned; nvme_dir NULL = no NVMe tier */
	uint64_t dram_bytes, nvme_bytes; /* its share; dram_bytes 0 = no kv/ */
	char *block;                     /* owned: device instead of nvme_dir; NULL = none */
	uint64_t block_bytes;            /* 0 = all of it */
	struct mc_block_cache *blocks;   /* owned: blocks of files on the device; NULL = none */
	enum mc_kv_ack ack;
	/* Files of puts that the process before this one had under way: owned. */
	uint64_t *puts;
	size_t n_puts;
	struct mc_kv *kv; /* owned */
};

/* The directories and sizes of a mount's tiers. */
struct mc_mount_tiers {
	const char *dram_dir;
	const char *nvme_dir; /* "" = none */
	uint64_t dram_bytes;
	uint64_t nvme_bytes; /* 0 = 90 % of what is free */
};

/* Takes the KV store's share out of t. -EINVAL described in err: the options do not fit together;
 * -ENOMEM. */
int mc_mount_kv_share(struct mc_mount_kv *m, const struct mc_options *o, struct mc_mount_tiers *t,
	struct mc_err *err);
int mc_mount_kv_open(struct mc_mount_kv *m, const struct mc_options *o, struct mc_remote *remote,
	void (*event)(void *ctx, const char *event, const char *text), struct mc_err *err);
/* Flushes for at most drain_ms. The number of objects that stay in DRAM only. What is in blocks is
 * closed by mc_block_cache_close, after the store. */
int64_t mc_mount_kv_close(struct mc_mount_kv *m, unsigned drain_ms);
