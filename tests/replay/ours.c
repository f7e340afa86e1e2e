/* tier/policy.c, driven the way the store drives it: a miss evicts until the new block fits. */
#include "tests/replay/replay.h"

#include <assert.h>
#include <stdlib.h>

#include "tier/policy.h"

#define BLOCK (UINT64_C(1) << 20)

struct ours {
	const struct replay_trace *trace; /* borrowed */
	uint32_t capacity, used;          /* blocks */
	struct mc_policy *policy;
	struct mc_policy_entry *entries; /* owned; by block */
};

static void ours_close(void *p)
{
	struct ours *c = p;

	mc_policy_close(c->policy);
	free(c->entries);
	free(c);
}

static void *ours_open(const struct replay_trace *t, uint32_t capacity)
{
	struct ours *c = calloc(1, sizeof(*c));

	if (c == NULL)
		return NULL;
	c->trace = t;
	c->capacity = capacity;
	c->entries = calloc((size_t)t->n_ids + 1, sizeof(*c->entries));
	if (c->entries != NULL && mc_policy_open(capacity * BLOCK, &c->policy) == 0)
		return c;
	ours_close(c);
	return NULL;
}

static bool any(void *ctx, const struct mc_policy_entry *e)
{
	(void)ctx;
	(void)e;
	return true;
}

static bool ours_access(void *p, size_t i)
{
	struct ours *c = p;
	uint32_t b = c->trace->ids[i];

	if (mc_policy_linked(&c->entries[b])) {
		mc_policy_hit(c->policy, &c->entries[b]);
		return true;
	}
	for (; c->used >= c->capacity; c->used--) {
		struct mc_policy_entry *v = mc_policy_victim(c->policy, any, NULL, 1);

		assert(v != NULL);
		mc_policy_evict(c->policy, v);
	}
	mc_policy_insert(c->policy, &c->entries[b], b, BLOCK);
	c->used++;
	return false;
}

const struct replay_policy replay_ours = {"mooncakefs", ours_open, ours_access, ours_close};
