/* Conformance of remotes: objects are put whole, or not at all. */
#include "tests/remote-conformance-impl.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

START_TEST(a_put_object_comes_back_whole_at_every_size)
{
	static const size_t sizes[] = {0, 1, 4095, 4096, 4097, MIB - 1, MIB, MIB + 1, 5 * MIB + 13};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		struct mc_remote_attr attr;
		uint8_t *b = pattern(sizes[i] + 1);
		void *got;
		size_t len;

		put(at("f"), b, sizes[i]); /* aligned */
		ck_assert_int_eq(mc_remote_stat(remote, at("f"), &attr, NULL), 0);
		ck_assert_int_eq(attr.type, MC_REMOTE_FILE);
		ck_assert_uint_eq(attr.size, sizes[i]);
		ck_assert_int_eq(mc_remote_get(remote, at("f"), 8 * MIB, &got, &len, NULL), 0);
		ck_assert_uint_eq(len, sizes[i]);
		ck_assert_mem_eq(got, b, len);
		free(got);
		put(at("f"), b + 1, sizes[i]); /* not aligned */
		ck_assert_int_eq(mc_remote_get(remote, at("f"), 8 * MIB, &got, &len, NULL), 0);
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
	ck_assert_int_eq(mc_remote_get(remote, at("f"), 9, &got, &len, NULL), -EFBIG);
	ck_assert_int_eq(mc_remote_get(remote, base, 9, &got, &len, NULL), -EISDIR);
	ck_assert_ptr_null(got);
	ck_assert_uint_eq(len, 99);
	ck_assert_int_eq(mc_remote_get(remote, at("f"), 10, &got, &len, NULL), 0);
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
	ck_assert_int_eq(mc_remote_get(remote, at("a/b/c/f"), 10, &got, &len, NULL), 0);
	ck_assert_uint_eq(len, 1);
	ck_assert_mem_eq(got, "2", 1);
	free(got);
	ck_assert_int_eq(mc_remote_sync(remote, NULL), 0);
}
END_TEST

START_TEST(an_exclusive_put_on_an_existing_name_is_eexist_and_changes_nothing)
{
	void *got;
	size_t len;

	ck_assert_int_eq(mc_remote_put(remote, at("f"), "first", 5, MC_PUT_EXCL, NULL), 0);
	ck_assert_int_eq(mc_remote_put(remote, at("f"), "other", 5, MC_PUT_EXCL, NULL), -EEXIST);
	ck_assert_int_eq(mc_remote_get(remote, at("f"), 10, &got, &len, NULL), 0);
	ck_assert_uint_eq(len, 5);
	ck_assert_mem_eq(got, "first", 5);
	free(got);
}
END_TEST

START_TEST(puts_leave_nothing_under_tmp)
{
	int n = 0;

	put(at("f"), "first", 5);
	ck_assert_int_eq(mc_remote_put(remote, at("f"), "other", 5, MC_PUT_EXCL, NULL), -EEXIST);
	ck_assert_int_lt(mc_remote_put(remote, base, "onto a directory", 5, 0, NULL), 0);
	ck_assert_int_lt(mc_remote_put(remote, at("f/below-a-file"), "x", 1, 0, NULL), 0);
	ck_assert_int_eq(mc_remote_list(remote, "tmp/node-under-test", count_each, &n, NULL), 0);
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
		if (mc_remote_put(
			    remote, at("race"), b, RACE_SIZE, p->excl ? MC_PUT_EXCL : 0, NULL) == 0)
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
		int res = mc_remote_get(remote, at("race"), 2 * MIB, &got, &len, NULL);

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
			mc_remote_unlink(remote, path, NULL);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(p[i].t, NULL);
	free(buf);
}
END_TEST

void conformance_puts(TCase *t)
{
	const TTest *const tests[] = {
		a_put_object_comes_back_whole_at_every_size,
		get_refuses_what_is_too_large_or_no_file,
		put_makes_parents_and_replaces_whole,
		an_exclusive_put_on_an_existing_name_is_eexist_and_changes_nothing,
		puts_leave_nothing_under_tmp,
		what_a_crash_left_under_tmp_goes_after_a_day,
		of_racing_exclusive_puts_one_wins,
		readers_see_whole_versions_while_puts_replace,
		reads_removes_and_puts_at_once_stay_consistent,
	};

	conformance_add(t, tests, sizeof(tests) / sizeof(*tests));
}
