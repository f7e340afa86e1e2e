/* The directory of this user's state: found by the environment, made on first use. */
#include "manifest/local-state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static int make_dirs(char *path)
{
	for (char *c = path + 1;; c++) {
		char end = *c;
		int r = 0;

		if (end != '/' && end != '\0')
			continue;
		*c = '\0';
		if (mkdir(path, 0700) < 0)
			r = -errno;
		*c = end;
		if (r < 0 && r != -EEXIST)
			return r;
		if (end == '\0')
			return 0;
	}
}

int mc_local_state_dir(char **ret)
{
	const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
	char *path;
	int n, r;

	if (state != NULL && state[0] == '/')
		n = asprintf(&path, "%s/mooncakefs", state);
	else if (home != NULL && home[0] == '/' && home[1] != '\0')
		n = asprintf(&path, "%s/.local/state/mooncakefs", home);
	else
		n = asprintf(&path, "/var/tmp/mooncakefs-%u", (unsigned)getuid());
	if (n < 0)
		return -ENOMEM;
	r = make_dirs(path);
	if (r < 0) {
		free(path);
		return r;
	}
	*ret = path;
	return 0;
}
