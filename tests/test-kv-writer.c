/* Writing a put through the store: room is made for it, and memory is never filled to the last
 * page. */
#include "tests/kv-fixture.h"
#include "tests/suite.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define CAPACITY (64 * MIB)
#define PIECE 131072u

static struct mc_kv_stats stats(struct mc_kv *kv)
{
	struct mc_kv_stats s;

	mc_kv_stats(kv, &s);
	return s;
}

/* A store with NVMe, whose DRAM is full of what NVMe has, too. */
static void start_full(struct kv_fixture *x)
{
	char key[16];

	kv_fixture_paths(x, CAPACITY);
	x->opts.nvme_dir = x->nvme;
	x->opts.nvme_capacity = 1024 * MIB;
	kv_fixture_start(x);
	for (unsigned i = 0; i < 20; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		ck_assert_int_eq(kv_put_wait(x->kv, key, 4 * MIB, i), 0);
		ck_assert_int_eq(mc_kv_sync(x->kv, key), 0);
	}
	ck_assert_uint_ge(stats(x->kv).dram_used, CAPACITY / 2);
}

/* Zeros to off … end, in requests. 0 or -errno of the first that failed. */
static int write_zeros(struct mc_kv_writer *w, uint64_t off, uint64_t end)
{
	static const char zeros[PIECE];
	int r = 0;

	for (uint64_t at = off; at < end && r == 0; at += PIECE) {
		size_t done = mc_kv_writer_write(w, zeros, PIECE, at, &r);

		ck_assert_uint_eq(done, r == 0 ? PIECE : 0);
	}
	return r;
}

START_TEST(what_is_written_finds_room_as_long_as_something_may_leave)
{
	const struct timespec mtime = {.tv_sec = 1};
	struct mc_kv_writer *w;
	struct mc_kv_attr attr;
	struct kv_fixture x;
	uint64_t count;

	start_full(&x);
	ck_assert_int_eq(mc_kv_create(x.kv, 0, &w), 0);
	count = mc_kv_full_count(x.kv);
	ck_assert_int_eq(write_zeros(w, 0, 48 * MIB), 0);
	ck_assert_uint_le(stats(x.kv).dram_used, CAPACITY);
	if (mc_kv_is_watched(x.kv))
		ck_assert_uint_eq(mc_kv_full_count(x.kv), count);
	ck_assert_int_eq(mc_kv_publish(w, "large", &mtime, 0, false, &attr), 0);
	ck_assert_uint_eq(attr.size, 48 * MIB);
	kv_expect(x.kv, "k3", 4 * MIB, 3);
	kv_fixture_close(&x);
}
END_TEST

START_TEST(past_what_may_leave_a_write_is_enospc_and_the_last_page_stays)
{
	struct mc_kv_writer *w, *sparse;
	struct kv_fixture x;
	struct statfs fs;
	uint64_t count;

	kv_fixture_open(&x, CAPACITY);
	ck_assert_int_eq(mc_kv_create(x.kv, 0, &sparse), 0);
	ck_assert_int_eq(write_zeros(sparse, 500 * MIB, 504 * MIB), 0); /* behind a hole */
	ck_assert_int_eq(mc_kv_create(x.kv, 0, &w), 0);
	count = mc_kv_full_count(x.kv);
	ck_assert_int_eq(write_zeros(w, 0, 2 * CAPACITY), -ENOSPC);
	ck_assert_int_eq(write_zeros(w, 0, CAPACITY / 2), 0); /* what is there is written again */
	ck_assert_int_eq(write_zeros(sparse, 504 * MIB, 2 * CAPACITY + 504 * MIB), -ENOSPC);
	if (mc_kv_is_watched(x.kv)) {
		ck_assert_uint_eq(mc_kv_full_count(x.kv), count);
		ck_assert_int_eq(statfs(x.dram, &fs), 0);
		ck_assert_uint_ge((uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize, 2 * MIB);
	}
	ck_assert_int_eq(mc_kv_writer_truncate(w, 0), 0);
	mc_kv_discard(w);
	mc_kv_discard(sparse);
	ck_assert_int_eq(kv_put(x.kv, "after", 4 * MIB, 1, 0), 0);
	kv_expect(x.kv, "after", 4 * MIB, 1);
	kv_fixture_close(&x);
}
END_TEST

struct part {
	struct mc_kv_writer *w;
	uint64_t off;
	int res;
};

static void *write_part(void *arg)
{
	struct part *p = arg;

	p->res = write_zeros(p->w, p->off, p->off + 6 * MIB);
	return NULL;
}

START_TEST(several_write_one_file_beside_each_other)
{
	const struct timespec mtime = {.tv_sec = 1};
	struct mc_kv_writer *w;
	struct mc_kv_attr attr;
	struct kv_fixture x;
	struct part parts[4];
	pthread_t threads[4];

	start_full(&x);
	ck_assert_int_eq(mc_kv_create(x.kv, 0, &w), 0);
	for (unsigned i = 0; i < 4; i++) {
		parts[i] = (struct part){.w = w, .off = i * 6 * MIB};
		ck_assert_int_eq(pthread_create(&threads[i], NULL, write_part, &parts[i]), 0);
	}
	for (unsigned i = 0; i < 4; i++) {
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
		ck_assert_int_eq(parts[i].res, 0);
	}
	ck_assert_int_eq(mc_kv_publish(w, "parts", &mtime, 0, false, &attr), 0);
	ck_assert_uint_eq(attr.size, 24 * MIB);
	kv_fixture_close(&x);
}
END_TEST

SUITE_MAIN("kv-writer", what_is_written_finds_room_as_long_as_something_may_leave,
	past_what_may_leave_a_write_is_enospc_and_the_last_page_stays,
	several_write_one_file_beside_each_other)
