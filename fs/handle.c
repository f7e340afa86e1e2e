/*
 * The table of handles.
 *
 * Invariants: 1. A slot is in use exactly while its handle is set; free slots are linked through
 * next_free. 2. A slot's generation rises with each use, so a number names one use of it; the first
 * one is drawn, so that numbers of a process before this one name nothing here. 3. The
 * number of every text is in the ring of texts; what the ring overwrites is removed.
 */
#include "fs/handle.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "fs/names.h"
#include "tier/lock.h"

#define NONE UINT32_MAX

struct slot {
	struct mc_handle *handle; /* owned reference; NULL = free */
	uint32_t gen, next_free;
};

struct mc_handles {
	struct mc_mutex lock;
	struct slot *slots; /* owned */
	uint32_t n_slots, cap_slots, free_slot;
	uint32_t first_gen;
	uint64_t n_answers, n_texts;
	uint64_t texts[MC_HANDLE_TEXTS_MAX]; /* numbers, some of them of what is gone */
	unsigned next_text;
};

void mc_handle_put(struct mc_handle *h)
{
	if (h == NULL || atomic_fetch_sub_explicit(&h->refs, 1, memory_order_acq_rel) != 1)
		return;
	mc_answer_unref(h->answer);
	free(h->text);
	free(h);
}

static int take_slot_locked(struct mc_handles *t, uint32_t *ret) MC_REQUIRES(t->lock)
{
	if (t->free_slot != NONE) {
		*ret = t->free_slot;
		t->free_slot = t->slots[*ret].next_free;
		return 0;
	}
	if (t->n_slots == t->cap_slots) {
		uint32_t cap = t->cap_slots != 0 ? t->cap_slots * 2 : 64;
		struct slot *p = realloc(t->slots, cap * sizeof(*p));

		if (p == NULL)
			return -ENOMEM;
		t->slots = p;
		t->cap_slots = cap;
	}
	*ret = t->n_slots++;
	t->slots[*ret] = (struct slot){.gen = t->first_gen};
	return 0;
}

static uint64_t *counter_locked(struct mc_handles *t, const struct mc_handle *h)
	MC_REQUIRES(t->lock)
{
	return h->answer != NULL ? &t->n_answers : &t->n_texts;
}

static struct slot *slot_locked(struct mc_handles *t, uint64_t id) MC_REQUIRES(t->lock)
{
	uint32_t slot = (uint32_t)id - 1;

	if ((uint32_t)id == 0 || slot >= t->n_slots || t->slots[slot].handle == NULL ||
		t->slots[slot].gen != id >> 32)
		return NULL;
	return &t->slots[slot];
}

/* Takes the handle out: the table's reference becomes the caller's. NULL: there is none. */
static struct mc_handle *remove_locked(struct mc_handles *t, uint64_t id) MC_REQUIRES(t->lock)
{
	struct slot *s = slot_locked(t, id);
	struct mc_handle *h = s != NULL ? s->handle : NULL;

	if (h == NULL)
		return NULL;
	--*counter_locked(t, h);
	s->handle = NULL;
	s->gen++;
	s->next_free = t->free_slot;
	t->free_slot = (uint32_t)(s - t->slots);
	return h;
}

int mc_handles_add(struct mc_handles *t, const struct mc_handle *h, uint64_t *ret_id)
{
	struct mc_handle *mine = malloc(sizeof(*mine)), *oldest = NULL;
	bool is_text = h->text != NULL;
	uint32_t slot;
	int r = 0;

	if (mine == NULL) {
		mc_answer_unref(h->answer);
		free(h->text);
		return -ENOMEM;
	}
	*mine = (struct mc_handle){.answer = h->answer, .text = h->text, .len = h->len};
	atomic_init(&mine->refs, 1);
	mc_mutex_lock(&t->lock);
	if (is_text)
		oldest = remove_locked(t, t->texts[t->next_text]);
	r = !is_text && t->n_answers >= MC_HANDLES_MAX ? -ENFILE : take_slot_locked(t, &slot);
	if (r == 0) {
		++*counter_locked(t, mine);
		t->slots[slot].handle = mine;
		*ret_id = (uint64_t)t->slots[slot].gen << 32 | (slot + 1u);
	}
	if (r == 0 && is_text) {
		t->texts[t->next_text] = *ret_id;
		t->next_text = (t->next_text + 1) % MC_HANDLE_TEXTS_MAX;
	}
	mc_mutex_unlock(&t->lock);
	mc_handle_put(oldest);
	if (r < 0)
		mc_handle_put(mine);
	return r;
}

struct mc_handle *mc_handles_find(struct mc_handles *t, uint64_t id)
{
	struct mc_handle *h;
	struct slot *s;

	mc_mutex_lock(&t->lock);
	s = slot_locked(t, id);
	h = s != NULL ? s->handle : NULL;
	if (h != NULL)
		atomic_fetch_add_explicit(&h->refs, 1, memory_order_relaxed);
	mc_mutex_unlock(&t->lock);
	return h;
}

void mc_handles_remove(struct mc_handles *t, uint64_t id)
{
	struct mc_handle *h;

	mc_mutex_lock(&t->lock);
	h = remove_locked(t, id);
	mc_mutex_unlock(&t->lock);
	mc_handle_put(h);
}

uint64_t mc_handles_count(struct mc_handles *t)
{
	uint64_t n;

	mc_mutex_lock(&t->lock);
	n = t->n_answers + t->n_texts;
	mc_mutex_unlock(&t->lock);
	return n;
}

int mc_handles_open(struct mc_handles **ret)
{
	struct mc_handles *t = calloc(1, sizeof(*t));

	if (t == NULL)
		return -ENOMEM;
	mc_mutex_init(&t->lock);
	t->free_slot = NONE;
	if (getrandom(&t->first_gen, sizeof(t->first_gen), 0) != sizeof(t->first_gen)) {
		mc_handles_close(t);
		return -EIO;
	}
	*ret = t;
	return 0;
}

void mc_handles_close(struct mc_handles *t)
{
	if (t == NULL)
		return;
	for (uint32_t i = 0; i < t->n_slots; i++)
		mc_handle_put(t->slots[i].handle);
	free(t->slots);
	mc_mutex_done(&t->lock);
	free(t);
}
