/* Puts into a DRAM tier that has no memory left, or is interrupted taking it: each is whole, or
 * refused. */
#include "tests/kv-fixture.h"
#include "tests/suite.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/vfs.h>
#include <unistd.h>

#define MIB (1u << 20)
/* As many sizes of small objects, each of which takes memory of its own. */
#define SIZES 19
#define CAPACITY (8 * MIB) /* fewer pieces than sizes */

static uint32_t size_of(unsigned i)
{
	return 100u + i * i * 180u;
}

/* Calls until one is interrupted, as by a signal; none is from 0 on. */
static _Atomic int interrupt_at;

int __real_fallocate64(int fd, int mode, off_t off, off_t len);
int __wrap_fallocate64(int fd, int mode, off_t off, off_t len);

int __wrap_fallocate64(int fd, int mode, off_t off, off_t len)
{
	if (atomic_fetch_sub(&interrupt_at, 1) == 1) {
		errno = EINTR;
		return -1;
	}
	return __real_fallocate64(fd, mode, off, len);
}

static void expect_all(struct mc_kv *kv)
{
	for (unsigned i = 0; i < SIZES; i++) {
		struct mc_kv_attr attr;
		char key[16];

		snprintf(key, sizeof(key), "k%u", i);
		ck_assert_int_eq(kv_ask(kv, key, &attr), 0); /* it may be on the remote alone */
		kv_expect(kv, key, size_of(i), i + 1);
	}
}

/* All are begun before one is published: there is room for that. */
static void put_all(struct mc_kv *kv)
{
	struct mc_kv_writer *writers[SIZES];

	for (unsigned i = 0; i < SIZES; i++) {
		ck_assert_int_eq(mc_kv_create(kv, size_of(i), &writers[i]), 0);
		kv_fill_fd(mc_kv_writer_fd(writers[i]), size_of(i), i + 1);
	}
	for (unsigned i = 0; i < SIZES; i++) {
		struct timespec t = {.tv_sec = 1};
		char key[16];

		snprintf(key, sizeof(key), "k%u", i);
		ck_assert_int_eq(mc_kv_publish(writers[i], key, &t, 0, false, NULL), 0);
	}
}

/* The DRAM tier is a mount, whose size is about its capacity. */
static bool is_bounded(const struct kv_fixture *x)
{
	struct statfs fs;

	ck_assert_int_eq(statfs(x->dram, &fs), 0);
	return (uint64_t)fs.f_blocks * (uint64_t)fs.f_bsize <= 2 * x->opts.dram_capacity;
}

START_TEST(small_objects_of_many_sizes_are_whole_though_each_size_wants_a_piece)
{
	struct kv_fixture x;

	kv_fixture_open(&x, CAPACITY);
	put_all(x.kv);
	expect_all(x.kv);
	/* Nothing lies below: the next process finds them where they are. */
	ck_assert_int_eq(mc_kv_close(x.kv, 0), SIZES);
	kv_fixture_start(&x);
	expect_all(x.kv);
	kv_fixture_close(&x);
}
END_TEST

static void expect_whole_below(bool remote)
{
	struct kv_fixture x;

	kv_fixture_paths(&x, CAPACITY);
	if (remote)
		kv_fixture_remote(&x);
	else
		x.opts.nvme_dir = x.nvme;
	x.opts.nvme_capacity = UINT64_C(64) * MIB;
	kv_fixture_start(&x);
	put_all(x.kv);
	kv_fixture_stop(&x);
	kv_fixture_start(&x);
	expect_all(x.kv);
	kv_fixture_close(&x);
}

START_TEST(what_was_kept_in_files_for_want_of_room_goes_down_whole)
{
	expect_whole_below(false);
	expect_whole_below(true);
}
END_TEST

static void fill(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	off_t at = 0;

	ck_assert_int_ge(fd, 0);
	for (off_t step = MIB; step >= 4096; step /= 2)
		while (fallocate(fd, 0, at, step) == 0)
			at += step;
	close(fd);
}

START_TEST(a_copy_that_finds_no_memory_is_refused_and_nothing_is_published)
{
	struct timespec t = {.tv_sec = 1};
	struct mc_kv_writer *w;
	struct mc_kv_attr attr;
	struct kv_fixture x;
	char filler[128];

	kv_fixture_open(&x, 32 * MIB);
	if (!is_bounded(&x)) {
		printf("skipped: no right to mount\n");
		kv_fixture_close(&x);
		return;
	}
	snprintf(filler, sizeof(filler), "%s/filler", x.dram);
	ck_assert_int_eq(kv_put(x.kv, "k", 1000, 1, 0), 0);
	ck_assert_int_eq(mc_kv_create(x.kv, MIB, &w), 0);
	kv_fill_fd(mc_kv_writer_fd(w), MIB, 2);
	fill(filler);
	ck_assert_int_eq(mc_kv_publish(w, "k", &t, 0, true, &attr), -ENOSPC);
	kv_expect(x.kv, "k", 1000, 1);
	ck_assert_int_eq(unlink(filler), 0);
	ck_assert_int_eq(kv_put(x.kv, "k", MIB, 3, 0), 0);
	kv_expect(x.kv, "k", MIB, 3);
	kv_fixture_close(&x);
}
END_TEST

START_TEST(a_signal_ends_neither_a_put_nor_what_brings_it_up_again)
{
	static const uint32_t sizes[] = {1000, 200000};

	for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		for (int at = 1, left = 0; left <= 0; at++) {
			struct kv_fixture x;

			kv_fixture_paths(&x, 16 * MIB);
			x.opts.nvme_dir = x.nvme;
			x.opts.nvme_capacity = UINT64_C(64) * MIB;
			interrupt_at = at;
			kv_fixture_start(&x);
			ck_assert_int_eq(kv_put(x.kv, "k", sizes[i], (uint32_t)at, 0), 0);
			ck_assert_int_eq(mc_kv_sync(x.kv, "k"), 0);
			ck_assert_int_eq(mc_kv_evict(x.kv, "k"), 0);
			kv_expect(x.kv, "k", sizes[i], (uint32_t)at);
			left = interrupt_at;
			interrupt_at = 0;
			kv_fixture_close(&x);
		}
}
END_TEST

SUITE_MAIN("KV room", small_objects_of_many_sizes_are_whole_though_each_size_wants_a_piece,
	what_was_kept_in_files_for_want_of_room_goes_down_whole,
	a_copy_that_finds_no_memory_is_refused_and_nothing_is_published,
	a_signal_ends_neither_a_put_nor_what_brings_it_up_again)
