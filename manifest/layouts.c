/* Layout documents on a remote: layouts/<name>.json. */
#include "manifest/views.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/layout.h"
#include "manifest/preset.h"
#include "manifest/profile.h"
#include "tier/cleanup.h"

#define FOLDER "layouts"
#define PROFILES "profiles"
#define SUFFIX ".json"
#define PATH_BYTES (sizeof(FOLDER) + 1 + MC_NAME_MAX + sizeof(SUFFIX))

/* A name that has a place in the tree and on the remote. */
static bool name_good(const char *name)
{
	return strlen(name) + strlen(SUFFIX) <= MC_NAME_MAX && mc_model_name_good(name);
}

static bool is_mesh(const char *name)
{
	struct mc_layout *l = NULL;
	int r = mc_preset_open("llama", name, &l, NULL);

	mc_layout_free(l);
	return r != -ENOENT;
}

struct listing {
	mc_catalogue_each *each;
	void *ctx;
};

static int list_one(void *ctx, const char *name, const struct mc_remote_attr *attr)
{
	const struct listing *l = ctx;
	char base[MC_NAME_MAX + 1];
	size_t len = strlen(name), end = strlen(SUFFIX);

	if (attr->type != MC_REMOTE_FILE || len <= end || len > MC_NAME_MAX ||
		strcmp(name + len - end, SUFFIX) != 0)
		return 0;
	snprintf(base, sizeof(base), "%.*s", (int)(len - end), name);
	return name_good(base) && !is_mesh(base) ? l->each(l->ctx, base) : 0;
}

int mc_layouts_list(struct mc_remote *r, mc_catalogue_each *each, void *ctx, struct mc_err *err)
{
	struct listing l = {.each = each, .ctx = ctx};
	struct mc_err why = {0};
	int res = mc_remote_list(r, FOLDER, list_one, &l, &why);

	if (res == -ENOENT)
		return 0;
	return res < 0 ? mc_err_set(err, res, "%s", why.text) : res;
}

int mc_layouts_get(
	struct mc_remote *r, const char *name, char **ret, size_t *ret_len, struct mc_err *err)
{
	char path[PATH_BYTES];
	void *buf;
	int res;

	if (!name_good(name))
		return mc_err_set(err, -ENOENT, "\"%.64s\" is no name of a layout", name);
	snprintf(path, sizeof(path), "%s/%s%s", FOLDER, name, SUFFIX);
	res = mc_remote_get(r, path, MC_LAYOUT_MAX_BYTES, &buf, ret_len, err);
	if (res == 0)
		*ret = buf;
	return res;
}

int mc_profiles_get(
	struct mc_remote *r, const char *name, char **ret, size_t *ret_len, struct mc_err *err)
{
	char path[PATH_BYTES + sizeof(PROFILES)];
	void *buf;
	int res;

	if (!name_good(name))
		return mc_err_set(err, -ENOENT, "\"%.64s\" is no name of a profile", name);
	snprintf(path, sizeof(path), "%s/%s/%s%s", FOLDER, PROFILES, name, SUFFIX);
	res = mc_remote_get(r, path, MC_PROFILE_MAX_BYTES, &buf, ret_len, err);
	if (res == 0)
		*ret = buf;
	return res;
}

int mc_profiles_put(
	struct mc_remote *r, const char *name, const void *text, size_t len, struct mc_err *err)
{
	char path[PATH_BYTES + sizeof(PROFILES)];
	cleanup_free char *have = NULL;
	struct mc_profile *p;
	size_t n;
	int res = mc_profile_parse(text, len, &p, err);

	if (res < 0)
		return res;
	mc_profile_free(p);
	if (!name_good(name))
		return mc_err_set(err, -EINVAL, "\"%.64s\" cannot be a profile's name", name);
	snprintf(path, sizeof(path), "%s/%s/%s%s", FOLDER, PROFILES, name, SUFFIX);
	res = mc_remote_put(r, path, text, len, MC_PUT_EXCL, err);
	if (res != -EEXIST)
		return res;
	if (err != NULL)
		err->text[0] = '\0';
	if (mc_profiles_get(r, name, &have, &n, NULL) == 0 && n == len &&
		memcmp(have, text, len) == 0)
		return 0;
	return mc_err_set(err, res,
		"there is another profile called \"%s\"; a profile never changes, give this one "
		"another name",
		name);
}

int mc_layouts_file(struct mc_remote *r, const char *name, struct mc_view **ret, struct mc_err *err)
{
	char path[PATH_BYTES];
	struct mc_remote_attr attr;
	cleanup_free char *text = NULL;
	size_t len;
	int res = mc_layouts_get(r, name, &text, &len, err);

	if (res < 0)
		return res;
	snprintf(path, sizeof(path), "%s/%s%s", FOLDER, name, SUFFIX);
	res = mc_remote_stat(r, path, &attr, err);
	return res < 0 ? res : mc_view_of_text(path + strlen(FOLDER) + 1, text, len, &attr, ret);
}

/* The same document, up to white space and the order of keys. */
static bool registered(struct mc_remote *r, const char *name, const uint8_t *digest)
{
	uint8_t have[MC_SHA256_SIZE];
	struct mc_layout *l = NULL;
	cleanup_free char *text = NULL;
	size_t len;
	bool same = mc_layouts_get(r, name, &text, &len, NULL) == 0 &&
		mc_layout_parse(text, len, &l, NULL) == 0 && mc_layout_digest(l, have) == 0 &&
		memcmp(have, digest, sizeof(have)) == 0;

	mc_layout_free(l);
	return same;
}

int mc_layouts_put(struct mc_remote *r, const char *name, const void *text, size_t len,
	char ret_name[MC_NAME_MAX + 1], struct mc_err *err)
{
	uint8_t digest[MC_SHA256_SIZE];
	struct mc_layout *l;
	char path[PATH_BYTES];
	int res = mc_layout_parse(text, len, &l, err);

	if (res < 0)
		return res;
	res = mc_layout_digest(l, digest);
	if (res == 0 && (!name_good(mc_layout_name(l)) || is_mesh(mc_layout_name(l))))
		res = mc_err_set(err, -EINVAL,
			"\"%.64s\" cannot be a layout's name: one path component without '@' that "
			"does not start with '.', and no mesh like tp8",
			mc_layout_name(l));
	if (res == 0 && name != NULL && strcmp(name, mc_layout_name(l)) != 0)
		res = mc_err_set(err, -EINVAL, "the document's name is \"%.64s\", not \"%.64s\"",
			mc_layout_name(l), name);
	if (res == 0) {
		snprintf(ret_name, MC_NAME_MAX + 1, "%s", mc_layout_name(l));
		snprintf(path, sizeof(path), "%s/%s%s", FOLDER, ret_name, SUFFIX);
		res = mc_remote_put(r, path, text, len, MC_PUT_EXCL, err);
		if (res == -EEXIST && registered(r, ret_name, digest))
			res = 0;
		else if (res == -EEXIST && err != NULL)
			err->text[0] = '\0';
		if (res == -EEXIST)
			mc_err_set(err, res,
				"there is another layout called \"%s\"; a layout never changes, "
				"give this one another name",
				ret_name);
	}
	mc_layout_free(l);
	return res;
}

int mc_layouts_remove(struct mc_remote *r, const char *name, struct mc_err *err)
{
	char path[PATH_BYTES];
	int res;

	if (!name_good(name))
		return mc_err_set(err, -ENOENT, "\"%.64s\" is no name of a layout", name);
	snprintf(path, sizeof(path), "%s/%s%s", FOLDER, name, SUFFIX);
	res = mc_remote_unlink(r, path, err);
	return res < 0 ? res : mc_remote_sync(r, err);
}
