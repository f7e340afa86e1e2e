/*
 * What a crash left under tmp/<node>/: temporary files of puts that were never published. Their own
 * node removes them when it opens the remote, once they are a day old; by then no put can be at
 * work on them.
 */
#include "tier/remote-backend.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_AGE_S (24 * 60 * 60)
#define MAX_AT_ONCE 1000 /* the rest waits for the next open */

struct reap {
	char *names[MAX_AT_ONCE]; /* owned */
	size_t n;
	int64_t before_s;
};

/* The names that puts make: 16 hex digits, "-", hex digits. Anything else is not ours to remove. */
static bool is_tmp_name(const char *name)
{
	size_t n = strspn(name, "0123456789abcdef");

	return n == 16 && name[n] == '-' && isxdigit((unsigned char)name[n + 1]) &&
		strspn(name + n + 1, "0123456789abcdef") == strlen(name + n + 1);
}

static int collect(void *ctx, const char *name, const struct mc_remote_attr *attr)
{
	struct reap *p = ctx;

	if (attr->type != MC_REMOTE_FILE || attr->mtime_s >= p->before_s || !is_tmp_name(name))
		return 0;
	p->names[p->n] = strdup(name);
	return p->names[p->n] == NULL || ++p->n == MAX_AT_ONCE;
}

void mc_remote_reap(struct mc_remote *r, const char *node)
{
	struct reap *p = calloc(1, sizeof(*p));
	char path[MC_REMOTE_PATH_MAX];

	if (p == NULL)
		return;
	p->before_s = (int64_t)time(NULL) - MAX_AGE_S;
	snprintf(path, sizeof(path), "tmp/%s", node);
	mc_remote_list(r, path, collect, p, NULL);
	for (size_t i = 0; i < p->n; i++) {
		snprintf(path, sizeof(path), "tmp/%s/%s", node, p->names[i]);
		mc_remote_unlink(r, path, NULL);
		free(p->names[i]);
	}
	free(p);
}
