/* A store and a KV store that share the device of a block tier, and files that lie on it. */
#pragma once

#include "tests/kv-fixture.h"
#include "tests/store-fixture.h"
#include "tier/block-super.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define DRAM (16 * MIB)
#define DEVICE (128 * MIB)
#define SIZE (40 * MIB + 12345u)

/* A store and a KV store that share a device. */
struct tiers {
	struct place p;
	char device[96], kv_dram[96], kv_nvme[112];
	uint64_t nvme; /* bytes of a directory above the device, for files; 0: there is none */
	struct mc_block_cache *blocks;
	struct mc_kv *kv;
	const struct mc_io *io; /* of the device; NULL: the real one */
	unsigned deadline_ms;   /* 0 = 20,000 */
};

static inline void tiers_make(struct tiers *t, uint64_t bytes)
{
	struct mc_block_format f = {.path = t->device, .bytes = bytes};
	struct mc_err err = {0};

	*t = (struct tiers){0};
	place_make(&t->p);
	snprintf(t->device, sizeof(t->device), "%s/device", t->p.dir);
	snprintf(t->kv_dram, sizeof(t->kv_dram), "%s/kv", t->p.dir);
	snprintf(t->kv_nvme, sizeof(t->kv_nvme), "%s/kv", t->p.nvme);
	ck_assert_msg(mc_block_format(&f, &err) == 0, "%s", err.text);
}

static inline void tiers_open(struct tiers *t)
{
	struct mc_err err = {0};
	struct mc_store_opts o = {.dram_dir = t->p.dram,
		.dram_capacity = DRAM,
		.nvme_dir = t->nvme > 0 ? t->p.nvme : NULL,
		.nvme_capacity = t->nvme,
		.nvme_commit_ms = 10,
		.deadline_ms = t->deadline_ms != 0 ? t->deadline_ms : 20000};
	struct mc_kv_opts k = {.dram_dir = t->kv_dram,
		.dram_capacity = 64 * MIB,
		.nvme_dir = t->nvme > 0 ? t->kv_nvme : NULL,
		.nvme_capacity = t->nvme > 0 ? 32 * MIB : 0,
		.device = t->device,
		.io = t->io,
		.node = "00c0ffee"};

	ck_assert_int_eq(mc_block_cache_open(&t->blocks), 0);
	ck_assert_int_eq(mc_remote_open(t->p.url, NULL, &t->p.remote, &err), 0);
	o.remote = t->p.remote;
	o.blocks = k.blocks = t->blocks;
	ck_assert_msg(mc_store_open(&o, &t->p.store, &err) == 0, "%s", err.text);
	ck_assert_msg(mc_kv_open(&k, &t->kv, &err) == 0, "%s", err.text);
}

static inline void tiers_close(struct tiers *t)
{
	ck_assert_int_eq(mc_kv_close(t->kv, 20000), 0);
	place_close(&t->p, false);
	mc_block_cache_close(t->blocks);
}

static inline void tiers_remove(struct tiers *t)
{
	umount2(t->kv_dram, MNT_DETACH);
	place_remove(&t->p);
}

/* What the remote had is not there any more. */
static inline void empty_remote(struct tiers *t)
{
	char away[128];

	snprintf(away, sizeof(away), "%s.away", t->p.remote_dir);
	ck_assert_int_eq(rename(t->p.remote_dir, away), 0);
	ck_assert_int_eq(mkdir(t->p.remote_dir, 0755), 0);
}

static inline uint64_t resident(struct tiers *t, const struct pattern *pat)
{
	return pattern_residency(&t->p, pat).block;
}

static inline void await_resident(struct tiers *t, const struct pattern *pat, uint64_t bytes)
{
	while (resident(t, pat) != bytes)
		usleep(1000);
}

static inline void read_all(struct tiers *t, const struct pattern *pat)
{
	struct mc_file *f = file_open(&t->p, pat);

	for (uint64_t b = 0; b < mc_block_count(pat->size); b++)
		ck_assert_int_eq(
			read_check(f, pat, b << MC_BLOCK_SHIFT, mc_block_len(pat->size, b)), 0);
	mc_file_put(f);
}

static inline struct pattern load(struct tiers *t, const char *name, uint64_t size)
{
	struct pattern pat = make_pattern(&t->p, name, size);

	/* What leaves DRAM while the device has enough to write is not kept: again. */
	do {
		read_all(t, &pat);
		usleep(1000);
	} while (resident(t, &pat) != size);
	return pat;
}
