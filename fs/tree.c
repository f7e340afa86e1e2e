/*
 * The tree as it looks:
 *   /checkpoints/<org>/<model>          symlink to <model>@<newest revision>
 *   /checkpoints/<org>/<model>@<rev>/…  what the manifest holds
 *   /views/<org>/<model>                symlink to <model>@<newest revision>
 *   /views/<org>/<model>@<rev>/<layout>/…  its tensors cut for that layout; files, or a directory
 *                                       of files for each rank
 *   /layouts/<name>.json                registered layouts, and drafts
 *   /tiers/<tier>/…                     what a tier holds: tiers.c
 */
#include "fs/tree.h"

#include <stdio.h>
#include <string.h>

#include "fs/draft.h"

#define FOREVER_S 86400.0 /* the contents of a revision are immutable */
#define CHANGING_S 2.0    /* with what names.c remembers, changes are seen within 10 s */
#define MISSING_S 1.0
#define IO_SIZE 131072 /* st_blksize: what cat and Python read at once */

static uint64_t finish(uint64_t h, enum mc_node_kind kind)
{
	h = mc_hash_mix(h ^ (uint64_t)kind << 56);
	return h > MC_NODE_ROOT_ID ? h : h + 2;
}

uint64_t mc_tree_ino(const struct mc_spot *s)
{
	uint64_t h;

	if (s->kind == MC_NODE_ROOT)
		return MC_NODE_ROOT_ID;
	h = s->place != NULL ? s->place->name_hash : MC_HASH_SEED;
	if (s->kind == MC_NODE_DRAFT)
		h = mc_hash_bytes(h, &s->entry, sizeof(s->entry));
	if (s->kind == MC_NODE_ENTRY) {
		struct mc_entry e;

		mc_manifest_entry(s->place->manifest, s->entry, &e);
		if (e.type == MC_ENTRY_FILE && e.digest != NULL)
			h = mc_hash_bytes(mc_hash_bytes(MC_HASH_SEED, e.digest, MC_SHA256_SIZE),
				&e.size, sizeof(e.size));
		else
			h ^= (uint64_t)s->entry * UINT64_C(0x9e3779b97f4a7c15);
	}
	return finish(h, s->kind);
}

/* In an organisation: <model> or <model>@<rev>. */
static uint64_t in_org_ino(bool views, const char *org, const char *name)
{
	char model[256];
	const char *at = strchr(name, '@');

	if (at == NULL)
		return finish(mc_place_name_hash(org, name, NULL),
			views ? MC_NODE_VIEW_LATEST : MC_NODE_LATEST);
	snprintf(model, sizeof(model), "%.*s", (int)(at - name), name);
	return finish(
		mc_place_name_hash(org, model, at + 1), views ? MC_NODE_VIEW_REV : MC_NODE_ENTRY);
}

uint64_t mc_tree_listed_ino(const struct mc_spot *dir, const char *name)
{
	char path[256 + MC_VIEW_RANK_NAME];

	switch (dir->kind) {
	case MC_NODE_CHECKPOINTS:
		return finish(mc_place_name_hash(name, NULL, NULL), MC_NODE_ORG);
	case MC_NODE_VIEWS:
		return finish(mc_place_name_hash(name, NULL, NULL), MC_NODE_VIEW_ORG);
	case MC_NODE_ORG:
	case MC_NODE_VIEW_ORG:
		return in_org_ino(dir->kind == MC_NODE_VIEW_ORG, dir->place->org, name);
	case MC_NODE_VIEW_REV:
		return finish(
			mc_place_layout_hash(dir->place->name_hash, name), MC_NODE_VIEW_LAYOUT);
	case MC_NODE_VIEW_LAYOUT:
		snprintf(path, sizeof(path), "%s/%s", dir->place->layout, name);
		return finish(mc_place_layout_hash(mc_place_name_hash(dir->place->org,
							   dir->place->model, dir->place->rev),
				      path),
			MC_NODE_ENTRY);
	default:
		return finish(mc_place_name_hash(name, "", NULL), MC_NODE_LAYOUTS);
	}
}

static void entry_attr(const struct mc_spot *s, struct stat *st)
{
	struct mc_entry e;

	mc_manifest_entry(s->place->manifest, s->entry, &e);
	st->st_mtim.tv_sec = e.mtime_s;
	st->st_mtim.tv_nsec = (long)e.mtime_ns;
	switch (e.type) {
	case MC_ENTRY_DIR:
		st->st_mode = S_IFDIR | 0555;
		break;
	case MC_ENTRY_SYMLINK:
		st->st_mode = S_IFLNK | 0777;
		st->st_size = (off_t)e.size;
		break;
	case MC_ENTRY_FILE:
		st->st_mode = S_IFREG | (e.mode & 0555);
		st->st_size = (off_t)e.size;
		st->st_blocks = (blkcnt_t)((e.size - e.hole_bytes + 511) / 512);
		break;
	}
}

static void draft_attr(const struct mc_fs *fs, uint32_t number, struct stat *st)
{
	struct mc_draft_attr a = {0};

	mc_draft_stat(fs->drafts, number, &a); /* one that is gone is empty */
	st->st_mode = S_IFREG | 0644;
	st->st_size = (off_t)a.size;
	st->st_blocks = (blkcnt_t)((a.size + 511) / 512);
	st->st_mtim = a.mtime;
}

/* Directories above those of a view have the time of the checkpoint. */
static void view_attr(const struct mc_place *p, struct stat *st)
{
	struct mc_entry e;

	mc_manifest_entry(
		p->view_layout != NULL ? mc_view_layout_manifest(p->view_layout) : p->manifest, 0,
		&e);
	st->st_mtim.tv_sec = e.mtime_s;
	st->st_mtim.tv_nsec = (long)e.mtime_ns;
	st->st_mode = S_IFDIR | 0555;
}

void mc_tree_attr(const struct mc_fs *fs, const struct mc_spot *s, size_t link_len, struct stat *st)
{
	memset(st, 0, sizeof(*st));
	st->st_ino = mc_tree_ino(s);
	st->st_uid = fs->uid;
	st->st_gid = fs->gid;
	st->st_blksize = IO_SIZE;
	st->st_nlink = 1; /* for directories: "not counted", so that find does not rely on it */
	st->st_mtim.tv_sec = fs->start_s;
	switch (s->kind) {
	case MC_NODE_ROOT:
	case MC_NODE_CHECKPOINTS:
	case MC_NODE_ORG:
	case MC_NODE_VIEWS:
	case MC_NODE_VIEW_ORG:
		st->st_mode = S_IFDIR | 0555;
		break;
	case MC_NODE_LAYOUTS:
	case MC_NODE_TIERS:
	case MC_NODE_TIER:
	case MC_NODE_KV_DIR:
		st->st_mode = S_IFDIR | 0755;
		break;
	case MC_NODE_KV_FILE:
		st->st_mode = S_IFREG | 0200;
		break;
	case MC_NODE_DRAFT:
		draft_attr(fs, s->entry, st);
		break;
	case MC_NODE_VIEW_REV:
	case MC_NODE_VIEW_LAYOUT:
		view_attr(s->place, st);
		break;
	case MC_NODE_LATEST:
	case MC_NODE_VIEW_LATEST:
		st->st_mode = S_IFLNK | 0777;
		st->st_size = (off_t)link_len;
		break;
	case MC_NODE_ENTRY:
		entry_attr(s, st);
		break;
	}
	st->st_atim = st->st_mtim;
	st->st_ctim = st->st_mtim;
}

/* The revision's own directory may be removed from the catalogue, so its name is looked at again;
 * so may layouts. */
static bool immutable(const struct mc_spot *s)
{
	return s->kind == MC_NODE_ENTRY && s->entry != 0 && s->place->model != NULL;
}

double mc_tree_timeout(const struct mc_spot *s)
{
	if (s->kind == MC_NODE_DRAFT)
		return 0;
	return immutable(s) ? FOREVER_S : CHANGING_S;
}

double mc_tree_negative_timeout(const struct mc_spot *dir)
{
	if (dir->kind == MC_NODE_ENTRY || dir->kind == MC_NODE_ROOT)
		return FOREVER_S;
	return MISSING_S;
}

int mc_tree_entry_param(struct mc_fs *fs, const struct mc_spot *s, size_t link_len,
	struct fuse_entry_param *e, struct mc_node **ret)
{
	int r = mc_nodes_get(fs->nodes, s, ret);

	if (r < 0)
		return r;
	memset(e, 0, sizeof(*e));
	e->ino = mc_node_id(*ret);
	e->generation = (*ret)->gen;
	mc_tree_attr(fs, s, link_len, &e->attr);
	e->attr_timeout = mc_tree_timeout(s);
	e->entry_timeout = e->attr_timeout;
	return 0;
}
