/*
 * Writing in layouts/: a draft is published when it is closed under a layout's name, or renamed to
 * one. What waits for the remote runs on the work pool.
 */
#include "fs/ops-draft.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/draft.h"
#include "fs/log.h"
#include "fs/ops.h"
#include "fs/tree.h"
#include "manifest/views.h"
#include "tier/cleanup.h"

#define SUFFIX ".json"
#define NOREPLACE 1u /* RENAME_NOREPLACE; the kernel has looked whether there is something */

/* A request that waits for the remote. */
struct publishing {
	struct mc_call call;
	struct mc_fs *fs;
	uint32_t number;           /* of the draft; 0: a layout is removed */
	struct mc_draft_copy copy; /* owned text; copy.name is the name that it gets */
};

static int client_errno(int r)
{
	switch (-r) {
	case EBADMSG:
	case E2BIG:
		return EINVAL; /* the document is wrong */
	case EEXIST:
	case EFBIG:
	case ENOSPC:
	case ENOMEM:
	case EACCES:
	case EROFS:
	case EPERM:
	case EXDEV:
		return -r;
	default:
		return mc_ops_errno(r);
	}
}

static const struct mc_node *draft_node(fuse_req_t req, fuse_ino_t ino)
{
	const struct mc_node *n = mc_nodes_find(mc_ops_fs(req)->nodes, ino);

	return n != NULL && n->kind == MC_NODE_DRAFT ? n : NULL;
}

/* A registered one. */
static bool is_layout(const struct mc_node *n)
{
	return n->kind == MC_NODE_ENTRY && n->place->model == NULL;
}

bool mc_dop_is_draft(fuse_req_t req, fuse_ino_t ino)
{
	return draft_node(req, ino) != NULL;
}

bool mc_dop_is_parent(fuse_req_t req, fuse_ino_t ino)
{
	const struct mc_node *n = mc_nodes_find(mc_ops_fs(req)->nodes, ino);

	return n != NULL && n->kind == MC_NODE_LAYOUTS;
}

static void refused(const char *name, int r, const char *why)
{
	static struct mc_log_limit limit;
	uint64_t suppressed;

	if (mc_log_allowed(&limit, &suppressed))
		mc_log(MC_LOG_WARNING, "layout-refused",
			"name=\"%s\" errno=%d error=\"%s\" suppressed=%llu", name, client_errno(r),
			why, (unsigned long long)suppressed);
}

/* Without the suffix. */
static void layout_name(const char *file, char out[MC_DRAFT_NAME_BYTES])
{
	snprintf(out, MC_DRAFT_NAME_BYTES, "%.*s", (int)(strlen(file) - strlen(SUFFIX)), file);
}

static void publishing_end(struct publishing *p, int r)
{
	fuse_req_t req = mc_call_take(&p->call);

	if (req != NULL)
		fuse_reply_err(req, r < 0 ? client_errno(r) : 0);
	mc_call_end(&p->call);
	free(p->copy.text);
	free(p);
}

static void publish(void *arg)
{
	struct publishing *p = arg;
	struct mc_fs *fs = p->fs;
	char name[MC_DRAFT_NAME_BYTES], given[MC_NAME_MAX + 1], why[MC_DRAFT_ERROR_BYTES] = "";
	struct mc_err err = {0};
	int r;

	layout_name(p->copy.name, name);
	r = mc_layouts_put(fs->opts->remote, name, p->copy.text, p->copy.len, given, &err);
	if (r < 0) {
		snprintf(why, sizeof(why), "%.200s: %.300s", p->copy.name,
			err.text[0] != '\0' ? err.text : strerror(-r));
		refused(p->copy.name, r, why);
	} else {
		mc_names_layout_changed(fs->names, name);
		mc_log(MC_LOG_INFO, "layout-published", "name=\"%s\"", name);
	}
	mc_draft_settle(fs->drafts, p->number, p->copy.name, r, why);
	publishing_end(p, r);
}

static void remove_layout(void *arg)
{
	struct publishing *p = arg;
	char name[MC_DRAFT_NAME_BYTES];
	struct mc_err err = {0};
	int r;

	layout_name(p->copy.name, name);
	r = mc_layouts_remove(p->fs->opts->remote, name, &err);
	if (r == 0 || r == -ENOENT)
		mc_names_layout_changed(p->fs->names, name);
	if (r == 0)
		mc_log(MC_LOG_INFO, "layout-removed", "name=\"%s\"", name);
	else if (r != -ENOENT)
		refused(p->copy.name, r, err.text);
	publishing_end(p, r);
}

/* Takes the copy's text. */
static void begin(fuse_req_t req, uint32_t number, const struct mc_draft_copy *copy)
{
	struct mc_fs *fs = mc_ops_fs(req);
	struct publishing *p = calloc(1, sizeof(*p));
	int r;

	if (p == NULL) {
		free(copy->text);
		fuse_reply_err(req, ENOMEM);
		return;
	}
	p->fs = fs;
	p->number = number;
	p->copy = *copy;
	mc_call_begin(&fs->calls, &p->call, req);
	r = mc_work_submit(fs->work, number != 0 ? publish : remove_layout, p);
	if (r < 0)
		publishing_end(p, r);
}

static int draft_entry(fuse_req_t req, uint32_t number, struct fuse_entry_param *e)
{
	struct mc_spot s = {.kind = MC_NODE_DRAFT, .entry = number};
	struct mc_node *n;

	return mc_tree_entry_param(mc_ops_fs(req), &s, 0, e, &n);
}

static void put_back(fuse_req_t req, fuse_ino_t ino)
{
	struct mc_fs *fs = mc_ops_fs(req);

	mc_nodes_put(fs->nodes, mc_nodes_find(fs->nodes, ino), 1);
}

bool mc_dop_create(fuse_req_t req, fuse_ino_t parent, const char *name, struct fuse_file_info *fi)
{
	struct mc_fs *fs = mc_ops_fs(req);
	struct fuse_entry_param e;
	uint32_t number;
	int r;

	if (!mc_dop_is_parent(req, parent))
		return false;
	r = strlen(name) < MC_DRAFT_NAME_BYTES
		? mc_draft_create(fs->drafts, name, (fi->flags & O_EXCL) != 0, &number)
		: -ENAMETOOLONG;
	if (r == 0) {
		r = draft_entry(req, number, &e);
		if (r < 0)
			mc_draft_release(fs->drafts, number);
	}
	if (r == -ENOSPC)
		mc_drafts_fail(fs->drafts, "too many files are being written in layouts/ at once");
	if (r < 0) {
		fuse_reply_err(req, client_errno(r));
	} else if (fuse_reply_create(req, &e, fi) == -ENOENT) {
		mc_draft_release(fs->drafts, number);
		put_back(req, e.ino);
	}
	return true;
}

bool mc_dop_lookup(fuse_req_t req, const struct mc_node *dir, const char *name)
{
	struct fuse_entry_param e;
	uint32_t number;
	int r;

	if (dir->kind != MC_NODE_LAYOUTS ||
		mc_draft_find(mc_ops_fs(req)->drafts, name, &number) < 0)
		return false;
	r = draft_entry(req, number, &e);
	if (r < 0)
		fuse_reply_err(req, client_errno(r));
	else if (fuse_reply_entry(req, &e) == -ENOENT)
		put_back(req, e.ino);
	return true;
}

bool mc_dop_setattr(fuse_req_t req, fuse_ino_t ino, const struct stat *attr, int to_set)
{
	struct mc_fs *fs = mc_ops_fs(req);
	const struct mc_node *n = mc_nodes_find(fs->nodes, ino);
	struct mc_draft_attr now;
	struct mc_spot s;
	struct stat st;
	int r = 0;

	if (n == NULL || (n->kind != MC_NODE_DRAFT && !is_layout(n)))
		return false;
	if ((to_set & FUSE_SET_ATTR_SIZE) != 0)
		r = is_layout(n) ? -EPERM
				 : mc_draft_truncate(fs->drafts, n->entry, (uint64_t)attr->st_size);
	if (r == 0 && !is_layout(n))
		r = mc_draft_stat(fs->drafts, n->entry, &now);
	if (r < 0) {
		fuse_reply_err(req, client_errno(r));
		return true;
	}
	s = mc_spot_of(n);
	mc_tree_attr(fs, &s, 0, &st);
	fuse_reply_attr(req, &st, mc_tree_timeout(&s));
	return true;
}

bool mc_dop_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct mc_fs *fs = mc_ops_fs(req);
	const struct mc_node *n = mc_nodes_find(fs->nodes, ino);
	bool writing = (fi->flags & O_ACCMODE) != O_RDONLY || (fi->flags & O_TRUNC) != 0;
	int r;

	if (n != NULL && writing && is_layout(n)) {
		mc_drafts_fail(fs->drafts,
			"a registered layout never changes: remove it, or register the new one "
			"under another name");
		fuse_reply_err(req, EPERM);
		return true;
	}
	if (n == NULL || n->kind != MC_NODE_DRAFT)
		return false;
	r = mc_draft_open(fs->drafts, n->entry, (fi->flags & O_TRUNC) != 0);
	fi->fh = 0;
	if (r < 0)
		fuse_reply_err(req, client_errno(r));
	else if (fuse_reply_open(req, fi) == -ENOENT)
		mc_draft_release(fs->drafts, n->entry);
	return true;
}

bool mc_dop_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off)
{
	const struct mc_node *n = draft_node(req, ino);
	cleanup_free char *buf = NULL;
	int64_t r;

	if (n == NULL)
		return false;
	buf = malloc(size);
	r = buf == NULL ? -ENOMEM
			: mc_draft_read(mc_ops_fs(req)->drafts, n->entry, buf, size, (uint64_t)off);
	if (r < 0)
		fuse_reply_err(req, client_errno((int)r));
	else
		fuse_reply_buf(req, buf, (size_t)r);
	return true;
}

bool mc_dop_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off)
{
	const struct mc_node *n = draft_node(req, ino);
	struct mc_fs *fs = mc_ops_fs(req);
	int r;

	if (n == NULL)
		return false;
	r = mc_draft_write(fs->drafts, n->entry, buf, size, (uint64_t)off);
	if (r == -EFBIG)
		mc_drafts_fail(fs->drafts, "a layout document has at most 4 MiB");
	if (r < 0)
		fuse_reply_err(req, client_errno(r));
	else
		fuse_reply_write(req, size);
	return true;
}

bool mc_dop_flush(fuse_req_t req, fuse_ino_t ino)
{
	const struct mc_node *n = draft_node(req, ino);
	struct mc_draft_copy copy;
	int r;

	if (n == NULL)
		return false;
	r = mc_draft_copy(mc_ops_fs(req)->drafts, n->entry, false, &copy);
	if (r == 0 && copy.text != NULL) {
		begin(req, n->entry, &copy);
		return true;
	}
	r = r < 0 ? r : copy.last;
	fuse_reply_err(req, r < 0 ? client_errno(r) : 0);
	return true;
}

bool mc_dop_release(fuse_req_t req, fuse_ino_t ino)
{
	const struct mc_node *n = draft_node(req, ino);
	struct mc_fs *fs = mc_ops_fs(req);

	if (n == NULL)
		return false;
	if (mc_draft_release(fs->drafts, n->entry)) {
		mc_drafts_fail(fs->drafts, "the document is empty");
		refused("", -EINVAL, "the document is empty");
	}
	fuse_reply_err(req, 0);
	return true;
}

bool mc_dop_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct mc_draft_copy copy = {0};

	if (!mc_dop_is_parent(req, parent))
		return false;
	if (mc_draft_unlink(mc_ops_fs(req)->drafts, name) == 0) {
		fuse_reply_err(req, 0);
	} else if (!mc_draft_publishes(name) || strlen(name) >= MC_DRAFT_NAME_BYTES) {
		fuse_reply_err(req, ENOENT);
	} else {
		snprintf(copy.name, sizeof(copy.name), "%s", name);
		begin(req, 0, &copy);
	}
	return true;
}

bool mc_dop_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
	const char *newname, unsigned flags)
{
	bool from = mc_dop_is_parent(req, parent), to = mc_dop_is_parent(req, newparent);
	struct mc_fs *fs = mc_ops_fs(req);
	struct mc_draft_copy copy = {0};
	uint32_t number;
	int r = 0;

	if (!from && !to)
		return false;
	if (!from || !to)
		r = -EXDEV;
	else if ((flags & ~NOREPLACE) != 0)
		r = -EINVAL;
	else if (strlen(newname) >= MC_DRAFT_NAME_BYTES)
		r = -ENAMETOOLONG;
	else if (mc_draft_find(fs->drafts, name, &number) < 0)
		r = -EINVAL; /* a layout, whose name stands in it */
	else if (!mc_draft_publishes(newname))
		r = mc_draft_rename(fs->drafts, number, newname);
	else
		r = mc_draft_copy(fs->drafts, number, true, &copy);
	if (r < 0 || !mc_draft_publishes(newname)) {
		fuse_reply_err(req, r < 0 ? client_errno(r) : 0);
		return true;
	}
	snprintf(copy.name, sizeof(copy.name), "%s", newname);
	begin(req, number, &copy);
	return true;
}
