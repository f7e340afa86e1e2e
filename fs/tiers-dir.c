/*
 * Listing tiers/. What the catalogue names is a snapshot of the open directory (its handle); files
 * of a revision and of kv/ are looked at when they are listed, the former on the pool, since a
 * large directory of which the tier holds nothing is looked through for nothing.
 */
#include "fs/tiers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/holds.h"
#include "fs/tree.h"

#define LOOK_MAX 65536 /* entries looked at to know whether a directory is there */
#define LISTED_S 10.0  /* how long what a listing brought along is good for */
#define ANY_INO 2      /* the kernel does not use the number of a listed name */

static const struct mc_question org_list = {.topic = MC_TOPIC_ORGS, .org = "", .name = ""};

/* What of the answer's names the tier holds, as an answer of its own. NULL: no memory. */
static struct mc_answer *held_of(struct mc_fs *fs, const struct mc_spot *dir, struct mc_answer *a)
{
	struct mc_answer *out = calloc(1, sizeof(*out));

	if (out == NULL)
		return NULL;
	atomic_init(&out->refs, 1);
	out->items = calloc(a->n_items + 1, sizeof(*out->items));
	for (size_t i = 0; out->items != NULL && i < a->n_items; i++) {
		const char *name = a->items[i].name;
		struct mc_place *place;
		bool holds = dir->kind == MC_NODE_ORG
			? mc_tier_holds_rev(fs, dir->at, dir->place->org, name, &place)
			: mc_tier_holds_org(fs, dir->at, name, &place);

		mc_place_unref(place);
		if (!holds)
			continue;
		out->items[out->n_items].name = strdup(name);
		out->n_items += out->items[out->n_items].name != NULL;
	}
	if (out->items == NULL) {
		mc_answer_unref(out);
		return NULL;
	}
	return out;
}

/* The names now; *ret: a reference, the caller's. */
static int snapshot(struct mc_spot_job *job, struct mc_answer **ret)
{
	const struct mc_spot *dir = &job->spot;
	struct mc_question q = org_list;
	struct mc_answer *a;
	int r;

	if (dir->kind == MC_NODE_ORG) {
		q.topic = MC_TOPIC_ORG;
		q.org = dir->place->org;
	}
	a = mc_names_wait(job->fs->names, &q);
	r = a->res;
	if (r == 0) {
		*ret = held_of(job->fs, dir, a);
		r = *ret != NULL ? 0 : -ENOMEM;
	}
	mc_answer_unref(a);
	return r;
}

static void open_listed(struct mc_spot_job *job)
{
	struct mc_handle h = {0};
	int r = snapshot(job, &h.answer);
	fuse_req_t req;

	if (r == 0)
		r = mc_handles_add(job->fs->handles, &h, &job->fi.fh);
	req = mc_spot_job_take(job);
	if (r < 0) {
		if (req != NULL)
			fuse_reply_err(req, mc_ops_errno(r));
	} else if (req == NULL || fuse_reply_open(req, &job->fi) == -ENOENT) {
		mc_handles_remove(job->fs->handles, job->fi.fh); /* no release will come */
	}
	mc_spot_job_end(job);
}

void mc_tierop_opendir(fuse_req_t req, fuse_ino_t ino, const struct fuse_file_info *fi)
{
	struct mc_node *n = mc_nodes_find(mc_ops_fs(req)->nodes, ino);
	struct mc_spot_job *job;
	struct mc_spot s;

	if (n == NULL) {
		fuse_reply_err(req, ESTALE);
		return;
	}
	atomic_store(&n->was_looked_up, atomic_exchange(&n->looked_up, false));
	if (n->kind != MC_NODE_CHECKPOINTS && n->kind != MC_NODE_ORG) {
		fuse_reply_open(req, fi);
		return;
	}
	s = mc_spot_of(n);
	job = mc_spot_job_new(req, &s, NULL, open_listed);
	if (job == NULL)
		return;
	job->fi = *fi;
	mc_spot_job_start(job, job->fs->admin);
}

static void list_fixed(struct mc_fs *fs, struct mc_page *p, const struct mc_spot *dir, unsigned i)
{
	struct mc_spot s;
	const char *name;

	while ((name = mc_tier_fixed(fs, dir, i, &s)) != NULL &&
		mc_page_put_bare(p, name, S_IFDIR, ANY_INO, (off_t)i + 3))
		i++;
}

static void list_handle(struct mc_page *p, const struct mc_handle *h, size_t i)
{
	if (h == NULL || h->answer == NULL)
		return;
	while (i < h->answer->n_items &&
		mc_page_put_bare(p, h->answer->items[i].name, S_IFDIR, ANY_INO, (off_t)i + 3))
		i++;
}

static void list_entries(struct mc_fs *fs, struct mc_page *p, const struct mc_spot *n, uint32_t i)
{
	struct mc_entry dir, e;

	mc_manifest_entry(n->place->manifest, n->entry, &dir);
	for (; i < dir.n_children; i++) {
		if (!mc_holds_entry(fs, n->at, n->place, dir.first_child + i, LOOK_MAX))
			continue;
		mc_manifest_entry(n->place->manifest, dir.first_child + i, &e);
		if (!mc_page_put_bare(p, e.name, e.type == MC_ENTRY_DIR ? S_IFDIR : S_IFREG,
			    ANY_INO, (off_t)i + 3))
			return;
	}
}

/* Of a directory that the process before this one had opened: its handle is gone. */
static void list_again(struct mc_spot_job *job)
{
	struct mc_handle h = {0};
	off_t off = job->off;
	struct mc_page p = {0};
	fuse_req_t req;
	int r = snapshot(job, &h.answer);

	if (r == 0)
		r = mc_page_init(&p, NULL, job->size, job->plus);
	req = mc_spot_job_take(job);
	p.req = req;
	if (r == 0 && req != NULL && mc_page_put_dots(&p, ANY_INO, &off))
		list_handle(&p, &h, (size_t)(off - 2));
	if (req != NULL && r < 0)
		fuse_reply_err(req, mc_ops_errno(r));
	else if (req != NULL)
		mc_page_reply(&p);
	mc_page_done(&p);
	mc_answer_unref(h.answer);
	mc_spot_job_end(job);
}

static void read_entries(struct mc_spot_job *job)
{
	struct mc_page p;
	off_t off = job->off;
	fuse_req_t req;
	int r = mc_page_init(&p, NULL, job->size, job->plus);

	if (r == 0 && mc_page_put_dots(&p, ANY_INO, &off))
		list_entries(job->fs, &p, &job->spot, (uint32_t)(off - 2));
	req = mc_spot_job_take(job);
	if (req != NULL && r < 0) {
		fuse_reply_err(req, ENOMEM);
	} else if (req != NULL) {
		p.req = req;
		mc_page_reply(&p);
	}
	mc_page_done(&p);
	mc_spot_job_end(job);
}

/* A page of a KV directory being filled. */
struct kv_list {
	struct mc_fs *fs;
	struct mc_page *page;
	const struct mc_spot *dir;
	bool with_nodes;        /* else names only */
	struct mc_node **given; /* nodes whose reference the reply hands over */
	size_t n_given, cap_given;
};

/* With its attributes and a node, so that the stat that follows asks nothing. */
static bool put_node(struct kv_list *l, const char *name, const struct mc_spot *s,
	const struct mc_kv_attr *attr, off_t next)
{
	struct fuse_entry_param e;
	struct mc_node *n;
	struct stat st;

	mc_tier_kv_attr(l->fs, s, attr, &st);
	if (l->n_given == l->cap_given || mc_tier_entry(l->fs, s, &st, &e, &n) < 0)
		return mc_page_put_bare(l->page, name, st.st_mode, ANY_INO, next);
	e.entry_timeout = LISTED_S;
	e.attr_timeout = LISTED_S;
	if (!mc_page_put(l->page, name, &e, next)) {
		mc_nodes_put(l->fs->nodes, n, 1);
		return false;
	}
	l->given[l->n_given++] = n;
	return true;
}

static int put_kv(void *ctx, const char *name, const struct mc_kv_attr *attr, uint64_t next)
{
	struct kv_list *l = ctx;
	struct mc_spot s = {.kind = MC_NODE_KV_FILE, .at = l->dir->at};
	mode_t mode = attr->is_dir ? S_IFDIR : S_IFREG;
	off_t off = (off_t)next + 2;
	char *key;
	bool put;

	if (!attr->is_dir && !l->with_nodes)
		return !mc_page_put_bare(l->page, name, mode, ANY_INO, off);
	if (mc_tier_key(l->dir->key, name, &key) < 0)
		return 0;
	s.key = key;
	if (!attr->is_dir)
		put = put_node(l, name, &s, attr, off);
	else
		put = !mc_kv_dir_holds(l->fs->opts->kv, key, mc_at_tier(s.at)) ||
			mc_page_put_bare(l->page, name, mode, ANY_INO, off);
	free(key);
	return !put;
}

static void read_kv(
	fuse_req_t req, struct mc_fs *fs, struct mc_node *n, struct mc_page *p, off_t off)
{
	struct mc_spot dir = mc_spot_of(n);
	struct kv_list l = {.fs = fs, .page = p, .dir = &dir};
	uint64_t cursor;
	int r = 0;

	/* Who looks names up wants their attributes: from now on, and the next time, they come
	 * along. Once a walk has them it looks nothing up, so the time after next they do not. */
	l.with_nodes = p->plus && (atomic_load(&n->looked_up) || atomic_load(&n->was_looked_up));
	l.cap_given = p->size / sizeof(struct fuse_entry_param) + 1;
	l.given = l.with_nodes ? malloc(l.cap_given * sizeof(struct mc_node *)) : NULL;
	l.with_nodes = l.given != NULL;
	if (mc_page_put_dots(p, ANY_INO, &off)) {
		cursor = (uint64_t)off - 2;
		r = mc_kv_list_in(fs->opts->kv, dir.key, mc_at_tier(dir.at), &cursor, put_kv, &l);
	}
	if (r < 0 && r != -ENOENT) { /* ENOENT: removed while it was open, so empty */
		fuse_reply_err(req, mc_ops_errno(r));
	} else if (mc_page_reply(p) == -ENOENT) {
		for (size_t i = 0; i < l.n_given; i++)
			mc_nodes_put(fs->nodes, l.given[i], 1);
	}
	free(l.given);
}

static void read_names(struct mc_fs *fs, struct mc_page *p, const struct mc_node *n,
	const struct mc_handle *h, off_t off)
{
	struct mc_spot dir = mc_spot_of(n);

	if (mc_page_put_dots(p, ANY_INO, &off)) {
		if (n->kind == MC_NODE_TIERS || n->kind == MC_NODE_TIER)
			list_fixed(fs, p, &dir, (unsigned)(off - 2));
		else
			list_handle(p, h, (size_t)(off - 2));
	}
	mc_page_reply(p);
}

void mc_tierop_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
	const struct fuse_file_info *fi, bool plus)
{
	struct mc_fs *fs = mc_ops_fs(req);
	struct mc_node *n = mc_nodes_find(fs->nodes, ino);
	struct mc_spot_job *job;
	struct mc_handle *h;
	struct mc_page p;
	struct mc_spot s;
	bool again;

	if (n == NULL || off < 0) {
		fuse_reply_err(req, n == NULL ? ESTALE : EINVAL);
		return;
	}
	h = mc_handles_find(fs->handles, fi->fh);
	again = h == NULL && (n->kind == MC_NODE_CHECKPOINTS || n->kind == MC_NODE_ORG);
	if (n->kind == MC_NODE_ENTRY || again) {
		mc_handle_put(h);
		s = mc_spot_of(n);
		job = mc_spot_job_new(req, &s, NULL, again ? list_again : read_entries);
		if (job == NULL)
			return;
		job->size = size;
		job->off = off;
		job->plus = plus;
		mc_spot_job_start(job, job->fs->admin);
		return;
	}
	if (mc_page_init(&p, req, size, plus) < 0)
		fuse_reply_err(req, ENOMEM);
	else if (n->kind == MC_NODE_KV_DIR)
		read_kv(req, fs, n, &p, off);
	else
		read_names(fs, &p, n, h, off);
	mc_handle_put(h);
	mc_page_done(&p);
}
