/*
 * Replacement: probation for what was used once, a protected list for the rest, history for the
 * evicted.
 *
 * Invariants: 1. a linked entry is on exactly the list e->list, in order of its last use, newest
 * first;
 * 2. weight[l] is the sum over list l; 3. e->uses ≥ 1; 4. history has at most HISTORY_MIN slots or
 * 2 × HISTORY_PER_ENTRY slots for each entry of the fullest time.
 */
#include "tier/policy.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "tier/cleanup.h"
#include "tier/history.h"

enum { PROBATION, PROTECTED, LISTS };

#define PROBATION_SHARE 10 /* a tenth of the capacity */
#define BURST 4
#define HISTORY_MIN 65536u /* slots, 512 KiB */
#define HISTORY_PER_ENTRY 2

struct mc_policy {
	uint64_t capacity; /* bytes */
	uint64_t weight[LISTS];
	uint64_t entries;
	struct mc_policy_entry head[LISTS];
	uint32_t now; /* uses so far, of any entry */
	struct mc_history history;
};

int mc_policy_open(uint64_t capacity, struct mc_policy **ret)
{
	cleanup_free struct mc_policy *p = calloc(1, sizeof(*p));
	int r;

	assert(capacity > 0);
	if (p == NULL)
		return -ENOMEM;
	r = mc_history_init(&p->history, HISTORY_MIN);
	if (r < 0)
		return r;
	p->capacity = capacity;
	for (unsigned l = 0; l < LISTS; l++)
		p->head[l].prev = p->head[l].next = &p->head[l];
	*ret = steal_ptr(p);
	return 0;
}

void mc_policy_close(struct mc_policy *p)
{
	if (p == NULL)
		return;
	mc_history_done(&p->history);
	free(p);
}

static void link_newest(struct mc_policy *p, struct mc_policy_entry *e, uint8_t list)
{
	struct mc_policy_entry *h = &p->head[list];

	e->list = list;
	e->stamp = p->now;
	e->prev = h;
	e->next = h->next;
	h->next->prev = e;
	h->next = e;
	p->weight[list] += e->weight;
	p->entries++;
}

static void detach(struct mc_policy *p, struct mc_policy_entry *e)
{
	assert(e->next != NULL);
	e->prev->next = e->next;
	e->next->prev = e->prev;
	e->prev = e->next = NULL;
	p->weight[e->list] -= e->weight;
	p->entries--;
}

static uint8_t list_for(const struct mc_policy_entry *e)
{
	return e->uses > 1 ? PROTECTED : PROBATION;
}

void mc_policy_insert(
	struct mc_policy *p, struct mc_policy_entry *e, uint64_t key_hash, uint64_t weight)
{
	uint32_t age;
	uint8_t uses = 0;

	assert(weight > 0);
	p->now++;
	mc_history_take(&p->history, key_hash, p->now, &age, &uses);
	*e = (struct mc_policy_entry){.key_hash = key_hash, .weight = weight};
	e->uses = uses < UINT8_MAX ? uses + 1 : uses;
	link_newest(p, e, list_for(e));
	if (p->entries * HISTORY_PER_ENTRY > mc_history_slots(&p->history))
		mc_history_grow(&p->history);
}

void mc_policy_hit(struct mc_policy *p, struct mc_policy_entry *e)
{
	if (p->now - e->stamp < BURST)
		return;
	p->now++;
	if (e->uses < UINT8_MAX)
		e->uses++;
	detach(p, e);
	link_newest(p, e, list_for(e));
}

void mc_policy_evict(struct mc_policy *p, struct mc_policy_entry *e)
{
	mc_history_put(&p->history, e->key_hash, e->stamp, e->uses, p->now);
	detach(p, e);
}

void mc_policy_remove(struct mc_policy *p, struct mc_policy_entry *e)
{
	detach(p, e);
}

static uint8_t victim_list(const struct mc_policy *p)
{
	if (p->weight[PROTECTED] == 0 || p->weight[PROBATION] > p->capacity / PROBATION_SHARE)
		return PROBATION;
	return PROTECTED;
}

struct mc_policy_entry *mc_policy_victim(
	struct mc_policy *p, mc_policy_evictable *evictable, void *ctx, unsigned max_scan)
{
	for (unsigned i = 0; i < max_scan && p->entries > 0; i++) {
		uint8_t first = victim_list(p);
		uint8_t list = i < max_scan / 2 || p->weight[!first] == 0 ? first : !first;
		struct mc_policy_entry *e = p->head[list].prev;

		if (evictable(ctx, e))
			return e;
		detach(p, e);
		link_newest(p, e, list);
	}
	return NULL;
}

void mc_policy_stats(const struct mc_policy *p, struct mc_policy_stats *ret)
{
	*ret = (struct mc_policy_stats){.entries = p->entries,
		.weight = p->weight[PROBATION] + p->weight[PROTECTED],
		.history_bytes = mc_history_slots(&p->history) * 8};
}
