/* Names and attributes: lookup, forget, getattr, readlink. */
#include "fs/ops.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/generated.h"
#include "fs/kv.h"
#include "fs/mode.h"
#include "fs/ops-draft.h"
#include "fs/tiers.h"
#include "fs/tree.h"
#include "manifest/views.h"

#define NAME_BYTES 256                  /* NAME_MAX and the NUL */
#define QUESTION_BYTES (3 * NAME_BYTES) /* "<model>@<rev>/<layout>/<rank>" */

enum want { WANT_ENTRY, WANT_ATTR, WANT_TARGET };

/* A request that waits for the catalogue. */
struct asking {
	struct mc_call call;
	struct mc_ask ask;
	struct mc_fs *fs;
	enum want want;
	enum mc_topic topic;
	enum mc_node_kind kind; /* of what is looked up */
	bool fresh;             /* ORGS: asked a second time, because the name was missing */
	/* The directory's (lookup) or the link's; owned reference; NULL for ORGS and DOC. */
	struct mc_place *place;
	char name[QUESTION_BYTES]; /* as struct mc_question has it; ORGS: looked up */
};

void mc_reply_spot(fuse_req_t req, struct mc_fs *fs, const struct mc_spot *s, size_t link_len)
{
	struct fuse_entry_param e;
	struct mc_node *n;
	int r = mc_tree_entry_param(fs, s, link_len, &e, &n);

	if (r < 0)
		fuse_reply_err(req, mc_ops_errno(r));
	else if (fuse_reply_entry(req, &e) == -ENOENT)
		mc_nodes_put(fs->nodes, n, 1); /* the request was aborted: no forget will come */
}

void mc_reply_missing(fuse_req_t req, double timeout)
{
	struct fuse_entry_param e = {.entry_timeout = timeout};

	fuse_reply_entry(req, &e);
}

/* Lookup in checkpoints/ or an organisation, the answer is there. */
static void answer_entry(
	fuse_req_t req, struct asking *q, const struct mc_answer *a, const struct mc_listed *item)
{
	const char *org = q->place != NULL ? q->place->org : NULL;
	struct mc_place *place = NULL;
	struct mc_spot s;
	int r = 0;

	if (item == NULL) {
		s = (struct mc_spot){.kind = q->kind, .place = a->place};
		if (q->topic == MC_TOPIC_VIEW && a->place->view != NULL)
			s.kind = MC_NODE_ENTRY;
		s.entry = q->topic == MC_TOPIC_DOC ? 1 : 0;
		mc_reply_spot(req, q->fs, &s, 0);
		return;
	}
	if (q->topic == MC_TOPIC_ORGS)
		r = mc_place_open(q->name, NULL, NULL, NULL, &place);
	else
		r = mc_place_open(org, q->name, NULL, NULL, &place);
	if (r < 0) {
		fuse_reply_err(req, mc_ops_errno(r));
		return;
	}
	s = (struct mc_spot){.kind = q->kind, .place = place};
	mc_reply_spot(req, q->fs, &s, item->target != NULL ? strlen(item->target) : 0);
	mc_place_unref(place);
}

static void answer_link(fuse_req_t req, struct asking *q, const struct mc_listed *item)
{
	struct mc_spot s = {.kind = q->kind, .place = q->place};
	struct stat st;

	if (q->want == WANT_TARGET) {
		fuse_reply_readlink(req, item->target);
		return;
	}
	mc_tree_attr(q->fs, &s, strlen(item->target), &st);
	fuse_reply_attr(req, &st, mc_tree_timeout(&s));
}

static void question_end(struct asking *q)
{
	mc_place_unref(q->place);
	mc_call_end(&q->call);
	free(q);
}

static void ask(struct asking *q)
{
	struct mc_question question = {.topic = q->topic,
		.org = q->place != NULL ? q->place->org : "",
		.name = q->topic != MC_TOPIC_ORGS ? q->name : ""};

	mc_names_ask(q->fs->names, &question, q->fresh, &q->ask);
}

/* What a layout makes may be there in a moment, by a write on this very node. */
static double missing_timeout(const struct asking *q)
{
	if (q->topic == MC_TOPIC_VIEW || q->topic == MC_TOPIC_DOC)
		return 0;
	return mc_tree_negative_timeout(&(struct mc_spot){.kind = MC_NODE_ORG});
}

static void answered(struct mc_ask *a_ask, struct mc_answer *a)
{
	struct asking *q = (struct asking *)((char *)a_ask - offsetof(struct asking, ask));
	const struct mc_listed *item = NULL;
	bool found = a->res == 0;
	fuse_req_t req;

	if (found && a->place == NULL) {
		item = mc_answer_find(a, q->name);
		found = item != NULL;
	}
	if (!found && a->res == 0 && !q->fresh) {
		q->fresh = true;
		ask(q);
		return;
	}
	req = mc_call_take(&q->call);
	if (req == NULL)
		; /* answered by its deadline */
	else if (!found && a->res != 0 && a->res != -ENOENT)
		fuse_reply_err(req, mc_ops_errno(a->res));
	else if (!found && q->want == WANT_ENTRY)
		mc_reply_missing(req, missing_timeout(q));
	else if (!found)
		fuse_reply_err(req, ENOENT);
	else if (q->want == WANT_ENTRY)
		answer_entry(req, q, a, item);
	else
		answer_link(req, q, item);
	question_end(q);
}

/* What the question is about, from the name in its directory. */
static void set_name(struct asking *q, const char *name)
{
	const struct mc_place *p = q->place;

	if (q->topic != MC_TOPIC_VIEW)
		snprintf(q->name, sizeof(q->name), "%s", name);
	else if (p->layout == NULL)
		snprintf(q->name, sizeof(q->name), "%s@%s/%s", p->model, p->rev, name);
	else
		snprintf(
			q->name, sizeof(q->name), "%s@%s/%s/%s", p->model, p->rev, p->layout, name);
}

static void begin(fuse_req_t req, enum want want, enum mc_topic topic, enum mc_node_kind kind,
	struct mc_place *place, const char *name)
{
	struct mc_fs *fs = mc_ops_fs(req);
	struct asking *q = calloc(1, sizeof(*q));

	if (q == NULL) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	q->fs = fs;
	q->want = want;
	q->topic = topic;
	q->kind = kind;
	q->place = mc_place_ref(place);
	q->ask.done = answered;
	set_name(q, name);
	mc_call_begin(&fs->calls, &q->call, req);
	ask(q);
}

static void lookup_in_manifest(fuse_req_t req, struct mc_node *dir, const char *name)
{
	struct mc_fs *fs = mc_ops_fs(req);
	struct mc_spot s = mc_spot_of(dir);
	uint32_t entry;
	int r = mc_manifest_lookup(s.place->manifest, s.entry, name, strlen(name), &entry);

	if (r == -ENOENT) {
		mc_reply_missing(req, mc_tree_negative_timeout(&s));
	} else if (r < 0) {
		fuse_reply_err(req, mc_ops_errno(r));
	} else {
		s.entry = entry;
		mc_reply_spot(req, fs, &s, 0);
	}
}

/* What a name in a directory is, other than in the root and in manifests. */
static void lookup_listed(fuse_req_t req, struct mc_node *dir, const char *name)
{
	bool rev = strchr(name, '@') != NULL;

	switch (dir->kind) {
	case MC_NODE_CHECKPOINTS:
		begin(req, WANT_ENTRY, MC_TOPIC_ORGS, MC_NODE_ORG, NULL, name);
		break;
	case MC_NODE_VIEWS:
		begin(req, WANT_ENTRY, MC_TOPIC_ORGS, MC_NODE_VIEW_ORG, NULL, name);
		break;
	case MC_NODE_ORG:
		begin(req, WANT_ENTRY, rev ? MC_TOPIC_REV : MC_TOPIC_LATEST,
			rev ? MC_NODE_ENTRY : MC_NODE_LATEST, dir->place, name);
		break;
	case MC_NODE_VIEW_ORG:
		begin(req, WANT_ENTRY, rev ? MC_TOPIC_REV : MC_TOPIC_LATEST,
			rev ? MC_NODE_VIEW_REV : MC_NODE_VIEW_LATEST, dir->place, name);
		break;
	case MC_NODE_VIEW_REV:
		mc_views_know(mc_ops_fs(req)->views, dir->place->manifest);
		begin(req, WANT_ENTRY, MC_TOPIC_VIEW, MC_NODE_VIEW_LAYOUT, dir->place, name);
		break;
	case MC_NODE_VIEW_LAYOUT:
		begin(req, WANT_ENTRY, MC_TOPIC_VIEW, MC_NODE_ENTRY, dir->place, name);
		break;
	case MC_NODE_LAYOUTS:
		begin(req, WANT_ENTRY, MC_TOPIC_DOC, MC_NODE_ENTRY, NULL, name);
		break;
	default:
		fuse_reply_err(req, ENOTDIR);
		break;
	}
}

void mc_op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct mc_fs *fs = mc_ops_fs(req);
	struct mc_node *dir;

	if (mc_kvfs_has(parent)) {
		mc_kvop_lookup(req, parent, name);
		return;
	}
	if (mc_tiers_has(parent)) {
		mc_tierop_lookup(req, parent, name);
		return;
	}
	if (mc_generated_has(parent)) {
		mc_genop_lookup(req, parent, name);
		return;
	}
	dir = mc_nodes_find(fs->nodes, parent);
	if (dir == NULL) {
		fuse_reply_err(req, ESTALE);
		return;
	}
	if (strlen(name) >= NAME_BYTES) {
		fuse_reply_err(req, ENAMETOOLONG);
		return;
	}
	if (mc_dop_lookup(req, dir, name))
		return;
	if (dir->kind == MC_NODE_ROOT)
		mc_root_lookup(req, name);
	else if (dir->kind == MC_NODE_ENTRY)
		lookup_in_manifest(req, dir, name);
	else
		lookup_listed(req, dir, name);
}

static void forget_one(struct mc_fs *fs, fuse_ino_t ino, uint64_t nlookup)
{
	struct mc_node *n;

	if (mc_kvfs_has(ino)) {
		mc_kvop_forget(fs->kvfs, ino, nlookup);
		return;
	}
	if (mc_generated_has(ino))
		return;
	n = ino != MC_NODE_ROOT_ID ? mc_nodes_find(fs->nodes, ino) : NULL;
	if (n != NULL)
		mc_mode_end(fs, mc_nodes_forget(fs->nodes, n, nlookup));
}

void mc_op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup)
{
	forget_one(mc_ops_fs(req), ino, nlookup);
	fuse_reply_none(req);
}

void mc_op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++)
		forget_one(mc_ops_fs(req), forgets[i].ino, forgets[i].nlookup);
	fuse_reply_none(req);
}

static bool is_latest(const struct mc_node *n)
{
	return n->kind == MC_NODE_LATEST || n->kind == MC_NODE_VIEW_LATEST;
}

void mc_op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct mc_fs *fs = mc_ops_fs(req);
	struct mc_node *n;
	struct mc_spot s;
	struct stat st;

	if (mc_kvfs_has(ino)) {
		mc_kvop_getattr(req, ino);
		return;
	}
	if (mc_tiers_has(ino)) {
		mc_tierop_getattr(req, ino);
		return;
	}
	if (mc_generated_has(ino)) {
		mc_genop_getattr(req, ino);
		return;
	}
	n = mc_nodes_find(fs->nodes, ino);
	if (n == NULL) {
		fuse_reply_err(req, ESTALE);
		return;
	}
	if (is_latest(n)) {
		begin(req, WANT_ATTR, MC_TOPIC_LATEST, n->kind, n->place, n->place->model);
		return;
	}
	s = mc_spot_of(n);
	mc_tree_attr(fs, &s, 0, &st);
	fuse_reply_attr(req, &st, mc_tree_timeout(&s));
}

void mc_op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	struct mc_fs *fs = mc_ops_fs(req);
	struct mc_node *n = mc_nodes_find(fs->nodes, ino);
	struct mc_entry e;

	if (n == NULL) {
		fuse_reply_err(req, ESTALE);
		return;
	}
	if (is_latest(n)) {
		begin(req, WANT_TARGET, MC_TOPIC_LATEST, n->kind, n->place, n->place->model);
		return;
	}
	if (n->kind != MC_NODE_ENTRY) {
		fuse_reply_err(req, EINVAL);
		return;
	}
	mc_manifest_entry(n->place->manifest, n->entry, &e);
	if (e.type == MC_ENTRY_SYMLINK)
		fuse_reply_readlink(req, e.target);
	else
		fuse_reply_err(req, EINVAL);
}
