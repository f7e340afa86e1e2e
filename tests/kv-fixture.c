/* A KV store over temporary directories: see kv-fixture.h. */
#include "tests/kv-fixture.h"

#include "tier/future.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

static void fill(char *buf, size_t len, uint64_t off, uint32_t seed)
{
	for (size_t i = 0; i < len; i++) {
		uint64_t v = (off + i) / 8 * UINT64_C(0x9e3779b97f4a7c15) +
			seed * UINT64_C(0xd1342543de82ef95) + 1;

		v ^= v >> 31;
		buf[i] = (char)(v >> (off + i) % 8 * 8);
	}
}

void kv_fixture_paths(struct kv_fixture *x, uint64_t dram_capacity)
{
	memset(x, 0, sizeof(*x));
	snprintf(x->root, sizeof(x->root), "/dev/shm/mc-kv-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(x->root));
	snprintf(x->dram, sizeof(x->dram), "%s/dram", x->root);
	snprintf(x->nvme, sizeof(x->nvme), "%s/nvme", x->root);
	snprintf(x->remote_dir, sizeof(x->remote_dir), "%s/remote", x->root);
	x->opts = (struct mc_kv_opts){
		.dram_dir = x->dram, .dram_capacity = dram_capacity, .node = "00c0ffee"};
}

void kv_fixture_remote(struct kv_fixture *x)
{
	char url[128];

	if (mkdir(x->remote_dir, 0700) != 0)
		ck_assert_int_eq(errno, EEXIST);
	snprintf(url, sizeof(url), "dir:%s", x->remote_dir);
	ck_assert_int_eq(mc_remote_open(url, NULL, &x->remote, NULL), 0);
	x->opts.remote = x->remote;
}

void kv_fixture_start(struct kv_fixture *x)
{
	struct mc_err err = {0};
	int r = mc_kv_open(&x->opts, &x->kv, &err);

	ck_assert_msg(r == 0, "%s", err.text);
}

void kv_fixture_open(struct kv_fixture *x, uint64_t dram_capacity)
{
	kv_fixture_paths(x, dram_capacity);
	kv_fixture_start(x);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

void kv_fixture_forget_dram(struct kv_fixture *x)
{
	umount2(x->dram, UMOUNT_NOFOLLOW);
	nftw(x->dram, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

void kv_fixture_faulty(struct kv_fixture *x, struct mc_fault **ret)
{
	kv_fixture_paths(x, UINT64_C(128) << 20);
	x->opts.nvme_dir = x->nvme;
	x->opts.nvme_capacity = UINT64_C(512) << 20;
	kv_fixture_remote(x);
	ck_assert_int_eq(mc_remote_fault_open(x->remote, ret, &x->remote), 0);
	x->opts.remote = x->remote;
	kv_fixture_start(x);
}

void kv_fixture_stop(struct kv_fixture *x)
{
	ck_assert_int_eq(mc_kv_close(x->kv, 20000), 0);
	x->kv = NULL;
	kv_fixture_forget_dram(x);
}

void kv_put_on_remote(struct mc_kv *kv, const char *key, size_t size, uint32_t seed)
{
	const char *why;

	ck_assert_int_eq(kv_put(kv, key, size, seed, 0), 0);
	ck_assert_int_eq(mc_kv_sync(kv, key), 0);
	ck_assert_int_eq(mc_kv_evict_from(kv, key, MC_TIER_NVME, &why), 0);
}

void kv_fixture_close(struct kv_fixture *x)
{
	if (x->kv != NULL)
		mc_kv_close(x->kv, 0);
	x->kv = NULL;
	mc_remote_close(x->remote);
	x->remote = NULL;
	umount2(x->dram, UMOUNT_NOFOLLOW);
	nftw(x->root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

void kv_fill_fd(int fd, size_t size, uint32_t seed)
{
	char *buf = malloc(size + 1);

	ck_assert_ptr_nonnull(buf);
	fill(buf, size, 0, seed);
	ck_assert_int_eq(pwrite(fd, buf, size, 0), (ssize_t)size);
	free(buf);
}

int kv_put(struct mc_kv *kv, const char *key, size_t size, uint32_t seed, unsigned flags)
{
	struct timespec t = {.tv_sec = 1000 + seed, .tv_nsec = 5};
	struct mc_kv_writer *w;
	struct mc_kv_attr attr;
	int r = mc_kv_create(kv, size, &w);

	if (r < 0)
		return r;
	kv_fill_fd(mc_kv_writer_fd(w), size, seed);
	r = mc_kv_publish(w, key, &t, flags, false, &attr);
	if (r == 0) {
		ck_assert_uint_eq(attr.size, size);
		ck_assert_int_eq(attr.mtime_s, t.tv_sec);
		ck_assert_uint_eq(attr.mtime_ns, 5);
	}
	return r;
}

static void room(void *ctx, int res)
{
	mc_future_set(ctx, res);
}

int kv_put_wait(struct mc_kv *kv, const char *key, size_t size, uint32_t seed)
{
	int r;

	while ((r = kv_put(kv, key, size, seed, 0)) == -EAGAIN) {
		struct mc_future over;

		mc_future_init(&over);
		mc_kv_wait_room(kv, room, &over);
		r = (int)mc_future_wait(&over);
		if (r < 0)
			return r;
	}
	return r;
}

struct told {
	struct mc_future over;
	struct mc_kv_attr attr;
};

static void told(void *ctx, int res, const struct mc_kv_attr *attr)
{
	struct told *t = ctx;

	if (res == 0)
		t->attr = *attr;
	mc_future_set(&t->over, res);
}

int kv_ask(struct mc_kv *kv, const char *key, struct mc_kv_attr *ret)
{
	struct told t;
	int r;

	mc_future_init(&t.over);
	mc_kv_ask(kv, key, told, &t);
	r = (int)mc_future_wait(&t.over);
	if (r == 0)
		*ret = t.attr;
	return r;
}

struct gotten {
	struct mc_future over;
	struct mc_kv_object *obj;
};

static void got(void *ctx, int res, struct mc_kv_object *obj)
{
	struct gotten *g = ctx;

	g->obj = obj;
	mc_future_set(&g->over, res);
}

int kv_open_object(struct mc_kv *kv, const char *key, struct mc_kv_object **ret)
{
	struct gotten g;
	int r;

	mc_future_init(&g.over);
	mc_kv_get(kv, key, got, &g);
	r = (int)mc_future_wait(&g.over);
	*ret = g.obj;
	return r;
}

static void read_done(struct mc_kv_read *r, int res)
{
	mc_future_set(r->ctx, res);
}

int kv_read_range(struct mc_kv_object *obj, uint64_t off, uint32_t len)
{
	struct mc_future over;
	struct mc_kv_read req = {
		.obj = obj, .off = off, .len = len, .done = read_done, .ctx = &over};
	int r;

	mc_future_init(&over);
	mc_kv_read(&req);
	r = (int)mc_future_wait(&over);
	if (r == 0)
		mc_kv_read_end(&req);
	return r;
}

int kv_check_object(struct mc_kv_object *obj, size_t size, uint32_t seed, bool *ret_same)
{
	char *want = malloc(1 << 20);
	int r = 0;

	*ret_same = true;
	for (size_t off = 0; off < size && r == 0;) {
		/* Odd lengths on purpose: ranges that straddle blocks. */
		size_t n = size - off < 700001 ? size - off : 700001, at = 0;
		struct mc_future over;
		struct mc_kv_read req = {.obj = obj,
			.off = off,
			.len = (uint32_t)n,
			.done = read_done,
			.ctx = &over};

		mc_future_init(&over);
		mc_kv_read(&req);
		r = (int)mc_future_wait(&over);
		if (r < 0)
			break;
		fill(want, n, off, seed);
		for (unsigned i = 0; i < req.n_iov; i++) {
			if (memcmp(req.iov[i].iov_base, want + at, req.iov[i].iov_len) != 0)
				*ret_same = false;
			at += req.iov[i].iov_len;
		}
		ck_assert_uint_eq(at, n);
		mc_kv_read_end(&req);
		off += n;
	}
	free(want);
	return r;
}

void kv_expect_object(struct mc_kv_object *obj, size_t size, uint32_t seed)
{
	struct mc_kv_attr attr;
	bool same;

	mc_kv_object_attr(obj, &attr);
	ck_assert_uint_eq(attr.size, size);
	ck_assert_int_eq(kv_check_object(obj, size, seed, &same), 0);
	ck_assert_int_eq(same, true);
}

void kv_expect(struct mc_kv *kv, const char *key, size_t size, uint32_t seed)
{
	struct mc_kv_object *obj;
	int r = kv_open_object(kv, key, &obj);

	ck_assert_msg(r == 0, "%s: %d", key, r);
	kv_expect_object(obj, size, seed);
	mc_kv_object_put(obj);
}
