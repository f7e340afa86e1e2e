/* The tiers by name, fastest first. */
#pragma once

enum mc_tier { MC_TIER_DRAM, MC_TIER_NVME, MC_TIER_BLOCK, MC_TIER_REMOTE };
#define MC_TIERS 4

static inline const char *mc_tier_name(enum mc_tier t)
{
	static const char *const names[MC_TIERS] = {"dram", "nvme", "block", "remote"};

	return names[t];
}
