/* Puts into a DRAM tier that has no memory left, or is interrupted taking it: each is whole, or
 * refused. */
#include "tests/kv-fixture.h"
#include "tests/suite.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
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

static struct mc_kv_stats stats(struct mc_kv *kv)
{
	struct mc_kv_stats s;

	mc_kv_stats(kv, &s);
	return s;
}

static void open_on_nvme(struct kv_fixture *x, uint64_t capacity)
{
	kv_fixture_paths(x, capacity);
	x->opts.nvme_dir = x->nvme;
	x->opts.nvme_capacity = UINT64_C(256) * MIB;
	kv_fixture_start(x);
}

/* Objects of 1 MiB, clean. */
static void put_clean(struct mc_kv *kv, unsigned n)
{
	char key[16];

	for (unsigned i = 0; i < n; i++) {
		snprintf(key, sizeof(key), "c%u", i);
		ck_assert_int_eq(kv_put_wait(kv, key, MIB, i + 1), 0);
		ck_assert_int_eq(mc_kv_sync(kv, key), 0);
	}
}

/* The files of objects have no memory beyond their ends. How many there are. */
static unsigned expect_tight(const struct kv_fixture *x)
{
	unsigned n = 0;
	struct dirent *e;
	char path[128];
	DIR *dir;

	snprintf(path, sizeof(path), "%s/f", x->dram);
	dir = opendir(path);
	ck_assert_ptr_nonnull(dir);
	while ((e = readdir(dir)) != NULL) {
		struct stat st;

		ck_assert_int_eq(fstatat(dirfd(dir), e->d_name, &st, 0), 0);
		if (!S_ISREG(st.st_mode) || st.st_size == 0)
			continue;
		ck_assert_int_eq(st.st_blocks * 512, (st.st_size + 4095) / 4096 * 4096);
		n++;
	}
	closedir(dir);
	return n;
}

START_TEST(what_is_brought_up_into_a_file_used_before_has_no_more_memory_than_is_counted)
{
	struct kv_fixture x;

	open_on_nvme(&x, 64 * MIB);
	ck_assert_int_eq(kv_put(x.kv, "k", 200000, 1, 0), 0);
	ck_assert_int_eq(mc_kv_sync(x.kv, "k"), 0);
	ck_assert_uint_eq(expect_tight(&x), 1);
	ck_assert_int_eq(mc_kv_evict(x.kv, "k"), 0); /* its file is kept, with more memory */
	ck_assert_uint_eq(expect_tight(&x), 0);
	kv_expect(x.kv, "k", 200000, 1);
	ck_assert_uint_eq(expect_tight(&x), 1);
	kv_fixture_close(&x);
}
END_TEST

START_TEST(a_put_finds_room_where_others_have_written_more_than_their_puts_reserved)
{
	struct kv_fixture x;
	char filler[128];

	open_on_nvme(&x, 32 * MIB);
	if (!is_bounded(&x)) {
		printf("skipped: no right to mount\n");
		kv_fixture_close(&x);
		return;
	}
	put_clean(x.kv, 12);
	snprintf(filler, sizeof(filler), "%s/filler", x.dram);
	fill(filler);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(kv_put(x.kv, "new", 2 * MIB, i + 1, 0), 0);
	kv_expect(x.kv, "new", 2 * MIB, 3);
	ck_assert_uint_ge(stats(x.kv).evicted_objects, 1);
	ck_assert_int_eq(unlink(filler), 0);
	while (stats(x.kv).written_bytes > 0)
		usleep(200);
	kv_fixture_close(&x);
}
END_TEST

/* n files are begun, and so many bytes beside them become free. */
static void expect_room_beside(struct mc_kv *kv, unsigned n, uint64_t bytes)
{
	struct mc_kv_writer *w[4];

	ck_assert_uint_le(n, 4);
	for (unsigned i = 0; i < n; i++)
		ck_assert_int_eq(mc_kv_create(kv, 4096, &w[i]), 0);
	while (stats(kv).dram_used + bytes > stats(kv).dram_capacity)
		usleep(200);
	for (unsigned i = 0; i < n; i++)
		mc_kv_discard(w[i]);
}

/* What a client writes goes past the daemon, so room for it is there before. */
START_TEST(while_files_are_written_room_is_kept_for_more_than_their_puts_reserved)
{
	struct kv_fixture x;

	open_on_nvme(&x, 64 * MIB);
	put_clean(x.kv, 72);
	expect_room_beside(x.kv, 4, 4 * MIB);
	kv_fixture_close(&x);
}
END_TEST

START_TEST(after_large_puts_room_is_kept_for_as_much_again)
{
	struct kv_fixture x;

	open_on_nvme(&x, 128 * MIB);
	put_clean(x.kv, 130);
	ck_assert_int_eq(kv_put_wait(x.kv, "large", 16 * MIB, 1), 0);
	ck_assert_int_eq(mc_kv_sync(x.kv, "large"), 0);
	expect_room_beside(x.kv, 2, 32 * MIB);
	kv_fixture_close(&x);
}
END_TEST

START_TEST(what_keeps_memory_full_is_counted_by_reason)
{
	struct mc_kv_object *obj;
	struct mc_kv_writer *w;
	struct kv_fixture x;
	int fds[2];

	open_on_nvme(&x, 32 * MIB);
	put_clean(x.kv, 2);
	ck_assert_int_eq(mc_kv_create(x.kv, 3 * MIB, &w), 0);
	ck_assert_int_eq(mc_kv_pin(x.kv, "c1", true), 0);
	ck_assert_int_eq(kv_open_object(x.kv, "c0", &obj), 0);
	for (unsigned i = 0; i < 2; i++)
		ck_assert_int_eq(mc_kv_object_backing_get(obj, &fds[i]), 0);
	ck_assert_uint_ge(stats(x.kv).written_bytes, 3 * MIB);
	ck_assert_uint_eq(stats(x.kv).open_bytes, MIB);
	ck_assert_uint_eq(stats(x.kv).pinned_bytes, MIB);
	ck_assert_uint_eq(stats(x.kv).held_bytes, 0);
	mc_kv_object_backing_put(obj);
	ck_assert_uint_eq(stats(x.kv).open_bytes, MIB);
	mc_kv_object_backing_put(obj);
	ck_assert_uint_eq(stats(x.kv).open_bytes, 0);
	mc_kv_object_put(obj);
	ck_assert_int_eq(mc_kv_unlink(x.kv, "c0"), 0); /* its file is still open */
	ck_assert_uint_eq(stats(x.kv).held_bytes, MIB);
	for (unsigned i = 0; i < 2; i++)
		close(fds[i]);
	mc_kv_discard(w);
	while (stats(x.kv).held_bytes > 0 || stats(x.kv).written_bytes > 0)
		usleep(200);
	kv_fixture_close(&x);
}
END_TEST

SUITE_MAIN("KV room", small_objects_of_many_sizes_are_whole_though_each_size_wants_a_piece,
	what_was_kept_in_files_for_want_of_room_goes_down_whole,
	a_copy_that_finds_no_memory_is_refused_and_nothing_is_published,
	a_signal_ends_neither_a_put_nor_what_brings_it_up_again,
	what_is_brought_up_into_a_file_used_before_has_no_more_memory_than_is_counted,
	a_put_finds_room_where_others_have_written_more_than_their_puts_reserved,
	while_files_are_written_room_is_kept_for_more_than_their_puts_reserved,
	after_large_puts_room_is_kept_for_as_much_again,
	what_keeps_memory_full_is_counted_by_reason)
