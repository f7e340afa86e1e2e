/*
 * Requests on kv/ that wait: for the pool, or for a put of the same key to end. close() returns to
 * the client before the RELEASE that publishes arrives, so whoever asks for a key that has seen a
 * FLUSH waits for the RELEASE, at most GATE_MS, and for the publishing itself as long as it takes.
 * Who lists a directory waits for all such keys in it, for the publishing at most LIST_MS.
 *
 * Invariants: 1. A request in k->waiting is in nobody else's hands. 2. run runs once for each time
 * it is set, without the lock. 3. A put for which somebody waited in vain holds up nobody else
 * until it sees another FLUSH.
 */
#include "fs/kv-state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/session.h"
#include "tier/cleanup.h"

#define GATE_MS 50
#define LIST_MS 1000
#define MS UINT64_C(1000000)

struct mc_kreq *mc_kreq_new(struct mc_kvfs *k, fuse_req_t req, struct mc_knode *n, char *key)
{
	struct mc_kreq *q = calloc(1, sizeof(*q));

	if (q == NULL) {
		free(key);
		fuse_reply_err(req, ENOMEM);
		return NULL;
	}
	q->k = k;
	q->key = key;
	q->tid = fuse_req_ctx(req)->pid;
	q->node = n;
	q->repeated = mc_loop_is_repeated();
	if (n != NULL) {
		mc_mutex_lock(&k->lock);
		mc_knode_ref_locked(n);
		mc_mutex_unlock(&k->lock);
	}
	mc_call_begin(&k->fs->calls, &q->call, req);
	/* Either this sees that we stop, or who stops us sees the call: none is left waiting. */
	if (atomic_load(&k->fs->stopping)) {
		mc_kreq_err(q, -EIO);
		return NULL;
	}
	return q;
}

struct mc_kreq *mc_kreq_of_node(struct mc_kvfs *k, fuse_req_t req, struct mc_knode *n)
{
	char *key = mc_knode_key(k, n);

	if (key == NULL) {
		fuse_reply_err(req, ENOMEM);
		return NULL;
	}
	return mc_kreq_new(k, req, n, key);
}

struct mc_kreq *mc_kreq_of_name(
	struct mc_kvfs *k, fuse_req_t req, fuse_ino_t parent, const char *name)
{
	char *key;
	int r = mc_knode_child_key(k, parent, name, &key);

	if (r < 0) {
		fuse_reply_err(req, mc_kvfs_errno(r));
		return NULL;
	}
	return mc_kreq_new(k, req, NULL, key);
}

void mc_kreq_begins(struct mc_kreq *q)
{
	mc_mutex_lock(&q->k->lock);
	q->begins = true;
	q->next = q->k->beginning;
	q->k->beginning = q;
	mc_mutex_unlock(&q->k->lock);
}

bool mc_kreq_begins_locked(struct mc_kvfs *k, const char *key)
{
	const struct mc_kreq *q = k->beginning;
	const struct mc_kintent *i = k->intents;

	while (q != NULL && strcmp(q->key, key) != 0)
		q = q->next;
	while (q == NULL && i != NULL && (i->obj != NULL || strcmp(i->key, key) != 0))
		i = i->next;
	return q != NULL || i != NULL;
}

static void begun(struct mc_kreq *q)
{
	struct mc_kreq **p = &q->k->beginning;

	mc_mutex_lock(&q->k->lock);
	while (*p != q)
		p = &(*p)->next;
	*p = q->next;
	mc_mutex_unlock(&q->k->lock);
}

void mc_kreq_end(struct mc_kreq *q)
{
	if (q->begins)
		begun(q);
	if (q->node != NULL)
		mc_knode_put(q->k, q->node, 1);
	mc_call_end(&q->call);
	free(q->key);
	free(q->to);
	free(q);
}

void mc_kreq_err(struct mc_kreq *q, int r)
{
	fuse_req_t req = mc_call_take(&q->call);

	if (r < 0 && mc_kvfs_errno(r) == EIO && !atomic_load(&q->k->fs->stopping))
		mc_kvfs_told(q->k, q->key, r);
	if (req != NULL)
		fuse_reply_err(req, r < 0 ? mc_kvfs_errno(r) : 0);
	mc_kreq_end(q);
}

static void work_main(void *arg)
{
	struct mc_kreq *q = arg;

	q->run(q);
}

void mc_kreq_work(struct mc_kreq *q, void (*run)(struct mc_kreq *q))
{
	int r;

	q->run = run;
	r = mc_work_submit(q->k->work, work_main, q);
	if (r < 0)
		mc_kreq_err(q, r);
}

static unsigned bucket_of(const char *key)
{
	return (unsigned)mc_hash_mix(mc_hash_bytes(MC_HASH_SEED, key, strlen(key))) %
		MC_KSTAGE_BUCKETS;
}

bool mc_kgate_closed_locked(struct mc_kvfs *k, const char *key)
{
	if (k->n_stages == 0)
		return false;
	for (const struct mc_kstage *s = k->stages[bucket_of(key)]; s != NULL; s = s->next) {
		if ((s->publishing || (s->flushed != 0 && !s->orphan)) &&
			strcmp(s->node->key, key) == 0)
			return true;
	}
	return false;
}

static bool is_in(const char *key, const char *dir)
{
	size_t len = strlen(dir);

	if (len > 0 && (strncmp(key, dir, len) != 0 || key[len++] != '/'))
		return false;
	return strchr(key + len, '/') == NULL;
}

/* Whether a listing waits for the put s. */
static bool holds_up(const struct mc_kreq *q, const struct mc_kstage *s)
{
	return s->flushed != 0 && s->flushed <= q->flushed && !s->orphan &&
		is_in(s->node->key, q->gate);
}

static bool is_held_up_locked(struct mc_kvfs *k, const struct mc_kreq *q)
{
	if (!q->is_list)
		return mc_kgate_closed_locked(k, q->gate);
	for (unsigned i = 0; i < MC_KSTAGE_BUCKETS && k->n_stages > 0; i++)
		for (const struct mc_kstage *s = k->stages[i]; s != NULL; s = s->next)
			if (holds_up(q, s))
				return true;
	return false;
}

static void gate(struct mc_kreq *q, const char *key, void (*run)(struct mc_kreq *q))
{
	struct mc_kvfs *k = q->k;
	struct mc_kreq **tail = &k->waiting;
	uint64_t now = mc_now_ns();

	q->gate = key;
	q->run = run;
	mc_mutex_lock(&k->lock);
	q->flushed = k->flushes;
	if (is_held_up_locked(k, q)) {
		q->until_ns = now + GATE_MS * MS;
		q->limit_ns = now + LIST_MS * MS;
		q->next = NULL;
		while (*tail != NULL)
			tail = &(*tail)->next;
		*tail = q;
		mc_cond_signal(&k->timer);
		q = NULL;
	}
	mc_mutex_unlock(&k->lock);
	if (q != NULL)
		run(q);
}

void mc_kreq_gate(struct mc_kreq *q, const char *key, void (*run)(struct mc_kreq *q))
{
	gate(q, key, run);
}

void mc_kreq_gate_list(struct mc_kreq *q, void (*run)(struct mc_kreq *q))
{
	q->is_list = true;
	gate(q, q->key, run);
}

/* Takes those out whose gate is open, or all. */
static struct mc_kreq *take_locked(struct mc_kvfs *k, bool all)
{
	struct mc_kreq **p = &k->waiting, *list = NULL, **tail = &list;

	while (*p != NULL) {
		struct mc_kreq *q = *p;

		if (!all && is_held_up_locked(k, q)) {
			p = &q->next;
			continue;
		}
		*p = q->next;
		q->next = NULL;
		*tail = q;
		tail = &q->next;
	}
	return list;
}

static void run_all(struct mc_kreq *list)
{
	while (list != NULL) {
		struct mc_kreq *q = list;

		list = q->next;
		q->run(q);
	}
}

void mc_kreqs_wake(struct mc_kvfs *k)
{
	struct mc_kreq *list;

	mc_mutex_lock(&k->lock);
	list = take_locked(k, false);
	mc_mutex_unlock(&k->lock);
	run_all(list);
}

/* The RELEASE did not come in time: the file is still open somewhere. */
static void give_up_locked(struct mc_kvfs *k, struct mc_kreq *q, uint64_t now)
{
	unsigned first = q->is_list ? 0 : bucket_of(q->gate);
	unsigned end = q->is_list ? MC_KSTAGE_BUCKETS : first + 1;

	for (unsigned i = first; i < end; i++) {
		for (struct mc_kstage *s = k->stages[i]; s != NULL; s = s->next) {
			if (q->is_list ? holds_up(q, s) && (!s->publishing || now >= q->limit_ns)
				       : strcmp(s->node->key, q->gate) == 0)
				s->flushed = 0;
		}
	}
	q->until_ns = now + GATE_MS * MS;
}

/* Returns when to look again. */
static uint64_t tick_locked(struct mc_kvfs *k, uint64_t now)
{
	uint64_t next = UINT64_MAX;

	for (struct mc_kreq *q = k->waiting; q != NULL; q = q->next) {
		if (q->until_ns <= now)
			give_up_locked(k, q, now);
		next = q->until_ns < next ? q->until_ns : next;
	}
	return next;
}

static void *timer_main(void *arg)
{
	struct mc_kvfs *k = arg;

	mc_mutex_lock(&k->lock);
	while (!k->closing) {
		uint64_t now = mc_now_ns(), next = tick_locked(k, now), intents;
		struct mc_kreq *list = take_locked(k, false);

		mc_mutex_unlock(&k->lock);
		run_all(list);
		intents = mc_kintents_expire(k, now);
		next = intents < next ? intents : next;
		mc_mutex_lock(&k->lock);
		if (k->closing || list != NULL)
			continue;
		if (next == UINT64_MAX && k->waiting == NULL && k->intents == NULL)
			mc_cond_wait(&k->timer, &k->lock);
		else if (next != UINT64_MAX)
			mc_cond_wait_until(&k->timer, &k->lock, next);
	}
	mc_mutex_unlock(&k->lock);
	return NULL;
}

int mc_kwait_open(struct mc_kvfs *k)
{
	int r = -pthread_create(&k->timer_thread, NULL, timer_main, k);

	k->has_timer = r == 0;
	return r;
}

void mc_kwait_close(struct mc_kvfs *k)
{
	struct mc_kreq *list;

	mc_mutex_lock(&k->lock);
	k->closing = true;
	list = take_locked(k, true);
	mc_cond_signal(&k->timer);
	mc_mutex_unlock(&k->lock);
	run_all(list);
	if (k->has_timer)
		pthread_join(k->timer_thread, NULL);
	k->has_timer = false;
	mc_kintents_expire(k, UINT64_MAX);
}
