/* Another capacity for a tier that is in use. */
#include "tier/store-impl.h"

#include <errno.h>

#define BUDGET_NS UINT64_C(1000000000) /* for eviction; the rest leaves when room is needed */

static uint64_t used(struct mc_store *s, enum mc_tier tier)
{
	struct mc_store_stats st;

	mc_store_stats(s, &st);
	return tier == MC_TIER_DRAM ? st.dram.used : st.nvme.used;
}

int mc_store_resize(struct mc_store *s, enum mc_tier tier, uint64_t capacity)
{
	uint64_t deadline = mc_now_ns() + BUDGET_NS;
	uint64_t freed = 1;

	if (tier != MC_TIER_DRAM && (tier != MC_TIER_NVME || s->nvme == NULL))
		return -ENODEV;
	mc_mutex_lock(&s->lock);
	s->capacity[tier] = capacity;
	mc_policy_resize(tier == MC_TIER_DRAM ? s->dram_policy : s->nvme_policy, capacity);
	mc_mutex_unlock(&s->lock);
	if (tier == MC_TIER_DRAM)
		mc_dram_resize(s->dram, capacity);
	else
		mc_nvme_resize(s->nvme, capacity);
	while (used(s, tier) > capacity && freed > 0 && mc_now_ns() < deadline)
		freed = tier == MC_TIER_DRAM ? mc_evict_dram(s) : mc_evict_nvme(s);
	mc_mutex_lock(&s->lock);
	mc_store_room_locked(s);
	mc_mutex_unlock(&s->lock);
	return used(s, tier) > capacity ? -EAGAIN : 0;
}
