/*
 * Scrubbing in tests: passes that are waited for, bits that flip where the seed says, files of
 * checkpoints that lie on NVMe alone.
 */
#pragma once

#include "tests/seed.h"
#include "tests/store-fixture.h"
#include "tier/image-name.h"
#include "tier/scrub.h"

#include <fcntl.h>
#include <unistd.h>

#define SECOND UINT64_C(1000000000)

/* ---- damage */

static uint64_t scrub_seed;

static inline uint64_t dice(uint64_t below)
{
	scrub_seed = scrub_seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (scrub_seed >> 33) % below;
}

static inline void flip(const char *path, uint64_t off)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	unsigned char c;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pread(fd, &c, 1, (off_t)off), 1);
	c ^= (unsigned char)(1u << dice(8));
	ck_assert_int_eq(pwrite(fd, &c, 1, (off_t)off), 1);
	ck_assert_int_eq(fsync(fd), 0);
	close(fd);
}

/* ---- passes */

static inline struct mc_scrub *scrub_of(struct mc_store *store, struct mc_kv *kv, const char *dir)
{
	struct mc_scrub_opts o = {.store = store, .kv = kv, .dir = dir};
	struct mc_scrub *s;

	ck_assert_int_eq(mc_scrub_open(&o, &s), 0);
	return s;
}

static inline struct mc_scrub_counts whole_pass(struct mc_scrub *s)
{
	struct mc_scrub_status st;
	uint64_t n = mc_scrub_start(s, 0);

	while (!mc_scrub_wait(s, n, mc_now_ns() + SECOND))
		;
	mc_scrub_status(s, &st);
	mc_scrub_leave(s, n);
	return st.last;
}

static inline struct mc_scrub_counts one_pass(struct mc_store *store, struct mc_kv *kv)
{
	struct mc_scrub *s = scrub_of(store, kv, NULL);
	struct mc_scrub_counts c = whole_pass(s);

	mc_scrub_close(s);
	return c;
}

/* ---- files of checkpoints */

static inline void image_path(
	const struct place *p, const struct pattern *pat, char *out, size_t len)
{
	struct mc_source *src = pattern_source(pat);
	char name[MC_IMAGE_NAME_MAX];

	mc_image_name(&src->id, name);
	src->ops->release(src);
	snprintf(out, len, "%s/images/%.2s/%s", p->nvme, name, name);
}

static inline void expect_all(struct mc_file *f, const struct pattern *pat)
{
	for (uint64_t off = 0; off < pat->size; off += MIB)
		ck_assert_int_eq(read_check(f, pat, off, mc_block_len(pat->size, off / MIB)), 0);
}

/* All of it on NVMe and nothing in DRAM, after a restart with the image verified. */
static inline struct mc_file *on_nvme(struct place *p, const struct pattern *pat)
{
	struct mc_file *f = file_open(p, pat);
	const char *why;

	expect_all(f, pat);
	await_nvme(f, pat->size);
	ck_assert_int_eq(mc_store_evict(p->store, mc_file_id(f), MC_TIER_DRAM, &why), 0);
	return f;
}
