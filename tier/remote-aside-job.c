/* Jobs of remote-aside.c: they own copies of what goes in, and what comes out. */
#include "tier/remote-aside-job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void mc_aside_job_free(struct aside_job *j)
{
	struct aside_entry *e;

	if (j == NULL)
		return;
	while ((e = j->first) != NULL) {
		j->first = e->next;
		free(e);
	}
	free(j->path);
	free(j->new_path);
	free(j->buf);
	free(j);
}

struct aside_job *mc_aside_job_new(enum aside_op op, const struct mc_remote_call *c)
{
	struct aside_job *j = calloc(1, sizeof(*j));

	if (j == NULL)
		return NULL;
	j->op = op;
	j->last = &j->first;
	j->path = strdup(c->path);
	j->new_path = c->new_path != NULL ? strdup(c->new_path) : NULL;
	if (j->path == NULL || (c->new_path != NULL && j->new_path == NULL)) {
		mc_aside_job_free(j);
		return NULL;
	}
	j->c = (struct mc_remote_call){.path = j->path,
		.new_path = j->new_path,
		.durable = c->durable,
		.deadline_ns = c->deadline_ns,
		.err = &j->err};
	return j;
}

int mc_aside_job_keep(void *ctx, const char *name, const struct mc_remote_attr *attr)
{
	struct aside_job *j = ctx;
	size_t len = strlen(name) + 1;
	struct aside_entry *e = malloc(sizeof(*e) + len);

	if (e == NULL)
		return -ENOMEM;
	e->next = NULL;
	e->attr = *attr;
	memcpy(e->name, name, len);
	*j->last = e;
	j->last = &e->next;
	return 0;
}
