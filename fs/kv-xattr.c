/* Extended attributes user.mooncake.* of kv/. */
#include "fs/kv-state.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/admin.h"
#include "fs/xattr.h"
#include "tier/cleanup.h"

#define VALUE_BYTES 512

/* What the attributes are made from. */
struct subject {
	struct mc_kvfs *k;
	enum mc_knode_kind kind;
	const char *key;
	struct mc_kv_attr attr; /* of an object: as the store has it now */
	bool current;           /* the key still has this version */
	enum mc_open_mode mode; /* while it is open */
};

typedef int value_fn(const struct subject *s, char *out, size_t size);

static int get_kind(const struct subject *s, char *out, size_t size)
{
	return snprintf(out, size, "%s", s->kind == MC_KNODE_DIR ? "kv-directory" : "kv");
}

static int get_state(const struct subject *s, char *out, size_t size)
{
	static const char *const name[] = {[MC_KV_DIRTY] = "dirty",
		[MC_KV_FLUSHING] = "flushing",
		[MC_KV_CLEAN] = "clean",
		[MC_KV_EVICTING] = "evicting"};

	if (s->kind == MC_KNODE_STAGING)
		return snprintf(out, size, "staging");
	return s->current ? snprintf(out, size, "%s", name[s->attr.state]) : -ENODATA;
}

static int get_number(const struct subject *s, uint64_t value, char *out, size_t size)
{
	return s->kind == MC_KNODE_OBJECT && s->current ? snprintf(out, size, "%" PRIu64, value)
							: -ENODATA;
}

static int get_dram(const struct subject *s, char *out, size_t size)
{
	return get_number(s, s->attr.dram, out, size);
}

static int get_nvme(const struct subject *s, char *out, size_t size)
{
	return get_number(s, s->attr.nvme, out, size);
}

static int get_block(const struct subject *s, char *out, size_t size)
{
	return get_number(s, s->attr.block, out, size);
}

static int get_hits(const struct subject *s, char *out, size_t size)
{
	return get_number(s, s->attr.hits, out, size);
}

static int get_replicas(const struct subject *s, char *out, size_t size)
{
	return get_number(s, s->attr.remotes, out, size);
}

static int get_pinned(const struct subject *s, char *out, size_t size)
{
	return get_number(s, s->attr.pinned, out, size);
}

static int get_version(const struct subject *s, char *out, size_t size)
{
	char hex[33];

	if (s->kind != MC_KNODE_OBJECT)
		return -ENODATA;
	mc_hex_encode(s->attr.version, 16, hex);
	return snprintf(out, size, "%s", hex);
}

/* The mode while the object is open, else what the next open gets. */
static int get_io(const struct subject *s, char *out, size_t size)
{
	/* Up to 8 MiB an open brings the object to DRAM. */
	bool there = s->attr.dram > 0 || s->attr.size <= UINT64_C(8) << 20;
	bool passed = s->attr.size >= MC_KV_PASSTHROUGH_MIN && there &&
		atomic_load(&s->k->fs->features.passthrough);

	if (s->kind != MC_KNODE_OBJECT && s->mode == MC_MODE_NONE)
		return -ENODATA;
	if (s->mode != MC_MODE_NONE)
		passed = s->mode == MC_MODE_PASSTHROUGH;
	return snprintf(out, size, "%s", passed ? "passthrough" : "cached");
}

static int get_source(const struct subject *s, char *out, size_t size)
{
	return snprintf(out, size, "%s", mc_remote_url(s->k->fs->opts->remote));
}

/* Of an object: what was asked of it last and did not happen, its replacement included, or why it
 * cannot be flushed. Of kv/: why the last put failed, or why the store is not at its best. */
static int get_error(const struct subject *s, char *out, size_t size)
{
	const struct mc_admin_file f = {.key = s->key};
	struct mc_kv_stats stats;
	int len = 0;

	out[0] = '\0';
	if (s->kind == MC_KNODE_OBJECT) {
		mc_admin_error(s->k->fs, &f, out, size);
		if (out[0] != '\0' || (s->current && s->attr.state == MC_KV_CLEAN))
			return (int)strlen(out);
	} else {
		mc_mutex_lock(&s->k->lock);
		len = snprintf(out, size, "%s", s->k->error);
		mc_mutex_unlock(&s->k->lock);
	}
	if (len > 0)
		return len;
	mc_kv_stats(s->k->kv, &stats);
	return snprintf(out, size, "%s", stats.degraded != NULL ? stats.degraded : "");
}

static const struct {
	const char *name; /* after PREFIX */
	value_fn *get;
	bool everywhere; /* else files only */
} attributes[] = {
	{"kind", get_kind, true},
	{"error", get_error, true},
	{"state", get_state},
	{"resident.dram", get_dram},
	{"resident.nvme", get_nvme},
	{"resident.block", get_block},
	{"replicas", get_replicas},
	{"hits", get_hits},
	{"pinned", get_pinned},
	{"version", get_version},
	{"source", get_source},
	{"io", get_io},
};
#define N_ATTRIBUTES (sizeof(attributes) / sizeof(attributes[0]))

/* 0 or -ESTALE, -ENOMEM. *ret_key: the subject's, to be freed after it. */
static int subject_of(struct mc_kvfs *k, fuse_ino_t ino, struct subject *ret, char **ret_key)
{
	struct mc_knode *n = mc_knode_find(k, ino);
	struct mc_kv_attr now;

	if (n == NULL)
		return -ESTALE;
	*ret_key = mc_knode_key(k, n);
	if (*ret_key == NULL)
		return -ENOMEM;
	mc_mutex_lock(&k->lock);
	*ret = (struct subject){.k = k, .kind = n->kind, .key = *ret_key, .attr = n->attr};
	if (n->kind == MC_KNODE_OBJECT && n->opened != NULL)
		ret->mode = n->opened->mode;
	else if (n->stage != NULL)
		ret->mode = n->stage->backing_id != 0 ? MC_MODE_PASSTHROUGH : MC_MODE_CACHED;
	mc_mutex_unlock(&k->lock);
	if (ret->kind == MC_KNODE_OBJECT && mc_kv_lookup(k->kv, ret->key, &now) == 0 &&
		memcmp(now.version, ret->attr.version, sizeof(now.version)) == 0) {
		ret->attr = now;
		ret->current = true;
	}
	return 0;
}

static void get(fuse_req_t req, const struct subject *s, const char *name, size_t size)
{
	char value[VALUE_BYTES] = "";
	size_t i = 0;
	int r = -ENODATA;

	while (i < N_ATTRIBUTES && strcmp(name, attributes[i].name) != 0)
		i++;
	if (i < N_ATTRIBUTES && (attributes[i].everywhere || s->kind != MC_KNODE_DIR))
		r = attributes[i].get(s, value, sizeof(value));
	if (r < 0)
		fuse_reply_err(req, mc_kvfs_errno(r));
	else
		mc_xattr_reply(req, size, value, strlen(value));
}

static void list(fuse_req_t req, const struct subject *s, size_t size)
{
	char names[2 * N_ATTRIBUTES * 64], value[VALUE_BYTES];
	size_t len = 0;

	for (size_t i = 0; i < N_ATTRIBUTES; i++) {
		if ((attributes[i].everywhere || s->kind != MC_KNODE_DIR) &&
			attributes[i].get(s, value, sizeof(value)) >= 0)
			len = mc_xattr_list(req, names, len, sizeof(names), attributes[i].name);
	}
	for (size_t i = 0; s->kind == MC_KNODE_DIR && mc_xattr_sum_name(i) != NULL; i++)
		len = mc_xattr_list(req, names, len, sizeof(names), mc_xattr_sum_name(i));
	mc_xattr_reply(req, size, names, len);
}

void mc_kvop_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	cleanup_free char *key = NULL;
	struct subject s;
	int r = subject_of(mc_kvfs_of(req), ino, &s, &key);
	struct mc_spot dir = {.kind = MC_NODE_KV_DIR, .key = key};

	if (r < 0)
		fuse_reply_err(req, mc_kvfs_errno(r));
	else if (s.kind == MC_KNODE_DIR && mc_xattr_is_sum(name))
		mc_xattr_sum(req, &dir, name, size);
	else
		get(req, &s, name, size);
}

void mc_kvop_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	cleanup_free char *key = NULL;
	struct subject s;
	int r = subject_of(mc_kvfs_of(req), ino, &s, &key);

	if (r < 0)
		fuse_reply_err(req, mc_kvfs_errno(r));
	else
		list(req, &s, size);
}

/* What key has now. -ENOENT. */
static int current_of(struct mc_kvfs *k, const char *key, struct subject *ret)
{
	*ret = (struct subject){.k = k, .kind = MC_KNODE_OBJECT, .key = key, .current = true};
	return mc_kv_lookup(k->kv, key, &ret->attr);
}

void mc_kv_xattr_get(fuse_req_t req, const char *key, const char *name, size_t size)
{
	struct subject s;
	int r = current_of(mc_kvfs_of(req), key, &s);

	if (r < 0)
		fuse_reply_err(req, mc_kvfs_errno(r));
	else
		get(req, &s, name, size);
}

void mc_kv_xattr_list(fuse_req_t req, const char *key, size_t size)
{
	struct subject s;
	int r = current_of(mc_kvfs_of(req), key, &s);

	if (r < 0)
		fuse_reply_err(req, mc_kvfs_errno(r));
	else
		list(req, &s, size);
}

/* Of a sealed object or a directory; what is being written has no key yet. */
void mc_kvop_setxattr(
	fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size)
{
	struct mc_kvfs *k = mc_kvfs_of(req);
	struct mc_knode *n = mc_knode_find(k, ino);
	cleanup_free char *key = n != NULL ? mc_knode_key(k, n) : NULL;
	struct mc_spot s = {.kind = MC_NODE_KV_FILE, .key = key};
	enum mc_knode_kind kind;

	if (n == NULL || key == NULL) {
		fuse_reply_err(req, n == NULL ? ESTALE : ENOMEM);
		return;
	}
	mc_mutex_lock(&k->lock);
	kind = n->kind;
	mc_mutex_unlock(&k->lock);
	if (kind != MC_KNODE_DIR && kind != MC_KNODE_OBJECT) {
		fuse_reply_err(req, ENOTSUP); /* cp -a and mv, which copy "pinned", pass over it */
		return;
	}
	if (kind == MC_KNODE_DIR)
		s.kind = MC_NODE_KV_DIR;
	mc_xattr_set(req, &s, name, value, size);
}
