/*
 * What the keys of a KV store's client may hold after a crash, from what it had been told.
 *
 * An object that is whole is named by the number of its content; 0 is absent. What was put is there
 * while the DRAM tier is; what was synced as well without it ("sure"). Without DRAM a replaced
 * version may be there until its replacement is sure. A rename is seen whole or not at all. What
 * was removed or renamed away is not there.
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum kv_deed_kind { KV_PUT, KV_SYNC, KV_RENAME, KV_UNLINK, KV_OTHER };

struct kv_deed {
	enum kv_deed_kind kind;
	unsigned key, to; /* to: of a rename */
	uint32_t content; /* of a put */
};

#define KV_MAYBE 64

struct kv_held {
	uint32_t content;         /* what all can see */
	uint32_t maybe[KV_MAYBE]; /* what may be there without DRAM */
	unsigned n;
};

static inline bool kv_is_sure(const struct kv_held *h)
{
	return h->n == 1 && h->maybe[0] == h->content;
}

static inline void kv_add_maybe(struct kv_held *h, uint32_t content)
{
	for (unsigned i = 0; i < h->n; i++)
		if (h->maybe[i] == content)
			return;
	assert(h->n < KV_MAYBE);
	h->maybe[h->n++] = content;
}

static inline void kv_make_sure(struct kv_held *h, uint32_t content)
{
	h->content = h->maybe[0] = content;
	h->n = 1;
}

/* memory: the DRAM tier was not lost. */
static inline bool kv_may_be(const struct kv_held *h, uint32_t found, bool memory)
{
	for (unsigned i = 0; i < h->n && !memory; i++)
		if (h->maybe[i] == found)
			return true;
	return found == h->content;
}

/* The store has answered. */
static inline void kv_acknowledge(struct kv_held *keys, const struct kv_deed *d)
{
	struct kv_held *k = &keys[d->key], *to = &keys[d->to];

	if (d->kind == KV_PUT) {
		k->content = d->content;
		kv_add_maybe(k, d->content);
	} else if (d->kind == KV_SYNC) {
		kv_make_sure(k, k->content);
	} else if (d->kind == KV_RENAME && kv_is_sure(k)) {
		kv_make_sure(to, k->content);
	} else if (d->kind == KV_RENAME) {
		to->content = k->content;
		kv_add_maybe(to, k->content);
	}
	if (d->kind == KV_RENAME || d->kind == KV_UNLINK)
		kv_make_sure(k, 0);
}

/* Whether a deed that was not answered explains what its keys hold: as before it, or as after. */
static inline bool kv_explains(
	const struct kv_held *keys, const struct kv_deed *d, const uint32_t *found, bool memory)
{
	const struct kv_held *k = &keys[d->key], *to = &keys[d->to];
	uint32_t a = found[d->key], b = found[d->to];

	if (d->kind == KV_PUT)
		return kv_may_be(k, a, memory) || a == d->content;
	if (d->kind == KV_UNLINK)
		return kv_may_be(k, a, memory) || a == 0;
	if (d->kind != KV_RENAME)
		return kv_may_be(k, a, memory);
	if (kv_may_be(k, a, memory) && kv_may_be(to, b, memory) && (a != b || a == 0))
		return true;
	return a == 0 &&
		(b == k->content || (!kv_is_sure(k) && !memory && kv_may_be(to, b, memory)));
}

/*
 * Whether n keys hold what they may; open: the deed that was not answered, or NULL. text[512] says
 * what is wrong.
 */
static inline bool kv_judge(const struct kv_held *keys, unsigned n, const struct kv_deed *open,
	const uint32_t *found, bool memory, char *text)
{
	const char *how[2] = {"perhaps", "surely"};

	if (open != NULL && !kv_explains(keys, open, found, memory)) {
		snprintf(text, 512,
			"deed %d under way: key %u held %x (%s) and holds %x, key %u %x (%s) and "
			"%x",
			open->kind, open->key, keys[open->key].content,
			how[kv_is_sure(&keys[open->key])], found[open->key], open->to,
			keys[open->to].content, how[kv_is_sure(&keys[open->to])], found[open->to]);
		return false;
	}
	for (unsigned k = 0; k < n; k++) {
		if (open != NULL && (k == open->key || (open->kind == KV_RENAME && k == open->to)))
			continue;
		if (!kv_may_be(&keys[k], found[k], memory)) {
			snprintf(text, 512, "key %u held %x (%s) and holds %x", k, keys[k].content,
				how[kv_is_sure(&keys[k])], found[k]);
			return false;
		}
	}
	return true;
}
