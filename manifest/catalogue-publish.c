/* Publishing a revision: the id, the JSON that makes it READY, the pointer to the latest. */
#include "manifest/catalogue-impl.h"

#include <stdio.h>
#include <string.h>

#include "tier/cleanup.h"

static int put_id(struct mc_catalogue *c, const struct mc_rev_name *rev,
	const uint8_t id[MC_SHA256_SIZE], struct mc_err *err)
{
	char path[MC_REV_PATH], text[MC_ID_TEXT + 1];

	mc_hex_encode(id, MC_SHA256_SIZE, text);
	text[MC_SHA256_HEX] = '\n';
	mc_rev_path(path, rev, "manifest.id");
	return mc_remote_put(c->remote, path, text, MC_ID_TEXT, 0, err);
}

int mc_catalogue_put_latest(struct mc_catalogue *c, const struct mc_rev_name *rev,
	const uint8_t id[MC_SHA256_SIZE], struct mc_err *err)
{
	char path[MC_REV_PATH], text[MC_ID_TEXT + MC_NAME_MAX + 2];
	int n;

	mc_hex_encode(id, MC_SHA256_SIZE, text);
	n = snprintf(text + MC_SHA256_HEX, sizeof(text) - MC_SHA256_HEX, " %s\n", rev->rev);
	snprintf(path, sizeof(path), "checkpoints/%s/%s/latest", rev->org, rev->model);
	return mc_remote_put(c->remote, path, text, MC_SHA256_HEX + (size_t)n, 0, err);
}

/* Whether the newest revision of the model is this one. */
static bool is_latest(
	struct mc_catalogue *c, const struct mc_rev_name *rev, const uint8_t id[MC_SHA256_SIZE])
{
	struct mc_rev_name latest = *rev;
	uint8_t latest_id[MC_SHA256_SIZE];

	return mc_catalogue_latest(c, &latest, latest_id, NULL) == 0 &&
		strcmp(latest.rev, rev->rev) == 0 && memcmp(latest_id, id, MC_SHA256_SIZE) == 0;
}

/* What is being published. */
struct publication {
	const struct mc_rev_name *rev;
	const void *json;
	size_t len;
	uint8_t id[MC_SHA256_SIZE];
	bool wrote_id; /* manifest.id was ours for a moment at least */
};

/*
 * The JSON that lost its race or stands there already is not ours. Where its manifest.id is ours,
 * either we overwrote that of the winner, whose JSON is then good, or the JSON was damaged since,
 * and ours is what the id promises.
 */
static int meet_other(struct mc_catalogue *c, const struct publication *p, const void *there,
	size_t len, struct mc_err *err)
{
	uint8_t said[MC_SHA256_SIZE];
	struct mc_manifest *m;
	char path[MC_REV_PATH];
	int r = mc_catalogue_read_id(c, p->rev, said, NULL);

	if (r == -EBADMSG || r == -ENOENT)
		return mc_err_set(err, -EBADMSG,
			"%s: checkpoints/%s/%s/%s is damaged: its manifest.id is unusable and its "
			"manifest.json is not this source's; import the source it was made from, "
			"or remove that directory",
			mc_remote_url(c->remote), p->rev->org, p->rev->model, p->rev->rev);
	if (r == 0 && memcmp(said, p->id, sizeof(said)) == 0) {
		if (!p->wrote_id) {
			mc_rev_path(path, p->rev, "manifest.json");
			return mc_remote_put(c->remote, path, p->json, p->len, 0, err);
		}
		if (mc_manifest_parse(there, len, &m, NULL) == 0) {
			r = put_id(c, p->rev, mc_manifest_id(m), err);
			mc_manifest_unref(m);
			if (r < 0)
				return r;
		}
	}
	return mc_err_set(err, -EEXIST,
		"%s/%s@%s exists already with other content; choose another revision name",
		p->rev->org, p->rev->model, p->rev->rev);
}

/* The revision was READY before us. */
static int meet_published(struct mc_catalogue *c, const struct publication *p, struct mc_err *err)
{
	uint8_t there[MC_SHA256_SIZE], said[MC_SHA256_SIZE];
	cleanup_free void *json = NULL;
	char path[MC_REV_PATH];
	size_t len;
	int r;

	mc_rev_path(path, p->rev, "manifest.json");
	r = mc_remote_get(c->remote, path, MC_MANIFEST_MAX_BYTES, &json, &len, err);
	if (r == 0)
		r = mc_sha256(json, len, there);
	if (r < 0)
		return r;
	if (memcmp(there, p->id, sizeof(there)) != 0)
		return meet_other(c, p, json, len, err);
	if (mc_catalogue_read_id(c, p->rev, said, NULL) == 0 &&
		memcmp(said, p->id, sizeof(said)) == 0)
		return 0;
	return put_id(c, p->rev, p->id, err);
}

/* The id, then the JSON, which must not be there; then the id again if another publisher's came
 * between. */
static int publish_new(struct mc_catalogue *c, struct publication *p, struct mc_err *err)
{
	uint8_t said[MC_SHA256_SIZE];
	char path[MC_REV_PATH];
	int r = put_id(c, p->rev, p->id, err);

	p->wrote_id = true;
	if (r == 0)
		r = mc_remote_sync(c->remote, err);
	if (r < 0)
		return r;
	mc_rev_path(path, p->rev, "manifest.json");
	r = mc_remote_put(c->remote, path, p->json, p->len, MC_PUT_EXCL, err);
	if (r == 0 &&
		(mc_catalogue_read_id(c, p->rev, said, NULL) < 0 ||
			memcmp(said, p->id, sizeof(said)) != 0))
		r = put_id(c, p->rev, p->id, err);
	return r;
}

int mc_catalogue_publish(struct mc_catalogue *c, const struct mc_rev_name *rev, const void *json,
	size_t len, struct mc_err *err)
{
	struct publication p = {.rev = rev, .json = json, .len = len};
	struct mc_remote_attr attr;
	struct mc_err why = {0};
	char path[MC_REV_PATH];
	int r = mc_sha256(json, len, p.id);

	if (r < 0)
		return r;
	mc_rev_path(path, rev, "manifest.json");
	r = mc_remote_stat(c->remote, path, &attr, &why);
	if (r == 0)
		r = -EEXIST;
	else if (r == -ENOENT) {
		why.text[0] = '\0';
		r = publish_new(c, &p, &why);
	}
	if (r == -EEXIST) {
		why.text[0] = '\0';
		r = meet_published(c, &p, &why);
	}
	if (r == 0)
		r = mc_remote_sync(c->remote, &why);
	if (r == 0 && !is_latest(c, rev, p.id))
		r = mc_catalogue_put_latest(c, rev, p.id, &why);
	if (r == 0)
		r = mc_remote_sync(c->remote, &why);
	if (r < 0)
		return mc_err_set(err, r, "cannot publish %s/%s@%s: %s", rev->org, rev->model,
			rev->rev, why.text[0] != '\0' ? why.text : strerror(-r));
	return 0;
}
