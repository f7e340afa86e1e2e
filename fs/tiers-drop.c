/* Removing below tiers/: a file is evicted, a directory that holds nothing is gone by itself. */
#include "fs/tiers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/admin.h"
#include "fs/holds.h"

/* The child of a directory of a revision or of kv/: its spot, with a key that the caller frees. */
static int child_of(struct mc_spot_job *job, struct mc_spot *ret, char **ret_key)
{
	struct mc_kv_attr a;
	int r;

	*ret = job->spot;
	if (job->spot.kind == MC_NODE_ENTRY)
		return mc_manifest_lookup(ret->place->manifest, ret->entry, job->name,
			strlen(job->name), &ret->entry);
	r = mc_tier_key(job->spot.key, job->name, ret_key);
	if (r < 0)
		return r;
	ret->key = *ret_key;
	r = mc_kv_find(job->fs->opts->kv, ret->key, &a);
	ret->kind = r == 0 && a.is_dir ? MC_NODE_KV_DIR : MC_NODE_KV_FILE;
	return r;
}

static int evict(struct mc_fs *fs, const struct mc_spot *s)
{
	struct mc_admin_file f;
	const char *why;

	mc_admin_file_of(fs, s, &f);
	return mc_admin_evict(fs, &f, mc_at_tier(s->at), &why);
}

static void unlink_now(struct mc_spot_job *job)
{
	struct mc_spot s;
	char *key = NULL;
	int r = -EISDIR;

	if (job->spot.kind == MC_NODE_ENTRY || job->spot.kind == MC_NODE_KV_DIR)
		r = child_of(job, &s, &key);
	/* One that has left the tier meanwhile is where it was to go. */
	if (r == 0)
		r = evict(job->fs, &s);
	free(key);
	mc_spot_job_err(job, r);
}

/* ---- rmdir */

struct looking {
	struct mc_fs *fs;
	const char *key;
	enum mc_tier tier;
	bool found;
};

static bool kv_holds(struct mc_fs *fs, const char *key, enum mc_tier tier);

static int look(void *ctx, const char *name, const struct mc_kv_attr *attr, uint64_t next)
{
	struct looking *l = ctx;
	char *key;

	(void)next;
	l->found = !attr->is_dir;
	if (attr->is_dir && mc_tier_key(l->key, name, &key) == 0) {
		l->found = kv_holds(l->fs, key, l->tier);
		free(key);
	}
	return l->found;
}

/* All of it is looked through, unlike mc_kv_dir_holds, which does so under the store's lock. */
static bool kv_holds(struct mc_fs *fs, const char *key, enum mc_tier tier)
{
	struct looking l = {.fs = fs, .key = key, .tier = tier};
	uint64_t cursor = 0;

	mc_kv_list_in(fs->opts->kv, key, tier, &cursor, look, &l);
	return l.found;
}

static bool any_org(struct mc_fs *fs, enum mc_at at)
{
	const struct mc_question q = {.topic = MC_TOPIC_ORGS, .org = "", .name = ""};
	struct mc_answer *a = mc_names_wait(fs->names, &q);
	bool holds = a->res < 0;

	for (size_t i = 0; i < a->n_items && !holds; i++) {
		struct mc_place *place;

		holds = mc_tier_holds_org(fs, at, a->items[i].name, &place);
		mc_place_unref(place);
	}
	mc_answer_unref(a);
	return holds;
}

static int is_file(const struct mc_spot *s)
{
	struct mc_entry e;

	mc_manifest_entry(s->place->manifest, s->entry, &e);
	return e.type != MC_ENTRY_DIR;
}

/* Of a directory inside a revision or of kv/. */
static int may_go(struct mc_fs *fs, const struct mc_spot *s)
{
	bool holds;

	if (s->kind == MC_NODE_KV_FILE || (s->kind == MC_NODE_ENTRY && is_file(s)))
		return -ENOTDIR;
	holds = s->kind == MC_NODE_ENTRY ? mc_holds_entry(fs, s->at, s->place, s->entry, UINT32_MAX)
					 : kv_holds(fs, s->key, mc_at_tier(s->at));
	return holds ? -ENOTEMPTY : 0;
}

/* checkpoints/ or kv/ of a tier: they stay, but to remove them is no error once they are empty. */
static int fixed_may_go(struct mc_spot_job *job)
{
	struct mc_fs *fs = job->fs;
	enum mc_at at = job->spot.at;

	if (strcmp(job->name, "checkpoints") == 0)
		return any_org(fs, at) ? -ENOTEMPTY : 0;
	if (strcmp(job->name, "kv") == 0 && fs->kvfs != NULL)
		return kv_holds(fs, "", mc_at_tier(at)) ? -ENOTEMPTY : 0;
	return -ENOENT;
}

static int listed_may_go(struct mc_spot_job *job)
{
	const struct mc_spot *dir = &job->spot;
	bool rev = dir->kind == MC_NODE_ORG;
	struct mc_spot s = {.kind = rev ? MC_NODE_ENTRY : MC_NODE_ORG, .at = dir->at};
	bool holds = rev ? mc_tier_holds_rev(job->fs, dir->at, dir->place->org, job->name, &s.place)
			 : mc_tier_holds_org(job->fs, dir->at, job->name, &s.place);

	if (!holds && s.place != NULL)
		mc_nodes_retire(job->fs->nodes, &s);
	mc_place_unref(s.place);
	return holds ? -ENOTEMPTY : 0;
}

static void rmdir_now(struct mc_spot_job *job)
{
	struct mc_spot s;
	char *key = NULL;
	int r;

	switch (job->spot.kind) {
	case MC_NODE_TIER:
		r = fixed_may_go(job);
		break;
	case MC_NODE_CHECKPOINTS:
	case MC_NODE_ORG:
		r = listed_may_go(job);
		break;
	case MC_NODE_ENTRY:
	case MC_NODE_KV_DIR:
		r = child_of(job, &s, &key);
		if (r == 0)
			r = may_go(job->fs, &s);
		if (r == 0)
			mc_nodes_retire(job->fs->nodes, &s);
		break;
	default:
		r = -EBUSY; /* the tiers themselves */
		break;
	}
	free(key);
	mc_spot_job_err(job, r);
}

void mc_tierop_remove(fuse_req_t req, fuse_ino_t parent, const char *name, bool is_rmdir)
{
	struct mc_node *n = mc_nodes_find(mc_ops_fs(req)->nodes, parent);
	struct mc_spot_job *job = NULL;
	struct mc_spot s;

	if (n == NULL) {
		fuse_reply_err(req, ESTALE);
		return;
	}
	s = mc_spot_of(n);
	job = mc_spot_job_new(req, &s, name, is_rmdir ? rmdir_now : unlink_now);
	if (job != NULL)
		mc_spot_job_start(job, job->fs->admin);
}
