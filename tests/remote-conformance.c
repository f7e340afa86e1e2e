/* The conformance suite of remotes; see remote-conformance.h. */
#include "tests/remote-conformance.h"

#include "tests/remote-waiter.h"
#include "tests/suite.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB (1u << 20)

static struct mc_remote *r;
static char base[64]; /* directory of the running test, relative to the root */

static void setup(void)
{
	struct mc_remote_opts opts = {.node = "node-under-test"};
	struct mc_err err = {0};

	r = kind_open(&opts);
	snprintf(base, sizeof(base), "t%d", (int)getpid());
	ck_assert_msg(mc_remote_mkdir(r, base, &err) == 0, "%s", err.text);
}

static void teardown(void)
{
	mc_remote_close(r);
	r = NULL;
}

/* "base/name", in one of a few buffers of this thread. */
static const char *at(const char *name)
{
	static __thread char bufs[4][600];
	static __thread unsigned turn;
	char *b = bufs[turn++ % 4];

	snprintf(b, sizeof(bufs[0]), "%s/%s", base, name);
	return b;
}

static uint8_t byte_at(uint64_t off)
{
	return (uint8_t)((off * UINT64_C(0x9e3779b97f4a7c15)) >> 40 ^ off >> 12);
}

static uint8_t *pattern(size_t len)
{
	uint8_t *b = NULL;

	ck_assert_int_eq(posix_memalign((void **)&b, 4096, len + 4096), 0);
	for (size_t i = 0; i < len; i++)
		b[i] = byte_at(i);
	return b;
}

static void put(const char *path, const void *buf, size_t len)
{
	struct mc_err err = {0};

	ck_assert_msg(mc_remote_put(r, path, buf, len, 0, &err) == 0, "%s", err.text);
}

static void put_pattern(const char *path, size_t len)
{
	uint8_t *b = pattern(len);

	put(path, b, len);
	free(b);
}

static int read_at(const char *path, uint64_t off, uint32_t len, void *buf)
{
	struct waiter w = {0};

	waiter_start(r, &w, path, off, len, buf);
	return waiter_wait(&w);
}

static int read_guarded(const char *path, const struct mc_guard *g, uint32_t len, void *buf)
{
	struct waiter w = {.req.guard = *g};

	waiter_start(r, &w, path, 0, len, buf);
	return waiter_wait(&w);
}

static void check_bytes(const uint8_t *b, uint64_t off, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (b[i] != byte_at(off + i))
			ck_abort_msg("byte %llu: %u, not %u", (unsigned long long)(off + i), b[i],
				byte_at(off + i));
}

START_TEST(a_read_returns_the_bytes_at_every_alignment)
{
	static const struct {
		uint64_t off;
		uint32_t len, shift; /* of the buffer from a page */
	} cases[] = {
		{0, 1, 0},
		{0, 4096, 0},
		{1, 4096, 0},
		{4096, 4096, 0},
		{4096, 4096, 1},
		{4095, 2, 3},
		{0, MIB, 0},
		{0, MIB, 8},
		{MIB, MIB, 0},
		{512, MIB - 512, 512},
		{3 * MIB - 7, 7, 0},
		{3 * MIB, 777, 0},
		{3 * MIB - 4096, 4096 + 777, 0},
		{123457, 999983, 17},
		{2 * MIB, MIB, 0},
		{3 * MIB + 776, 1, 4095},
	};
	const size_t size = 3 * MIB + 777;
	uint8_t *buf = pattern(MIB + 4096);

	put_pattern(at("f"), size);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		uint8_t *to = buf + cases[i].shift;

		memset(buf, 0xee, MIB + 4096);
		ck_assert_int_eq(read_at(at("f"), cases[i].off, cases[i].len, to), 0);
		check_bytes(to, cases[i].off, cases[i].len);
		ck_assert_uint_eq(to[cases[i].len], 0xee);
	}
	free(buf);
}
END_TEST

START_TEST(a_read_past_the_end_is_estale)
{
	uint8_t buf[64];

	put(at("f"), "0123456789", 10);
	ck_assert_int_eq(read_at(at("f"), 0, 10, buf), 0);
	ck_assert_int_eq(read_at(at("f"), 0, 11, buf), -ESTALE);
	ck_assert_int_eq(read_at(at("f"), 10, 1, buf), -ESTALE);
	ck_assert_int_eq(read_at(at("f"), UINT64_C(1) << 40, 1, buf), -ESTALE);
}
END_TEST

START_TEST(what_is_not_there_is_enoent)
{
	struct mc_remote_attr attr;
	void *buf;
	size_t len;
	uint8_t b[1];

	ck_assert_int_eq(read_at(at("no"), 0, 1, b), -ENOENT);
	ck_assert_int_eq(read_at(at("no/no"), 0, 1, b), -ENOENT);
	ck_assert_int_eq(mc_remote_stat(r, at("no"), &attr, NULL), -ENOENT);
	ck_assert_int_eq(mc_remote_get(r, at("no"), 10, &buf, &len, NULL), -ENOENT);
	ck_assert_int_eq(mc_remote_unlink(r, at("no"), NULL), -ENOENT);
	ck_assert_int_eq(mc_remote_touch(r, at("no"), NULL), -ENOENT);
	ck_assert_int_eq(mc_remote_list(r, at("no"), NULL, NULL, NULL), -ENOENT);
}
END_TEST

START_TEST(a_path_that_breaks_the_rules_is_einval_without_io)
{
	static const char *const bad[] = {
		"/abs", "a//b", "a/", "./a", "a/./b", "..", "a/..", "a/../b"};
	char name[300], deep[5000];
	struct mc_remote_stats before, after;
	struct mc_remote_attr attr;
	uint8_t b[1];

	mc_remote_stats(r, &before);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct mc_err err = {0};

		ck_assert_int_eq(mc_remote_stat(r, bad[i], &attr, &err), -EINVAL);
		ck_assert_ptr_nonnull(strstr(err.text, bad[i]));
		ck_assert_int_eq(read_at(bad[i], 0, 1, b), -EINVAL);
		ck_assert_int_eq(mc_remote_put(r, bad[i], "x", 1, 0, NULL), -EINVAL);
	}
	memset(name, 'n', sizeof(name));
	name[256] = '\0';
	ck_assert_int_eq(mc_remote_mkdir(r, name, NULL), -EINVAL);
	for (size_t i = 0; i < sizeof(deep); i++)
		deep[i] = i % 100 == 99 ? '/' : 'd';
	deep[4096] = '\0';
	ck_assert_int_eq(mc_remote_stat(r, deep, &attr, NULL), -EINVAL);
	ck_assert_int_eq(mc_remote_put(r, "", "x", 1, 0, NULL), -EINVAL);
	ck_assert_int_eq(mc_remote_unlink(r, "", NULL), -EINVAL);
	mc_remote_stats(r, &after);
	ck_assert_uint_eq(after.requests, before.requests);
	name[255] = '\0';
	ck_assert_int_eq(mc_remote_mkdir(r, at(name), NULL), 0);
	ck_assert_int_eq(mc_remote_stat(r, "", &attr, NULL), 0);
	ck_assert_int_eq(attr.type, MC_REMOTE_DIR);
}
END_TEST

START_TEST(a_read_with_a_bad_length_or_offset_is_einval)
{
	uint8_t *buf = pattern(MIB);

	put(at("f"), "x", 1);
	ck_assert_int_eq(read_at(at("f"), 0, 0, buf), -EINVAL);
	ck_assert_int_eq(read_at(at("f"), 0, MIB + 1, buf), -EINVAL);
	ck_assert_int_eq(read_at(at("f"), UINT64_MAX - 1, 4, buf), -EINVAL);
	free(buf);
}
END_TEST

START_TEST(a_put_object_comes_back_whole_at_every_size)
{
	static const size_t sizes[] = {0, 1, 4095, 4096, 4097, MIB - 1, MIB, MIB + 1, 5 * MIB + 13};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		struct mc_remote_attr attr;
		uint8_t *b = pattern(sizes[i] + 1);
		void *got;
		size_t len;

		put(at("f"), b, sizes[i]); /* aligned */
		ck_assert_int_eq(mc_remote_stat(r, at("f"), &attr, NULL), 0);
		ck_assert_int_eq(attr.type, MC_REMOTE_FILE);
		ck_assert_uint_eq(attr.size, sizes[i]);
		ck_assert_int_eq(mc_remote_get(r, at("f"), 8 * MIB, &got, &len, NULL), 0);
		ck_assert_uint_eq(len, sizes[i]);
		ck_assert_mem_eq(got, b, len);
		free(got);
		put(at("f"), b + 1, sizes[i]); /* not aligned */
		ck_assert_int_eq(mc_remote_get(r, at("f"), 8 * MIB, &got, &len, NULL), 0);
		ck_assert_uint_eq(len, sizes[i]);
		ck_assert_mem_eq(got, b + 1, len);
		free(got);
		free(b);
	}
}
END_TEST

START_TEST(get_refuses_what_is_too_large_or_no_file)
{
	void *got = NULL;
	size_t len = 99;

	put(at("f"), "0123456789", 10);
	ck_assert_int_eq(mc_remote_get(r, at("f"), 9, &got, &len, NULL), -EFBIG);
	ck_assert_int_eq(mc_remote_get(r, base, 9, &got, &len, NULL), -EISDIR);
	ck_assert_ptr_null(got);
	ck_assert_uint_eq(len, 99);
	ck_assert_int_eq(mc_remote_get(r, at("f"), 10, &got, &len, NULL), 0);
	ck_assert_uint_eq(len, 10);
	free(got);
}
END_TEST

START_TEST(put_makes_parents_and_replaces_whole)
{
	void *got;
	size_t len;

	put(at("a/b/c/f"), "first", 5);
	put(at("a/b/c/f"), "2", 1);
	ck_assert_int_eq(mc_remote_get(r, at("a/b/c/f"), 10, &got, &len, NULL), 0);
	ck_assert_uint_eq(len, 1);
	ck_assert_mem_eq(got, "2", 1);
	free(got);
	ck_assert_int_eq(mc_remote_sync(r, NULL), 0);
}
END_TEST

START_TEST(an_exclusive_put_on_an_existing_name_is_eexist_and_changes_nothing)
{
	void *got;
	size_t len;

	ck_assert_int_eq(mc_remote_put(r, at("f"), "first", 5, MC_PUT_EXCL, NULL), 0);
	ck_assert_int_eq(mc_remote_put(r, at("f"), "other", 5, MC_PUT_EXCL, NULL), -EEXIST);
	ck_assert_int_eq(mc_remote_get(r, at("f"), 10, &got, &len, NULL), 0);
	ck_assert_uint_eq(len, 5);
	ck_assert_mem_eq(got, "first", 5);
	free(got);
}
END_TEST

static int count_each(void *ctx, const char *name, const struct mc_remote_attr *attr)
{
	(void)name;
	(void)attr;
	++*(int *)ctx;
	return 0;
}

START_TEST(puts_leave_nothing_under_tmp)
{
	int n = 0;

	put(at("f"), "first", 5);
	ck_assert_int_eq(mc_remote_put(r, at("f"), "other", 5, MC_PUT_EXCL, NULL), -EEXIST);
	ck_assert_int_lt(mc_remote_put(r, base, "onto a directory", 5, 0, NULL), 0);
	ck_assert_int_lt(mc_remote_put(r, at("f/below-a-file"), "x", 1, 0, NULL), 0);
	ck_assert_int_eq(mc_remote_list(r, "tmp/node-under-test", count_each, &n, NULL), 0);
	ck_assert_int_eq(n, 0);
}
END_TEST

START_TEST(what_a_crash_left_under_tmp_goes_after_a_day)
{
	static const char *const names[] = {"0123456789abcdef-1", "0123456789abcdef-2", "a-file"};
	static const struct mc_remote_opts opts = {.node = "crashed"};
	struct timespec old[2] = {{.tv_sec = time(NULL) - 90000}, {.tv_sec = time(NULL) - 90000}};
	struct mc_remote_attr attr;
	struct mc_remote *again;

	for (int i = 0; i < 3; i++) {
		char path[100], full[200];

		snprintf(path, sizeof(path), "tmp/crashed/%s", names[i]);
		put(path, "x", 1);
		snprintf(full, sizeof(full), "%s/%s", kind_root(), path);
		if (i != 1)
			ck_assert_int_eq(utimensat(AT_FDCWD, full, old, 0), 0);
	}
	again = kind_open(&opts);
	mc_remote_close(again);
	again = kind_open(NULL);
	ck_assert_int_eq(
		mc_remote_stat(again, "tmp/crashed/0123456789abcdef-1", &attr, NULL), -ENOENT);
	ck_assert_int_eq(mc_remote_stat(again, "tmp/crashed/0123456789abcdef-2", &attr, NULL), 0);
	ck_assert_int_eq(mc_remote_stat(again, "tmp/crashed/a-file", &attr, NULL), 0);
	mc_remote_close(again);
}
END_TEST

struct put_thread {
	pthread_t t;
	char fill;
	bool excl;
	int won;
};

#define RACE_SIZE (MIB + 4096 + 5)

static void *put_main(void *arg)
{
	struct put_thread *p = arg;
	char *b = malloc(RACE_SIZE);

	if (b == NULL)
		return NULL;
	memset(b, p->fill, RACE_SIZE);
	for (int i = 0; i < 5; i++)
		if (mc_remote_put(r, at("race"), b, RACE_SIZE, p->excl ? MC_PUT_EXCL : 0, NULL) ==
			0)
			p->won++;
	free(b);
	return NULL;
}

static void race(bool excl, int want_won)
{
	struct put_thread p[4];
	int won = 0;
	void *got;
	size_t len;

	for (int i = 0; i < 4; i++) {
		p[i] = (struct put_thread){.fill = (char)('a' + i), .excl = excl};
		ck_assert_int_eq(pthread_create(&p[i].t, NULL, put_main, &p[i]), 0);
	}
	for (int tries = 0; tries < 20; tries++) {
		int res = mc_remote_get(r, at("race"), 2 * MIB, &got, &len, NULL);

		if (res == -ENOENT || res == -ESTALE)
			continue;
		ck_assert_int_eq(res, 0);
		ck_assert_uint_eq(len, RACE_SIZE);
		for (size_t i = 1; i < len; i++)
			if (((char *)got)[i] != ((char *)got)[0])
				ck_abort_msg("byte %zu is of another version", i);
		free(got);
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(p[i].t, NULL);
		won += p[i].won;
	}
	ck_assert_int_eq(won, want_won);
}

START_TEST(of_racing_exclusive_puts_one_wins)
{
	race(true, 1);
}
END_TEST

START_TEST(readers_see_whole_versions_while_puts_replace)
{
	race(false, 20);
}
END_TEST

START_TEST(a_guard_lets_only_the_described_object_through)
{
	struct mc_remote_attr attr;
	struct mc_guard g = {.set = true};
	uint8_t buf[16];

	put(at("f"), "0123456789", 10);
	ck_assert_int_eq(mc_remote_stat(r, at("f"), &attr, NULL), 0);
	g.size = attr.size;
	g.mtime_s = attr.mtime_s;
	g.mtime_ns = attr.mtime_ns;
	ck_assert_int_eq(read_guarded(at("f"), &g, 10, buf), 0);
	ck_assert_mem_eq(buf, "0123456789", 10);
	g.mtime_s--;
	ck_assert_int_eq(read_guarded(at("f"), &g, 10, buf), -ESTALE);
	g.mtime_s++;
	g.mtime_ns ^= 1;
	ck_assert_int_eq(read_guarded(at("f"), &g, 10, buf), -ESTALE);
	g.mtime_ns ^= 1;
	g.size++;
	ck_assert_int_eq(read_guarded(at("f"), &g, 10, buf), -ESTALE);
	g.size--;
	ck_assert_int_eq(read_guarded(at("f"), &g, 10, buf), 0);
	put(at("f"), "a longer one", 12);
	ck_assert_int_eq(read_guarded(at("f"), &g, 10, buf), -ESTALE);
	ck_assert_int_eq(mc_remote_stat(r, at("f"), &attr, NULL), 0);
	g.size = attr.size;
	g.mtime_s = attr.mtime_s;
	g.mtime_ns = attr.mtime_ns;
	ck_assert_int_eq(read_guarded(at("f"), &g, 12, buf), 0);
	ck_assert_mem_eq(buf, "a longer one", 12);
}
END_TEST

START_TEST(an_object_replaced_by_another_node_is_read_anew)
{
	struct mc_remote *other = kind_open(NULL);
	uint8_t buf[8];

	put(at("f"), "old", 3);
	ck_assert_int_eq(read_at(at("f"), 0, 3, buf), 0);
	ck_assert_int_eq(mc_remote_put(other, at("f"), "newer", 5, 0, NULL), 0);
	ck_assert_int_eq(read_at(at("f"), 0, 5, buf), 0);
	ck_assert_mem_eq(buf, "newer", 5);
	ck_assert_int_eq(mc_remote_unlink(other, at("f"), NULL), 0);
	ck_assert_int_eq(read_at(at("f"), 0, 5, buf), -ENOENT);
	mc_remote_close(other);
}
END_TEST

START_TEST(links_are_followed_below_the_root_and_not_out_of_it)
{
	char in[700], out[700];
	struct mc_remote_attr attr;
	uint8_t buf[8];

	put(at("blobs/b"), "data", 4);
	put(at("snap/x"), "x", 1);
	snprintf(in, sizeof(in), "%s/%s", kind_root(), at("snap/in"));
	snprintf(out, sizeof(out), "%s/%s", kind_root(), at("snap/out"));
	ck_assert_int_eq(symlink("../blobs/b", in), 0);
	ck_assert_int_eq(symlink("../../../../../../../../../../etc/passwd", out), 0);
	ck_assert_int_eq(mc_remote_stat(r, at("snap/in"), &attr, NULL), 0);
	ck_assert_int_eq(attr.type, MC_REMOTE_SYMLINK);
	ck_assert_int_eq(read_at(at("snap/in"), 0, 4, buf), 0);
	ck_assert_mem_eq(buf, "data", 4);
	ck_assert_int_eq(read_at(at("snap/out"), 0, 4, buf), -EACCES);
	snprintf(in, sizeof(in), "%s/%s", kind_root(), at("dirlink"));
	snprintf(out, sizeof(out), "%s/%s", kind_root(), at("loop"));
	ck_assert_int_eq(symlink("blobs", in), 0);
	ck_assert_int_eq(symlink("loop", out), 0);
	ck_assert_int_eq(read_at(at("dirlink/b"), 0, 4, buf), 0);
	put(at("dirlink/c"), "via", 3);
	ck_assert_int_eq(read_at(at("blobs/c"), 0, 3, buf), 0);
	ck_assert_mem_eq(buf, "via", 3);
	ck_assert_int_eq(read_at(at("loop"), 0, 1, buf), -ELOOP);
	snprintf(out, sizeof(out), "%s/%s", kind_root(), at("abs"));
	ck_assert_int_eq(symlink("/etc/passwd", out), 0);
	ck_assert_int_eq(read_at(at("abs"), 0, 1, buf), -EACCES);
}
END_TEST

#define MANY 3000

static int mark_each(void *ctx, const char *name, const struct mc_remote_attr *attr)
{
	unsigned char *seen = ctx;
	int n = -1;

	ck_assert_int_eq(sscanf(name, "entry-%d", &n), 1);
	ck_assert_int_ge(n, 0);
	ck_assert_int_lt(n, MANY);
	ck_assert_int_eq(attr->type, n % 10 == 0 ? MC_REMOTE_DIR : MC_REMOTE_FILE);
	if (attr->type == MC_REMOTE_FILE)
		ck_assert_uint_eq(attr->size, (unsigned)n % 7);
	seen[n]++;
	return 0;
}

static int stop_each(void *ctx, const char *name, const struct mc_remote_attr *attr)
{
	(void)name;
	(void)attr;
	return ++*(int *)ctx == 5 ? 77 : 0;
}

START_TEST(list_names_each_of_many_entries_once)
{
	static unsigned char seen[MANY];
	int n = 0;

	ck_assert_int_eq(mc_remote_mkdir(r, at("many"), NULL), 0);
	for (int i = 0; i < MANY; i++) {
		char path[700];

		snprintf(path, sizeof(path), "%s/%s/entry-%d", kind_root(), at("many"), i);
		if (i % 10 == 0) {
			ck_assert_int_eq(mkdir(path, 0755), 0);
		} else {
			int fd = open(path, O_CREAT | O_WRONLY | O_EXCL, 0644);

			ck_assert_int_ge(fd, 0);
			ck_assert_int_eq(ftruncate(fd, i % 7), 0);
			close(fd);
		}
	}
	ck_assert_int_eq(mc_remote_list(r, at("many"), mark_each, seen, NULL), 0);
	for (int i = 0; i < MANY; i++)
		ck_assert_msg(seen[i] == 1, "entry-%d seen %d times", i, seen[i]);
	ck_assert_int_eq(mc_remote_list(r, at("many"), stop_each, &n, NULL), 77);
	ck_assert_int_eq(n, 5);
	n = 0;
	ck_assert_int_eq(mc_remote_mkdir(r, at("empty"), NULL), 0);
	ck_assert_int_eq(mc_remote_list(r, at("empty"), count_each, &n, NULL), 0);
	ck_assert_int_eq(n, 0);
	put(at("f"), "x", 1);
	ck_assert_int_eq(mc_remote_list(r, at("f"), count_each, &n, NULL), -ENOTDIR);
}
END_TEST

START_TEST(mkdir_and_unlink_do_files_and_empty_directories)
{
	struct mc_remote_attr attr;

	ck_assert_int_eq(mc_remote_mkdir(r, at("a/b/c"), NULL), 0);
	ck_assert_int_eq(mc_remote_mkdir(r, at("a/b/c"), NULL), 0);
	put(at("a/b/f"), "x", 1);
	ck_assert_int_eq(mc_remote_mkdir(r, at("a/b/f"), NULL), -EEXIST);
	ck_assert_int_eq(mc_remote_unlink(r, at("a/b"), NULL), -ENOTEMPTY);
	ck_assert_int_eq(mc_remote_unlink(r, at("a/b/f"), NULL), 0);
	ck_assert_int_eq(mc_remote_stat(r, at("a/b/f"), &attr, NULL), -ENOENT);
	ck_assert_int_eq(mc_remote_unlink(r, at("a/b/c"), NULL), 0);
	ck_assert_int_eq(mc_remote_unlink(r, at("a/b"), NULL), 0);
	ck_assert_int_eq(mc_remote_stat(r, at("a/b"), &attr, NULL), -ENOENT);
	put(at("a/b/g"), "x", 1);
	ck_assert_int_eq(mc_remote_stat(r, at("a/b/g"), &attr, NULL), 0);
}
END_TEST

START_TEST(rename_moves_a_file_and_keeps_its_time)
{
	struct mc_remote_attr before, after;
	uint8_t buf[4];

	put(at("from/f"), "old", 3);
	put(at("to/g"), "x", 1);
	ck_assert_int_eq(mc_remote_stat(r, at("from/f"), &before, NULL), 0);
	ck_assert_int_eq(mc_remote_rename(r, at("from/f"), at("to/f"), NULL), 0);
	ck_assert_int_eq(mc_remote_stat(r, at("from/f"), &after, NULL), -ENOENT);
	ck_assert_int_eq(mc_remote_stat(r, at("to/f"), &after, NULL), 0);
	ck_assert_uint_eq(after.fileid, before.fileid);
	ck_assert_int_eq(after.mtime_s, before.mtime_s);
	ck_assert_uint_eq(after.mtime_ns, before.mtime_ns);
	ck_assert_int_eq(mc_remote_rename(r, at("to/f"), at("to/g"), NULL), 0);
	ck_assert_int_eq(read_at(at("to/g"), 0, 3, buf), 0);
	ck_assert_mem_eq(buf, "old", 3);
	ck_assert_int_eq(mc_remote_rename(r, at("from/f"), at("to/h"), NULL), -ENOENT);
	ck_assert_int_eq(mc_remote_rename(r, at("to/g"), "../g", NULL), -EINVAL);
}
END_TEST

START_TEST(touch_sets_mtime_to_now)
{
	struct mc_remote_attr before, after;
	char path[700];
	struct timespec ts[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};

	put(at("f"), "x", 1);
	snprintf(path, sizeof(path), "%s/%s", kind_root(), at("f"));
	ck_assert_int_eq(utimensat(AT_FDCWD, path, ts, 0), 0);
	ck_assert_int_eq(mc_remote_stat(r, at("f"), &before, NULL), 0);
	ck_assert_int_eq(before.mtime_s, 1000);
	ck_assert_int_eq(mc_remote_touch(r, at("f"), NULL), 0);
	ck_assert_int_eq(mc_remote_stat(r, at("f"), &after, NULL), 0);
	ck_assert_int_ge(after.mtime_s, time(NULL) - 60);
	ck_assert_uint_eq(after.fileid, before.fileid);
}
END_TEST

START_TEST(space_is_sensible)
{
	struct mc_remote_space s = {0};

	ck_assert_int_eq(mc_remote_space(r, &s, NULL), 0);
	ck_assert_uint_gt(s.total, MIB);
	ck_assert_uint_le(s.avail, s.total);
}
END_TEST

#define CROWD 200

START_TEST(two_hundred_reads_at_once_all_end_with_their_bytes)
{
	struct waiter *w = calloc(CROWD, sizeof(*w));
	uint8_t *buf = pattern((size_t)CROWD * 65536);
	const char *paths[2] = {at("a"), at("b")};
	struct mc_remote_stats st;

	put_pattern(paths[0], 4 * MIB);
	put_pattern(paths[1], 4 * MIB);
	for (int i = 0; i < CROWD; i++)
		waiter_start(r, &w[i], paths[i % 2], (uint64_t)i * 20000, 65536,
			buf + (size_t)i * 65536);
	for (int i = 0; i < CROWD; i++) {
		ck_assert_int_eq(waiter_wait(&w[i]), 0);
		check_bytes(buf + (size_t)i * 65536, (uint64_t)i * 20000, 65536);
	}
	mc_remote_stats(r, &st);
	ck_assert_uint_eq(st.in_flight, 0);
	ck_assert_uint_eq(st.bytes_read, (uint64_t)CROWD * 65536);
	ck_assert_uint_eq(st.bytes_written, 8 * MIB);
	ck_assert_uint_eq(st.errors, 0);
	ck_assert_int_eq(st.connected, true);
	free(buf);
	free(w);
}
END_TEST

START_TEST(close_ends_reads_in_flight_exactly_once)
{
	static struct waiter w[CROWD];
	uint8_t *buf = pattern((size_t)CROWD * 65536);
	const char *path = at("a");
	int ok = 0, shut = 0;

	put_pattern(path, 4 * MIB);
	for (int i = 0; i < CROWD; i++)
		waiter_start(r, &w[i], "a-path-that-lives", 0, 1, buf);
	for (int i = 0; i < CROWD; i++)
		ck_assert_int_eq(waiter_wait(&w[i]), -ENOENT);
	for (int i = 0; i < CROWD; i++)
		waiter_start(r, &w[i], path, (uint64_t)i * 20000, 65536, buf + (size_t)i * 65536);
	mc_remote_close(r);
	for (int i = 0; i < CROWD; i++) {
		ck_assert_int_eq(w[i].calls, 1);
		ck_assert_msg(w[i].res == 0 || w[i].res == -ESHUTDOWN, "%d", w[i].res);
		if (w[i].res == 0) {
			check_bytes(buf + (size_t)i * 65536, (uint64_t)i * 20000, 65536);
			ok++;
		} else {
			shut++;
		}
	}
	ck_assert_int_eq(ok + shut, CROWD);
	free(buf);
	r = kind_open(NULL);
}
END_TEST

START_TEST(reads_removes_and_puts_at_once_stay_consistent)
{
	struct put_thread p[2] = {{.fill = 'x'}, {.fill = 'y'}};
	uint8_t *buf = pattern(MIB);

	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&p[i].t, NULL, put_main, &p[i]), 0);
	for (int i = 0; i < 100; i++) {
		char path[100];
		int res;

		snprintf(path, sizeof(path), "%s/race", base);
		res = read_at(path, 5, MIB - 5, buf);
		ck_assert_msg(res == 0 || res == -ENOENT || res == -ESTALE, "%d", res);
		for (size_t k = 1; res == 0 && k < MIB - 5; k++)
			if (buf[k] != buf[0])
				ck_abort_msg("byte %zu is of another version", k);
		if (i % 20 == 7)
			mc_remote_unlink(r, path, NULL);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(p[i].t, NULL);
	free(buf);
}
END_TEST

int conformance_run(const char *name, const TTest *const *own, size_t n_own)
{
	const TTest *const tests[] = {
		a_read_returns_the_bytes_at_every_alignment,
		a_read_past_the_end_is_estale,
		what_is_not_there_is_enoent,
		a_path_that_breaks_the_rules_is_einval_without_io,
		a_read_with_a_bad_length_or_offset_is_einval,
		a_put_object_comes_back_whole_at_every_size,
		get_refuses_what_is_too_large_or_no_file,
		put_makes_parents_and_replaces_whole,
		an_exclusive_put_on_an_existing_name_is_eexist_and_changes_nothing,
		puts_leave_nothing_under_tmp,
		what_a_crash_left_under_tmp_goes_after_a_day,
		of_racing_exclusive_puts_one_wins,
		readers_see_whole_versions_while_puts_replace,
		a_guard_lets_only_the_described_object_through,
		an_object_replaced_by_another_node_is_read_anew,
		links_are_followed_below_the_root_and_not_out_of_it,
		list_names_each_of_many_entries_once,
		mkdir_and_unlink_do_files_and_empty_directories,
		rename_moves_a_file_and_keeps_its_time,
		touch_sets_mtime_to_now,
		space_is_sensible,
		two_hundred_reads_at_once_all_end_with_their_bytes,
		close_ends_reads_in_flight_exactly_once,
		reads_removes_and_puts_at_once_stay_consistent,
	};
	Suite *s = suite_create(name);
	TCase *t = tcase_create("conformance");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	for (size_t i = 0; i < sizeof(tests) / sizeof(*tests); i++)
		tcase_add_test(t, tests[i]);
	suite_add_tcase(s, t);
	t = tcase_create("own");
	tcase_set_timeout(t, 60);
	for (size_t i = 0; i < n_own; i++)
		tcase_add_test(t, own[i]);
	suite_add_tcase(s, t);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
