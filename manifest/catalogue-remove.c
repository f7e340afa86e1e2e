/*
 * Taking a revision out of the catalogue: another becomes the latest, then manifest.json goes, and
 * with it READY, then what is left of the directory. Killed in between, the same call goes on.
 */
#include "manifest/catalogue-impl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The search for the revision published last. */
struct search {
	struct mc_catalogue *c;
	const char * not ;
	struct mc_rev_name best; /* rev "" = none yet */
	struct mc_remote_attr best_attr;
};

static bool newer(const struct mc_remote_attr *a, const struct mc_remote_attr *b)
{
	return a->mtime_s != b->mtime_s ? a->mtime_s > b->mtime_s : a->mtime_ns > b->mtime_ns;
}

static int consider(void *ctx, const char *rev)
{
	struct search *s = ctx;
	struct mc_rev_name name = s->best;
	struct mc_remote_attr attr;
	char path[MC_REV_PATH];
	int r;

	if (s->not != NULL && strcmp(rev, s->not ) == 0)
		return 0;
	strcpy(name.rev, rev);
	mc_rev_path(path, &name, "manifest.json");
	r = mc_remote_stat(s->c->remote, path, &attr, NULL);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	if (s->best.rev[0] == '\0' || newer(&attr, &s->best_attr)) {
		s->best = name;
		s->best_attr = attr;
	}
	return 0;
}

int mc_catalogue_newest(
	struct mc_catalogue *c, const char * not, struct mc_rev_name *model, struct mc_err *err)
{
	struct search s = {.c = c, .not = not, .best = *model};
	int r;

	s.best.rev[0] = '\0';
	r = mc_catalogue_revisions(c, model, consider, &s, err);
	if (r < 0)
		return r;
	if (s.best.rev[0] == '\0')
		return -ENOENT;
	*model = s.best;
	return 0;
}

/* Makes the revision published before rev the latest, or none when there is no other. */
static int step_back(struct mc_catalogue *c, const struct mc_rev_name *rev, struct mc_err *err)
{
	struct mc_rev_name before = *rev;
	uint8_t id[MC_SHA256_SIZE];
	char path[MC_REV_PATH];
	int r = mc_catalogue_newest(c, rev->rev, &before, err);

	if (r == -ENOENT) {
		snprintf(path, sizeof(path), "checkpoints/%s/%s/latest", rev->org, rev->model);
		r = mc_remote_unlink(c->remote, path, err);
		return r == -ENOENT ? 0 : r;
	}
	if (r == 0)
		r = mc_catalogue_id(c, &before, id, err);
	return r < 0 ? r : mc_catalogue_put_latest(c, &before, id, err);
}

/* Directories that are empty now; what is in use stays. */
static void remove_empty(struct mc_catalogue *c, const struct mc_rev_name *rev)
{
	char path[MC_REV_PATH];

	snprintf(path, sizeof(path), "checkpoints/%s/%s/%s", rev->org, rev->model, rev->rev);
	for (int depth = 0; depth < 3; depth++) {
		if (mc_remote_unlink(c->remote, path, NULL) < 0)
			return;
		*strrchr(path, '/') = '\0';
	}
}

int mc_catalogue_remove(struct mc_catalogue *c, const struct mc_rev_name *rev, struct mc_err *err)
{
	struct mc_rev_name latest = *rev;
	struct mc_remote_attr attr;
	struct mc_err why = {0};
	char path[MC_REV_PATH];
	int r;

	mc_rev_path(path, rev, "manifest.json");
	r = mc_remote_stat(c->remote, path, &attr, &why);
	if (r == -ENOENT)
		return mc_err_set(err, r, "%s has no revision %s/%s@%s; 'mooncakefs ls' lists them",
			mc_remote_url(c->remote), rev->org, rev->model, rev->rev);
	if (r == 0 && mc_catalogue_latest(c, &latest, NULL, NULL) == 0 &&
		strcmp(latest.rev, rev->rev) == 0)
		r = step_back(c, rev, &why);
	if (r == 0)
		r = mc_remote_unlink(c->remote, path, &why);
	if (r == 0 || r == -ENOENT) {
		mc_rev_path(path, rev, "manifest.id");
		r = mc_remote_unlink(c->remote, path, &why);
	}
	if (r == -ENOENT)
		r = 0;
	if (r < 0)
		return mc_err_set(err, r, "cannot remove %s/%s@%s: %s", rev->org, rev->model,
			rev->rev, why.text[0] != '\0' ? why.text : strerror(-r));
	remove_empty(c, rev);
	return 0;
}
