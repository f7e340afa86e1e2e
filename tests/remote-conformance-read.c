/* Conformance of remotes: reading, and what refuses to be read. */
#include "tests/remote-conformance-impl.h"

#include "tests/remote-waiter.h"

#include <errno.h>
#include <string.h>

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
	ck_assert_int_eq(mc_remote_stat(remote, at("no"), &attr, NULL), -ENOENT);
	ck_assert_int_eq(mc_remote_get(remote, at("no"), 10, &buf, &len, NULL), -ENOENT);
	ck_assert_int_eq(mc_remote_unlink(remote, at("no"), NULL), -ENOENT);
	ck_assert_int_eq(mc_remote_touch(remote, at("no"), NULL), -ENOENT);
	ck_assert_int_eq(mc_remote_list(remote, at("no"), NULL, NULL, NULL), -ENOENT);
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

	mc_remote_stats(remote, &before);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct mc_err err = {0};

		ck_assert_int_eq(mc_remote_stat(remote, bad[i], &attr, &err), -EINVAL);
		ck_assert_ptr_nonnull(strstr(err.text, bad[i]));
		ck_assert_int_eq(read_at(bad[i], 0, 1, b), -EINVAL);
		ck_assert_int_eq(mc_remote_put(remote, bad[i], "x", 1, 0, NULL), -EINVAL);
	}
	memset(name, 'n', sizeof(name));
	name[256] = '\0';
	ck_assert_int_eq(mc_remote_mkdir(remote, name, NULL), -EINVAL);
	for (size_t i = 0; i < sizeof(deep); i++)
		deep[i] = i % 100 == 99 ? '/' : 'd';
	deep[4096] = '\0';
	ck_assert_int_eq(mc_remote_stat(remote, deep, &attr, NULL), -EINVAL);
	ck_assert_int_eq(mc_remote_put(remote, "", "x", 1, 0, NULL), -EINVAL);
	ck_assert_int_eq(mc_remote_unlink(remote, "", NULL), -EINVAL);
	mc_remote_stats(remote, &after);
	ck_assert_uint_eq(after.requests, before.requests);
	name[255] = '\0';
	ck_assert_int_eq(mc_remote_mkdir(remote, at(name), NULL), 0);
	ck_assert_int_eq(mc_remote_stat(remote, "", &attr, NULL), 0);
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

static int read_guarded(const char *path, const struct mc_guard *g, uint32_t len, void *buf)
{
	struct waiter w = {.req.guard = *g};

	waiter_start(remote, &w, path, 0, len, buf);
	return waiter_wait(&w);
}

START_TEST(a_guard_lets_only_the_described_object_through)
{
	struct mc_remote_attr attr;
	struct mc_guard g = {.set = true};
	uint8_t buf[16];

	put(at("f"), "0123456789", 10);
	ck_assert_int_eq(mc_remote_stat(remote, at("f"), &attr, NULL), 0);
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
	ck_assert_int_eq(mc_remote_stat(remote, at("f"), &attr, NULL), 0);
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
		waiter_start(remote, &w[i], paths[i % 2], (uint64_t)i * 20000, 65536,
			buf + (size_t)i * 65536);
	for (int i = 0; i < CROWD; i++) {
		ck_assert_int_eq(waiter_wait(&w[i]), 0);
		check_bytes(buf + (size_t)i * 65536, (uint64_t)i * 20000, 65536);
	}
	mc_remote_stats(remote, &st);
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
		waiter_start(remote, &w[i], "a-path-that-lives", 0, 1, buf);
	for (int i = 0; i < CROWD; i++)
		ck_assert_int_eq(waiter_wait(&w[i]), -ENOENT);
	for (int i = 0; i < CROWD; i++)
		waiter_start(
			remote, &w[i], path, (uint64_t)i * 20000, 65536, buf + (size_t)i * 65536);
	mc_remote_close(remote);
	for (int i = 0; i < CROWD; i++) {
		int res;

		ck_assert_int_eq(w[i].calls, 1);
		res = waiter_wait(&w[i]);
		ck_assert_msg(res == 0 || res == -ESHUTDOWN, "%d", res);
		if (res == 0) {
			check_bytes(buf + (size_t)i * 65536, (uint64_t)i * 20000, 65536);
			ok++;
		} else {
			shut++;
		}
	}
	ck_assert_int_eq(ok + shut, CROWD);
	free(buf);
	remote = kind_open(NULL);
}
END_TEST

void conformance_reads(TCase *t)
{
	const TTest *const tests[] = {
		a_read_returns_the_bytes_at_every_alignment,
		a_read_past_the_end_is_estale,
		what_is_not_there_is_enoent,
		a_path_that_breaks_the_rules_is_einval_without_io,
		a_read_with_a_bad_length_or_offset_is_einval,
		a_guard_lets_only_the_described_object_through,
		an_object_replaced_by_another_node_is_read_anew,
		two_hundred_reads_at_once_all_end_with_their_bytes,
		close_ends_reads_in_flight_exactly_once,
	};

	conformance_add(t, tests, sizeof(tests) / sizeof(*tests));
}
