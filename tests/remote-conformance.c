/* The conformance suite of remotes; see remote-conformance.h. */
#include "tests/remote-conformance-impl.h"

#include "tests/remote-waiter.h"
#include "tests/suite.h"

#include <stdio.h>
#include <unistd.h>

struct mc_remote *remote;
char base[64];

static void setup(void)
{
	struct mc_remote_opts opts = {.node = "node-under-test"};
	struct mc_err err = {0};

	remote = kind_open(&opts);
	snprintf(base, sizeof(base), "t%d", (int)getpid());
	ck_assert_msg(mc_remote_mkdir(remote, base, &err) == 0, "%s", err.text);
}

static void teardown(void)
{
	mc_remote_close(remote);
	remote = NULL;
}

const char *at(const char *name)
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

uint8_t *pattern(size_t len)
{
	uint8_t *b = NULL;

	ck_assert_int_eq(posix_memalign((void **)&b, 4096, len + 4096), 0);
	for (size_t i = 0; i < len; i++)
		b[i] = byte_at(i);
	return b;
}

void put(const char *path, const void *buf, size_t len)
{
	struct mc_err err = {0};

	ck_assert_msg(mc_remote_put(remote, path, buf, len, 0, &err) == 0, "%s", err.text);
}

void put_pattern(const char *path, size_t len)
{
	uint8_t *b = pattern(len);

	put(path, b, len);
	free(b);
}

int read_at(const char *path, uint64_t off, uint32_t len, void *buf)
{
	struct waiter w = {0};

	waiter_start(remote, &w, path, off, len, buf);
	return waiter_wait(&w);
}

void check_bytes(const uint8_t *b, uint64_t off, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (b[i] != byte_at(off + i))
			ck_abort_msg("byte %llu: %u, not %u", (unsigned long long)(off + i), b[i],
				byte_at(off + i));
}

int count_each(void *ctx, const char *name, const struct mc_remote_attr *attr)
{
	(void)name;
	(void)attr;
	++*(int *)ctx;
	return 0;
}

void conformance_add(TCase *t, const TTest *const *tests, size_t n)
{
	for (size_t i = 0; i < n; i++)
		tcase_add_test(t, tests[i]);
}

int conformance_run(const char *name, const TTest *const *own, size_t n_own)
{
	Suite *s = suite_create(name);
	TCase *t = tcase_create("conformance");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_set_timeout(t, SUITE_TIMEOUT_S);
	tcase_add_checked_fixture(t, setup, teardown);
	conformance_reads(t);
	conformance_puts(t);
	conformance_names(t);
	suite_add_tcase(s, t);
	t = tcase_create("own");
	tcase_set_timeout(t, SUITE_TIMEOUT_S);
	conformance_add(t, own, n_own);
	suite_add_tcase(s, t);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
