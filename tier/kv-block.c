/*
 * Blocks of objects that are not in DRAM whole: what range reads brought is kept in the slab while
 * the policy says so, beside the residents and within the same capacity.
 *
 * Invariants
 * 1. A block in the table is verified, lies in the slab and is linked in the policy, and has one
 * reference of the table's. It leaves by the policy's order, or when its version loses its name.
 * 2. References of what is in the table are taken under kv->lock; who finds one alone there may
 * take it out.
 * 3. What there was no room for lies elsewhere and serves the read that brought it only.
 */
#include "tier/kv-impl.h"

#include <string.h>

#define LEAST_BUCKETS 64u

_Static_assert(MC_SLAB_BLOCK_SIZE == MC_BLOCK_SIZE, "a slot each");

static uint64_t hash_of(const uint8_t version[16], uint64_t index)
{
	uint64_t h;

	memcpy(&h, version, sizeof(h)); /* random */
	return (h + index) * UINT64_C(0x9e3779b97f4a7c15);
}

static struct kv_block **place_locked(struct mc_kv *kv, const uint8_t version[16], uint64_t index)
	MC_REQUIRES(kv->lock)
{
	struct kv_block **at =
		&kv->blocks.buckets[(hash_of(version, index) >> 20) & (kv->blocks.n_buckets - 1)];

	while (*at != NULL && ((*at)->index != index || memcmp((*at)->version, version, 16) != 0))
		at = &(*at)->next;
	return at;
}

int kv_blocks_open(struct kv_blocks *t, uint64_t capacity)
{
	t->n_buckets = LEAST_BUCKETS;
	while (t->n_buckets < capacity >> MC_BLOCK_SHIFT)
		t->n_buckets *= 2;
	t->buckets = calloc(t->n_buckets, sizeof(*t->buckets));
	return t->buckets != NULL ? 0 : -ENOMEM;
}

/* Out of the table; its reference becomes the caller's. */
static void take_out_locked(struct mc_kv *kv, struct kv_block *b) MC_REQUIRES(kv->lock)
{
	struct kv_block **at = place_locked(kv, b->version, b->index);

	assert(*at == b);
	*at = b->next;
	b->next = NULL;
	kv->blocks.n--;
}

void kv_blocks_close(struct mc_kv *kv)
{
	mc_mutex_lock(&kv->lock);
	for (uint64_t i = 0; kv->blocks.buckets != NULL && i < kv->blocks.n_buckets; i++)
		for (struct kv_block *b = kv->blocks.buckets[i], *next; b != NULL; b = next) {
			next = b->next;
			mc_policy_remove(kv->policy, &b->policy);
			mc_slab_free(kv->slab, b->slot);
			free(b);
		}
	free(kv->blocks.buckets);
	kv->blocks = (struct kv_blocks){0};
	mc_mutex_unlock(&kv->lock);
}

struct kv_block *kv_block_find(struct mc_kv *kv, const struct kv_object *obj, uint64_t index)
{
	struct kv_block *b;

	mc_mutex_lock(&kv->lock);
	b = *place_locked(kv, obj->version, index);
	if (b != NULL) {
		atomic_fetch_add(&b->refs, 1);
		mc_policy_hit(kv->policy, &b->policy);
	}
	mc_mutex_unlock(&kv->lock);
	return b;
}

struct kv_block *kv_block_new(struct mc_kv *kv, const struct kv_object *obj, uint64_t index)
{
	struct kv_block *b = calloc(1, sizeof(*b));

	if (b == NULL)
		return NULL;
	atomic_store(&b->refs, 1);
	b->is_block = true;
	b->index = index;
	memcpy(b->version, obj->version, sizeof(b->version));
	if (kv_make_block_room(kv) &&
		mc_slab_alloc(kv->slab, MC_SLAB_BLOCK, MC_BLOCK_SIZE, &b->slot) == 0)
		b->bytes = mc_slab_ptr(kv->slab, b->slot);
	else
		b->bytes = aligned_alloc(4096, MC_BLOCK_SIZE); /* O_DIRECT */
	if (b->bytes == NULL) {
		free(b);
		return NULL;
	}
	return b;
}

bool kv_block_keep_locked(struct mc_kv *kv, const struct kv_object *obj, struct kv_block *b)
{
	struct kv_block **at;

	if (mc_policy_linked(&b->policy))
		return true;
	if (b->slot == 0 || obj->dir == NULL)
		return false;
	at = place_locked(kv, b->version, b->index);
	if (*at != NULL) /* another reader was quicker */
		return false;
	*at = b;
	kv->blocks.n++;
	atomic_fetch_add(&b->refs, 1);
	mc_policy_insert(kv->policy, &b->policy, hash_of(b->version, b->index), MC_BLOCK_SIZE);
	return true;
}

void kv_block_put(struct mc_kv *kv, struct kv_block *b)
{
	if (atomic_fetch_sub(&b->refs, 1) > 1)
		return;
	if (b->slot != 0) {
		mc_slab_free(kv->slab, b->slot);
		mc_mutex_lock(&kv->lock);
		kv_room_changed_locked(kv);
		mc_mutex_unlock(&kv->lock);
	} else {
		free(b->bytes);
	}
	free(b);
}

void kv_block_evict_locked(struct mc_kv *kv, struct kv_block *b)
{
	mc_policy_evict(kv->policy, &b->policy);
	take_out_locked(kv, b);
}

void kv_blocks_forget_locked(struct mc_kv *kv, const struct kv_object *obj)
{
	for (uint64_t i = 0; kv->blocks.n > 0 && i < mc_block_count(obj->size); i++) {
		struct kv_block *b = *place_locked(kv, obj->version, i);

		if (b == NULL)
			continue;
		mc_policy_remove(kv->policy, &b->policy);
		take_out_locked(kv, b);
		b->next = kv->blocks.garbage;
		kv->blocks.garbage = b;
	}
}
