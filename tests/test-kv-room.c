/* Puts into a DRAM tier that has no memory left: each is whole, or refused. */
#include "tests/kv-fixture.h"
#include "tests/suite.h"

#include <fcntl.h>
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

static void expect_all(struct mc_kv *kv)
{
	for (unsigned i = 0; i < SIZES; i++) {
		char key[16];

		snprintf(key, sizeof(key), "k%u", i);
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

START_TEST(what_was_kept_in_files_for_want_of_room_goes_down_whole)
{
	struct kv_fixture x;

	kv_fixture_paths(&x, CAPACITY);
	x.opts.nvme_dir = x.nvme;
	x.opts.nvme_capacity = UINT64_C(64) * MIB;
	kv_fixture_start(&x);
	put_all(x.kv);
	kv_fixture_stop(&x);
	kv_fixture_start(&x);
	expect_all(x.kv);
	kv_fixture_close(&x);
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

SUITE_MAIN("KV room", small_objects_of_many_sizes_are_whole_though_each_size_wants_a_piece,
	what_was_kept_in_files_for_want_of_room_goes_down_whole,
	a_copy_that_finds_no_memory_is_refused_and_nothing_is_published)
