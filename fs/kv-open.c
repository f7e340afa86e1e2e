/*
 * Opening and creating in kv/.
 *
 * A version is a nodeid, so an O_TRUNC of anything that has one is answered with ESTALE, the
 * kernel's next LOOKUP by that task finds a new node, and its OPEN starts the put. CREATE without
 * room for it does the same: CREATE holds the directory against everyone's lookups, OPEN does not.
 */
#include "fs/kv-state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fs/mode.h"
#include "tier/cleanup.h"

#define ROOM_PAUSE_NS 5000000
/* The kernel looks at the permissions of what it has just created, and would ask for them. Writes
 * make it ask for size and times at once, whatever this says. */
#define CREATED_S 0.05

static void prepare_passthrough(struct mc_kvfs *k, struct mc_kopen *o)
{
	cleanup_close int fd = -1;
	int id;

	if (o->size < MC_KV_PASSTHROUGH_MIN || !atomic_load(&k->fs->features.passthrough))
		return;
	if (mc_kv_object_backing_get(o->obj, &fd) < 0)
		return;
	id = mc_mode_backing_open(k->fs, fd);
	if (id <= 0) {
		mc_kv_object_backing_put(o->obj);
		return;
	}
	o->backing_id = id;
	o->mode = MC_MODE_PASSTHROUGH;
}

/* One more open of a node that is open, or opened by o. False: neither. */
static bool join(struct mc_kvfs *k, struct mc_knode *n, struct mc_kopen *o,
	struct fuse_file_info *fi, bool *ret_used)
{
	bool joined;

	mc_mutex_lock(&k->lock);
	*ret_used = n->opened == NULL && o != NULL;
	if (*ret_used)
		n->opened = o;
	joined = n->opened != NULL;
	if (joined) {
		n->opened->opens++;
		mc_knode_record_opens_locked(k, n);
		/* The content never changes: pages of an earlier open stay good. */
		fi->keep_cache = n->opened->mode == MC_MODE_CACHED;
		fi->noflush = 1;
#if MC_FUSE_PASSTHROUGH
		fi->backing_id = n->opened->backing_id;
#endif
	}
	mc_mutex_unlock(&k->lock);
	return joined;
}

static void count_open(struct mc_kvfs *k, const struct fuse_file_info *fi)
{
	_Atomic uint64_t *c = &k->fs->counters.opens_cached;

#if MC_FUSE_PASSTHROUGH
	if (fi->backing_id > 0)
		c = &k->fs->counters.opens_passthrough;
#endif
	atomic_fetch_add_explicit(c, 1, memory_order_relaxed);
}

/* Answers an open for reading that has been joined. */
static void reply_reading(struct mc_kreq *q)
{
	fuse_req_t req = mc_call_take(&q->call);

	count_open(q->k, &q->fi);
	if (req == NULL || fuse_reply_open(req, &q->fi) == -ENOENT)
		mc_kopen_release(q->k, q->node); /* no release will come */
	mc_kreq_end(q);
}

/* The key has a newer version: have the kernel look it up again, and find this one. */
static void redirect(struct mc_kreq *q, const struct mc_kv_attr *attr, struct mc_kv_object *obj)
{
	struct mc_knode *n;
	int r = mc_knode_get(q->k, q->key, attr, &n);

	if (r < 0)
		mc_kv_object_put(obj);
	else
		mc_kintent_add(q->k, q->tid, q->key, n, obj);
	mc_kreq_err(q, r < 0 ? r : -ESTALE);
}

static void got(void *ctx, int res, struct mc_kv_object *obj)
{
	struct mc_kreq *q = ctx;
	struct mc_kopen *o;
	struct mc_kv_attr attr;
	bool used, same;

	if (res < 0) {
		mc_kreq_err(q, res == -ENOENT ? -ESTALE : res);
		return;
	}
	mc_kv_object_attr(obj, &attr);
	mc_mutex_lock(&q->k->lock);
	same = memcmp(attr.version, q->node->attr.version, sizeof(attr.version)) == 0;
	mc_mutex_unlock(&q->k->lock);
	if (!same) {
		redirect(q, &attr, obj);
		return;
	}
	o = calloc(1, sizeof(*o));
	if (o == NULL) {
		mc_kv_object_put(obj);
		mc_kreq_err(q, -ENOMEM);
		return;
	}
	*o = (struct mc_kopen){.mode = MC_MODE_CACHED, .obj = obj, .size = attr.size};
	prepare_passthrough(q->k, o);
	join(q->k, q->node, o, &q->fi, &used);
	if (!used)
		mc_kopen_free(q->k, o);
	reply_reading(q);
}

static void open_reading(struct mc_kreq *q)
{
	struct mc_kv_object *obj = mc_kintent_take(q->k, q->tid, q->node);
	bool used;

	if (join(q->k, q->node, NULL, &q->fi, &used)) {
		if (obj != NULL)
			mc_kv_object_put(obj);
		reply_reading(q);
	} else if (obj != NULL) {
		got(q, 0, obj);
	} else {
		mc_kv_get(q->k->kv, q->key, got, q);
	}
}

/* Answers with ESTALE; the LOOKUP that follows gets a node for a put of its own. */
static void open_anew(struct mc_kreq *q)
{
	struct mc_knode *n;
	int r = mc_knode_new_staging(q->k, q->key, &n);

	if (r == 0)
		mc_kintent_add(q->k, q->tid, q->key, n, NULL);
	mc_kreq_err(q, r < 0 ? r : -ESTALE);
}

static void reply_writing(struct mc_kreq *q)
{
	struct mc_kvfs *k = q->k;
	struct mc_knode *n = q->node;
	fuse_req_t req = mc_call_take(&q->call);
	struct fuse_entry_param e;
	int r = -ENOENT;

	count_open(k, &q->fi);
	if (req != NULL && q->is_create) {
		mc_kvfs_entry(k, n, 0, &e);
		e.attr_timeout = CREATED_S;
		if (!q->done) {
			mc_mutex_lock(&k->lock);
			mc_knode_ref_locked(n); /* the kernel's */
			mc_mutex_unlock(&k->lock);
			mc_knode_given(k, n);
		}
		r = fuse_reply_create(req, &e, &q->fi);
		if (r == -ENOENT)
			mc_knode_forget(k, n, 1);
	} else if (req != NULL) {
		r = fuse_reply_open(req, &q->fi);
	}
	if (r == -ENOENT)
		mc_kstage_leave(k, n);
	mc_kreq_end(q);
}

static void take_room(struct mc_kreq *q);

/* The store counts what writers reserved; one who wrote more has taken the memory all the same, so
 * being told of room is not having it. */
static void take_room_again(struct mc_kreq *q)
{
	const struct timespec pause = {.tv_nsec = ROOM_PAUSE_NS};

	nanosleep(&pause, NULL);
	take_room(q);
}

static void roomed(void *ctx, int res)
{
	struct mc_kreq *q = ctx;

	if (res == 0 && mc_now_ns() > q->until_ns)
		res = -ENOSPC;
	if (res < 0) {
		mc_kvfs_failed(q->k, q->key, res, "no room for a put");
		mc_kreq_err(q, res);
	} else {
		mc_kreq_work(q, take_room_again); /* not here: take_room may have called us */
	}
}

/* Starts the put on q->node, as soon as there is room. */
static void take_room(struct mc_kreq *q)
{
	struct mc_kvfs *k = q->k;
	struct mc_kv_writer *w;
	int backing, r = mc_kv_create(k->kv, 0, &w);

	/* In CREATE the directory is locked: wait in the OPEN that the kernel makes of it. With
	 * O_EXCL it would find that the file exists, so there the wait is here. */
	if (r == -EAGAIN && q->is_create && (q->fi.flags & O_EXCL) == 0) {
		open_anew(q);
		return;
	}
	if (r == -EAGAIN) {
		if (!q->on)
			q->until_ns = mc_now_ns() + k->fs->calls.deadline_ns / 2;
		q->on = true;
		mc_kv_wait_room(k->kv, roomed, q);
		return;
	}
	if (r == 0)
		r = mc_kstage_open(k, q->node, w, q->tid);
	if (r < 0) {
		mc_kvfs_failed(k, q->key, r, "starting a put");
		mc_kreq_err(q, r);
		return;
	}
	mc_mutex_lock(&k->lock);
	backing = q->node->stage->backing_id;
	mc_mutex_unlock(&k->lock);
#if MC_FUSE_PASSTHROUGH
	q->fi.backing_id = backing;
#else
	(void)backing;
#endif
	reply_writing(q);
}

static bool writes(const struct fuse_file_info *fi)
{
	return (fi->flags & O_ACCMODE) != O_RDONLY || (fi->flags & O_TRUNC) != 0;
}

/* The put on q->node was begun by the process before this one, which did not answer. */
static bool finish_repeated(struct mc_kreq *q)
{
	int backing;

	if (!q->repeated || !mc_kstage_is_begun(q->k, q->node, &backing))
		return false;
#if MC_FUSE_PASSTHROUGH
	q->fi.backing_id = backing;
#endif
	q->done = true;
	reply_writing(q);
	return true;
}

static void open_staging(struct mc_kreq *q)
{
	struct mc_kvfs *k = q->k;
	struct mc_kv_attr attr;
	int backing;
	bool promised;

	if (!writes(&q->fi)) {
		/* Unsealed: others see the version before it, or nothing. */
		mc_kreq_err(q, mc_kv_lookup(k->kv, q->key, &attr) == 0 ? -ESTALE : -ENOENT);
		return;
	}
	mc_mutex_lock(&k->lock);
	promised = q->node->kind == MC_KNODE_STAGING && q->node->stage == NULL;
	mc_mutex_unlock(&k->lock);
	if (promised) {
		mc_kreq_begins(q);
		mc_kintent_take(k, q->tid, q->node);
		take_room(q);
	} else if (finish_repeated(q)) {
		return;
	} else if ((q->fi.flags & O_TRUNC) != 0) {
		open_anew(q);
	} else if (mc_kstage_join(k, q->node, &backing)) {
#if MC_FUSE_PASSTHROUGH
		q->fi.backing_id = backing;
		q->fi.direct_io = backing > 0 && !mc_kstage_may_pass(k, q->tid);
#endif
		reply_writing(q);
	} else {
		mc_kreq_err(q, -ESTALE);
	}
}

/* Nobody has to be waited for any more. */
static void open_now(struct mc_kreq *q)
{
	enum mc_knode_kind kind;

	mc_mutex_lock(&q->k->lock);
	kind = q->node->kind;
	mc_mutex_unlock(&q->k->lock);
	if (kind != MC_KNODE_OBJECT)
		open_staging(q);
	else if ((q->fi.flags & O_TRUNC) != 0)
		open_anew(q);
	else if (writes(&q->fi))
		mc_kreq_err(q, -EPERM);
	else
		open_reading(q);
}

void mc_kvop_open(fuse_req_t req, fuse_ino_t ino, const struct fuse_file_info *fi)
{
	struct mc_kvfs *k = mc_kvfs_of(req);
	struct mc_knode *n = mc_knode_find(k, ino);
	struct mc_kreq *q;

	if (n == NULL || n->kind == MC_KNODE_DIR) {
		fuse_reply_err(req, n == NULL ? ESTALE : EISDIR);
		return;
	}
	q = mc_kreq_of_node(k, req, n);
	if (q == NULL)
		return;
	q->fi = *fi;
	q->fi.fh = 0;
	mc_kreq_gate(q, q->key, open_now);
}

static void create_now(struct mc_kreq *q)
{
	struct mc_kvfs *k = q->k;
	struct mc_kv_attr attr;
	struct mc_kstage *s;
	bool exists = mc_kv_lookup(k->kv, q->key, &attr) == 0;
	bool excl = (q->fi.flags & O_EXCL) != 0;
	int r;

	mc_mutex_lock(&k->lock);
	s = mc_kstage_find_locked(k, q->key);
	if (s != NULL && q->repeated && s->node->lookups == 1) {
		q->node = s->node;
		mc_knode_ref_locked(q->node);
	}
	mc_mutex_unlock(&k->lock);
	if (q->node != NULL) {
		if (finish_repeated(q))
			return;
		mc_knode_put(k, q->node, 1);
		q->node = NULL;
	}
	if (exists && attr.is_dir) {
		mc_kreq_err(q, -EISDIR);
		return;
	}
	if ((exists || s != NULL) && (excl || (q->fi.flags & O_TRUNC) == 0)) {
		mc_kreq_err(q, excl ? -EEXIST : -ESTALE);
		return;
	}
	r = mc_knode_new_staging(k, q->key, &q->node);
	if (r < 0) {
		mc_kreq_err(q, r);
	} else {
		mc_kreq_begins(q);
		take_room(q);
	}
}

void mc_kvop_create(
	fuse_req_t req, fuse_ino_t parent, const char *name, const struct fuse_file_info *fi)
{
	struct mc_kreq *q = mc_kreq_of_name(mc_kvfs_of(req), req, parent, name);

	if (q == NULL)
		return;
	q->fi = *fi;
	q->fi.fh = 0;
	q->is_create = true;
	mc_kreq_gate(q, q->key, create_now);
}
