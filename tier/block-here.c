/* Which blocks of which files are here: a hash table of files, each with an array of slots. */
#include "tier/block-here.h"

#include <stdlib.h>
#include <string.h>

#define RECORD_EXTRA 132u /* bytes: header and checksum; see kv-log-impl.h */

struct mc_block_kept {
	struct mc_block_kept *next;
	uint8_t digest[16];
	uint32_t n_slots, n; /* n: set */
	uint64_t bytes;
	struct mc_block_slot *slots; /* owned */
};

static uint64_t space_of(uint32_t len)
{
	return ((uint64_t)len + RECORD_EXTRA + 63) / 64 * 64;
}

static struct mc_block_kept **place(struct mc_block_here *h, const uint8_t digest[16])
{
	struct mc_block_kept **at;
	uint32_t bucket;

	memcpy(&bucket, digest, sizeof(bucket));
	at = &h->buckets[bucket % MC_BLOCK_BUCKETS];
	while (*at != NULL && memcmp((*at)->digest, digest, 16) != 0)
		at = &(*at)->next;
	return at;
}

struct mc_block_slot *mc_block_here_find(
	struct mc_block_here *h, const uint8_t digest[16], uint64_t block)
{
	struct mc_block_kept *f = *place(h, digest);

	return f != NULL && block < f->n_slots && f->slots[block].len != 0 ? &f->slots[block]
									   : NULL;
}

void mc_block_here_clear(struct mc_block_here *h, const uint8_t digest[16], uint64_t block)
{
	struct mc_block_slot *s = mc_block_here_find(h, digest, block);
	struct mc_block_kept **at = place(h, digest), *f = *at;

	if (s == NULL)
		return;
	h->used -= space_of(s->len);
	h->warm -= s->warm ? space_of(s->len) : 0;
	h->blocks--;
	f->bytes -= s->len;
	*s = (struct mc_block_slot){0};
	if (--f->n > 0)
		return;
	*at = f->next;
	free(f->slots);
	free(f);
}

static struct mc_block_slot *room(struct mc_block_kept *f, uint64_t block)
{
	uint64_t n = f->n_slots;
	struct mc_block_slot *grown;

	if (block < n)
		return &f->slots[block];
	n = block < n * 2 ? n * 2 : block + 1;
	grown = reallocarray(f->slots, n, sizeof(*grown));
	if (grown == NULL)
		return NULL;
	memset(grown + f->n_slots, 0, (n - f->n_slots) * sizeof(*grown));
	f->slots = grown;
	f->n_slots = (uint32_t)n;
	return &f->slots[block];
}

void mc_block_here_set(
	struct mc_block_here *h, const uint8_t digest[16], uint64_t block, uint32_t len)
{
	struct mc_block_kept **at, *f;
	struct mc_block_slot *s;

	mc_block_here_clear(h, digest, block);
	at = place(h, digest);
	f = *at;
	if (f == NULL) {
		f = calloc(1, sizeof(*f));
		if (f == NULL)
			return;
		memcpy(f->digest, digest, sizeof(f->digest));
	}
	s = room(f, block);
	if (s == NULL) {
		if (*at == NULL)
			free(f);
		return;
	}
	*at = f;
	*s = (struct mc_block_slot){.len = len};
	f->n++;
	f->bytes += len;
	h->used += space_of(len);
	h->blocks++;
}

void mc_block_here_heat(struct mc_block_here *h, struct mc_block_slot *s, bool warm)
{
	if (s == NULL || s->warm == warm)
		return;
	s->warm = warm;
	h->warm += warm ? space_of(s->len) : 0;
	h->warm -= warm ? 0 : space_of(s->len);
}

uint64_t mc_block_here_bytes(struct mc_block_here *h, const uint8_t digest[16])
{
	const struct mc_block_kept *f = *place(h, digest);

	return f != NULL ? f->bytes : 0;
}

void mc_block_here_done(struct mc_block_here *h)
{
	for (unsigned i = 0; i < MC_BLOCK_BUCKETS; i++)
		for (struct mc_block_kept *f = h->buckets[i], *next; f != NULL; f = next) {
			next = f->next;
			free(f->slots);
			free(f);
		}
}
