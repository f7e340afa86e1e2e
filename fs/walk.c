/* The files below a spot. */
#include "fs/walk.h"

#include <errno.h>
#include <stdlib.h>

#include "fs/tiers.h"
#include "tier/kv.h"

struct walk {
	struct mc_fs *fs;
	const struct mc_spot *dir;
	int (*each)(void *ctx, const struct mc_spot *file);
	void *ctx;
	int res;
};

static int walk_kv_child(void *ctx, const char *name, const struct mc_kv_attr *attr, uint64_t next)
{
	struct walk *w = ctx;
	struct mc_spot s = *w->dir;
	char *key;

	(void)next;
	w->res = mc_tier_key(w->dir->key, name, &key);
	if (w->res < 0)
		return w->res;
	s.key = key;
	s.kind = attr->is_dir ? MC_NODE_KV_DIR : MC_NODE_KV_FILE;
	w->res = mc_walk_files(w->fs, &s, w->each, w->ctx);
	free(key);
	return w->res;
}

static int walk_kv(struct walk *w)
{
	uint64_t cursor = 0;
	int r = mc_kv_list(w->fs->opts->kv, w->dir->key, &cursor, walk_kv_child, w);

	return w->res != 0 ? w->res : r;
}

int mc_walk_files(struct mc_fs *fs, const struct mc_spot *s,
	int (*each)(void *ctx, const struct mc_spot *file), void *ctx)
{
	struct walk w = {.fs = fs, .dir = s, .each = each, .ctx = ctx};
	struct mc_spot child = *s;
	struct mc_entry e;
	int r = 0;

	if (s->kind == MC_NODE_KV_FILE)
		return each(ctx, s);
	if (s->kind == MC_NODE_KV_DIR)
		return walk_kv(&w);
	if (s->kind != MC_NODE_ENTRY)
		return -EOPNOTSUPP;
	mc_manifest_entry(s->place->manifest, s->entry, &e);
	if (e.type == MC_ENTRY_FILE)
		return each(ctx, s);
	if (e.type != MC_ENTRY_DIR)
		return 0;
	for (uint32_t i = 0; i < e.n_children && r == 0; i++) {
		child.entry = e.first_child + i;
		r = mc_walk_files(fs, &child, each, ctx);
	}
	return r;
}
