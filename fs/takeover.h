/*
 * The table through which one process takes a mount over from another that was killed: shared
 * memory that says what the kernel knows by number. The keeper of a mount makes it, its worker
 * writes it, the next worker reads it.
 *
 * The worker may be killed at any instruction, so a record is published by its last store, and
 * counts of what the kernel holds are raised before it is told and lowered after it told us: at a
 * kill they may be too high, never too low.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mc_takeover;
struct mc_texts;

#define MC_TAKEOVER_PATH 4096
#define MC_TAKEOVER_INIT 512 /* bytes of an INIT request, at most */

/* A task was answered ESTALE, and is to find a node for a put when it looks the key up. */
struct mc_promise_record {
	_Atomic(uint32_t) tid; /* published last; 0 = none */
	uint64_t key;          /* hash */
	uint64_t until_ns;     /* CLOCK_MONOTONIC */
};
#define MC_TAKEOVER_PROMISES 64 /* the latest */

struct mc_takeover_head {
	char magic[16];
	_Atomic(uint32_t) off;   /* enum mc_takeover_off */
	uint32_t workers;        /* that were started */
	_Atomic(uint32_t) beats; /* turns of workers that work: the keeper watches them */
	/* The kernel's INIT request; its length is published last, 0 = none came yet. */
	_Atomic(uint32_t) init_len;
	char init[MC_TAKEOVER_INIT];
	int64_t start_s; /* when the first worker started: seconds since the epoch */
	_Atomic(uint32_t) nodes, knodes; /* slots in use so far */
	_Atomic(uint32_t) backing_id;    /* the highest that the kernel gave out */
	uint32_t next_promise;
	struct mc_promise_record promises[MC_TAKEOVER_PROMISES];
	char dram_dir[MC_TAKEOVER_PATH]; /* where the DRAM tier lies; "" = not chosen yet */
	char mountpoint[MC_TAKEOVER_PATH];
};

/* Why the table can no longer be used. */
enum mc_takeover_off { MC_TAKEOVER_ON, MC_TAKEOVER_FULL, MC_TAKEOVER_OLD_KERNEL };

/* A node of node.h in the slot of the same number. */
struct mc_node_record {
	_Atomic(uint32_t) used; /* published last, cleared first */
	uint32_t gen;
	_Atomic(uint64_t) refs;
	uint32_t entry;
	uint32_t place, key; /* texts; 0 = none */
	uint8_t kind, at, retired;
	uint8_t mode, tier;          /* while open */
	_Atomic(int32_t) backing_id; /* the kernel's, until it is closed; 0 = none */
	_Atomic(uint32_t) opens;     /* published after those three */
};

/* A node of kv-state.h. */
struct mc_knode_record {
	_Atomic(uint32_t) used;
	uint32_t gen;
	_Atomic(uint64_t) lookups; /* the kernel's */
	_Atomic(uint32_t) key;     /* text */
	_Atomic(uint32_t) kind;    /* enum mc_knode_kind; published after what an object has */
	uint8_t version[16];
	uint64_t size; /* bytes */
	int64_t mtime_s;
	uint64_t ino;
	uint32_t mtime_ns;
	uint8_t mode;
	_Atomic(int32_t) backing_id;
	_Atomic(uint32_t) opens;
	_Atomic(uint32_t) writing; /* a put under way, until it ended */
	/* A put's: its file, what became of it, and what a close saw. */
	_Atomic(uint64_t) file;
	_Atomic(uint32_t) put; /* MC_PUT_…; SEALABLE published after those that follow */
	uint32_t sealed_mtime_ns;
	uint64_t sealed_size; /* bytes */
	int64_t sealed_mtime_s;
	_Atomic(uint64_t) born;  /* see kv-state.h */
	_Atomic(int32_t) failed; /* 0 or -errno */
};

enum {
	MC_PUT_FLUSHED = 1,
	MC_PUT_SEALABLE = 2,
	MC_PUT_ORPHAN = 4,
	MC_PUT_SYNCED = 8,
	MC_PUT_SEALED = 16, /* the file is as a close saw it, and being published */
};

/* An empty table; its descriptor is closed on exec. -errno where there is no such memory. */
int mc_takeover_open(struct mc_takeover **ret);
/* The table behind a descriptor, which is taken over. -EPROTO: another program's. */
int mc_takeover_from(int fd, struct mc_takeover **ret);
void mc_takeover_close(struct mc_takeover *t);   /* NULL allowed */
int mc_takeover_fd(const struct mc_takeover *t); /* borrowed */
struct mc_takeover_head *mc_takeover_head(struct mc_takeover *t);

/* For the worker. t may be NULL in all of them. */
bool mc_takeover_on(const struct mc_takeover *t);
void mc_takeover_end(struct mc_takeover *t, enum mc_takeover_off why);
/* Why there is no takeover (any more); NULL = there is. Static text. */
const char *mc_takeover_why_not(const struct mc_takeover *t);
/* The record of a slot, which counts as used from now on; NULL: there is no table, or it is full,
 * and thereby ended. */
struct mc_node_record *mc_takeover_node(struct mc_takeover *t, uint32_t slot);
struct mc_knode_record *mc_takeover_knode(struct mc_takeover *t, uint32_t slot);
/* Files of puts under way: an array that is the caller's to free; *ret_n: how many. -ENOMEM. */
int mc_takeover_puts(struct mc_takeover *t, uint64_t **ret, size_t *ret_n);
/* The texts of records; the table must not be NULL. */
struct mc_texts *mc_takeover_texts(struct mc_takeover *t);
