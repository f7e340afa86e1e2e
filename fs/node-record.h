/*
 * Nodes in the table of takeover.h: what the node table and mode.c write there, and how the next
 * worker reads it. t may be NULL.
 */
#pragma once

#include "fs/node.h"
#include "fs/takeover.h"

/* Called with the node table locked. */
void mc_node_record_add(struct mc_takeover *t, struct mc_node *n);
void mc_node_record_refs(struct mc_takeover *t, const struct mc_node *n);
void mc_node_record_retire(struct mc_takeover *t, const struct mc_node *n);
/* Before the node's place and key go. */
void mc_node_record_drop(struct mc_takeover *t, const struct mc_node *n);

/* Called with the node's stripe locked: opens of it now; mode and what follows count with the first
 * of them. */
void mc_node_record_opens(struct mc_takeover *t, const struct mc_node *n, uint64_t opens);
void mc_node_record_mode(struct mc_takeover *t, const struct mc_node *n, enum mc_open_mode mode,
	int backing_id, int tier);
/* The kernel's file was closed. */
void mc_node_record_closed(struct mc_takeover *t, const struct mc_node *n, int backing_id);

/* What a place was; strings are borrowed from the table, NULL = none. */
struct mc_place_was {
	uint64_t hash;
	const uint8_t *manifest; /* its id, MC_SHA256_SIZE bytes */
	const char *org, *model, *rev, *layout;
	bool is_document; /* in layouts/ */
};
/* False: ref is no place's. */
bool mc_place_was(struct mc_takeover *t, uint32_t ref, struct mc_place_was *ret);
