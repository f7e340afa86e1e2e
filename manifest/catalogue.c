/*
 * The catalogue of checkpoints on a remote.
 *
 * Invariants: 1. a revision is READY when its manifest.json is there; manifest.id was there
 * before; 2. a READY manifest never changes; 3. bytes are parsed only after their SHA-256 matched
 * the id; 4. an index file is named by the id of the manifest it was made from.
 */
#include "manifest/catalogue-impl.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tier/cleanup.h"

/* A writer that died leaves <id>.idx.XXXXXX behind; nobody else writes into this directory now. */
static void sweep(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;

	if (d == NULL)
		return;
	while ((e = readdir(d)) != NULL)
		if (strstr(e->d_name, ".idx.") != NULL)
			unlinkat(dirfd(d), e->d_name, 0);
	closedir(d);
}

int mc_catalogue_open(struct mc_remote *remote, const char *index_dir, struct mc_catalogue **ret,
	struct mc_err *err)
{
	struct mc_catalogue *c = calloc(1, sizeof(*c));

	if (c == NULL)
		return -ENOMEM;
	c->remote = remote;
	if (index_dir != NULL) {
		if (mkdir(index_dir, 0700) < 0 && errno != EEXIST) {
			int r = -errno;

			free(c);
			return mc_err_set(err, r, "cannot make the directory for indexes %s: %s",
				index_dir, strerror(-r));
		}
		sweep(index_dir);
		c->index_dir = strdup(index_dir);
		if (c->index_dir == NULL) {
			free(c);
			return -ENOMEM;
		}
	}
	*ret = c;
	return 0;
}

void mc_catalogue_close(struct mc_catalogue *c)
{
	if (c == NULL)
		return;
	free(c->index_dir);
	free(c);
}

/* All parts are bounded, hence no error. */
void mc_rev_path(char out[MC_REV_PATH], const struct mc_rev_name *rev, const char *file)
{
	int n = snprintf(
		out, MC_REV_PATH, "checkpoints/%s/%s/%s/%s", rev->org, rev->model, rev->rev, file);

	if (n < 0 || n >= MC_REV_PATH)
		abort();
}

struct listing {
	mc_catalogue_each *each;
	void *ctx;
	bool (*good)(const char *name);
};

static int list_one(void *ctx, const char *name, const struct mc_remote_attr *attr)
{
	const struct listing *l = ctx;

	if (attr->type != MC_REMOTE_DIR || !l->good(name))
		return 0;
	return l->each(l->ctx, name);
}

int mc_catalogue_orgs(
	struct mc_catalogue *c, mc_catalogue_each *each, void *ctx, struct mc_err *err)
{
	struct listing l = {each, ctx, mc_model_name_good};
	struct mc_remote_attr attr;
	int r = mc_remote_stat(c->remote, "checkpoints", &attr, NULL);

	if (r == -ENOENT)
		return 0;
	return mc_remote_list(c->remote, "checkpoints", list_one, &l, err);
}

int mc_catalogue_models(struct mc_catalogue *c, const char *org, mc_catalogue_each *each, void *ctx,
	struct mc_err *err)
{
	struct listing l = {each, ctx, mc_model_name_good};
	char path[MC_REV_PATH];

	snprintf(path, sizeof(path), "checkpoints/%s", org);
	return mc_remote_list(c->remote, path, list_one, &l, err);
}

struct names {
	char (*v)[MC_NAME_MAX + 1]; /* owned */
	size_t n, cap;
};

static int collect(void *ctx, const char *name)
{
	struct names *names = ctx;

	if (names->n == names->cap) {
		size_t cap = names->cap == 0 ? 16 : 2 * names->cap;
		void *bigger = reallocarray(names->v, cap, sizeof(*names->v));

		if (bigger == NULL)
			return -ENOMEM;
		names->v = bigger;
		names->cap = cap;
	}
	snprintf(names->v[names->n++], sizeof(*names->v), "%s", name);
	return 0;
}

/* The names first, then one stat each: a remote's list callback must not call it again. */
int mc_catalogue_revisions(struct mc_catalogue *c, const struct mc_rev_name *model,
	mc_catalogue_each *each, void *ctx, struct mc_err *err)
{
	struct names names = {0};
	struct listing l = {collect, &names, mc_rev_good};
	struct mc_rev_name rev = *model;
	struct mc_remote_attr attr;
	char path[MC_REV_PATH];
	int r;

	snprintf(path, sizeof(path), "checkpoints/%s/%s", model->org, model->model);
	r = mc_remote_list(c->remote, path, list_one, &l, err);
	for (size_t i = 0; r == 0 && i < names.n; i++) {
		memcpy(rev.rev, names.v[i], sizeof(rev.rev));
		mc_rev_path(path, &rev, "manifest.json");
		r = mc_remote_stat(c->remote, path, &attr, err);
		if (r == -ENOENT)
			r = 0;
		else if (r == 0 && attr.type == MC_REMOTE_FILE)
			r = each(ctx, names.v[i]);
	}
	free(names.v);
	return r;
}

/* Reads a small text object into out, NUL-terminated. */
static int get_text(
	struct mc_catalogue *c, const char *path, char *out, size_t size, struct mc_err *err)
{
	cleanup_free void *buf = NULL;
	struct mc_err why = {0};
	size_t len;
	int r = mc_remote_get(c->remote, path, size - 1, &buf, &len, &why);

	if (r == -EFBIG)
		return mc_err_set(err, -EBADMSG,
			"%s: %s: longer than %zu bytes; import the revision again",
			mc_remote_url(c->remote), path, size - 1);
	if (r < 0)
		return mc_err_set(err, r, "%s", why.text);
	memcpy(out, buf, len);
	out[len] = '\0';
	if (strlen(out) != len)
		return mc_err_set(err, -EBADMSG,
			"%s: %s: holds a NUL byte; import the revision again",
			mc_remote_url(c->remote), path);
	return 0;
}

int mc_catalogue_latest(
	struct mc_catalogue *c, struct mc_rev_name *model, uint8_t *ret_id, struct mc_err *err)
{
	char path[MC_REV_PATH], text[MC_ID_TEXT + MC_NAME_MAX + 2];
	uint8_t id[MC_SHA256_SIZE];
	size_t len;
	int r;

	snprintf(path, sizeof(path), "checkpoints/%s/%s/latest", model->org, model->model);
	r = get_text(c, path, text, sizeof(text), err);
	if (r < 0)
		return r;
	len = strlen(text);
	/* "<64 hex> <rev>\n" */
	if (len < MC_ID_TEXT + 2 || text[len - 1] != '\n' || text[MC_SHA256_HEX] != ' ')
		return mc_err_set(err, -EBADMSG, "%s: %s: damaged; import a revision again",
			mc_remote_url(c->remote), path);
	text[len - 1] = text[MC_SHA256_HEX] = '\0';
	if (mc_hex_decode(text, id, sizeof(id)) < 0 || !mc_rev_good(text + MC_ID_TEXT))
		return mc_err_set(err, -EBADMSG, "%s: %s: damaged; import a revision again",
			mc_remote_url(c->remote), path);
	memcpy(model->rev, text + MC_ID_TEXT, len - MC_ID_TEXT);
	if (ret_id != NULL)
		memcpy(ret_id, id, sizeof(id));
	return 0;
}

int mc_catalogue_read_id(struct mc_catalogue *c, const struct mc_rev_name *rev,
	uint8_t ret[MC_SHA256_SIZE], struct mc_err *err)
{
	char path[MC_REV_PATH], text[MC_ID_TEXT + 1];
	int r;

	mc_rev_path(path, rev, "manifest.id");
	r = get_text(c, path, text, sizeof(text), err);
	if (r < 0)
		return r;
	if (strlen(text) != MC_ID_TEXT || text[MC_SHA256_HEX] != '\n')
		return mc_err_set(err, -EBADMSG,
			"%s: %s: not 64 hex digits and a newline; import the revision again",
			mc_remote_url(c->remote), path);
	text[MC_SHA256_HEX] = '\0';
	if (mc_hex_decode(text, ret, MC_SHA256_SIZE) < 0)
		return mc_err_set(err, -EBADMSG,
			"%s: %s: not 64 hex digits and a newline; import the revision again",
			mc_remote_url(c->remote), path);
	return 0;
}

static int check_ready(struct mc_catalogue *c, const struct mc_rev_name *rev, struct mc_err *err)
{
	struct mc_remote_attr attr;
	struct mc_err why = {0};
	char path[MC_REV_PATH];
	int r;

	mc_rev_path(path, rev, "manifest.json");
	r = mc_remote_stat(c->remote, path, &attr, &why);
	if (r == -ENOENT)
		return mc_err_set(err, r, "%s/%s@%s is not on %s (or its import has not finished)",
			rev->org, rev->model, rev->rev, mc_remote_url(c->remote));
	if (r < 0)
		return mc_err_set(err, r, "%s", why.text);
	if (attr.type != MC_REMOTE_FILE)
		return mc_err_set(err, -EBADMSG,
			"%s: %s: not a regular file; remove it and import the revision again",
			mc_remote_url(c->remote), path);
	if (attr.size > MC_MANIFEST_MAX_BYTES)
		return mc_err_set(err, -EFBIG, "%s: %s: %llu bytes, more than %llu",
			mc_remote_url(c->remote), path, (unsigned long long)attr.size,
			(unsigned long long)MC_MANIFEST_MAX_BYTES);
	return 0;
}

int mc_catalogue_id(struct mc_catalogue *c, const struct mc_rev_name *rev,
	uint8_t ret_id[MC_SHA256_SIZE], struct mc_err *err)
{
	int r = check_ready(c, rev, err);

	return r < 0 ? r : mc_catalogue_read_id(c, rev, ret_id, err);
}

/* Reads, checks and parses manifest.json. */
static int load_json(struct mc_catalogue *c, const struct mc_rev_name *rev,
	const uint8_t id[MC_SHA256_SIZE], struct mc_manifest **ret, struct mc_err *err)
{
	cleanup_free void *json = NULL;
	uint8_t sha[MC_SHA256_SIZE];
	char path[MC_REV_PATH];
	size_t len;
	int r;

	mc_rev_path(path, rev, "manifest.json");
	r = mc_remote_get(c->remote, path, MC_MANIFEST_MAX_BYTES, &json, &len, err);
	if (r == 0)
		r = mc_sha256(json, len, sha);
	if (r < 0)
		return r;
	if (memcmp(sha, id, sizeof(sha)) != 0)
		return mc_err_set(err, -EBADMSG,
			"%s: %s: damaged, its SHA-256 is not the one in manifest.id (%zu bytes); "
			"import the same source again",
			mc_remote_url(c->remote), path, len);
	r = mc_manifest_parse(json, len, ret, err);
	return r < 0 ? mc_err_prefix(err, r, "%s: %s", mc_remote_url(c->remote), path) : 0;
}

/* Malloced, or NULL. */
static char *index_path(const struct mc_catalogue *c, const uint8_t id[MC_SHA256_SIZE])
{
	char hex[MC_SHA256_HEX + 1], *path;

	mc_hex_encode(id, MC_SHA256_SIZE, hex);
	return asprintf(&path, "%s/%s.idx", c->index_dir, hex) >= 0 ? path : NULL;
}

int mc_catalogue_load_local(
	struct mc_catalogue *c, const uint8_t id[MC_SHA256_SIZE], struct mc_manifest **ret)
{
	cleanup_free char *path = NULL;

	if (c->index_dir == NULL)
		return -ENOENT;
	path = index_path(c, id);
	if (path == NULL)
		return -ENOMEM;
	return mc_manifest_load_index(path, id, ret) == 0 ? 0 : -ENOENT;
}

/* Saves the index and swaps the parsed manifest for the mapped one, whose memory can be given back.
 */
static void keep_index(const char *path, struct mc_loaded *l)
{
	struct mc_manifest *mapped;

	if (mc_manifest_save_index(l->m, path, &l->index_error) < 0)
		return;
	if (mc_manifest_load_index(path, mc_manifest_id(l->m), &mapped) < 0)
		return;
	mc_manifest_unref(l->m);
	l->m = mapped;
}

int mc_catalogue_load(struct mc_catalogue *c, const struct mc_rev_name *rev, struct mc_loaded *ret,
	struct mc_err *err)
{
	cleanup_free char *path = NULL;
	uint8_t id[MC_SHA256_SIZE];
	struct mc_loaded l = {0};
	int r = mc_catalogue_id(c, rev, id, err);

	if (r < 0)
		return r;
	if (c->index_dir != NULL) {
		path = index_path(c, id);
		if (path == NULL)
			return -ENOMEM;
		l.from_index = mc_manifest_load_index(path, id, &l.m) == 0;
	}
	if (!l.from_index) {
		r = load_json(c, rev, id, &l.m, err);
		if (r < 0)
			return r;
		if (path != NULL)
			keep_index(path, &l);
	}
	*ret = l;
	return 0;
}
