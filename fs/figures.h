/* The daemon's figures at one moment: what status.c and metrics.c print. For fs/ only. */
#pragma once

#include "fs/state.h"
#include "tier/kv.h"
#include "tier/remote-set.h"
#include "tier/scrub.h"
#include "tier/store.h"

/* Counters as far as the process has come; bytes where the name says nothing else. */
struct mc_figures {
	struct mc_store_stats store;
	struct mc_kv_stats kv; /* zero without kv/ */
	struct mc_remote_stats remote;
	struct mc_set_status set;     /* n = 0: one remote */
	struct mc_scrub_status scrub; /* zero without one */
	bool has_nvme, has_kv, has_scrub;
	uint64_t opens_passthrough, opens_cached;
	uint64_t reads, read_bytes, read_errors;
	uint64_t puts_limited, puts_unknown, puts_failed; /* see struct mc_fs_counters */
	uint64_t requests_waiting;                        /* calls begun and not ended */
	uint64_t requests_expired;
	uint64_t nodes;          /* known to the kernel, without kv/ */
	uint64_t handles;        /* open directories and generated files */
	uint64_t uptime_seconds; /* since the mount */
	uint64_t started_s;      /* since the epoch */
	uint64_t resident_bytes; /* memory of the process */
	uint64_t up, passthrough, remote_up, kv_recovering, nvme_bypassed; /* 0 or 1 */
	uint64_t scrub_running;                                            /* likewise */
	uint64_t scrub_lost; /* KV objects whose last copy is damaged, as far as was seen */
};

void mc_figures_take(struct mc_fs *fs, struct mc_figures *ret);

/* Whether --nvme is more than the file system it lies on has; *ret_given: bytes, of both stores. */
bool mc_figures_nvme_short(const struct mc_figures *f, uint64_t *ret_given);

/* What is not as it should be, each a sentence; calls each for every one. */
void mc_figures_degraded(const struct mc_fs *fs, const struct mc_figures *f,
	void (*each)(void *ctx, const char *text), void *ctx);
