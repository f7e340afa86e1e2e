/* Several remotes as one: what the conformance suite asks of every remote, with two directories. */
#include "tests/remote-conformance.h"
#include "tier/remote-set.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static char root[] = "/tmp/mc-test-set-XXXXXX";
static char first[64], second[64];

/* The tests look at one directory: the first home of all but one in a million paths. */
const char *kind_root(void)
{
	return first;
}

struct mc_remote *kind_open(const struct mc_remote_opts *opts)
{
	const struct mc_set_opts set = {.remote = opts, .tend = true};
	struct mc_set_url urls[2];
	struct mc_err err = {0};
	struct mc_remote *r = NULL;
	char text[128];

	/* What a test ages in one directory must not look fresh in the other. */
	snprintf(text, sizeof(text), "rm -rf '%s/tmp'", second);
	ck_assert_int_eq(system(text), 0);
	snprintf(text, sizeof(text), "dir:%s#weight=1000000", first);
	ck_assert_int_eq(mc_set_url_parse(text, &urls[0], NULL), 0);
	snprintf(text, sizeof(text), "dir:%s", second);
	ck_assert_int_eq(mc_set_url_parse(text, &urls[1], NULL), 0);
	ck_assert_msg(mc_remote_set_open(urls, 2, &set, &r, &err) == 0, "%s", err.text);
	mc_set_url_done(&urls[0]);
	mc_set_url_done(&urls[1]);
	return r;
}

int main(void)
{
	char cmd[100];
	int res;

	if (mkdtemp(root) == NULL)
		return 77;
	snprintf(first, sizeof(first), "%s/a", root);
	snprintf(second, sizeof(second), "%s/b", root);
	if (mkdir(first, 0700) < 0 || mkdir(second, 0700) < 0)
		return EXIT_FAILURE;
	res = conformance_run("remote set", NULL, 0);
	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", root);
	return system(cmd) == 0 ? res : EXIT_FAILURE;
}
