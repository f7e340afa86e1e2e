/*
 * tiers/: names and attributes.
 *
 * What a tier holds changes at any time, so the kernel may not remember entries: with a timeout of
 * 0 it forgets a file's name and number when the call that looked it up is over, and a walk over a
 * million objects leaves no nodes behind. Attributes are good for a second, so that the stat that
 * follows a lookup asks nothing. A directory that the kernel knows goes on when it holds nothing
 * any more, until it is removed: rm -r empties it before it does that.
 */
#include "fs/tiers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/holds.h"
#include "fs/tree.h"

#define KEY_BYTES 4097 /* the longest key and its NUL */
#define ATTR_S 1.0
#define DIR_S 3600.0
#define LOOK_MAX 65536 /* entries looked at to know whether a directory is there */

/* ---- attributes */

int mc_tier_key(const char *key, const char *name, char **ret)
{
	size_t len = strlen(key), name_len = strlen(name);
	char *out;

	if (name_len > 255 || len + name_len + 2 > KEY_BYTES)
		return -ENAMETOOLONG;
	out = malloc(len + name_len + 2);
	if (out == NULL)
		return -ENOMEM;
	memcpy(out, key, len);
	if (len > 0)
		out[len++] = '/';
	memcpy(out + len, name, name_len + 1);
	*ret = out;
	return 0;
}

/* What all have in common. */
static void finish(const struct mc_spot *s, struct stat *st)
{
	st->st_ino = mc_hash_mix(st->st_ino ^ (uint64_t)s->at << 56) | 2;
	st->st_atim = st->st_mtim;
	st->st_ctim = st->st_mtim;
}

void mc_tier_kv_attr(
	struct mc_fs *fs, const struct mc_spot *s, const struct mc_kv_attr *a, struct stat *st)
{
	uint64_t bytes = mc_kv_attr_bytes(a, mc_at_tier(s->at));

	mc_tree_attr(fs, s, 0, st);
	st->st_ino = a->ino;
	if (!a->is_dir) {
		st->st_size = (off_t)a->size;
		st->st_blocks = (blkcnt_t)((bytes + 511) / 512);
		st->st_mtim.tv_sec = a->mtime_s;
		st->st_mtim.tv_nsec = (long)a->mtime_ns;
	}
	finish(s, st);
}

static int kv_attr(struct mc_fs *fs, const struct mc_spot *s, struct stat *st)
{
	struct mc_kv_attr a = {.is_dir = s->kind == MC_NODE_KV_DIR};
	enum mc_tier tier = mc_at_tier(s->at);
	int r = mc_kv_lookup(fs->opts->kv, s->key, &a);

	mc_tier_kv_attr(fs, s, &a, st);
	if (r < 0 || a.is_dir != (s->kind == MC_NODE_KV_DIR))
		return -ENOENT;
	if (a.is_dir)
		return *s->key == '\0' || mc_kv_dir_holds(fs->opts->kv, s->key, tier) ? 0 : -ENOENT;
	return mc_kv_attr_in(&a, tier) ? 0 : -ENOENT;
}

static int entry_attr(struct mc_fs *fs, const struct mc_spot *s, struct stat *st)
{
	struct mc_entry e;

	if (S_ISDIR(st->st_mode)) {
		st->st_mode = S_IFDIR | 0755;
		return mc_holds_entry(fs, s->at, s->place, s->entry, LOOK_MAX) ? 0 : -ENOENT;
	}
	mc_manifest_entry(s->place->manifest, s->entry, &e);
	st->st_mode = S_IFREG | 0200;
	st->st_nlink = 2; /* other revisions may share the bytes: du counts an inode once */
	st->st_blocks = (blkcnt_t)((mc_holds_bytes(fs, s->at, &e) + 511) / 512);
	return mc_holds_entry(fs, s->at, s->place, s->entry, 1) ? 0 : -ENOENT;
}

/* 0, or -ENOENT: the tier does not hold it (any more). */
static int attr_of(struct mc_fs *fs, const struct mc_spot *s, struct stat *st)
{
	int r = 0;

	if (s->kind == MC_NODE_KV_DIR || s->kind == MC_NODE_KV_FILE)
		return kv_attr(fs, s, st);
	mc_tree_attr(fs, s, 0, st);
	if (s->kind == MC_NODE_ENTRY)
		r = entry_attr(fs, s, st);
	else
		st->st_mode = S_IFDIR | 0755;
	finish(s, st);
	return r;
}

void mc_tierop_getattr(fuse_req_t req, fuse_ino_t ino)
{
	struct mc_fs *fs = mc_ops_fs(req);
	struct mc_node *n = mc_nodes_find(fs->nodes, ino);
	struct mc_spot s;
	struct stat st;
	int r;

	if (n == NULL) {
		fuse_reply_err(req, ESTALE);
		return;
	}
	s = mc_spot_of(n);
	r = attr_of(fs, &s, &st);
	if (r < 0 && !S_ISDIR(st.st_mode))
		fuse_reply_err(req, ENOENT);
	else
		fuse_reply_attr(req, &st, ATTR_S);
}

/* ---- lookup */

int mc_tier_entry(struct mc_fs *fs, const struct mc_spot *s, const struct stat *st,
	struct fuse_entry_param *e, struct mc_node **ret)
{
	int r = mc_nodes_get(fs->nodes, s, ret);

	if (r < 0)
		return r;
	*e = (struct fuse_entry_param){.ino = mc_node_id(*ret),
		.generation = (*ret)->gen,
		.attr = *st,
		.attr_timeout = ATTR_S,
		.entry_timeout = S_ISDIR(st->st_mode) ? DIR_S : 0};
	return 0;
}

static void reply_spot(fuse_req_t req, struct mc_fs *fs, const struct mc_spot *s)
{
	struct fuse_entry_param e;
	struct mc_node *n;
	struct stat st;
	int r = attr_of(fs, s, &st);

	if (r < 0 && !(S_ISDIR(st.st_mode) && mc_nodes_has(fs->nodes, s))) {
		fuse_reply_err(req, ENOENT);
		return;
	}
	r = mc_tier_entry(fs, s, &st, &e, &n);
	if (r < 0)
		fuse_reply_err(req, mc_ops_errno(r));
	else if (fuse_reply_entry(req, &e) == -ENOENT)
		mc_nodes_put(fs->nodes, n, 1); /* the request was aborted: no forget will come */
}

static void lookup_kv(fuse_req_t req, struct mc_fs *fs, const struct mc_spot *dir, const char *name)
{
	struct mc_spot s = {.kind = MC_NODE_KV_FILE, .at = dir->at};
	struct mc_kv_attr a;
	char *key;
	int r = mc_tier_key(dir->key, name, &key);

	if (r < 0) {
		fuse_reply_err(req, -r);
		return;
	}
	s.key = key;
	if (mc_kv_lookup(fs->opts->kv, key, &a) == 0 && a.is_dir)
		s.kind = MC_NODE_KV_DIR;
	reply_spot(req, fs, &s);
	free(key);
}

static void lookup_entry(
	fuse_req_t req, struct mc_fs *fs, const struct mc_spot *dir, const char *name)
{
	struct mc_spot s = *dir;
	int r = mc_manifest_lookup(s.place->manifest, s.entry, name, strlen(name), &s.entry);

	if (r < 0)
		fuse_reply_err(req, mc_ops_errno(r));
	else
		reply_spot(req, fs, &s);
}

/* An organisation, or a revision. */
static void lookup_listed(struct mc_spot_job *job)
{
	const struct mc_spot *dir = &job->spot;
	bool rev = dir->kind == MC_NODE_ORG;
	struct mc_spot s = {.kind = rev ? MC_NODE_ENTRY : MC_NODE_ORG, .at = dir->at};
	bool holds = rev ? mc_tier_holds_rev(job->fs, dir->at, dir->place->org, job->name, &s.place)
			 : mc_tier_holds_org(job->fs, dir->at, job->name, &s.place);
	fuse_req_t req = mc_spot_job_take(job);

	if (req != NULL && s.place != NULL && (holds || mc_nodes_has(job->fs->nodes, &s)))
		reply_spot(req, job->fs, &s);
	else if (req != NULL)
		fuse_reply_err(req, ENOENT);
	mc_place_unref(s.place);
	mc_spot_job_end(job);
}

static void lookup_fixed(
	fuse_req_t req, struct mc_fs *fs, const struct mc_spot *dir, const char *name)
{
	struct mc_spot s;

	for (unsigned i = 0; mc_tier_fixed(fs, dir, i, &s) != NULL; i++) {
		if (strcmp(mc_tier_fixed(fs, dir, i, &s), name) == 0) {
			reply_spot(req, fs, &s);
			return;
		}
	}
	fuse_reply_err(req, ENOENT);
}

void mc_tierop_lookup_root(fuse_req_t req)
{
	const struct mc_spot s = {.kind = MC_NODE_TIERS, .at = MC_AT_TIERS};

	reply_spot(req, mc_ops_fs(req), &s);
}

void mc_tierop_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct mc_fs *fs = mc_ops_fs(req);
	struct mc_node *n = mc_nodes_find(fs->nodes, parent);
	struct mc_spot_job *job;
	struct mc_spot dir;

	if (n == NULL) {
		fuse_reply_err(req, ESTALE);
		return;
	}
	dir = mc_spot_of(n);
	atomic_store_explicit(&n->looked_up, true, memory_order_relaxed);
	switch (n->kind) {
	case MC_NODE_TIERS:
	case MC_NODE_TIER:
		lookup_fixed(req, fs, &dir, name);
		break;
	case MC_NODE_KV_DIR:
		lookup_kv(req, fs, &dir, name);
		break;
	case MC_NODE_ENTRY:
		lookup_entry(req, fs, &dir, name);
		break;
	case MC_NODE_CHECKPOINTS:
	case MC_NODE_ORG:
		job = mc_spot_job_new(req, &dir, name, lookup_listed);
		if (job != NULL)
			mc_spot_job_start(job, job->fs->admin);
		break;
	default:
		fuse_reply_err(req, ENOTDIR);
		break;
	}
}

static bool has_tier(const struct mc_fs *fs, enum mc_tier tier)
{
	return mc_store_has(fs->opts->store, tier) ||
		(fs->opts->kv != NULL && mc_kv_has(fs->opts->kv, tier));
}

/* The i-th of those that the mount has, or MC_TIERS. */
static int nth_tier(const struct mc_fs *fs, unsigned i)
{
	int t = MC_TIER_DRAM;

	while (t < MC_TIERS && (!has_tier(fs, (enum mc_tier)t) || i-- > 0))
		t++;
	return t;
}

const char *mc_tier_fixed(
	const struct mc_fs *fs, const struct mc_spot *dir, unsigned i, struct mc_spot *ret)
{
	int tier;

	*ret = (struct mc_spot){.at = dir->at};
	if (dir->kind == MC_NODE_TIERS) {
		ret->kind = MC_NODE_TIER;
		tier = nth_tier(fs, i);
		ret->at = (enum mc_at)(MC_AT_DRAM + tier);
		return tier < MC_TIERS ? mc_tier_name((enum mc_tier)tier) : NULL;
	}
	ret->kind = i == 0 ? MC_NODE_CHECKPOINTS : MC_NODE_KV_DIR;
	ret->key = i == 0 ? NULL : "";
	if (i == 0)
		return "checkpoints";
	return i == 1 && fs->kvfs != NULL ? "kv" : NULL;
}
