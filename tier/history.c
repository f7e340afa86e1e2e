/*
 * Evicted entries, remembered in a set-associative table.
 *
 * Invariants: 1. a used slot lies in the set its tag names; 2. a set holds a tag at most once; 3.
 * memory is 8 bytes a slot and nothing else.
 */
#include "tier/history.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tier/cleanup.h"

#define WAYS 8 /* a set is one cache line */
#define AGE_MASK 0xffffffu

struct mc_history_slot {
	uint32_t tag;
	uint32_t stamp : 24;
	uint32_t uses : 8; /* 0 = free */
};

_Static_assert(sizeof(struct mc_history_slot) == MC_HISTORY_SLOT_SIZE, "a slot is 8 bytes");

/* Callers' hashes may be weak in any bits: mix before 32 are kept (splitmix64's finaliser). */
static uint32_t tag_of(uint64_t key_hash)
{
	key_hash = (key_hash ^ (key_hash >> 30)) * 0xbf58476d1ce4e5b9u;
	key_hash = (key_hash ^ (key_hash >> 27)) * 0x94d049bb133111ebu;
	return (uint32_t)(key_hash >> 32);
}

static struct mc_history_slot *set_of(const struct mc_history *h, uint32_t tag)
{
	return &h->slots[(size_t)(tag & (h->sets - 1)) * WAYS];
}

static struct mc_history_slot *find(const struct mc_history *h, uint32_t tag)
{
	struct mc_history_slot *s = set_of(h, tag);

	for (unsigned i = 0; i < WAYS; i++)
		if (s[i].uses != 0 && s[i].tag == tag)
			return &s[i];
	return NULL;
}

int mc_history_init(struct mc_history *h, uint32_t min_slots)
{
	uint32_t sets = 1;

	while (sets * WAYS < min_slots)
		sets *= 2;
	h->slots = calloc((size_t)sets * WAYS, sizeof(*h->slots));
	if (h->slots == NULL)
		return -ENOMEM;
	h->sets = sets;
	return 0;
}

void mc_history_done(struct mc_history *h)
{
	free(h->slots);
	*h = (struct mc_history){0};
}

uint64_t mc_history_slots(const struct mc_history *h)
{
	return (uint64_t)h->sets * WAYS;
}

void mc_history_grow(struct mc_history *h)
{
	struct mc_history n = {.sets = h->sets * 2};

	if (n.sets == 0)
		return;
	n.slots = calloc((size_t)n.sets * WAYS, sizeof(*n.slots));
	if (n.slots == NULL)
		return;
	for (size_t i = 0; i < (size_t)h->sets * WAYS; i++)
		if (h->slots[i].uses !=
			0) /* set s splits into s and s + h->sets: the way is free in both */
			set_of(&n, h->slots[i].tag)[i % WAYS] = h->slots[i];
	mc_history_done(h);
	*h = n;
}

/* The slot for a new tag: a free one, or the oldest. */
static struct mc_history_slot *room(const struct mc_history *h, uint32_t tag, uint32_t now)
{
	struct mc_history_slot *set = set_of(h, tag), *oldest = set;

	for (unsigned i = 0; i < WAYS; i++) {
		if (set[i].uses == 0)
			return &set[i];
		if (((now - set[i].stamp) & AGE_MASK) > ((now - oldest->stamp) & AGE_MASK))
			oldest = &set[i];
	}
	return oldest;
}

void mc_history_put(
	struct mc_history *h, uint64_t key_hash, uint32_t stamp, uint8_t uses, uint32_t now)
{
	uint32_t tag = tag_of(key_hash);
	struct mc_history_slot *s = find(h, tag);

	assert(uses > 0);
	if (s == NULL)
		s = room(h, tag, now);
	*s = (struct mc_history_slot){.tag = tag, .stamp = stamp & AGE_MASK, .uses = uses};
}

bool mc_history_take(
	struct mc_history *h, uint64_t key_hash, uint32_t now, uint32_t *ret_age, uint8_t *ret_uses)
{
	struct mc_history_slot *s = find(h, tag_of(key_hash));

	if (s == NULL)
		return false;
	*ret_age = (now - s->stamp) & AGE_MASK;
	*ret_uses = (uint8_t)s->uses;
	*s = (struct mc_history_slot){0};
	return true;
}
