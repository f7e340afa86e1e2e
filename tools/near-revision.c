/* Names near one that is not there. */
#include "tools/near-revision.h"

#include "tools/command.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_MAX 1000 /* that are compared */
#define SHOWN 8

struct names {
	struct mc_catalogue *c;
	const char *org;    /* prefix of those to come; NULL = none */
	char *v[NAMES_MAX]; /* owned */
	unsigned n;
};

static int add(void *ctx, const char *name)
{
	struct names *l = ctx;
	char *text;

	if (l->n == NAMES_MAX)
		return 1;
	if (l->org == NULL)
		text = strdup(name);
	else if (asprintf(&text, "%s/%s", l->org, name) < 0)
		text = NULL;
	if (text == NULL)
		return 1;
	l->v[l->n++] = text;
	return 0;
}

static int add_models(void *ctx, const char *org)
{
	struct names *l = ctx;
	struct mc_err ignored = {0};

	l->org = org;
	return mc_catalogue_models(l->c, org, add, l, &ignored) > 0;
}

static void done(struct names *l)
{
	for (unsigned i = 0; i < l->n; i++)
		free(l->v[i]);
	free(l);
}

/* "; it has @v1, @v2 and 3 more" */
static void list(const struct names *l, char *out, size_t size)
{
	size_t len = 0;

	for (unsigned i = 0; i < l->n && i < SHOWN && len < size; i++)
		len += (size_t)snprintf(
			out + len, size - len, "%s%s", i == 0 ? "; it has @" : ", @", l->v[i]);
	if (l->n > SHOWN && len < size)
		snprintf(out + len, size - len, " and %s%u more", l->n == NAMES_MAX ? "over " : "",
			l->n - SHOWN);
}

int mc_revision_missing(struct mc_catalogue *c, struct mc_remote *r, const struct mc_rev_name *name,
	struct mc_err *err)
{
	struct names *l = calloc(1, sizeof(*l));
	char model[2 * MC_NAME_MAX + 2], others[4 * MC_NAME_MAX] = "";
	const char *near = NULL;
	struct mc_err ignored = {0};

	snprintf(model, sizeof(model), "%s/%s", name->org, name->model);
	err->text[0] = '\0';
	if (l == NULL)
		return mc_err_set(err, -ENOENT, "%s has no %s", mc_remote_url(r), model);
	l->c = c;
	mc_catalogue_revisions(c, name, add, l, &ignored);
	if (name->rev[0] != '\0' && l->n > 0) {
		list(l, others, sizeof(others));
		mc_err_set(err, -ENOENT, "%s has no revision %s@%s%s", mc_remote_url(r), model,
			name->rev, others);
	} else {
		mc_catalogue_orgs(c, add_models, l, &ignored);
		near = mc_nearest_name(model, (const char *const *)l->v, l->n);
		mc_err_set(err, -ENOENT, "%s has no checkpoint %s%s%s%s", mc_remote_url(r), model,
			near != NULL ? "; did you mean " : "",
			near != NULL ? near : "; 'mooncakefs ls' lists them",
			near != NULL ? "?" : "");
	}
	done(l);
	return -ENOENT;
}

int mc_fail_revision(
	struct mc_remote *r, const struct mc_rev_name *name, struct mc_err *err, int code)
{
	uint8_t id[MC_SHA256_SIZE];
	struct mc_err ignored = {0};
	struct mc_catalogue *c;

	if (code != -ENOENT || mc_catalogue_open(r, NULL, &c, &ignored) < 0)
		return mc_fail(err, code);
	if (mc_catalogue_id(c, name, id, &ignored) == -ENOENT)
		mc_revision_missing(c, r, name, err);
	mc_catalogue_close(c);
	return mc_fail(err, code);
}
