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
	mc_cond_signal(&k->timer);
	mc_mutex_unlock(&k->lock);
	intent_free(k, old);
}

struct mc_knode *mc_kintent_find(struct mc_kvfs *k, pid_t tid, const char *key)
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
