/*
 * The copies of a revision's manifest and of its id: a good one is found among them, and all others
 * must be the same.
 *
 * A copy of another manifest with an id that promises it is no damage but another revision of the
 * same name, which is never overwritten.
 */
#include "manifest/verify-state.h"

#include "manifest/catalogue-impl.h"
#include "tier/cleanup.h"

#include <errno.h>
#include <string.h>

void verify_revision_done(struct verify_revision *rev)
{
	mc_manifest_unref(rev->m);
	free(rev->json);
	*rev = (struct verify_revision){0};
}

static int read_id(
	struct mc_remote *remote, const struct mc_rev_name *name, uint8_t ret[MC_SHA256_SIZE])
{
	struct mc_catalogue *c;
	int r = mc_catalogue_open(remote, NULL, &c, NULL);

	if (r < 0)
		return r;
	r = mc_catalogue_read_id(c, name, ret, NULL);
	mc_catalogue_close(c);
	return r;
}

/* The manifest's bytes if the id promises them. 0, -EBADMSG, or why they cannot be had. */
static int read_json(struct mc_remote *remote, const struct mc_rev_name *name,
	const uint8_t id[MC_SHA256_SIZE], void **ret, size_t *ret_len)
{
	cleanup_free void *json = NULL;
	uint8_t is[MC_SHA256_SIZE];
	char path[MC_REV_PATH];
	size_t len;
	int r;

	mc_rev_path(path, name, "manifest.json");
	r = mc_remote_get(remote, path, MC_MANIFEST_MAX_BYTES, &json, &len, NULL);
	if (r == 0)
		r = mc_sha256(json, len, is);
	if (r < 0)
		return r;
	if (memcmp(is, id, sizeof(is)) != 0)
		return -EBADMSG;
	*ret = steal_ptr(json);
	*ret_len = len;
	return 0;
}

/* ---- finding */

/* Every remote that may have a copy. */
struct places {
	struct mc_remote *at[2 * MC_SET_MAX];
	unsigned n;
};

static int list_places(const struct verify *v, const struct mc_rev_name *name, struct places *ret)
{
	struct mc_set_copies copies;
	char path[MC_REV_PATH];
	int r;

	mc_rev_path(path, name, "manifest.json");
	r = mc_remote_set_copies(v->remote, path, &copies);
	ret->n = 0;
	if (r < 0)
		return r;
	for (unsigned i = 0; i < copies.n; i++)
		if (copies.at[i].remote != NULL)
			ret->at[ret->n++] = copies.at[i].remote;
	for (unsigned i = 0; i < v->opts->n_from && ret->n < 2 * MC_SET_MAX; i++)
		ret->at[ret->n++] = v->opts->from[i];
	return 0;
}

/* Why there is none: what a reader of the revision would be told. */
static int no_manifest(struct verify *v, const struct mc_rev_name *name, struct mc_err *err)
{
	struct mc_loaded loaded;
	struct mc_catalogue *c;
	int r = mc_catalogue_open(v->remote, NULL, &c, err);

	if (r < 0)
		return r;
	r = mc_catalogue_load(c, name, &loaded, err);
	mc_catalogue_close(c);
	if (r < 0)
		return r;
	mc_manifest_unref(loaded.m);
	return mc_err_set(err, -EAGAIN, "%s/%s@%s changes just now; run it again", name->org,
		name->model, name->rev);
}

/* Of all remotes the first that has what the id promises, and that parses. 0, -ENOENT, -ENOMEM. */
static int find_promised(const struct places *places, struct verify_revision *ret)
{
	for (unsigned i = 0; i < places->n; i++) {
		int r = read_json(places->at[i], ret->name, ret->id, &ret->json, &ret->len);

		if (r == 0) {
			r = mc_manifest_parse(ret->json, ret->len, &ret->m, NULL);
			if (r < 0) {
				free(ret->json);
				ret->json = NULL;
			}
		}
		if (r == 0 || r == -ENOMEM)
			return r;
	}
	return -ENOENT;
}

int verify_find_manifest(struct verify *v, struct verify_revision *ret, struct mc_err *err)
{
	struct places places;
	int r = list_places(v, ret->name, &places);

	if (r < 0)
		return mc_err_set(err, r, "%s", strerror(-r));
	/* The id and its bytes may be good on different remotes. */
	for (unsigned i = 0; i < places.n; i++) {
		if (read_id(places.at[i], ret->name, ret->id) < 0)
			continue;
		r = find_promised(&places, ret);
		if (r == 0)
			return 0;
		if (r == -ENOMEM)
			return mc_err_set(err, r, "out of memory");
	}
	return no_manifest(v, ret->name, err);
}

/* ---- checking */

/* One of the two objects. */
struct object {
	const char *file;
	const void *buf; /* what it must be */
	size_t len;
};

/* 0 the copy is right, 1 it is not, what says how, -errno. */
static int look(struct mc_remote *remote, const char *path, const struct object *o,
	const char **what, struct mc_err *err)
{
	cleanup_free void *buf = NULL;
	struct mc_err why = {0};
	size_t len;
	int r = mc_remote_get(remote, path, o->len, &buf, &len, &why);

	*what = "wrong bytes on the remote";
	if (r == -ENOENT)
		*what = "missing on the remote";
	if (r == -ETIMEDOUT || r == -ESHUTDOWN || r == -ENOMEM)
		return mc_err_set(err, r, "%s", why.text);
	return r < 0 || len != o->len || memcmp(buf, o->buf, len) != 0;
}

/* Whether the copy there is another revision of the name, whole. */
static bool is_another(
	struct mc_remote *remote, const struct mc_rev_name *name, const uint8_t id[MC_SHA256_SIZE])
{
	cleanup_free void *json = NULL;
	uint8_t other[MC_SHA256_SIZE];
	size_t len;

	return read_id(remote, name, other) == 0 && memcmp(other, id, sizeof(other)) != 0 &&
		read_json(remote, name, other, &json, &len) == 0;
}

static int check_copy(struct verify *v, const struct verify_revision *rev, const struct object *o,
	const struct mc_set_copies *copies, unsigned i, struct mc_err *err)
{
	struct mc_remote *remote = copies->at[i].remote;
	char path[MC_REV_PATH], where[VERIFY_TEXT];
	const char *what, *then = "", *still = "";
	struct mc_err why = {0};
	int r;

	if (remote == NULL)
		return verify_away(&copies->at[i], err);
	mc_rev_path(path, rev->name, o->file);
	r = look(remote, path, o, &what, err);
	if (r != 1)
		return r;
	if (is_another(remote, rev->name, rev->id)) {
		what = "another revision of the same name";
	} else if (v->opts->repair) {
		r = mc_remote_put(remote, path, o->buf, o->len, 0, &why);
		if (r == 0)
			r = look(remote, path, o, &still, err);
		then = r == 0 ? ": repaired" : ": cannot be put back: ";
		v->repaired_bytes += r == 0 ? o->len : 0;
	}
	verify_where(copies, i, where, sizeof(where));
	verify_report(v, r == 0, "%s: %s%s%s%s%s", path, where, what, then, why.text,
		r == 1 ? still : "");
	return 0;
}

int verify_manifest(struct verify *v, const struct verify_revision *rev, struct mc_err *err)
{
	char id[MC_ID_TEXT + 1], path[MC_REV_PATH];
	const struct object objects[] = {
		{"manifest.id", id, MC_ID_TEXT}, {"manifest.json", rev->json, rev->len}};
	struct mc_set_copies copies;
	int r;

	mc_hex_encode(rev->id, MC_SHA256_SIZE, id);
	id[MC_SHA256_HEX] = '\n';
	mc_rev_path(path, rev->name, "manifest.json");
	r = mc_remote_set_copies(v->remote, path, &copies);
	if (r < 0)
		return mc_err_set(err, r, "%s", strerror(-r));
	for (unsigned i = 0; i < copies.homes; i++)
		for (size_t k = 0; k < 2 && r == 0; k++)
			if (verify_is_wanted(v, &copies.at[i]))
				r = check_copy(v, rev, &objects[k], &copies, i, err);
	return r;
}
