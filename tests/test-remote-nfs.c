/* The conformance suite against "nfs:", with a real server, and what cannot be opened there. */
#include "tests/nfs-fixture.h"
#include "tests/remote-conformance.h"
#include "tests/suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct mc_remote_opts patient = {.deadline_ms = 120000};

const char *kind_root(void)
{
	return nfs_fixture_export();
}

struct mc_remote *kind_open(const struct mc_remote_opts *opts)
{
	struct mc_err err = {0};
	struct mc_remote *r = NULL;

	ck_assert_msg(mc_remote_open(nfs_fixture_url(), opts, &r, &err) == 0, "%s", err.text);
	return r;
}

static void expect_refusal(const char *url, int want, const char *words)
{
	struct mc_remote *r = NULL;
	struct mc_err err = {0};

	ck_assert_int_eq(mc_remote_open(url, &patient, &r, &err), want);
	ck_assert_ptr_null(r);
	ck_assert_msg(strstr(err.text, words) != NULL && strstr(err.text, url) != NULL,
		"\"%s\" does not say \"%s\" and the URL", err.text, words);
}

START_TEST(what_cannot_be_opened_says_why)
{
	char url[200];
	struct mc_remote *r = kind_open(&patient), *sub = NULL;
	struct mc_remote_attr attr;

	ck_assert_int_eq(mc_remote_put(r, "some/dir/file", "x", 1, 0, NULL), 0);
	expect_refusal("ftp://x/y", -EINVAL, "unknown kind");
	expect_refusal("nfs://127.0.0.1", -EINVAL, "nfs://SERVER/EXPORT");
	expect_refusal("nfs://127.0.0.1/export?nfsport=x", -EINVAL, "nfsport");
	expect_refusal("nfs://127.0.0.1/export?version=4", -EINVAL, "version=3");
	expect_refusal(
		"nfs://127.0.0.1/e?nfsport=1&mountport=1", -ECONNREFUSED, "port 1, does not");
	snprintf(url, sizeof(url), "nfs://127.0.0.1/nowhere?nfsport=%d&mountport=%d",
		nfs_fixture_port(), nfs_fixture_mount_port());
	expect_refusal(url, -EACCES, "/nowhere"); /* what this server says of unknown exports */
	snprintf(url, sizeof(url), "nfs://127.0.0.1/export/some/file?nfsport=%d&mountport=%d",
		nfs_fixture_port(), nfs_fixture_mount_port());
	expect_refusal(url, -ENOENT, "some/file");
	snprintf(url, sizeof(url), "nfs://127.0.0.1/export/some/dir?nfsport=%d&mountport=%d",
		nfs_fixture_port(), nfs_fixture_mount_port());
	ck_assert_int_eq(mc_remote_open(url, &patient, &sub, NULL), 0);
	ck_assert_int_eq(mc_remote_stat(sub, "file", &attr, NULL), 0);
	ck_assert_uint_eq(attr.size, 1);
	mc_remote_close(sub);
	mc_remote_close(r);
}
END_TEST

int main(void)
{
	const TTest *const more[] = {what_cannot_be_opened_says_why};
	int res;

	if (!nfs_fixture_start())
		return 77;
	res = conformance_run("remote nfs", more, 1);
	nfs_fixture_end();
	return res;
}
