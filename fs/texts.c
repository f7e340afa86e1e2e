/*
 * Texts in shared memory, in units of 32 bytes: length, bytes.
 *
 * Invariants: 1. A text's bytes do not change while it is in use. 2. Free runs of k units are
 * linked in lists[k] through their first word, those of more than RUN_MAX are cut; what lies from
 * end on was never used. 3. Unit 0 is nobody's, so that 0 is no reference.
 */
#include "fs/texts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tier/bitmap.h"
#include "tier/lock.h"

#define UNIT 32u
#define RUN_MAX ((MC_TEXT_MAX + 4 + UNIT - 1) / UNIT)

struct mc_texts {
	struct mc_mutex lock;
	uint8_t *mem; /* borrowed */
	uint32_t n_units;
	uint32_t end;                /* the first unit that was never used */
	uint32_t lists[RUN_MAX + 1]; /* by units; 0 = empty */
	uint64_t *claimed;           /* owned, until ready: a bit for each unit */
};

static uint8_t *at(const struct mc_texts *t, uint32_t unit)
{
	return t->mem + (size_t)unit * UNIT;
}

static uint32_t word_at(const struct mc_texts *t, uint32_t unit)
{
	uint32_t w;

	memcpy(&w, at(t, unit), sizeof(w));
	return w;
}

static uint32_t units_of(size_t len)
{
	return (uint32_t)((len + sizeof(uint32_t) + UNIT - 1) / UNIT);
}

/* Its units, or 0 where no text can be. */
static uint32_t units_at(const struct mc_texts *t, uint32_t ref)
{
	uint32_t len, n;

	if (ref == 0 || ref >= t->n_units)
		return 0;
	len = word_at(t, ref);
	n = len <= MC_TEXT_MAX ? units_of(len) : 0;
	return n <= t->n_units - ref ? n : 0;
}

int mc_texts_open(void *mem, size_t bytes, struct mc_texts **ret)
{
	struct mc_texts *t = calloc(1, sizeof(*t));

	if (t == NULL)
		return -ENOMEM;
	mc_mutex_init(&t->lock);
	t->mem = mem;
	t->n_units = (uint32_t)(bytes / UNIT);
	t->end = 1;
	*ret = t;
	return 0;
}

void mc_texts_close(struct mc_texts *t)
{
	if (t == NULL)
		return;
	free(t->claimed);
	mc_mutex_done(&t->lock);
	free(t);
}

bool mc_texts_claim(struct mc_texts *t, uint32_t ref)
{
	uint32_t n = units_at(t, ref);

	if (n == 0)
		return false;
	if (t->claimed == NULL)
		t->claimed = calloc(mc_bitmap_words(t->n_units), sizeof(uint64_t));
	if (t->claimed == NULL)
		return false;
	for (uint32_t i = ref; i < ref + n; i++)
		mc_bitmap_set(t->claimed, i);
	if (ref + n > t->end)
		t->end = ref + n;
	return true;
}

static void put_run_locked(struct mc_texts *t, uint32_t unit, uint32_t n) MC_REQUIRES(t->lock)
{
	memcpy(at(t, unit), &t->lists[n], sizeof(uint32_t));
	t->lists[n] = unit;
}

void mc_texts_ready(struct mc_texts *t)
{
	uint32_t run = 0;

	mc_mutex_lock(&t->lock);
	for (uint32_t i = 1; i < t->end; i++) {
		bool used = mc_bitmap_get(t->claimed, i);

		run += !used;
		if (run > 0 && (used || run == RUN_MAX)) {
			put_run_locked(t, used ? i - run : i + 1 - run, run);
			run = 0;
		}
	}
	mc_mutex_unlock(&t->lock);
	free(t->claimed);
	t->claimed = NULL;
}

static uint32_t take_locked(struct mc_texts *t, uint32_t n) MC_REQUIRES(t->lock)
{
	uint32_t unit = t->lists[n];

	if (unit != 0) {
		t->lists[n] = word_at(t, unit);
		return unit;
	}
	if (n <= t->n_units - t->end) {
		unit = t->end;
		t->end += n;
		return unit;
	}
	for (uint32_t k = n + 1; k <= RUN_MAX; k++) {
		unit = t->lists[k];
		if (unit == 0)
			continue;
		t->lists[k] = word_at(t, unit);
		put_run_locked(t, unit + n, k - n);
		return unit;
	}
	return 0;
}

uint32_t mc_texts_add(struct mc_texts *t, const void *text, size_t len)
{
	uint32_t word = (uint32_t)len, ref;

	if (len > MC_TEXT_MAX)
		return 0;
	mc_mutex_lock(&t->lock);
	ref = take_locked(t, units_of(len));
	mc_mutex_unlock(&t->lock);
	if (ref == 0)
		return 0;
	memcpy(at(t, ref), &word, sizeof(word));
	memcpy(at(t, ref) + sizeof(word), text, len);
	return ref;
}

void mc_texts_drop(struct mc_texts *t, uint32_t ref)
{
	uint32_t n = units_at(t, ref);

	if (n == 0)
		return;
	mc_mutex_lock(&t->lock);
	put_run_locked(t, ref, n);
	mc_mutex_unlock(&t->lock);
}

const void *mc_texts_get(const struct mc_texts *t, uint32_t ref, size_t *ret_len)
{
	if (units_at(t, ref) == 0)
		return NULL;
	*ret_len = word_at(t, ref);
	return at(t, ref) + sizeof(uint32_t);
}
