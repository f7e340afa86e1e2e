/* The record of a disk: see disk-log.h. */
#include "tests/disk-log.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static struct disk_op *add(struct disk_log *l)
{
	if (l->n == l->cap) {
		l->cap = 2 * l->cap + 64;
		l->ops = reallocarray(l->ops, l->cap, sizeof(*l->ops));
		assert(l->ops != NULL);
	}
	l->ops[l->n] = (struct disk_op){0};
	return &l->ops[l->n++];
}

void disk_log_write(struct disk_log *l, uint64_t off, const void *data, uint32_t len)
{
	struct disk_op *op = add(l);

	op->off = off;
	op->len = len;
	op->data = malloc(len);
	assert(op->data != NULL);
	memcpy(op->data, data, len);
}

void disk_log_flush(struct disk_log *l)
{
	add(l);
}

void disk_log_clear(struct disk_log *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->ops[i].data);
	free(l->ops);
	*l = (struct disk_log){0};
}

size_t disk_log_certain(const struct disk_log *l, size_t cut)
{
	while (cut > 0 && l->ops[cut - 1].len != 0)
		cut--;
	return cut;
}

void disk_log_apply(const struct disk_log *l, size_t from, size_t to, char *image)
{
	for (size_t i = from; i < to; i++)
		if (l->ops[i].len != 0)
			memcpy(image + l->ops[i].off, l->ops[i].data, l->ops[i].len);
}

static uint64_t next(uint64_t *rng)
{
	*rng ^= *rng << 13;
	*rng ^= *rng >> 7;
	*rng ^= *rng << 17;
	return *rng >> 11;
}

/* The first sectors of an operation, or any of them. */
static void apply_sectors(const struct disk_op *op, char *image, bool any, uint64_t *rng)
{
	uint64_t stop = next(rng) % (op->len / DISK_SECTOR + 1) * DISK_SECTOR;

	for (uint32_t at = 0; at < op->len; at += DISK_SECTOR)
		if (any ? next(rng) % 2 == 0 : at < stop)
			memcpy(image + op->off + at, op->data + at, DISK_SECTOR);
}

enum { NONE, PREFIX, ALL_BUT_ONE, WHOLE_ONES, TORN_ONES, MODES };

void disk_log_tear(const struct disk_log *l, size_t from, size_t to, char *image, uint64_t seed)
{
	uint64_t rng = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15);
	unsigned mode = (unsigned)(next(&rng) % MODES);
	size_t one = to > from ? from + next(&rng) % (to - from) : 0;

	for (size_t i = from; i < to && mode != NONE; i++) {
		const struct disk_op *op = &l->ops[i];
		bool torn = mode == TORN_ONES || (i == one && mode != WHOLE_ONES);

		assert(op->len != 0 && op->len % DISK_SECTOR == 0);
		if (torn)
			apply_sectors(op, image, mode == TORN_ONES, &rng);
		else if (mode == ALL_BUT_ONE || (mode == PREFIX && i < one) ||
			(mode == WHOLE_ONES && next(&rng) % 2 == 0))
			memcpy(image + op->off, op->data, op->len);
	}
}
