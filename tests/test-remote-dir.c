/* The conformance suite against "dir:", on whatever file system the temporary directory has. */
#include "tests/remote-conformance.h"
#include "tests/suite.h"

#include <stdio.h>
#include <string.h>

static char root[] = "/tmp/mc-test-dir-XXXXXX";

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

int main(void)
{
	char cmd[100];
	int res;

	if (mkdtemp(root) == NULL)
		return 77;
	res = conformance_run("remote dir", NULL, 0);
	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", root);
	return system(cmd) == 0 ? res : EXIT_FAILURE;
}
