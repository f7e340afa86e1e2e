/* A file by its path, and what an administrator may do to it. */
#include "fs/admin.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/mode.h"
#include "fs/reason.h"
#include "tier/future.h"
#include "tier/kv.h"
#include "tier/store-warm.h"

#define NAME_BYTES 256                  /* a component and its NUL */
#define QUESTION_BYTES (3 * NAME_BYTES) /* "<model>@<rev>/<layout>/<rank>" */

/* The place that a question is about; the caller's reference. */
static int ask_place(struct mc_fs *fs, const struct mc_question *q, struct mc_place **ret)
{
	struct mc_answer *a = mc_names_wait(fs->names, q);
	int r = a->res == 0 && a->place == NULL ? -ENOENT : a->res;

	if (r == 0)
		*ret = mc_place_ref(a->place);
	mc_answer_unref(a);
	return r;
}

/* Takes the first component of *path off; false when there is none or it is too long. */
static bool take_component(const char **path, char out[NAME_BYTES])
{
	size_t len = strcspn(*path, "/");

	if (len == 0 || len >= NAME_BYTES)
		return false;
	memcpy(out, *path, len);
	out[len] = '\0';
	*path += len + ((*path)[len] == '/');
	return true;
}

/* The directory of a view, or of one of its ranks: *path moves behind it. */
static int find_view(struct mc_fs *fs, const char *org, const char *rev, const char **path,
	struct mc_place **ret)
{
	char layout[NAME_BYTES], rank[NAME_BYTES], name[QUESTION_BYTES];
	struct mc_question q = {.topic = MC_TOPIC_VIEW, .org = org, .name = name};
	int r;

	if (!take_component(path, layout))
		return -EISDIR;
	snprintf(name, sizeof(name), "%s/%s", rev, layout);
	r = ask_place(fs, &q, ret);
	if (r < 0 || (*ret)->view != NULL)
		return r;
	mc_place_unref(*ret);
	if (!take_component(path, rank))
		return -EISDIR;
	snprintf(name, sizeof(name), "%s/%s/%s", rev, layout, rank);
	return ask_place(fs, &q, ret);
}

static int find_entry(struct mc_fs *fs, bool view, const char *path, struct mc_admin_file *ret)
{
	char org[NAME_BYTES], rev[NAME_BYTES];
	struct mc_question q = {.topic = MC_TOPIC_REV, .org = org, .name = rev};
	struct mc_entry e;
	int r;

	if (!take_component(&path, org) || !take_component(&path, rev) || strchr(rev, '@') == NULL)
		return *path == '\0' ? -EISDIR : -ENOENT;
	r = view ? find_view(fs, org, rev, &path, &ret->place) : ask_place(fs, &q, &ret->place);
	if (r < 0)
		return r;
	r = ret->place->manifest != NULL ? mc_manifest_walk(ret->place->manifest, path, &ret->entry)
					 : -EISDIR;
	if (r == 0) {
		mc_manifest_entry(ret->place->manifest, ret->entry, &e);
		r = e.type == MC_ENTRY_FILE ? 0 : e.type == MC_ENTRY_DIR ? -EISDIR : -EINVAL;
	}
	if (r < 0) {
		mc_place_unref(ret->place);
		return r;
	}
	ret->size = e.size;
	ret->holes = e.hole_bytes;
	return 0;
}

static int find_object(struct mc_fs *fs, const char *key, struct mc_admin_file *ret)
{
	struct mc_kv_attr attr;
	int r = fs->opts->kv == NULL ? -ENOENT : mc_kv_lookup(fs->opts->kv, key, &attr);

	if (r == 0 && attr.is_dir)
		r = -EISDIR;
	if (r < 0)
		return r;
	ret->key = key;
	ret->size = attr.size;
	return 0;
}

int mc_admin_open(struct mc_fs *fs, const char *path, struct mc_admin_file *ret)
{
	*ret = (struct mc_admin_file){0};
	if (strncmp(path, "kv/", 3) == 0)
		return find_object(fs, path + 3, ret);
	if (strncmp(path, "checkpoints/", 12) == 0)
		return find_entry(fs, false, path + 12, ret);
	if (strncmp(path, "views/", 6) == 0)
		return find_entry(fs, true, path + 6, ret);
	return -EINVAL;
}

void mc_admin_file_of(struct mc_fs *fs, const struct mc_spot *s, struct mc_admin_file *ret)
{
	struct mc_kv_attr attr;
	struct mc_entry e;

	*ret = (struct mc_admin_file){.place = s->place, .entry = s->entry, .key = s->key};
	if (s->kind == MC_NODE_ENTRY) {
		mc_manifest_entry(s->place->manifest, s->entry, &e);
		ret->size = e.size;
		ret->holes = e.hole_bytes;
	} else if (mc_kv_lookup(fs->opts->kv, s->key, &attr) == 0) {
		ret->size = attr.size;
	}
}

void mc_admin_close(struct mc_admin_file *f)
{
	mc_place_unref(f->place);
	*f = (struct mc_admin_file){0};
}

int mc_admin_residency(
	struct mc_fs *fs, const struct mc_admin_file *f, struct mc_admin_residency *ret)
{
	struct mc_residency res = {0};
	struct mc_kv_attr attr;
	struct mc_file *file;
	int r = 0;

	*ret = (struct mc_admin_residency){.size = f->size - f->holes};
	if (f->key != NULL) {
		r = mc_kv_lookup(fs->opts->kv, f->key, &attr);
		if (r == 0)
			*ret = (struct mc_admin_residency){.size = attr.size,
				.dram = attr.dram,
				.nvme = attr.nvme,
				.block = attr.block,
				.remote = attr.size * attr.remotes,
				.pinned = attr.pinned};
		return r;
	}
	ret->remote = f->place->view == NULL ? ret->size : 0;
	if (f->size == 0)
		return 0;
	r = mc_mode_entry_file(fs, f->place, f->entry, &file);
	if (r < 0)
		return r;
	mc_store_residency(fs->opts->store, mc_file_id(file), &res);
	mc_file_put(file);
	ret->dram = res.dram;
	ret->nvme = res.nvme;
	ret->block = res.block;
	ret->pinned = res.pinned;
	return 0;
}

struct gotten {
	struct mc_future over;
	struct mc_kv_object *object; /* owned reference */
};

static void got(void *ctx, int res, struct mc_kv_object *obj)
{
	struct gotten *g = ctx;

	g->object = obj;
	mc_future_set(&g->over, res);
}

/* To DRAM by opening it; to a tier below what is still on its way there. */
static int warm_object(struct mc_fs *fs, const char *key, const struct mc_warm_opts *opts)
{
	struct mc_kv_attr attr;
	struct gotten g;
	int r;

	if (opts->tier != MC_TIER_DRAM) {
		r = mc_kv_sync(fs->opts->kv, key);
		if (r == 0)
			r = mc_kv_lookup(fs->opts->kv, key, &attr);
		return r < 0                                              ? r
			: mc_kv_attr_bytes(&attr, opts->tier) < attr.size ? -EOPNOTSUPP
									  : 0;
	}
	mc_future_init(&g.over);
	mc_kv_get(fs->opts->kv, key, got, &g);
	r = (int)mc_future_wait(&g.over);
	if (r == 0)
		mc_kv_object_put(g.object);
	return r;
}

/* Identifies what the bytes are, whatever door they are reached by. */
static uint64_t about(const struct mc_admin_file *f)
{
	struct mc_entry e;

	if (f->key != NULL)
		return mc_hash_mix(mc_hash_bytes(MC_HASH_SEED, f->key, strlen(f->key)));
	mc_manifest_entry(f->place->manifest, f->entry, &e);
	return e.digest != NULL ? mc_hash_bytes(MC_HASH_SEED, e.digest, MC_SHA256_SIZE) : 0;
}

/* Remembers why; the result as it was. */
static int result(
	struct mc_fs *fs, const struct mc_admin_file *f, const char *what, int r, const char *why)
{
	char text[MC_REASON_BYTES] = "";

	if (r < 0 && r != -ENOENT)
		snprintf(text, sizeof(text), "%s: %s", what, why != NULL ? why : strerror(-r));
	mc_reasons_set(fs->reasons, about(f), text);
	return r;
}

void mc_admin_put_ended(struct mc_fs *fs, const char *key, const char *text)
{
	const struct mc_admin_file f = {.key = key};

	mc_reasons_set(fs->reasons, about(&f), text);
}

void mc_admin_error(struct mc_fs *fs, const struct mc_admin_file *f, char *out, size_t size)
{
	char text[MC_REASON_BYTES];

	mc_reasons_get(fs->reasons, about(f), text);
	snprintf(out, size, "%s", text);
}

static int warm(struct mc_fs *fs, const struct mc_admin_file *f, const struct mc_warm_opts *opts)
{
	struct mc_file *file;
	int r;

	if (opts->tier >= MC_TIER_REMOTE)
		return -EINVAL;
	if (f->size == 0)
		return 0;
	if (f->key != NULL)
		return warm_object(fs, f->key, opts);
	r = mc_mode_entry_file(fs, f->place, f->entry, &file);
	if (r < 0)
		return r;
	r = mc_store_warm(file, opts);
	mc_file_put(file);
	return r;
}

int mc_admin_warm(struct mc_fs *fs, const struct mc_admin_file *f, const struct mc_warm_opts *opts)
{
	return result(fs, f, "not warmed", warm(fs, f, opts), NULL);
}

static int evict(
	struct mc_fs *fs, const struct mc_admin_file *f, enum mc_tier tier, const char **ret_why)
{
	struct mc_file *file;
	int r;

	*ret_why = NULL;
	if (f->key != NULL)
		return mc_kv_evict_from(fs->opts->kv, f->key, tier, ret_why);
	if (f->size == 0)
		return 0;
	r = mc_mode_entry_file(fs, f->place, f->entry, &file);
	if (r < 0)
		return r;
	r = mc_store_evict(fs->opts->store, mc_file_id(file), tier, ret_why);
	mc_file_put(file);
	return r;
}

int mc_admin_evict(
	struct mc_fs *fs, const struct mc_admin_file *f, enum mc_tier tier, const char **ret_why)
{
	int r = evict(fs, f, tier, ret_why);
	char what[32];

	snprintf(what, sizeof(what), "not evicted from %s", mc_tier_name(tier));
	return result(fs, f, what, r, *ret_why);
}

static int pin(struct mc_fs *fs, const struct mc_admin_file *f, bool pinned)
{
	struct mc_file *file;
	int r;

	if (f->key != NULL)
		return mc_kv_pin(fs->opts->kv, f->key, pinned);
	if (f->size == 0)
		return 0;
	r = mc_mode_entry_file(fs, f->place, f->entry, &file);
	if (r < 0)
		return r;
	r = mc_store_pin(fs->opts->store, mc_file_id(file), pinned);
	mc_file_put(file);
	return r;
}

int mc_admin_pin(struct mc_fs *fs, const struct mc_admin_file *f, bool pinned)
{
	int r = pin(fs, f, pinned);

	return result(fs, f, pinned ? "not pinned" : "not unpinned", r,
		r != -ENOSPC ? NULL
			: f->key != NULL
			? "more would be pinned than half of NVMe, or of DRAM where "
			  "there is no NVMe"
			: "more would be pinned than half of the largest tier");
}

void mc_admin_refresh(struct mc_fs *fs)
{
	mc_names_refresh(fs->names);
}
