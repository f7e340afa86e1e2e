/*
 * Directories. An offset is an index: 0 ".", 1 "..", then the entries in their order, so that a
 * listing can go on anywhere. Lists of the catalogue are kept by the open directory; manifests need
 * no snapshot.
 */
#include "fs/ops.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/generated.h"
#include "fs/kv.h"
#include "fs/tiers.h"
#include "fs/tree.h"
#include "manifest/views.h"

/* Up to here a listing carries attributes and makes nodes: `ls -l` in one go. Beyond, that would
 * cost a walk of a huge directory ten times what it takes without. */
#define PLUS_MAX 4096

#define QUESTION_BYTES 512 /* "<model>@<rev>" */

struct opening {
	struct mc_call call;
	struct mc_ask ask;
	struct mc_fs *fs;
	struct fuse_file_info fi;
};

static void reply_opened(fuse_req_t req, struct opening *o, struct mc_answer *a)
{
	const struct mc_handle h = {.answer = mc_answer_ref(a)};
	uint64_t id;
	int r = mc_handles_add(o->fs->handles, &h, &id);

	if (r < 0) {
		fuse_reply_err(req, -r);
		return;
	}
	o->fi.fh = id;
	if (fuse_reply_open(req, &o->fi) == -ENOENT)
		mc_handles_remove(o->fs->handles, id);
}

static void opening_answered(struct mc_ask *ask, struct mc_answer *a)
{
	struct opening *o = (struct opening *)((char *)ask - offsetof(struct opening, ask));
	fuse_req_t req = mc_call_take(&o->call);

	if (req != NULL && a->res < 0)
		fuse_reply_err(req, mc_ops_errno(a->res));
	else if (req != NULL)
		reply_opened(req, o, a);
	mc_call_end(&o->call);
	free(o);
}

/* What lists a directory; name is room for the question's. */
static void question_for(
	struct mc_fs *fs, const struct mc_node *n, char name[QUESTION_BYTES], struct mc_question *q)
{
	*q = (struct mc_question){.topic = MC_TOPIC_ORGS, .org = "", .name = name};
	name[0] = '\0';
	if (n->kind == MC_NODE_LAYOUTS)
		q->topic = MC_TOPIC_DOCS;
	if (n->place == NULL)
		return;
	q->org = n->place->org;
	q->topic = MC_TOPIC_ORG;
	if (n->kind == MC_NODE_VIEW_REV) {
		mc_views_know(fs->views, n->place->manifest);
		q->topic = MC_TOPIC_FITS;
		snprintf(name, QUESTION_BYTES, "%s@%s", n->place->model, n->place->rev);
	}
}

/* Whether the catalogue names what is in the directory, and its handle keeps that. */
static bool is_listed(const struct mc_node *n)
{
	return n->kind != MC_NODE_ROOT && n->kind != MC_NODE_ENTRY &&
		n->kind != MC_NODE_VIEW_LAYOUT;
}

void mc_op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct mc_fs *fs = mc_ops_fs(req);
	char name[QUESTION_BYTES];
	struct mc_question q;
	struct opening *o;
	struct mc_node *n;

	fi->fh = 0;
	if (mc_tiers_has(ino)) {
		mc_tierop_opendir(req, ino, fi);
		return;
	}
	if (mc_kvfs_has(ino) || mc_generated_has(ino)) {
		fuse_reply_open(req, fi);
		return;
	}
	n = mc_nodes_find(fs->nodes, ino);
	if (n == NULL) {
		fuse_reply_err(req, ESTALE);
		return;
	}
	if (!is_listed(n)) {
		fi->cache_readdir = 1;
		fi->keep_cache = 1;
		fuse_reply_open(req, fi);
		return;
	}
	o = calloc(1, sizeof(*o));
	if (o == NULL) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	o->fs = fs;
	o->fi = *fi;
	o->ask.done = opening_answered;
	mc_call_begin(&fs->calls, &o->call, req);
	question_for(fs, n, name, &q);
	mc_names_ask(fs->names, &q, false, &o->ask);
}

void mc_op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	mc_handles_remove(mc_ops_fs(req)->handles, fi->fh);
	fuse_reply_err(req, 0);
}

/* One answer to readdir being filled. */
struct page {
	struct mc_page page;
	struct mc_fs *fs;
	struct mc_node *dir;
	struct mc_node **given; /* nodes whose reference the reply hands over */
	size_t n_given, cap_given;
};

static bool put_bare(struct page *p, const char *name, const struct mc_spot *s, off_t next)
{
	struct stat st;

	mc_tree_attr(p->fs, s, 0, &st);
	return mc_page_put_bare(&p->page, name, st.st_mode, st.st_ino, next);
}

static bool put_node(struct page *p, const char *name, const struct mc_spot *s, off_t next)
{
	struct fuse_entry_param e;
	struct mc_node *n;

	if (p->n_given == p->cap_given || mc_tree_entry_param(p->fs, s, 0, &e, &n) < 0)
		return put_bare(p, name, s, next);
	if (!mc_page_put(&p->page, name, &e, next)) {
		mc_nodes_put(p->fs->nodes, n, 1);
		return false;
	}
	p->given[p->n_given++] = n;
	return true;
}

static bool put_entry(struct page *p, const struct mc_entry *dir, off_t index)
{
	struct mc_spot s = mc_spot_of(p->dir);
	struct mc_entry e;

	s.entry = dir->first_child + (uint32_t)index;
	mc_manifest_entry(s.place->manifest, s.entry, &e);
	if (p->page.plus && dir->n_children <= PLUS_MAX)
		return put_node(p, e.name, &s, index + 3);
	return put_bare(p, e.name, &s, index + 3);
}

static bool put_listed(struct page *p, const struct mc_listed *item, off_t index)
{
	struct mc_spot dir = mc_spot_of(p->dir);
	mode_t mode = item->target != NULL ? S_IFLNK : S_IFDIR;

	if (dir.kind == MC_NODE_LAYOUTS)
		mode = S_IFREG;
	return mc_page_put_bare(
		&p->page, item->name, mode, mc_tree_listed_ino(&dir, item->name), index + 3);
}

static bool put_rank(struct page *p, off_t index)
{
	char name[MC_VIEW_RANK_NAME];
	struct mc_listed item = {.name = name};

	mc_view_rank_name((uint32_t)index, name);
	return put_listed(p, &item, index);
}

static void fill(struct page *p, const struct mc_handle *h, off_t off)
{
	struct mc_spot spot = mc_spot_of(p->dir);
	struct mc_entry dir = {0};

	if (!mc_page_put_dots(&p->page, mc_tree_ino(&spot), &off))
		return;
	off -= 2;
	if (p->dir->kind == MC_NODE_ROOT) {
		mc_root_list(p->fs, &p->page, off);
		return;
	}
	if (p->dir->kind == MC_NODE_VIEW_LAYOUT) {
		off_t ranks = mc_view_layout_ranks(p->dir->place->view_layout);

		while (off < ranks && put_rank(p, off))
			off++;
		return;
	}
	if (h != NULL) {
		for (; (size_t)off < h->answer->n_items; off++) {
			if (!put_listed(p, &h->answer->items[off], off))
				return;
		}
		return;
	}
	mc_manifest_entry(p->dir->place->manifest, p->dir->entry, &dir);
	for (; off < (off_t)dir.n_children; off++) {
		if (!put_entry(p, &dir, off))
			return;
	}
}

/* What is asked of a directory. */
struct listing {
	fuse_ino_t ino;
	size_t size; /* bytes of the answer */
	off_t off;
	bool plus;
};

/* h: the names, of a directory that the catalogue lists; else NULL. */
static void reply_page(fuse_req_t req, const struct listing *l, const struct mc_handle *h)
{
	struct mc_fs *fs = mc_ops_fs(req);
	struct page p = {.fs = fs, .dir = mc_nodes_find(fs->nodes, l->ino)};
	int r;

	if (p.dir == NULL) {
		fuse_reply_err(req, ESTALE);
		return;
	}
	r = mc_page_init(&p.page, req, l->size, l->plus);
	if (l->plus) {
		p.cap_given = l->size / sizeof(struct fuse_entry_param) + 1;
		p.given = malloc(p.cap_given * sizeof(struct mc_node *));
	}
	if (r < 0 || (l->plus && p.given == NULL)) {
		fuse_reply_err(req, ENOMEM);
	} else {
		fill(&p, h, l->off);
		if (mc_page_reply(&p.page) == -ENOENT) {
			for (size_t i = 0; i < p.n_given; i++)
				mc_nodes_put(fs->nodes, p.given[i], 1);
		}
	}
	free(p.given);
	mc_page_done(&p.page);
}

/* A list that has to be asked for again: the process before this one had opened the directory. */
struct relisting {
	struct mc_call call;
	struct mc_ask ask;
	struct listing l;
};

static void listed_again(struct mc_ask *ask, struct mc_answer *a)
{
	struct relisting *x = (struct relisting *)((char *)ask - offsetof(struct relisting, ask));
	const struct mc_handle h = {.answer = a};
	fuse_req_t req = mc_call_take(&x->call);

	if (req != NULL && a->res < 0)
		fuse_reply_err(req, mc_ops_errno(a->res));
	else if (req != NULL)
		reply_page(req, &x->l, &h);
	mc_call_end(&x->call);
	free(x);
}

static void list_again(fuse_req_t req, const struct mc_node *n, const struct listing *l)
{
	struct mc_fs *fs = mc_ops_fs(req);
	struct relisting *x = calloc(1, sizeof(*x));
	char name[QUESTION_BYTES];
	struct mc_question q;

	if (x == NULL) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	x->l = *l;
	x->ask.done = listed_again;
	question_for(fs, n, name, &q);
	mc_call_begin(&fs->calls, &x->call, req);
	mc_names_ask(fs->names, &q, false, &x->ask);
}

static void read_page(fuse_req_t req, const struct listing *l, const struct fuse_file_info *fi)
{
	struct mc_fs *fs = mc_ops_fs(req);
	const struct mc_node *n = mc_nodes_find(fs->nodes, l->ino);
	struct mc_handle *h;

	if (n == NULL || l->off < 0) {
		fuse_reply_err(req, n == NULL ? ESTALE : EINVAL);
		return;
	}
	h = mc_handles_find(fs->handles, fi->fh);
	if (h == NULL && is_listed(n))
		list_again(req, n, l);
	else
		reply_page(req, l, h);
	mc_handle_put(h);
}

void mc_op_readdir(
	fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct listing l;

	if (mc_kvfs_has(ino)) {
		mc_kvop_readdir(req, ino, size, off, false);
		return;
	}
	if (mc_tiers_has(ino)) {
		mc_tierop_readdir(req, ino, size, off, fi, false);
		return;
	}
	if (mc_generated_has(ino)) {
		mc_genop_readdir(req, ino, size, off, false);
		return;
	}
	l = (struct listing){.ino = ino, .size = size, .off = off};
	read_page(req, &l, fi);
}

void mc_op_readdirplus(
	fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct listing l;

	if (mc_kvfs_has(ino)) {
		mc_kvop_readdir(req, ino, size, off, true);
		return;
	}
	if (mc_tiers_has(ino)) {
		mc_tierop_readdir(req, ino, size, off, fi, true);
		return;
	}
	if (mc_generated_has(ino)) {
		mc_genop_readdir(req, ino, size, off, true);
		return;
	}
	l = (struct listing){.ino = ino, .size = size, .off = off, .plus = true};
	read_page(req, &l, fi);
}
