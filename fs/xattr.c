/*
 * Extended attributes user.mooncake.*: text, no newline. What `ls -l` and friends probe for
 * (security.*, system.posix_acl_*) is answered without looking at anything.
 */
#include "fs/ops.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/draft.h"
#include "fs/generated.h"
#include "fs/kv.h"
#include "fs/mode.h"
#include "fs/admin.h"
#include "fs/ops-draft.h"
#include "fs/tiers.h"
#include "fs/xattr.h"

#define PREFIX MC_XATTR_PREFIX
#define VALUE_BYTES 4096

/* Writes the value as text to out; bytes, or -errno. */
typedef int value_fn(struct mc_fs *fs, struct mc_node *n, char *out, size_t size);

static int get_kind(struct mc_fs *fs, struct mc_node *n, char *out, size_t size)
{
	static const char *const name[] = {[MC_NODE_ROOT] = "root",
		[MC_NODE_CHECKPOINTS] = "checkpoints",
		[MC_NODE_ORG] = "organisation",
		[MC_NODE_LATEST] = "latest",
		[MC_NODE_ENTRY] = "checkpoint",
		[MC_NODE_VIEWS] = "views",
		[MC_NODE_VIEW_ORG] = "organisation",
		[MC_NODE_VIEW_LATEST] = "latest",
		[MC_NODE_VIEW_REV] = "layouts",
		[MC_NODE_VIEW_LAYOUT] = "view",
		[MC_NODE_LAYOUTS] = "layouts",
		[MC_NODE_DRAFT] = "layout-draft",
		[MC_NODE_TIERS] = "tiers",
		[MC_NODE_TIER] = "tier",
		[MC_NODE_KV_DIR] = "kv-directory",
		[MC_NODE_KV_FILE] = "kv"};
	bool view = n->kind == MC_NODE_ENTRY && n->place->view != NULL;

	return snprintf(out, size, "%s", view ? "view" : name[n->kind]);
}

/* A file's digest; a revision's own directory: the id of its manifest. */
static int get_digest(struct mc_fs *fs, struct mc_node *n, char *out, size_t size)
{
	char hex[MC_SHA256_HEX + 1];
	struct mc_entry e;

	mc_manifest_entry(n->place->manifest, n->entry, &e);
	if (e.type == MC_ENTRY_FILE && e.digest != NULL)
		mc_hex_encode(e.digest, MC_SHA256_SIZE, hex);
	else if (n->entry == 0)
		mc_hex_encode(mc_manifest_id(n->place->manifest), MC_SHA256_SIZE, hex);
	else
		return -ENODATA;
	return snprintf(out, size, "%s", hex);
}

static bool is_file(const struct mc_node *n)
{
	struct mc_entry e;

	mc_manifest_entry(n->place->manifest, n->entry, &e);
	return e.type == MC_ENTRY_FILE;
}

static void get_residency(struct mc_fs *fs, const struct mc_node *n, struct mc_residency *ret)
{
	struct mc_file_id id;
	struct mc_entry e;

	*ret = (struct mc_residency){0};
	mc_manifest_entry(n->place->manifest, n->entry, &e);
	mc_entry_file_id(&e, &id);
	if (id.size > 0)
		mc_store_residency(fs->opts->store, &id, ret);
}

static int get_dram(struct mc_fs *fs, struct mc_node *n, char *out, size_t size)
{
	struct mc_residency res;

	get_residency(fs, n, &res);
	return snprintf(out, size, "%" PRIu64, res.dram);
}

static int get_nvme(struct mc_fs *fs, struct mc_node *n, char *out, size_t size)
{
	struct mc_residency res;

	get_residency(fs, n, &res);
	return snprintf(out, size, "%" PRIu64, res.nvme);
}

static int get_block(struct mc_fs *fs, struct mc_node *n, char *out, size_t size)
{
	struct mc_residency res;

	get_residency(fs, n, &res);
	return snprintf(out, size, "%" PRIu64, res.block);
}

static int get_hits(struct mc_fs *fs, struct mc_node *n, char *out, size_t size)
{
	struct mc_residency res;

	get_residency(fs, n, &res);
	return snprintf(out, size, "%" PRIu64, res.hits);
}

static int get_pinned(struct mc_fs *fs, struct mc_node *n, char *out, size_t size)
{
	struct mc_residency res;

	get_residency(fs, n, &res);
	return snprintf(out, size, "%d", res.pinned);
}

/* Whole copies on a remote: a view has none, it is made from those of the checkpoint. */
static int get_replicas(struct mc_fs *fs, struct mc_node *n, char *out, size_t size)
{
	return snprintf(out, size, "%d", n->place->view == NULL);
}

/* The mode while the file is open, else what the next open gets. */
static int get_io(struct mc_fs *fs, struct mc_node *n, char *out, size_t size)
{
	struct mc_entry e;
	enum mc_open_mode mode = MC_MODE_CACHED;

	mc_manifest_entry(n->place->manifest, n->entry, &e);
	if (e.type != MC_ENTRY_FILE)
		return -ENODATA;
	if (e.size > 0)
		mode = mc_mode_now(fs, n);
	return snprintf(out, size, "%s", mode == MC_MODE_PASSTHROUGH ? "passthrough" : "cached");
}

static int get_source(struct mc_fs *fs, struct mc_node *n, char *out, size_t size)
{
	return snprintf(out, size, "%s", mc_remote_url(fs->opts->remote));
}

/* What a manifest promises has a whole copy on the remote: nothing of it waits to be flushed. */
static int get_state(struct mc_fs *fs, struct mc_node *n, char *out, size_t size)
{
	return snprintf(out, size, "clean");
}

/* Why something was refused in layouts/: the last time, or of this draft; why a layout does not fit
 * the revision; what an administrator asked of a file and did not happen. */
static int get_error(struct mc_fs *fs, struct mc_node *n, char *out, size_t size)
{
	char why[MC_DRAFT_ERROR_BYTES], rev[2 * MC_NAME_MAX + 2];
	const struct mc_admin_file f = {.place = n->place, .entry = n->entry};

	if (n->kind == MC_NODE_ENTRY) {
		mc_admin_error(fs, &f, why, sizeof(why));
	} else if (n->kind == MC_NODE_VIEW_REV) {
		snprintf(rev, sizeof(rev), "%s@%s", n->place->model, n->place->rev);
		mc_names_misfit(fs->names, n->place->org, rev, why, sizeof(why));
	} else if (n->kind == MC_NODE_LAYOUTS)
		mc_drafts_error(fs->drafts, why);
	else if (mc_draft_error(fs->drafts, n->entry, why) < 0)
		return -ESTALE;
	return snprintf(out, size, "%s", why);
}

static const struct {
	const char *name; /* after PREFIX */
	value_fn *get;
	bool everywhere; /* else only within a revision */
	bool files_only;
	bool failing; /* where something may be refused: files, and all about layouts */
} attributes[] = {
	{"kind", get_kind, .everywhere = true},
	{"digest", get_digest},
	{"resident.dram", get_dram, .files_only = true},
	{"resident.nvme", get_nvme, .files_only = true},
	{"resident.block", get_block, .files_only = true},
	{"io", get_io, .files_only = true},
	{"source", get_source},
	{"state", get_state, .files_only = true},
	{"replicas", get_replicas, .files_only = true},
	{"hits", get_hits, .files_only = true},
	{"pinned", get_pinned, .files_only = true},
	{"error", get_error, .failing = true},
};
#define N_ATTRIBUTES (sizeof(attributes) / sizeof(attributes[0]))

static bool applies(size_t i, const struct mc_node *n)
{
	if (attributes[i].everywhere)
		return true;
	if (attributes[i].failing)
		return n->kind == MC_NODE_LAYOUTS || n->kind == MC_NODE_DRAFT ||
			n->kind == MC_NODE_VIEW_REV || (n->kind == MC_NODE_ENTRY && is_file(n));
	return n->kind == MC_NODE_ENTRY && (!attributes[i].files_only || is_file(n));
}

static int get_value(struct mc_fs *fs, struct mc_node *n, const char *name, char *out, size_t size)
{
	for (size_t i = 0; i < N_ATTRIBUTES; i++) {
		int r;

		if (strcmp(name, attributes[i].name) != 0 || !applies(i, n))
			continue;
		r = attributes[i].get(fs, n, out, size);
		return r >= (int)size ? -ERANGE : r;
	}
	return -ENODATA;
}

void mc_xattr_reply(fuse_req_t req, size_t size, const char *value, size_t len)
{
	if (size == 0)
		fuse_reply_xattr(req, len);
	else if (size < len)
		fuse_reply_err(req, ERANGE);
	else
		fuse_reply_buf(req, value, len);
}

size_t mc_xattr_list(fuse_req_t req, char *names, size_t len, size_t room, const char *name)
{
	const struct mc_fs *fs = fuse_req_userdata(req);

	if (fs->opts->hide_xattrs)
		return len;
	return len + (size_t)snprintf(names + len, room - len, PREFIX "%s", name) + 1;
}

/* A directory with files below it, which are summed up. */
static bool has_sums(const struct mc_node *n)
{
	return n->kind == MC_NODE_KV_DIR || (n->kind == MC_NODE_ENTRY && !is_file(n));
}

/* What is not answered at once: true. */
static bool get_elsewhere(fuse_req_t req, const struct mc_node *n, const char *name, size_t size)
{
	struct mc_spot s = mc_spot_of(n);

	if (n->kind == MC_NODE_KV_FILE)
		mc_kv_xattr_get(req, n->key, name, size);
	else if (has_sums(n) && mc_xattr_is_sum(name))
		mc_xattr_sum(req, &s, name, size);
	else
		return false;
	return true;
}

void mc_op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	struct mc_fs *fs = mc_ops_fs(req);
	char value[VALUE_BYTES];
	struct mc_node *n;
	int r;

	if (strncmp(name, PREFIX, strlen(PREFIX)) != 0 || mc_generated_has(ino)) {
		fuse_reply_err(req, ENODATA);
		return;
	}
	name += strlen(PREFIX);
	if (mc_kvfs_has(ino)) {
		mc_kvop_getxattr(req, ino, name, size);
		return;
	}
	n = mc_nodes_find(fs->nodes, ino);
	if (n == NULL) {
		fuse_reply_err(req, ESTALE);
		return;
	}
	if (get_elsewhere(req, n, name, size))
		return;
	r = get_value(fs, n, name, value, sizeof(value));
	if (r < 0)
		fuse_reply_err(req, mc_ops_errno(r));
	else
		mc_xattr_reply(req, size, value, (size_t)r);
}

void mc_op_setxattr(
	fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size)
{
	struct mc_node *n;
	struct mc_spot s;

	if (strncmp(name, PREFIX, strlen(PREFIX)) != 0 || mc_dop_is_draft(req, ino)) {
		fuse_reply_err(
			req, mc_kvfs_has(ino) || mc_dop_is_draft(req, ino) ? ENOTSUP : EROFS);
		return;
	}
	name += strlen(PREFIX);
	if (mc_kvfs_has(ino)) {
		mc_kvop_setxattr(req, ino, name, value, size);
		return;
	}
	n = mc_nodes_find(mc_ops_fs(req)->nodes, ino);
	if (n == NULL ||
		(n->kind != MC_NODE_ENTRY && n->kind != MC_NODE_KV_DIR &&
			n->kind != MC_NODE_KV_FILE)) {
		fuse_reply_err(req, ENOTSUP);
		return;
	}
	s = mc_spot_of(n);
	mc_xattr_set(req, &s, name, value, size);
}

void mc_op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	char names[2 * N_ATTRIBUTES * 64];
	struct mc_node *n;
	size_t len = 0;

	if (mc_kvfs_has(ino)) {
		mc_kvop_listxattr(req, ino, size);
		return;
	}
	if (mc_generated_has(ino)) {
		mc_xattr_reply(req, size, NULL, 0);
		return;
	}
	n = mc_nodes_find(mc_ops_fs(req)->nodes, ino);
	if (n == NULL) {
		fuse_reply_err(req, ESTALE);
		return;
	}
	if (n->kind == MC_NODE_KV_FILE) {
		mc_kv_xattr_list(req, n->key, size);
		return;
	}
	for (size_t i = 0; i < N_ATTRIBUTES; i++) {
		if (applies(i, n) &&
			(strcmp(attributes[i].name, "digest") != 0 || is_file(n) || n->entry == 0))
			len = mc_xattr_list(req, names, len, sizeof(names), attributes[i].name);
	}
	for (size_t i = 0; has_sums(n) && mc_xattr_sum_name(i) != NULL; i++)
		len = mc_xattr_list(req, names, len, sizeof(names), mc_xattr_sum_name(i));
	mc_xattr_reply(req, size, names, len);
}
