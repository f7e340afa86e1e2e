/* Extended attributes user.mooncake.* of kv/. */
#include "fs/kv-state.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tier/cleanup.h"

#define PREFIX "user.mooncake."
#define VALUE_BYTES 512

/* What the attributes are made from. */
struct subject {
	struct mc_kvfs *k;
	enum mc_knode_kind kind;
	struct mc_kv_attr attr; /* of an object: as the store has it now */
	bool current;           /* the key still has this version */
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

/* Why the last put failed, or why the store is not at its best. */
static int get_error(const struct subject *s, char *out, size_t size)
{
	struct mc_kv_stats stats;
	int len;

	mc_mutex_lock(&s->k->lock);
	len = snprintf(out, size, "%s", s->k->error);
	mc_mutex_unlock(&s->k->lock);
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
	{"replicas", get_replicas},
	{"hits", get_hits},
	{"pinned", get_pinned},
	{"version", get_version},
};
#define N_ATTRIBUTES (sizeof(attributes) / sizeof(attributes[0]))

/* 0 or -ESTALE, -ENOMEM. */
static int subject_of(struct mc_kvfs *k, fuse_ino_t ino, struct subject *ret)
{
	struct mc_knode *n = mc_knode_find(k, ino);
	cleanup_free char *key = NULL;
	struct mc_kv_attr now;

	if (n == NULL)
		return -ESTALE;
	key = mc_knode_key(k, n);
	if (key == NULL)
		return -ENOMEM;
	mc_mutex_lock(&k->lock);
	*ret = (struct subject){.k = k, .kind = n->kind, .attr = n->attr};
	mc_mutex_unlock(&k->lock);
	if (ret->kind == MC_KNODE_OBJECT && mc_kv_lookup(k->kv, key, &now) == 0 &&
		memcmp(now.version, ret->attr.version, sizeof(now.version)) == 0) {
		ret->attr = now;
		ret->current = true;
	}
	return 0;
}

/* size 0 asks for the length. */
static void reply_bytes(fuse_req_t req, size_t size, const char *buf, size_t len)
{
	if (size == 0)
		fuse_reply_xattr(req, len);
	else if (size < len)
		fuse_reply_err(req, ERANGE);
	else
		fuse_reply_buf(req, buf, len);
}

void mc_kvop_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	char value[VALUE_BYTES];
	struct subject s;
	int r = -ENODATA;
	size_t i = 0;

	/* What `ls -l` and friends probe for is answered without looking at anything. */
	if (strncmp(name, PREFIX, strlen(PREFIX)) != 0) {
		fuse_reply_err(req, ENODATA);
		return;
	}
	while (i < N_ATTRIBUTES && strcmp(name + strlen(PREFIX), attributes[i].name) != 0)
		i++;
	if (i < N_ATTRIBUTES)
		r = subject_of(mc_kvfs_of(req), ino, &s);
	if (i < N_ATTRIBUTES && r == 0)
		r = attributes[i].everywhere || s.kind != MC_KNODE_DIR
			? attributes[i].get(&s, value, sizeof(value))
			: -ENODATA;
	if (r < 0)
		fuse_reply_err(req, mc_kvfs_errno(r));
	else
		reply_bytes(
			req, size, value, (size_t)r < sizeof(value) ? (size_t)r : sizeof(value));
}

void mc_kvop_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	char names[N_ATTRIBUTES * 64], value[VALUE_BYTES];
	struct subject s;
	size_t len = 0;
	int r = subject_of(mc_kvfs_of(req), ino, &s);

	if (r < 0) {
		fuse_reply_err(req, mc_kvfs_errno(r));
		return;
	}
	for (size_t i = 0; i < N_ATTRIBUTES; i++) {
		if (!attributes[i].everywhere && s.kind == MC_KNODE_DIR)
			continue;
		if (attributes[i].get(&s, value, sizeof(value)) < 0)
			continue;
		len += (size_t)snprintf(
			       names + len, sizeof(names) - len, PREFIX "%s", attributes[i].name) +
			1;
	}
	reply_bytes(req, size, names, len);
}

static void pin_now(struct mc_kreq *q)
{
	mc_kreq_err(q, mc_kv_pin(q->k->kv, q->key, q->on));
}

static void evict_now(struct mc_kreq *q)
{
	mc_kreq_err(q, mc_kv_evict(q->k->kv, q->key));
}

static void warmed(void *ctx, int res, struct mc_kv_object *obj)
{
	if (res == 0)
		mc_kv_object_put(obj);
	mc_kreq_err(ctx, res);
}

static void warm_now(struct mc_kreq *q)
{
	mc_kv_get(q->k->kv, q->key, warmed, q);
}

void mc_kvop_setxattr(
	fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size)
{
	struct mc_kvfs *k = mc_kvfs_of(req);
	struct mc_knode *n = mc_knode_find(k, ino);
	void (*run)(struct mc_kreq * q) = NULL;
	struct mc_kreq *q;
	char *key;

	if (strcmp(name, PREFIX "pinned") == 0 && size == 1 && (*value == '0' || *value == '1'))
		run = pin_now;
	else if (strcmp(name, PREFIX "evict") == 0)
		run = evict_now;
	else if (strcmp(name, PREFIX "warm") == 0)
		run = warm_now;
	if (n == NULL || run == NULL || n->kind == MC_KNODE_DIR) {
		fuse_reply_err(req, n == NULL ? ESTALE : ENOTSUP);
		return;
	}
	key = mc_knode_key(k, n);
	if (key == NULL) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	q = mc_kreq_new(k, req, n, key);
	if (q == NULL)
		return;
	q->on = size == 1 && *value == '1';
	mc_kreq_work(q, run);
}
