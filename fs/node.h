/*
 * The node table: what the kernel knows by number. A node id is slot + 1 in the low 32 bits and the
 * slot's generation above, so that a number from an earlier use of the slot is recognised; the root
 * is 1; of nodes below tiers/ the top bits are 010. One node per spot, found again by hash, so a
 * path keeps its number as long as the kernel remembers it. Thread-safe.
 */
#pragma once

#include "fs/place.h"

#include <stdatomic.h>
#include <stdbool.h>

enum mc_node_kind {
	MC_NODE_ROOT,        /* place NULL */
	MC_NODE_CHECKPOINTS, /* place NULL */
	MC_NODE_ORG,         /* checkpoints/<org> */
	MC_NODE_LATEST,      /* checkpoints/<org>/<model>, a symlink */
	MC_NODE_ENTRY, /* an entry of a revision's manifest, or of a view; entry 0 is the directory
			  <model>@<rev> or the view's itself */
	MC_NODE_VIEWS, /* place NULL */
	MC_NODE_VIEW_ORG,    /* views/<org> */
	MC_NODE_VIEW_LATEST, /* views/<org>/<model>, a symlink */
	MC_NODE_VIEW_REV,    /* views/<org>/<model>@<rev>: place of the revision */
	MC_NODE_VIEW_LAYOUT, /* …/<layout>, where it holds a directory for each rank */
	MC_NODE_LAYOUTS,     /* layouts/: place NULL */
	MC_NODE_DRAFT,       /* a file being written there: entry is its number, place NULL */
	MC_NODE_TIERS,       /* tiers/: place NULL */
	MC_NODE_TIER,        /* tiers/<tier> */
	MC_NODE_KV_DIR,      /* tiers/<tier>/kv and directories below: key */
	MC_NODE_KV_FILE,
};

/* Below which root a spot lies: the tree itself, tiers/<tier> (from MC_AT_DRAM on in the order of
 * enum mc_tier), or tiers/ itself. */
enum mc_at { MC_AT_TREE, MC_AT_DRAM, MC_AT_NVME, MC_AT_BLOCK, MC_AT_REMOTE, MC_AT_TIERS };

/* A spot in the tree, whether or not there is a node for it. */
struct mc_spot {
	enum mc_node_kind kind;
	struct mc_place *place; /* borrowed */
	uint32_t entry;
	enum mc_at at;
	const char *key; /* KV_DIR, KV_FILE: as the KV store has it, borrowed; else NULL */
};

enum mc_open_mode { MC_MODE_NONE, MC_MODE_CACHED, MC_MODE_PASSTHROUGH };

struct mc_opened;
struct mc_takeover;

struct mc_node {
	/* Fixed while the node lives. */
	enum mc_node_kind kind;
	uint32_t entry;
	uint32_t slot;
	uint32_t gen;
	enum mc_at at;
	struct mc_place *place; /* owned reference */
	char *key;              /* owned */
	uint64_t hash;
	/* Below tiers/: names were looked up in this directory since it was opened last; and the
	 * time before that. */
	atomic_bool looked_up, was_looked_up;
	/* The table's. */
	uint64_t refs; /* kernel lookups and references of our own */
	struct mc_node *next;
	bool retired; /* in no chain */
	/* mode.c's: set while the file is open. */
	_Atomic(struct mc_opened *) opened;
	enum mc_open_mode last_mode;
};

#define MC_NODE_ROOT_ID UINT64_C(1)

struct mc_nodes;

/* The table with the root in it, which is never forgotten. */
int mc_nodes_open(struct mc_nodes **ret);
/* Keeps records of the nodes for the next worker; before the first node but the root. */
void mc_nodes_record(struct mc_nodes *t, struct mc_takeover *takeover);
/* What an earlier worker had in a slot. */
struct mc_node_was {
	uint32_t slot, gen;
	uint64_t refs; /* 0 = the slot is free */
	bool retired;
	struct mc_spot spot;
};
/* Puts it back, nodes and free slots in order of their slots, before anything else uses the table.
 * *ret: the node, borrowed; NULL for a free slot. Takes its own reference of place and copies key.
 */
int mc_nodes_restore(struct mc_nodes *t, const struct mc_node_was *was, struct mc_node **ret);
/* Frees every node, whatever its references. No call may be running. NULL allowed. */
void mc_nodes_close(struct mc_nodes *t);

/* The node of a spot, made when missing; one more reference, the caller's. Takes its own reference
 * of place and copies key. -ENOMEM, -ENFILE after 2^32 - 2 nodes. */
int mc_nodes_get(struct mc_nodes *t, const struct mc_spot *s, struct mc_node **ret);
static inline struct mc_spot mc_spot_of(const struct mc_node *n)
{
	return (struct mc_spot){
		.kind = n->kind, .place = n->place, .entry = n->entry, .at = n->at, .key = n->key};
}
/* Borrowed: valid while the kernel or the caller holds a reference. NULL: no such node (any more).
 */
struct mc_node *mc_nodes_find(struct mc_nodes *t, uint64_t id);
void mc_nodes_ref(struct mc_nodes *t, struct mc_node *n);
/* Gives back n references; the node is freed with the last. */
void mc_nodes_put(struct mc_nodes *t, struct mc_node *n, uint64_t refs);
/* The same for references of the kernel. With the last one the node is no longer open, whatever
 * mode.c counted: what it had open, for the caller to end, or NULL. */
struct mc_opened *mc_nodes_forget(struct mc_nodes *t, struct mc_node *n, uint64_t refs);
/* Whether there is a node for the spot. */
bool mc_nodes_has(struct mc_nodes *t, const struct mc_spot *s);
/* The spot gets another node from now on: the kernel takes a removed directory's number for dead.
 */
void mc_nodes_retire(struct mc_nodes *t, const struct mc_spot *s);
uint64_t mc_node_id(const struct mc_node *n);
uint64_t mc_nodes_count(struct mc_nodes *t);
/* Calls each for every node. Only when nothing else uses the table. */
void mc_nodes_each(struct mc_nodes *t, void (*each)(void *ctx, struct mc_node *n), void *ctx);
