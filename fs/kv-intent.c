/*
 * What the next LOOKUP of a task is promised. The kernel answers ESTALE from OPEN or CREATE by
 * looking the name up once more and opening what it finds: that is how an O_TRUNC gets a nodeid of
 * its own, and a reader of a key that is replaced all the time a version that stays.
 *
 * Invariant: an intent lives until its node is opened or INTENT_S seconds; the kernel asks twice
 * (revalidation and lookup), so a LOOKUP leaves it.
 */
#include "fs/kv-state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/takeover.h"

#define INTENT_NS UINT64_C(5000000000)

static void intent_free(struct mc_kvfs *k, struct mc_kintent *i)
{
	if (i == NULL)
		return;
	if (i->obj != NULL)
		mc_kv_object_put(i->obj);
	if (i->node != NULL)
		mc_knode_put(k, i->node, 1);
	free(i->key);
	free(i);
}

static uint64_t hash_of(const char *key)
{
	return mc_hash_bytes(MC_HASH_SEED, key, strlen(key));
}

/* The record of a promise of a put, for the process that follows: the client asks but once. */
static void record_locked(struct mc_kvfs *k, pid_t tid, const char *key) MC_REQUIRES(k->lock)
{
	struct mc_takeover_head *head;
	struct mc_promise_record *p;

	if (!mc_takeover_on(k->fs->opts->takeover))
		return;
	head = mc_takeover_head(k->fs->opts->takeover);
	p = &head->promises[head->next_promise++ % MC_TAKEOVER_PROMISES];
	atomic_store(&p->tid, 0);
	p->key = hash_of(key);
	p->until_ns = mc_now_ns() + INTENT_NS;
	atomic_store(&p->tid, (uint32_t)tid);
}

/* Takes it back; whether it was there and is still to be kept. */
static bool forget_locked(struct mc_kvfs *k, pid_t tid, const char *key) MC_REQUIRES(k->lock)
{
	struct mc_takeover_head *head;
	uint64_t hash = hash_of(key);
	bool found = false;

	if (!mc_takeover_on(k->fs->opts->takeover))
		return false;
	head = mc_takeover_head(k->fs->opts->takeover);
	for (unsigned i = 0; i < MC_TAKEOVER_PROMISES; i++) {
		struct mc_promise_record *p = &head->promises[i];

		if (atomic_load(&p->tid) != (uint32_t)tid || p->key != hash)
			continue;
		found = found || p->until_ns > mc_now_ns();
		atomic_store(&p->tid, 0);
	}
	return found;
}

static struct mc_kintent *remove_locked(struct mc_kvfs *k, pid_t tid, const char *key)
{
	struct mc_kintent **p = &k->intents, *i;

	while (*p != NULL && ((*p)->tid != tid || strcmp((*p)->key, key) != 0))
		p = &(*p)->next;
	i = *p;
	if (i != NULL)
		*p = i->next;
	return i;
}

void mc_kintent_add(struct mc_kvfs *k, pid_t tid, const char *key, struct mc_knode *node,
	struct mc_kv_object *obj)
{
	struct mc_kintent *i = calloc(1, sizeof(*i)), *old = NULL;

	if (i != NULL) {
		i->node = node;
		i->obj = obj;
		i->tid = tid;
		i->key = strdup(key);
		i->until_ns = mc_now_ns() + INTENT_NS;
	}
	if (i == NULL || i->key == NULL) {
		/* The client sees the ESTALE. */
		free(i);
		if (obj != NULL)
			mc_kv_object_put(obj);
		if (node != NULL)
			mc_knode_put(k, node, 1);
		return;
	}
	mc_mutex_lock(&k->lock);
	old = remove_locked(k, tid, key);
	i->next = k->intents;
	k->intents = i;
	if (obj == NULL)
		record_locked(k, tid, key);
	mc_cond_signal(&k->timer);
	mc_mutex_unlock(&k->lock);
	intent_free(k, old);
}

static struct mc_knode *find(struct mc_kvfs *k, pid_t tid, const char *key)
{
	struct mc_knode *n = NULL;

	mc_mutex_lock(&k->lock);
	for (const struct mc_kintent *i = k->intents; i != NULL && n == NULL; i = i->next) {
		if (i->tid == tid && strcmp(i->key, key) == 0)
			n = i->node;
	}
	if (n != NULL)
		mc_knode_ref_locked(n);
	mc_mutex_unlock(&k->lock);
	return n;
}

/* What the process before this one promised is kept. */
static void keep_promise(struct mc_kvfs *k, pid_t tid, const char *key)
{
	struct mc_knode *n;
	bool promised;

	if (k->fs->opts->device < 0)
		return;
	mc_mutex_lock(&k->lock);
	promised = forget_locked(k, tid, key);
	mc_mutex_unlock(&k->lock);
	if (promised && mc_knode_new_staging(k, key, &n) == 0)
		mc_kintent_add(k, tid, key, n, NULL);
}

struct mc_knode *mc_kintent_find(struct mc_kvfs *k, pid_t tid, const char *key)
{
	struct mc_knode *n = find(k, tid, key);

	if (n == NULL) {
		keep_promise(k, tid, key);
		n = find(k, tid, key);
	}
	return n;
}

struct mc_kv_object *mc_kintent_take(struct mc_kvfs *k, pid_t tid, const struct mc_knode *node)
{
	struct mc_kintent **p = &k->intents, *i;
	struct mc_kv_object *obj = NULL;

	mc_mutex_lock(&k->lock);
	while (*p != NULL && ((*p)->tid != tid || (*p)->node != node))
		p = &(*p)->next;
	i = *p;
	if (i != NULL)
		*p = i->next;
	if (i != NULL)
		forget_locked(k, tid, i->key);
	mc_mutex_unlock(&k->lock);
	if (i != NULL) {
		obj = i->obj;
		i->obj = NULL;
	}
	intent_free(k, i);
	return obj;
}

uint64_t mc_kintents_expire(struct mc_kvfs *k, uint64_t now_ns)
{
	uint64_t next = UINT64_MAX;
	struct mc_kintent **p = &k->intents, *old = NULL;

	mc_mutex_lock(&k->lock);
	while (*p != NULL) {
		struct mc_kintent *i = *p;

		if (i->until_ns > now_ns) {
			next = i->until_ns < next ? i->until_ns : next;
			p = &i->next;
			continue;
		}
		*p = i->next;
		i->next = old;
		old = i;
	}
	mc_mutex_unlock(&k->lock);
	while (old != NULL) {
		struct mc_kintent *i = old;

		old = i->next;
		intent_free(k, i);
	}
	return next;
}
