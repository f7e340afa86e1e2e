/*
 * The stores' parts of a scrub: the next piece of what lies on NVMe is read and compared with its
 * checksums, and what is damaged dealt with. For scrub.c, which decides when.
 */
#pragma once

#include "tier/kv-log-check.h"
#include "tier/kv.h"
#include "tier/store.h"

/* What came of it, as far as the caller has added up; blocks of images and KV objects alike. */
struct mc_scrub_counts {
	uint64_t bytes;    /* read */
	uint64_t checked;  /* compared */
	uint64_t bad;      /* did not match; each of these is in one of the next four, too: */
	uint64_t repaired; /* right again on NVMe */
	uint64_t dropped;  /* out of the tier: another copy serves */
	uint64_t waiting;  /* a client reads it, and right bytes were not to be had */
	uint64_t lost;     /* KV objects whose last copy this was; they stay */
	uint64_t failed;   /* could not be read at all */
};

/* A place in the cache of checkpoints: zeros at first. Survives restarts. */
struct mc_scrub_file {
	struct mc_file_id id;
	uint64_t block; /* the next one */
	bool begun;     /* id says something */
};
#define MC_SCRUB_BUFFER MC_BLOCK_SIZE /* bytes of buf, page aligned */

/* [blocks] One block; counts grow. -ENOENT: there is no other one. */
int mc_store_scrub(
	struct mc_store *s, struct mc_scrub_file *at, void *buf, struct mc_scrub_counts *counts);

/* The KV store's. from: where an earlier one was, or NULL. -ENODEV: nothing lies on NVMe; -ENOMEM.
 */
struct mc_kv_scrub;
int mc_kv_scrub_open(struct mc_kv *kv, const struct mc_kv_log_mark *from, struct mc_kv_scrub **ret);
void mc_kv_scrub_close(struct mc_kv_scrub *s); /* NULL allowed */
/* [blocks] A piece; counts grow. -ENOENT: that was all; -EAGAIN: the index is not complete yet;
 * -ENOMEM. */
int mc_kv_scrub_next(struct mc_kv_scrub *s, struct mc_scrub_counts *counts);
void mc_kv_scrub_mark(const struct mc_kv_scrub *s, struct mc_kv_log_mark *ret);
