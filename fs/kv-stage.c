/*
 * Puts under way. A file being created is the store's staging file, written in passthrough or by
 * the daemon, and published when the last open file description is released, if some FLUSH that saw
 * its final size and mtime came from a task that was not dying of a signal, and no write failed.
 *
 * Invariants: 1. users ≥ opens; a put ends when users is 0, once. 2. publishing is set with the
 * last RELEASE; from then on everyone who asks for the key waits for the end. 3. The node points to
 * its put from open to end. 4. One inode is written in one mode: what joins takes the same backing
 * id. A client that may not write past us (mc_kstage_may_pass) gets no backing id where it begins
 * the put; where it joins one that has, its open is a direct one, whose writes come to us.
 */
#include "fs/kv-state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fs/admin.h"
#include "fs/mode.h"
#include "fs/session.h"
#include "fs/takeover.h"
#include "tier/cleanup.h"
#include "tier/lease.h"

#define LEASE_TRIES 20
#define LEASE_PAUSE_NS 100000

static struct mc_kstage **bucket(struct mc_kvfs *k, const char *key)
{
	uint64_t h = mc_hash_mix(mc_hash_bytes(MC_HASH_SEED, key, strlen(key)));

	return &k->stages[(unsigned)h % MC_KSTAGE_BUCKETS];
}

static void insert_locked(struct mc_kvfs *k, struct mc_kstage *s)
{
	struct mc_kstage **b = bucket(k, s->node->key);

	s->next = *b;
	*b = s;
	k->n_stages++;
}

static void remove_locked(struct mc_kvfs *k, struct mc_kstage *s)
{
	struct mc_kstage **p = bucket(k, s->node->key);

	while (*p != s)
		p = &(*p)->next;
	*p = s->next;
	k->n_stages--;
}

int mc_kstage_open(struct mc_kvfs *k, struct mc_knode *n, struct mc_kv_writer *w, pid_t tid)
{
	struct mc_kstage *s = calloc(1, sizeof(*s));
	int id = 0;

	if (s == NULL) {
		mc_kv_discard(w);
		return -ENOMEM;
	}
	s->k = k;
	s->node = n;
	s->writer = w;
	s->fd = mc_kv_writer_fd(w);
	s->opens = 1;
	s->users = 1;
	if (mc_kstage_may_pass(k, tid)) {
		s->born = mc_kv_full_count(k->kv);
		id = mc_mode_backing_open(k->fs, s->fd);
	}
	s->backing_id = id > 0 ? id : 0;
	mc_mutex_lock(&k->lock);
	mc_knode_ref_locked(n);
	n->stage = s;
	insert_locked(k, s);
	mc_knode_record_put_locked(k, n);
	mc_knode_record_opens_locked(k, n);
	mc_mutex_unlock(&k->lock);
	return 0;
}

int mc_kstage_restore(struct mc_kvfs *k, struct mc_knode *n, struct mc_kv_writer *w,
	const struct mc_knode_record *was)
{
	struct mc_kstage *s = calloc(1, sizeof(*s));
	uint32_t put = atomic_load(&was->put);

	if (s == NULL)
		return -ENOMEM;
	*s = (struct mc_kstage){.k = k,
		.node = n,
		.writer = w,
		.fd = mc_kv_writer_fd(w),
		.backing_id = atomic_load(&was->backing_id),
		.opens = atomic_load(&was->opens),
		.orphan = (put & MC_PUT_ORPHAN) != 0,
		.flushed = (put & MC_PUT_FLUSHED) != 0 ? 1 : 0,
		.synced = (put & MC_PUT_SYNCED) != 0,
		.sealed = (put & MC_PUT_SEALED) != 0,
		.sealable = (put & MC_PUT_SEALABLE) != 0,
		.failed = atomic_load(&was->failed),
		.born = atomic_load(&was->born),
		.size = was->sealed_size,
		.mtime = {.tv_sec = was->sealed_mtime_s, .tv_nsec = was->sealed_mtime_ns}};
	if (s->opens == 0)
		s->opens = 1;
	s->users = s->opens;
	if (s->synced)
		mc_kv_writer_sync(w, n->key);
	n->refs++;
	n->stage = s;
	mc_mutex_lock(&k->lock);
	insert_locked(k, s);
	mc_mutex_unlock(&k->lock);
	return 0;
}

void mc_kstage_synced(struct mc_kstage *s)
{
	mc_mutex_lock(&s->k->lock);
	s->synced = true;
	mc_knode_record_put_locked(s->k, s->node);
	mc_mutex_unlock(&s->k->lock);
}

struct mc_kstage *mc_kstage_find_locked(struct mc_kvfs *k, const char *key)
{
	struct mc_kstage *s;

	if (k->n_stages == 0)
		return NULL;
	for (s = *bucket(k, key); s != NULL; s = s->next) {
		if (!s->orphan && strcmp(s->node->key, key) == 0)
			return s;
	}
	return NULL;
}

struct mc_kstage *mc_kstage_hold(struct mc_kvfs *k, struct mc_knode *n)
{
	struct mc_kstage *s;

	mc_mutex_lock(&k->lock);
	s = n->stage;
	if (s != NULL && s->users > 0)
		s->users++;
	else
		s = NULL;
	mc_mutex_unlock(&k->lock);
	return s;
}

/*
 * Whether somebody can still store into the file: a mapping outlives the RELEASE. The kernel puts
 * its own file down a moment after it sent the RELEASE, hence the second looks.
 */
static bool writer_remains(const struct mc_kstage *s)
{
	const struct timespec pause = {.tv_nsec = LEASE_PAUSE_NS};

	if (s->backing_id == 0)
		return false; /* all stores came through us, a mapping would hold our file open */
	for (int i = 0; i < LEASE_TRIES; i++) {
		int r = mc_lease_take(s->fd);

		if (r == 0) {
			mc_lease_drop(s->fd);
			return false;
		}
		if (r != -EAGAIN)
			return true;
		nanosleep(&pause, NULL);
	}
	return true;
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static int publish(struct mc_kstage *s, const char *key, struct mc_kv_attr *ret)
{
	struct stat st;
	int r = fstat(s->fd, &st) == 0 ? 0 : -errno;
	bool seal = r == 0 && key != NULL && !s->orphan && s->sealable && s->failed == 0 &&
		(uint64_t)st.st_size == s->size && (s->sealed || same_time(&st.st_mtim, &s->mtime));

	if (!seal) {
		if (s->failed < 0 && !s->orphan)
			atomic_fetch_add(&s->k->fs->counters.puts_failed, 1);
		mc_kv_discard(s->writer);
		return r < 0 ? r : -ECANCELED;
	}
	mc_mutex_lock(&s->k->lock);
	s->sealed = true;
	mc_knode_record_put_locked(s->k, s->node);
	mc_mutex_unlock(&s->k->lock);
	return mc_kv_publish(s->writer, key, &s->mtime, 0, writer_remains(s), ret);
}

/* The last one left: publishes or discards. On the pool. */
static void end(void *arg)
{
	struct mc_kstage *s = arg;
	struct mc_kvfs *k = s->k;
	struct mc_knode *n = s->node;
	cleanup_free char *key = mc_knode_key(k, n); /* nobody renames it now */
	struct mc_kv_attr attr = {0};
	int r;

	mc_mode_backing_close(k->fs, s->backing_id);
	mc_knode_record_closed(k, n, s->backing_id);
	r = publish(s, key, &attr);
	if (r < 0 && r != -ECANCELED)
		mc_kvfs_failed(k, key, r, "publishing");
	else if (r == 0)
		mc_admin_put_ended(k->fs, key, "");
	mc_mutex_lock(&k->lock);
	remove_locked(k, s);
	n->stage = NULL;
	if (r == 0)
		mc_knode_seal_locked(k, n, &attr);
	else
		n->kind = MC_KNODE_DEAD;
	mc_knode_record_kind_locked(k, n);
	mc_knode_record_opens_locked(k, n);
	k->seq++;
	mc_mutex_unlock(&k->lock);
	mc_kreqs_wake(k);
	mc_knode_put(k, n, 1);
	free(s);
}

void mc_kstage_drop(struct mc_kstage *s)
{
	struct mc_kvfs *k = s->k;
	bool last;

	mc_mutex_lock(&k->lock);
	assert(s->users > 0);
	last = --s->users == 0;
	mc_mutex_unlock(&k->lock);
	/* With the pool full or closed here and now: what was closed must not be lost. */
	if (last && mc_work_submit(k->work, end, s) < 0)
		end(s);
}

bool mc_kstage_join(struct mc_kvfs *k, struct mc_knode *n, int *ret_backing)
{
	struct mc_kstage *s;

	mc_mutex_lock(&k->lock);
	s = n->stage;
	if (s != NULL && s->opens > 0) {
		s->opens++;
		s->users++;
		mc_knode_record_opens_locked(k, n);
		*ret_backing = s->backing_id;
	} else {
		s = NULL;
	}
	mc_mutex_unlock(&k->lock);
	return s != NULL;
}

bool mc_kstage_is_begun(struct mc_kvfs *k, struct mc_knode *n, int *ret_backing)
{
	const struct mc_kstage *s;
	bool begun;

	mc_mutex_lock(&k->lock);
	s = n->stage;
	begun = s != NULL && s->opens == 1 && s->flushed == 0 && !s->orphan;
	if (begun)
		*ret_backing = s->backing_id;
	mc_mutex_unlock(&k->lock);
	return begun;
}

void mc_kstage_leave(struct mc_kvfs *k, struct mc_knode *n)
{
	struct mc_kstage *s;

	mc_mutex_lock(&k->lock);
	s = n->stage;
	if (s != NULL && s->opens > 0) {
		s->publishing = --s->opens == 0;
		mc_knode_record_opens_locked(k, n);
	} else {
		s = NULL;
	}
	mc_mutex_unlock(&k->lock);
	if (s != NULL)
		mc_kstage_drop(s);
}

unsigned mc_kstage_orphan(struct mc_kvfs *k, const char *key)
{
	unsigned n = 0;

	mc_mutex_lock(&k->lock);
	for (struct mc_kstage *s = *bucket(k, key); s != NULL; s = s->next) {
		if (!s->orphan && !s->publishing && strcmp(s->node->key, key) == 0) {
			s->orphan = true;
			mc_knode_record_put_locked(k, s->node);
			n++;
		}
	}
	mc_mutex_unlock(&k->lock);
	return n;
}

int mc_kstage_rename(struct mc_kvfs *k, const char *from, const char *to)
{
	char *key = strdup(to);
	struct mc_kstage *s;
	int r = key != NULL ? 0 : -ENOMEM;

	if (r < 0)
		return r;
	mc_mutex_lock(&k->lock);
	s = mc_kstage_find_locked(k, from);
	if (s == NULL || s->publishing) {
		r = -ENOENT;
	} else {
		remove_locked(k, s);
		mc_knode_rename_locked(k, s->node, key);
		insert_locked(k, s);
		key = NULL;
	}
	mc_mutex_unlock(&k->lock);
	free(key);
	return r;
}

bool mc_kstage_below(struct mc_kvfs *k, const char *dir_key)
{
	size_t len = strlen(dir_key);
	bool found = false;

	mc_mutex_lock(&k->lock);
	for (unsigned i = 0; i < MC_KSTAGE_BUCKETS && k->n_stages > 0 && !found; i++) {
		for (const struct mc_kstage *s = k->stages[i]; s != NULL && !found; s = s->next)
			found = !s->orphan && strncmp(s->node->key, dir_key, len) == 0 &&
				s->node->key[len] == '/';
	}
	mc_mutex_unlock(&k->lock);
	return found;
}

/* The session is over: what is still open is discarded; what was closed, but its RELEASE got lost
 * with the connection, nobody has open any more, and it is published. */
void mc_kstages_end(struct mc_kvfs *k)
{
	bool none_lost = k->n_stages > 0 && mc_session_is_idle(k->fs->se);

	for (unsigned i = 0; i < MC_KSTAGE_BUCKETS; i++) {
		for (;;) {
			struct mc_kstage *s = NULL;

			mc_mutex_lock(&k->lock);
			for (s = k->stages[i]; s != NULL && s->opens == 0; s = s->next)
				;
			if (s != NULL) {
				s->users -= s->opens - 1;
				s->opens = 0;
				s->publishing = true;
			}
			mc_mutex_unlock(&k->lock);
			if (s == NULL)
				break;
			if (none_lost || writer_remains(s) ||
				(s->backing_id == 0 && s->flushed == 0))
				s->orphan = true;
			mc_kstage_drop(s);
		}
	}
}
