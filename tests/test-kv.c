/* The KV store in DRAM: put, get, list, rename, remove, bounds, adoption. */
#include "tests/kv-fixture.h"
#include "tests/suite.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

START_TEST(what_is_put_is_what_is_got)
{
	static const size_t sizes[] = {
		0, 1, 100, 4096, 65535, 65536, 65537, 1 << 20, (1 << 20) + 1, 3 << 20};
	struct kv_fixture x;

	kv_fixture_open(&x, 64 << 20);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		char key[32];

		snprintf(key, sizeof(key), "k%zu", i);
		ck_assert_int_eq(kv_put(x.kv, key, sizes[i], (uint32_t)i, 0), 0);
		kv_expect(x.kv, key, sizes[i], (uint32_t)i);
	}
	kv_fixture_close(&x);
}
END_TEST

START_TEST(a_replaced_object_stays_whole_for_its_readers)
{
	struct kv_fixture x;
	struct mc_kv_object *old;

	kv_fixture_open(&x, 64 << 20);
	for (size_t size = 1000; size < 1 << 20; size *= 900) {
		ck_assert_int_eq(kv_put(x.kv, "a", size, 1, 0), 0);
		ck_assert_int_eq(kv_open_object(x.kv, "a", &old), 0);
		ck_assert_int_eq(kv_put(x.kv, "a", size, 2, 0), 0);
		kv_expect(x.kv, "a", size, 2);
		kv_expect_object(old, size, 1);
		ck_assert_int_eq(mc_kv_unlink(x.kv, "a"), 0);
		kv_expect_object(old, size, 1);
		mc_kv_object_put(old);
		ck_assert_int_eq(kv_open_object(x.kv, "a", &old), -ENOENT);
	}
	kv_fixture_close(&x);
}
END_TEST

START_TEST(names_follow_the_rules_of_files)
{
	struct kv_fixture x;
	struct mc_kv_attr attr;

	kv_fixture_open(&x, 64 << 20);
	ck_assert_int_eq(kv_put(x.kv, "d/a", 10, 1, 0), -ENOENT);
	ck_assert_int_eq(mc_kv_mkdir(x.kv, "d"), 0);
	ck_assert_int_eq(mc_kv_mkdir(x.kv, "d"), -EEXIST);
	ck_assert_int_eq(kv_put(x.kv, "d/a", 10, 1, 0), 0);
	ck_assert_int_eq(kv_put(x.kv, "d", 10, 1, 0), -EISDIR);
	ck_assert_int_eq(kv_put(x.kv, "d/a", 11, 2, MC_KV_NOREPLACE), -EEXIST);
	ck_assert_int_eq(mc_kv_mkdir(x.kv, "d/a"), -EEXIST);
	ck_assert_int_eq(mc_kv_rmdir(x.kv, "d"), -ENOTEMPTY);
	ck_assert_int_eq(mc_kv_rmdir(x.kv, "d/a"), -ENOTDIR);
	ck_assert_int_eq(mc_kv_unlink(x.kv, "d"), -EISDIR);
	ck_assert_int_eq(mc_kv_rename(x.kv, "d", "e", 0), -EXDEV);
	ck_assert_int_eq(mc_kv_rename(x.kv, "d/a", "b", 0), 0);
	kv_expect(x.kv, "b", 10, 1);
	ck_assert_int_eq(mc_kv_lookup(x.kv, "d/a", &attr), -ENOENT);
	ck_assert_int_eq(mc_kv_rmdir(x.kv, "d"), 0);
	ck_assert_int_eq(mc_kv_lookup(x.kv, "d", &attr), -ENOENT);
	ck_assert_int_eq(kv_put(x.kv, "c", 20, 3, 0), 0);
	ck_assert_int_eq(mc_kv_rename(x.kv, "b", "c", MC_KV_NOREPLACE), -EEXIST);
	ck_assert_int_eq(mc_kv_rename(x.kv, "b", "c", 0), 0);
	kv_expect(x.kv, "c", 10, 1);
	ck_assert_int_eq(mc_kv_rename(x.kv, "c", "c", 0), 0);
	ck_assert_int_eq(mc_kv_rename(x.kv, "b", "c", 0), -ENOENT);
	ck_assert_int_eq(kv_put(x.kv, "../x", 1, 1, 0), -EINVAL);
	ck_assert_int_eq(kv_put(x.kv, "a//b", 1, 1, 0), -EINVAL);
	kv_fixture_close(&x);
}
END_TEST

START_TEST(a_handle_survives_the_rename_of_its_object)
{
	struct kv_fixture x;
	struct mc_kv_object *obj;
	struct mc_kv_attr before, after;
	int fd;

	kv_fixture_open(&x, 64 << 20);
	ck_assert_int_eq(kv_put(x.kv, "a", 3 << 20, 7, 0), 0);
	ck_assert_int_eq(kv_open_object(x.kv, "a", &obj), 0);
	mc_kv_object_attr(obj, &before);
	ck_assert_int_eq(mc_kv_object_backing_get(obj, &fd), 0);
	ck_assert_int_eq(mc_kv_rename(x.kv, "a", "b", 0), 0);
	kv_expect_object(obj, 3 << 20, 7);
	mc_kv_object_attr(obj, &after);
	ck_assert_mem_eq(before.version, after.version, 16);
	ck_assert_uint_eq(before.ino, after.ino);
	close(fd);
	mc_kv_object_backing_put(obj);
	mc_kv_object_put(obj);
	kv_expect(x.kv, "b", 3 << 20, 7);
	kv_fixture_close(&x);
}
END_TEST

struct listing {
	unsigned n, stop;
	char last[300];
};

static int count(void *ctx, const char *name, const struct mc_kv_attr *attr, uint64_t next)
{
	struct listing *l = ctx;

	if (l->n == l->stop)
		return 1;
	l->n++;
	snprintf(l->last, sizeof(l->last), "%s", name);
	return 0;
}

START_TEST(a_listing_goes_on_where_it_stopped_while_entries_come_and_go)
{
	struct kv_fixture x;
	struct listing l = {.stop = 500};
	uint64_t cursor = 0;
	char key[32];

	kv_fixture_open(&x, 64 << 20);
	for (unsigned i = 0; i < 1000; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		ck_assert_int_eq(kv_put(x.kv, key, 8, i, 0), 0);
	}
	ck_assert_int_eq(mc_kv_list(x.kv, "", &cursor, count, &l), 0);
	ck_assert_str_eq(l.last, "k499");
	for (unsigned i = 0; i < 900; i++) { /* so many that the table is made smaller */
		snprintf(key, sizeof(key), "k%u", i);
		ck_assert_int_eq(mc_kv_unlink(x.kv, key), 0);
	}
	l.stop = UINT_MAX;
	ck_assert_int_eq(mc_kv_list(x.kv, "", &cursor, count, &l), 0);
	ck_assert_uint_eq(l.n, 600);
	ck_assert_str_eq(l.last, "k999");
	cursor = 0;
	ck_assert_int_eq(mc_kv_list(x.kv, "k950", &cursor, count, &l), -ENOTDIR);
	ck_assert_int_eq(mc_kv_list(x.kv, "zz", &cursor, count, &l), -ENOENT);
	kv_fixture_close(&x);
}
END_TEST

static void note_room(void *ctx, int res)
{
	__atomic_store_n((int *)ctx, res, __ATOMIC_RELEASE);
}

START_TEST(writers_wait_below_the_dirty_bound_until_something_goes)
{
	struct kv_fixture x;
	struct mc_kv_writer *w[64];
	unsigned n = 0;
	int room = 1, r;

	kv_fixture_open(&x, 32 << 20);
	while ((r = mc_kv_create(x.kv, 1 << 20, &w[n])) == 0)
		n++;
	ck_assert_int_eq(r, -EAGAIN);
	ck_assert_uint_eq(n, 16);
	mc_kv_wait_room(x.kv, note_room, &room);
	mc_kv_discard(w[--n]);
	while (__atomic_load_n(&room, __ATOMIC_ACQUIRE) == 1)
		usleep(200);
	ck_assert_int_eq(room, 0);
	ck_assert_int_eq(mc_kv_create(x.kv, 1 << 20, &w[n]), 0);
	n++;
	while (n > 0)
		mc_kv_discard(w[--n]);
	kv_fixture_close(&x);
}
END_TEST

START_TEST(a_killed_daemon_leaves_its_objects_to_the_next)
{
	struct kv_fixture x;
	struct mc_kv_attr attr;
	int status;
	pid_t pid;

	kv_fixture_paths(&x, 64 << 20);
	pid = fork();
	if (pid == 0) {
		kv_fixture_start(&x);
		mc_kv_mkdir(x.kv, "d");
		kv_put(x.kv, "small", 1000, 1, 0);
		kv_put(x.kv, "d/large", 3 << 20, 2, 0);
		kv_put(x.kv, "replaced", 1000, 3, 0);
		kv_put(x.kv, "replaced", 2000, 4, 0);
		kv_put(x.kv, "gone", 70000, 5, 0);
		mc_kv_unlink(x.kv, "gone");
		kv_put(x.kv, "tmp", 80000, 6, 0);
		mc_kv_rename(x.kv, "tmp", "final", 0);
		kill(getpid(), SIGKILL);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	kv_fixture_start(&x);
	kv_expect(x.kv, "small", 1000, 1);
	kv_expect(x.kv, "d/large", 3 << 20, 2);
	kv_expect(x.kv, "replaced", 2000, 4);
	kv_expect(x.kv, "final", 80000, 6);
	ck_assert_int_eq(mc_kv_lookup(x.kv, "gone", &attr), -ENOENT);
	ck_assert_int_eq(mc_kv_lookup(x.kv, "tmp", &attr), -ENOENT);
	ck_assert_int_eq(kv_put(x.kv, "new", 100000, 7, 0), 0);
	kv_expect(x.kv, "new", 100000, 7);
	kv_fixture_close(&x);
}
END_TEST

START_TEST(a_copy_is_sealed_while_a_mapping_still_writes)
{
	struct kv_fixture x;
	struct mc_kv_writer *w;
	struct timespec t = {.tv_sec = 5};
	struct mc_kv_attr attr;
	char *map, path[64];
	int fd;

	kv_fixture_open(&x, 64 << 20);
	ck_assert_int_eq(mc_kv_create(x.kv, 0, &w), 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", mc_kv_writer_fd(w));
	fd = open(path, O_RDWR); /* as the kernel has it: not a duplicate of ours */
	kv_fill_fd(fd, 100000, 1);
	map = mmap(NULL, 100000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_int_eq(mc_kv_publish(w, "a", &t, 0, true, &attr), 0);
	ck_assert_int_eq(attr.mtime_s, 5);
	memset(map, 0xee, 100000);
	kv_expect(x.kv, "a", 100000, 1);
	munmap(map, 100000);
	close(fd);
	kv_fixture_close(&x);
}
END_TEST

START_TEST(index_memory_is_within_128_bytes_an_object)
{
	struct kv_fixture x;
	struct mc_kv_stats s;
	uint64_t keys = 0;
	char key[64];
	unsigned n = 50000;

	kv_fixture_open(&x, 512 << 20);
	for (unsigned i = 0; i < n; i++) {
		keys += (uint64_t)snprintf(key, sizeof(key), "Qwen3-8B@tp_rank:0@%020u", i);
		ck_assert_int_eq(kv_put(x.kv, key, 1, i, 0), 0);
	}
	mc_kv_stats(x.kv, &s);
	ck_assert_uint_eq(s.objects, n);
	printf("index: %.1f bytes an object beside its key\n", (double)(s.index_bytes - keys) / n);
	ck_assert_uint_le(s.index_bytes - keys, 128ull * n);
	kv_fixture_close(&x);
}
END_TEST

SUITE_MAIN("kv", what_is_put_is_what_is_got, a_replaced_object_stays_whole_for_its_readers,
	names_follow_the_rules_of_files, a_handle_survives_the_rename_of_its_object,
	a_listing_goes_on_where_it_stopped_while_entries_come_and_go,
	writers_wait_below_the_dirty_bound_until_something_goes,
	a_killed_daemon_leaves_its_objects_to_the_next,
	a_copy_is_sealed_while_a_mapping_still_writes, index_memory_is_within_128_bytes_an_object)
