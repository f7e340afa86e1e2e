/* A store over temporary directories, with a directory as its remote; reads that are waited for. */
#pragma once

#include "tests/pattern-source.h"
#include "tests/suite.h"
#include "tier/future.h"
#include "tier/store.h"

#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB MC_BLOCK_SIZE

/* Where everything of one test lives; removed afterwards. */
struct place {
	char dir[64];
	char remote_dir[96], dram[96], nvme[96];
	char url[128];
	struct mc_remote *remote;
	struct mc_store *store;
};

static inline void place_make(struct place *p)
{
	strcpy(p->dir, "/tmp/mc-store-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(p->dir));
	snprintf(p->remote_dir, sizeof(p->remote_dir), "%s/remote", p->dir);
	snprintf(p->dram, sizeof(p->dram), "%s/dram", p->dir);
	snprintf(p->nvme, sizeof(p->nvme), "%s/nvme", p->dir);
	snprintf(p->url, sizeof(p->url), "dir:%s", p->remote_dir);
	ck_assert_int_eq(mkdir(p->remote_dir, 0755), 0);
}

static inline int unlink_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

static inline void place_remove(struct place *p)
{
	umount2(p->dram, MNT_DETACH);
	ck_assert_int_eq(nftw(p->dir, unlink_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

static inline void place_open(struct place *p, uint64_t dram, uint64_t nvme)
{
	struct mc_err err = {0};
	struct mc_store_opts o = {.dram_dir = p->dram,
		.dram_capacity = dram,
		.nvme_dir = nvme > 0 ? p->nvme : NULL,
		.nvme_capacity = nvme,
		.nvme_commit_ms = 10, /* tests wait for what is durable */
		.deadline_ms = 20000};
	int r = mc_remote_open(p->url, NULL, &p->remote, &err);

	ck_assert_msg(r == 0, "%s", err.text);
	o.remote = p->remote;
	r = mc_store_open(&o, &p->store, &err);
	ck_assert_msg(r == 0, "%s", err.text);
}

static inline void place_close(struct place *p, bool keep)
{
	mc_store_close(p->store, keep);
	mc_remote_close(p->remote);
}

static inline struct mc_file *file_open(struct place *p, const struct pattern *pat)
{
	struct mc_file *f;

	ck_assert_int_eq(mc_store_file_get(p->store, pattern_source(pat), &f), 0);
	return f;
}

static inline struct mc_file_id id_of(const struct pattern *pat)
{
	struct mc_source *src = pattern_source(pat);
	struct mc_file_id id = src->id;

	src->ops->release(src);
	return id;
}

static inline struct mc_residency pattern_residency(struct place *p, const struct pattern *pat)
{
	const struct mc_file_id id = id_of(pat);
	struct mc_residency res;

	mc_store_residency(p->store, &id, &res);
	return res;
}

/* A read that is waited for. */
struct sync_read {
	struct mc_file_read r;
	struct mc_future over;
};

static inline void sync_done(struct mc_file_read *r, int res)
{
	struct sync_read *s = r->ctx;

	mc_future_set(&s->over, res);
}

/* Does s->r and waits; lent bytes are given back with mc_file_read_end when the result is 0. */
static inline int sync_run(struct sync_read *s)
{
	s->r.done = sync_done;
	s->r.ctx = s;
	mc_future_init(&s->over);
	mc_file_read(&s->r);
	return (int)mc_future_wait(&s->over);
}

static inline int sync_read(struct sync_read *s, struct mc_file *f, uint64_t off, uint32_t len)
{
	*s = (struct sync_read){.r = {.file = f, .off = off, .len = len}};
	return sync_run(s);
}

/* Reads and compares with the pattern; the result of the read. */
static inline int read_check(
	struct mc_file *f, const struct pattern *pat, uint64_t off, uint32_t len)
{
	struct sync_read s;
	uint64_t at = off;
	int r = sync_read(&s, f, off, len);

	if (r < 0)
		return r;
	for (unsigned i = 0; i < s.r.n_iov; i++) {
		ck_assert_msg(pattern_equal(pat, at, s.r.iov[i].iov_base, s.r.iov[i].iov_len),
			"wrong bytes at %llu", (unsigned long long)at);
		at += s.r.iov[i].iov_len;
	}
	ck_assert_uint_eq(at, off + len);
	mc_file_read_end(&s.r);
	return 0;
}

/* Every byte of it, which has to be right. */
static inline void read_whole(struct mc_file *f, const struct pattern *pat)
{
	for (uint64_t off = 0; off < pat->size; off += MIB)
		ck_assert_int_eq(read_check(f, pat, off, mc_block_len(pat->size, off / MIB)), 0);
}

static inline void read_copy(struct mc_file *f, uint64_t off, uint32_t len, uint8_t *out)
{
	struct sync_read s;

	ck_assert_int_eq(sync_read(&s, f, off, len), 0);
	for (unsigned i = 0; i < s.r.n_iov; i++) {
		memcpy(out, s.r.iov[i].iov_base, s.r.iov[i].iov_len);
		out += s.r.iov[i].iov_len;
	}
	mc_file_read_end(&s.r);
}

/* Write-behind goes on after the reads: waits until NVMe has so much of it. */
static inline void await_nvme(struct mc_file *f, uint64_t bytes)
{
	struct mc_residency r;

	for (;;) {
		mc_file_residency(f, &r);
		if (r.nvme >= bytes)
			return;
		usleep(1000);
	}
}

static inline struct mc_store_stats stats(struct place *p)
{
	struct mc_store_stats st;

	mc_store_stats(p->store, &st);
	return st;
}

static inline struct pattern make_pattern(const struct place *p, const char *name, uint64_t size)
{
	struct pattern pat = {
		.dir = p->remote_dir, .name = name, .size = size, .bad_block = UINT64_MAX};

	pattern_write(&pat);
	return pat;
}
