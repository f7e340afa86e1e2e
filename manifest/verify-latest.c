/*
 * The copies of a model's pointer to its latest revision: all must be there, the same, and name a
 * READY revision with its id.
 *
 * A publisher may move the pointer meanwhile: what is right is asked again before a copy that names
 * another revision is called wrong, and before one is overwritten.
 */
#include "manifest/verify-state.h"

#include "manifest/catalogue-impl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define TRIES 8 /* while publishers are at work */

struct pointer {
	struct mc_rev_name name;
	uint8_t id[MC_SHA256_SIZE];
};

struct search {
	struct verify *v;
	const struct mc_rev_name *model; /* borrowed */
	struct mc_set_copies copies;
};

static bool same(const struct pointer *a, const struct pointer *b)
{
	return strcmp(a->name.rev, b->name.rev) == 0 && memcmp(a->id, b->id, MC_SHA256_SIZE) == 0;
}

/* Whether an error ends the work; others are the copy's. */
static bool is_trouble(int r)
{
	return r == -ETIMEDOUT || r == -ESHUTDOWN || r == -ENOMEM;
}

/* Whether a copy of the revision's manifest.id says the same. */
static bool is_promised(const struct mc_set_copies *copies, const struct pointer *p)
{
	for (unsigned i = 0; i < copies->n; i++) {
		struct mc_catalogue member = {.remote = copies->at[i].remote};
		uint8_t id[MC_SHA256_SIZE];

		if (member.remote != NULL &&
			mc_catalogue_read_id(&member, &p->name, id, NULL) == 0 &&
			memcmp(id, p->id, sizeof(id)) == 0)
			return true;
	}
	return false;
}

/* The pointer on a remote, the whole or a member. 0, 1 = it is no good, what says why, -errno. */
static int read_pointer(struct search *s, struct mc_remote *remote, struct pointer *ret,
	char what[VERIFY_TEXT], struct mc_err *err)
{
	struct mc_catalogue c = {.remote = remote}, all = {.remote = s->v->remote};
	uint8_t id[MC_SHA256_SIZE];
	struct mc_err why = {0};
	int r;

	ret->name = *s->model;
	r = mc_catalogue_latest(&c, &ret->name, ret->id, &why);
	if (is_trouble(r))
		return mc_err_set(err, r, "%s", why.text);
	if (r < 0) {
		snprintf(what, VERIFY_TEXT, "%s",
			r == -ENOENT ? "missing on the remote" : "wrong bytes on the remote");
		return 1;
	}
	r = mc_catalogue_id(&all, &ret->name, id, &why);
	if (is_trouble(r))
		return mc_err_set(err, r, "%s", why.text);
	if (r == -ENOENT)
		snprintf(what, VERIFY_TEXT, "names %s, which is not there", ret->name.rev);
	else if (r == 0 && !is_promised(&s->copies, ret))
		snprintf(what, VERIFY_TEXT, "has another id than %s", ret->name.rev);
	else
		return 0; /* a damaged id is the damage of that revision */
	return 1;
}

/* What all copies have to be. 0 or -errno. */
static int find_right(struct search *s, struct pointer *ret, struct mc_err *err)
{
	struct mc_catalogue all = {.remote = s->v->remote};
	char what[VERIFY_TEXT];
	int r = read_pointer(s, s->v->remote, ret, what, err);

	for (unsigned i = 0; r == 1 && i < s->copies.n; i++)
		if (s->copies.at[i].remote != NULL)
			r = read_pointer(s, s->copies.at[i].remote, ret, what, err);
	if (r != 1)
		return r;
	ret->name = *s->model;
	r = mc_catalogue_newest(&all, NULL, &ret->name, err);
	return r < 0 ? r : mc_catalogue_id(&all, &ret->name, ret->id, err);
}

/* Tells of a bad copy; put: how putting the right one back ended, 1 = it was not tried. */
static void tell(struct search *s, unsigned i, const char *what, int put, const struct mc_err *why)
{
	char where[VERIFY_TEXT];
	const char *then = "";

	if (put <= 0)
		then = put == 0 ? ": repaired" : ": cannot be put back: ";
	verify_where(&s->copies, i, where, sizeof(where));
	verify_report(s->v, put == 0, "checkpoints/%s/%s/latest: %s%s%s%s", s->model->org,
		s->model->model, where, what, then, why->text);
}

/* One copy. 0, 1 = another revision became the latest, or -errno. */
static int check_copy(struct search *s, unsigned i, const struct pointer *right, struct mc_err *err)
{
	struct mc_catalogue member = {.remote = s->copies.at[i].remote};
	struct mc_err why = {0};
	char what[VERIFY_TEXT];
	struct pointer is, now;
	int r, put = 1;

	if (member.remote == NULL)
		return verify_away(&s->copies.at[i], err);
	r = read_pointer(s, member.remote, &is, what, err);
	if (r < 0 || (r == 0 && same(&is, right)))
		return r;
	if (r == 0)
		snprintf(what, VERIFY_TEXT, "names %s instead of %s", is.name.rev, right->name.rev);
	r = find_right(s, &now, err);
	if (r < 0 || !same(&now, right))
		return r < 0 ? r : 1;
	if (s->v->opts->repair)
		put = mc_catalogue_put_latest(&member, &right->name, right->id, &why);
	if (is_trouble(put))
		return mc_err_set(err, put, "%s", why.text);
	tell(s, i, what, put, &why);
	return 0;
}

int verify_latest(struct verify *v, const struct mc_rev_name *model, struct mc_err *err)
{
	struct search s = {.v = v, .model = model};
	char path[MC_REV_PATH];
	int r, tries = 0;

	snprintf(path, sizeof(path), "checkpoints/%s/%s/latest", model->org, model->model);
	r = mc_remote_set_copies(v->remote, path, &s.copies);
	if (r < 0)
		return mc_err_set(err, r, "%s", strerror(-r));
	do {
		struct pointer right;

		r = find_right(&s, &right, err);
		for (unsigned i = 0; i < s.copies.homes && r == 0; i++)
			if (verify_is_wanted(v, &s.copies.at[i]))
				r = check_copy(&s, i, &right, err);
	} while (r == 1 && ++tries < TRIES);
	return r == 1 ? mc_err_set(err, -EAGAIN, "%s changes just now; run it again", path) : r;
}
