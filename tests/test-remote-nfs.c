/* The conformance suite against "nfs:", with a real server. */
#include "tests/nfs-fixture.h"
#include "tests/remote-conformance.h"
#include "tests/suite.h"

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

int main(void)
{
	int res;

	if (!nfs_fixture_start())
		return 77;
	res = conformance_run("remote nfs", NULL, 0);
	nfs_fixture_end();
	return res;
}
