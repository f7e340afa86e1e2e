/* Reading what the table says lies in a segment through in order. For kv-log*.c.
 */
#pragma once

#include "tier/kv-log-judge.h"
#include "tier/read-ahead.h"

/* Something that is not whole. */
struct mc_kv_bad {
	uint32_t slot;
	enum mc_kv_wrong wrong;
	uint32_t block; /* MC_KV_BAD_PAYLOAD: the first bad MiB */
	uint64_t room;  /* a record's: bytes from its start to the next one, or to the end */
};

struct mc_kv_scan {
	struct mc_kv_log *log;  /* borrowed; nobody changes its table meanwhile */
	struct mc_ahead *ahead; /* borrowed */
	/* Called for each record that is whole, or not; bytes: what it takes. */
	void (*judged)(void *ctx, const struct mc_kv_bad *b, uint64_t bytes);
	void *ctx;
};

/* 0 or -ENOMEM. */
int mc_kv_scan_segment(const struct mc_kv_scan *s, const struct mc_kv_segment *seg);
