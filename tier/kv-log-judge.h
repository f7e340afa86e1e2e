/*
 * Checking records of the KV log by the bytes that lie there, handed over in order:
 * header, payload by MiB, key and checksums. For kv-log*.c.
 */
#pragma once

#include "tier/kv-log-impl.h"

/* What is wrong with one. */
enum mc_kv_wrong {
	MC_KV_WHOLE,
	MC_KV_BAD_PAYLOAD, /* bytes of the object */
	MC_KV_BAD_HEADER,  /* the payload is whole */
	MC_KV_BAD_TAIL,    /* key and checksums; the rest is whole */
	MC_KV_UNREADABLE,
};

struct mc_kv_judge {
	const struct mc_kv_log *log;     /* borrowed */
	const struct mc_kv_entry *entry; /* borrowed; its record */
	uint64_t pos;                    /* bytes of it so far */
	unsigned char header[MC_KV_HEADER];
	bool header_bad, tail_bad, unreadable;
	uint32_t crc;       /* of the MiB, or of the tail */
	uint32_t bad_block; /* the first one of the payload; UINT32_MAX: none */
	uint64_t tail;      /* bytes */
	uint32_t tail_crc;  /* as the header says */
};

void mc_kv_judge_begin(
	struct mc_kv_judge *c, const struct mc_kv_log *log, const struct mc_kv_entry *e);
/* The next len bytes of it; buf NULL: they could not be read. How many of them it took: fewer, or
 * 0, when it ends before. */
uint64_t mc_kv_judge_feed(struct mc_kv_judge *c, const void *buf, uint64_t len);
/* Of the whole of it, as far as it is known. */
uint64_t mc_kv_judge_length(const struct mc_kv_judge *c);
/* There are no more bytes. */
enum mc_kv_wrong mc_kv_judge_end(const struct mc_kv_judge *c);
