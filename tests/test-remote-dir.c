/* The conformance suite against "dir:", on the file system of /tmp and on a tmpfs. */
#include "tests/remote-conformance.h"
#include "tests/suite.h"

#include <stdio.h>
#include <string.h>

static char root[50];

const char *kind_root(void)
{
	return root;
}

struct mc_remote *kind_open(const struct mc_remote_opts *opts)
{
	struct mc_err err = {0};
	struct mc_remote *r = NULL;
	char url[100];

	snprintf(url, sizeof(url), "dir:%s", root);
	ck_assert_msg(mc_remote_open(url, opts, &r, &err) == 0, "%s", err.text);
	return r;
}

/* What a killed process published and never synced, its successor finds and touches. */
START_TEST(a_touched_name_is_made_durable_by_sync)
{
	struct mc_remote *r = kind_open(NULL);
	struct mc_remote_stats before, after;

	ck_assert_int_eq(mc_remote_put(r, "a/b", "x", 1, 0, NULL), 0);
	mc_remote_close(r);
	r = kind_open(NULL);
	ck_assert_int_eq(mc_remote_sync(r, NULL), 0);
	mc_remote_stats(r, &before);
	ck_assert_int_eq(mc_remote_touch(r, "a/b", NULL), 0);
	ck_assert_int_eq(mc_remote_sync(r, NULL), 0);
	mc_remote_stats(r, &after);
	ck_assert_uint_eq(after.requests, before.requests + 3); /* touch, sync, fsync of a */
	mc_remote_close(r);
}
END_TEST

static int run_in(const char *parent)
{
	const TTest *const own[] = {a_touched_name_is_made_durable_by_sync};
	char cmd[100];
	int res;

	snprintf(root, sizeof(root), "%s/mc-test-dir-XXXXXX", parent);
	if (mkdtemp(root) == NULL)
		return 77;
	printf("in %s\n", root);
	res = conformance_run("remote dir", own, 1);
	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", root);
	return system(cmd) == 0 ? res : EXIT_FAILURE;
}

int main(void)
{
	int a = run_in("/tmp"), b = run_in("/dev/shm");

	return a != 0 ? a : b;
}
