/*
 * Two tiers, each ordered by tier/policy.c, the way the store moves blocks: what is fetched comes
 * into DRAM and is written behind to NVMe; a hit in NVMe promotes; DRAM drops what NVMe has
 * already. NVMe sees the uses that miss DRAM.
 */
#include "tests/replay/replay.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "tier/policy.h"

#define BLOCK (UINT64_C(1) << 20)

struct tier {
	uint32_t capacity, used; /* blocks */
	struct mc_policy *policy;
	struct mc_policy_entry *entries; /* owned; by block */
};

static int tier_init(struct tier *t, uint32_t capacity, uint32_t n_ids)
{
	*t = (struct tier){.capacity = capacity};
	t->entries = calloc((size_t)n_ids + 1, sizeof(*t->entries));
	return t->entries != NULL ? mc_policy_open(capacity * BLOCK, &t->policy) : -ENOMEM;
}

static void tier_done(struct tier *t)
{
	mc_policy_close(t->policy);
	free(t->entries);
}

static bool any(void *ctx, const struct mc_policy_entry *e)
{
	(void)ctx;
	(void)e;
	return true;
}

/* Inserts a block that is not there; another leaves for it when the tier is full. */
static void tier_insert(struct tier *t, uint32_t block)
{
	if (t->used == t->capacity) {
		struct mc_policy_entry *v = mc_policy_victim(t->policy, any, NULL, 1);

		assert(v != NULL);
		mc_policy_evict(t->policy, v);
		t->used--;
	}
	mc_policy_insert(t->policy, &t->entries[block], block, BLOCK);
	t->used++;
}

/* A use of a block that is there; false when it is not. */
static bool tier_hit(struct tier *t, uint32_t block)
{
	if (!mc_policy_linked(&t->entries[block]))
		return false;
	mc_policy_hit(t->policy, &t->entries[block]);
	return true;
}

static void access_block(
	struct tier *dram, struct tier *nvme, uint32_t block, struct replay_tier_hits *hits)
{
	if (tier_hit(dram, block)) {
		hits->dram++;
		return;
	}
	tier_insert(dram, block);
	if (tier_hit(nvme, block))
		hits->nvme++;
	else
		tier_insert(nvme, block);
}

int replay_two_tiers(const struct replay_trace *t, uint32_t dram_blocks, uint32_t nvme_blocks,
	struct replay_tier_hits *ret)
{
	struct tier dram, nvme = {0};
	int r = tier_init(&dram, dram_blocks, t->n_ids);

	*ret = (struct replay_tier_hits){0};
	if (r == 0)
		r = tier_init(&nvme, nvme_blocks, t->n_ids);
	for (size_t i = 0; r == 0 && i < t->n; i++)
		access_block(&dram, &nvme, t->ids[i], ret);
	tier_done(&dram);
	tier_done(&nvme);
	return r;
}
