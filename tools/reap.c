/* The reaper of tmp/<node>/: names first, then the removals, since a listing must not call back. */
#include "tools/reap.h"

#include "tier/cleanup.h"
#include "tier/remote.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define AGE_S (24 * 60 * 60)
#define BATCH 1024 /* at most so many at a time; the rest is for the next import */

struct leftovers {
	char *names[BATCH]; /* owned */
	unsigned n;
	int64_t before_s;
};

static int collect(void *ctx, const char *name, const struct mc_remote_attr *attr)
{
	struct leftovers *l = ctx;

	if (attr->type != MC_REMOTE_FILE || attr->mtime_s >= l->before_s)
		return 0;
	l->names[l->n] = strdup(name);
	if (l->names[l->n] == NULL)
		return 1;
	l->n++;
	return l->n == BATCH;
}

unsigned mc_reap_leftovers(struct mc_remote *r, const char *node)
{
	struct leftovers *l = calloc(1, sizeof(*l));
	struct mc_err ignored = {0};
	unsigned removed = 0;
	char path[600];

	if (l == NULL)
		return 0;
	l->before_s = (int64_t)time(NULL) - AGE_S;
	snprintf(path, sizeof(path), "tmp/%s", node);
	if (mc_remote_list(r, path, collect, l, &ignored) < 0)
		ignored.text[0] = '\0';
	for (unsigned i = 0; i < l->n; i++) {
		snprintf(path, sizeof(path), "tmp/%s/%s", node, l->names[i]);
		removed += mc_remote_unlink(r, path, &ignored) == 0;
		free(l->names[i]);
	}
	free(l);
	return removed;
}
