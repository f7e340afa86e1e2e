/*
 * Objects too large for one record: a head, which is the entry of the key (segment MC_KV_SPLIT, a
 * number of its own as generation, the bytes of a part as off), and parts, which are records like
 * others under a key that is made of version, number and place: they are moved, counted and
 * recovered as records are.
 *
 * Invariants:
 * 1. The PUT of a head follows those of all its parts.
 * 2. Parts of a head that is gone, or never came, are dropped: while running by
 *    mc_kv_splits_remove, once the end of the head is durable and nobody holds it; at the start by
 *    recovery. No record says so: without a head they mean nothing.
 */
#include "tier/kv-log-impl.h"

#include "tier/cleanup.h"
#include "tier/digest.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

void mc_kv_part_key(
	const uint8_t version[16], uint32_t number, uint64_t i, char ret[MC_KV_PART_KEY])
{
	char hex[33];

	mc_hex_encode(version, 16, hex);
	snprintf(ret, MC_KV_PART_KEY, "%s.%" PRIu32 ".%" PRIu64, hex, number, i);
}

/* Payload of the parts made now, whole MiB where that is possible. A quarter of a segment, of
 * either floor, holds one with what is around it. */
static uint64_t part_bytes(const struct mc_kv_log *log)
{
	uint64_t room = log->record_max - 2 * MC_KV_ALIGN;

	return room >= MIB ? room / MIB * MIB : room / MC_KV_ALIGN * MC_KV_ALIGN;
}

static uint64_t min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* ---- writing */

static struct mc_kv_op *make_part(struct mc_kv_op *whole, uint64_t i, const unsigned char *data)
{
	uint64_t bytes = whole->loc.off, size = min(bytes, whole->meta.size - i * bytes);
	uint32_t n_crc = (uint32_t)((size + MIB - 1) / MIB);
	struct mc_kv_op *op = calloc(1, sizeof(*op));
	uint32_t *crc = malloc(4 * (size_t)n_crc + MC_KV_PART_KEY);
	char *key = (char *)(crc + n_crc);

	if (op == NULL || crc == NULL) {
		free(op);
		free(crc);
		return NULL;
	}
	for (uint32_t k = 0; k < n_crc && bytes % MIB == 0; k++)
		crc[k] = whole->meta.crc[i * (bytes / MIB) + k];
	for (uint32_t k = 0; k < n_crc && bytes % MIB != 0; k++)
		crc[k] = mc_crc32c(0, data + k * MIB, min(MIB, size - k * MIB));
	mc_kv_part_key(whole->meta.version, whole->loc.generation, i, key);
	op->kind = MC_KV_OP_PART;
	op->whole = whole;
	op->mem = crc;
	op->meta = (struct mc_kv_meta){.key = key, .size = size, .n_crc = n_crc, .crc = crc};
	memcpy(op->meta.version, whole->meta.version, sizeof(op->meta.version));
	return op;
}

static bool are_left(struct mc_kv_log *log, const struct mc_kv_floor *f, uint64_t n)
{
	bool left;

	mc_mutex_lock(&log->lock);
	left = n <= mc_kv_segments_left_locked(log, f);
	mc_mutex_unlock(&log->lock);
	return left;
}

/* Takes a number. -EAGAIN: there is no room for all of it yet; -ENOSPC: there never is. */
static int begin(struct mc_kv_log *log, struct mc_kv_op *op)
{
	uint64_t bytes = part_bytes(log), n = (op->meta.size + bytes - 1) / bytes;
	struct mc_kv_floor *f = mc_kv_floor_of(log, op);
	uint64_t each = f->segment_bytes / (bytes + MC_KV_ALIGN), here = 0, need;

	if (((n + each - 1) / each + 1) * f->segment_bytes > f->capacity)
		return -ENOSPC;
	if (f->puts.seg != NULL)
		here = (f->segment_bytes - f->puts.off) / (bytes + MC_KV_ALIGN);
	n -= min(n, here);
	need = n > 0 ? (n + each - 1) / each + 1 : 0; /* one segment stays spare */
	if (!are_left(log, f, need)) {
		mc_kv_segments_look(log, f);
		if (!are_left(log, f, need))
			return -EAGAIN;
	}
	mc_mutex_lock(&log->lock);
	op->loc = (struct mc_kv_loc){MC_KV_SPLIT, log->split_seq++, bytes};
	mc_mutex_unlock(&log->lock);
	return 0;
}

int mc_kv_split_write(struct mc_kv_log *log, struct mc_kv_op *op)
{
	const unsigned char *data = op->item->buf;
	struct mc_kv_group *g;
	int r = op->parts == 0 ? begin(log, op) : 0;

	while (r == 0 && op->parts * op->loc.off < op->meta.size) {
		const unsigned char *from = data + op->parts * op->loc.off;
		struct mc_kv_op *part = make_part(op, op->parts, from);

		r = part == NULL
			? -ENOMEM
			: mc_kv_stream_record(log, &mc_kv_floor_of(log, op)->puts, part, from);
		if (r == 0)
			op->parts++;
		else if (part != NULL)
			mc_kv_op_free(part);
	}
	if (r != 0)
		return r;
	/* With the last part, or behind it. */
	op->file = MC_KV_NO_FILE;
	g = mc_kv_floor_of(log, op)->open;
	mc_kv_list_add(&g->ops, op);
	if (op->seq < g->first_seq)
		g->first_seq = op->seq;
	return 0;
}

void mc_kv_split_retry(struct mc_kv_op *op)
{
	op->parts = 0;
	op->part_res = 0;
}

/* ---- going */

/* Without memory the parts stay, accounted, until the next start. */
void mc_kv_split_gone_locked(struct mc_kv_log *log, const uint8_t version[16],
	const struct mc_kv_loc *loc, uint64_t size)
{
	struct mc_kv_gone *g;

	assert(loc->segment == MC_KV_SPLIT);
	if (log->n_gone == log->cap_gone) {
		size_t cap = log->cap_gone != 0 ? 2 * log->cap_gone : 16;

		g = reallocarray(log->gone, cap, sizeof(*g));
		if (g == NULL)
			return;
		log->gone = g;
		log->cap_gone = cap;
	}
	g = &log->gone[log->n_gone++];
	*g = (struct mc_kv_gone){.number = loc->generation, .part_bytes = loc->off, .size = size};
	memcpy(g->version, version, sizeof(g->version));
}

/* Those that nobody holds, in *ret, owned by the caller; the others wait. Their number. */
static size_t take_gone(struct mc_kv_log *log, struct mc_kv_gone **ret)
{
	struct mc_kv_gone *gone;
	size_t n, kept = 0, taken = 0;

	mc_mutex_lock(&log->lock);
	n = log->n_gone;
	gone = n > 0 ? calloc(n, sizeof(*gone)) : NULL;
	for (size_t i = 0; i < n && gone != NULL; i++) {
		const struct mc_kv_gone *g = &log->gone[i];

		if (mc_kv_split_held_locked(log, g->version, g->number))
			log->gone[kept++] = *g;
		else
			gone[taken++] = *g;
	}
	if (gone != NULL)
		log->n_gone = kept;
	mc_mutex_unlock(&log->lock);
	*ret = gone;
	return taken;
}

static void drop_parts_locked(struct mc_kv_log *log, const struct mc_kv_gone *g)
	MC_REQUIRES(log->lock)
{
	char key[MC_KV_PART_KEY];

	for (uint64_t i = 0; i * g->part_bytes < g->size; i++) {
		uint32_t slot;

		mc_kv_part_key(g->version, g->number, i, key);
		slot = mc_kv_table_find(&log->table, MC_KV_PART, key);
		if (slot != 0)
			mc_kv_entry_drop_locked(log, slot);
	}
}

void mc_kv_splits_remove(struct mc_kv_log *log)
{
	cleanup_free struct mc_kv_gone *gone = NULL;
	size_t n = take_gone(log, &gone);
	int r = n > 0 ? mc_kv_commit(log) : 0;

	for (size_t i = 0; i < n; i++) {
		const struct mc_kv_loc loc = {MC_KV_SPLIT, gone[i].number, gone[i].part_bytes};

		mc_mutex_lock(&log->lock);
		/* Its end is not durable yet, or somebody came to hold it meanwhile. */
		if (r != 0 || mc_kv_split_held_locked(log, gone[i].version, gone[i].number))
			mc_kv_split_gone_locked(log, gone[i].version, &loc, gone[i].size);
		else
			drop_parts_locked(log, &gone[i]);
		mc_mutex_unlock(&log->lock);
	}
}

uint32_t mc_kv_split_find_locked(
	const struct mc_kv_log *log, const uint8_t version[16], const char *part_key)
{
	return mc_kv_table_find_head(
		&log->table, version, (uint32_t)strtoul(part_key + 33, NULL, 10));
}

/* ---- recovery; the table is not locked: nobody else knows it yet */

struct known {
	struct mc_kv_gone g;
	uint32_t slot;
	uint64_t found; /* parts */
};

static int by_name(const void *a, const void *b)
{
	const struct known *x = a, *y = b;
	int r = memcmp(x->g.version, y->g.version, sizeof(x->g.version));

	if (r != 0)
		return r;
	return x->g.number < y->g.number ? -1 : x->g.number > y->g.number;
}

static int list_heads(const struct mc_kv_log *log, struct known **ret, size_t *ret_n)
{
	const struct mc_kv_table *t = &log->table;
	struct known *known;
	size_t n = 0;

	known = calloc(t->n_heads + UINT32_C(1), sizeof(*known));
	if (known == NULL)
		return -ENOMEM;
	for (uint32_t at = mc_kv_table_next_head(t, 0); at != 0;
		at = mc_kv_table_next_head(t, at)) {
		const struct mc_kv_entry *e = mc_kv_table_get(t, at);
		struct known *k = &known[n++];

		k->slot = at;
		k->g = (struct mc_kv_gone){
			.number = e->generation, .part_bytes = e->off, .size = e->size};
		memcpy(k->g.version, e->version, sizeof(k->g.version));
	}
	qsort(known, n, sizeof(*known), by_name);
	*ret = known;
	*ret_n = n;
	return 0;
}

/* A part of a known head, where it must be; otherwise it goes. */
static void settle_part(struct mc_kv_log *log, uint32_t slot, struct known *known, size_t n)
	MC_REQUIRES(log->lock)
{
	const struct mc_kv_entry *e = mc_kv_table_get(&log->table, slot);
	const char *key = mc_kv_entry_key(e);
	struct known want = {0}, *got = NULL;
	char again[MC_KV_PART_KEY], *end = NULL;
	uint64_t i = 0;

	memcpy(want.g.version, e->version, sizeof(want.g.version));
	if (e->key_len > 33) {
		want.g.number = (uint32_t)strtoul(key + 33, &end, 10);
		i = end != NULL && *end == '.' ? strtoull(end + 1, NULL, 10) : 0;
		got = bsearch(&want, known, n, sizeof(want), by_name);
	}
	mc_kv_part_key(want.g.version, want.g.number, i, again);
	if (got == NULL || got->g.part_bytes == 0 || strcmp(key, again) != 0 ||
		i >= (got->g.size + got->g.part_bytes - 1) / got->g.part_bytes ||
		e->size != min(got->g.part_bytes, got->g.size - i * got->g.part_bytes))
		mc_kv_entry_drop_locked(log, slot);
	else
		got->found++;
}

int mc_kv_splits_settle(struct mc_kv_log *log)
{
	cleanup_free struct known *known = NULL;
	size_t n = 0;
	int r = list_heads(log, &known, &n);

	if (r != 0)
		return r;
	mc_mutex_lock(&log->lock);
	log->n_gone = 0; /* noted by replay: their parts are found here */
	for (uint32_t slot = 1; slot < log->table.n_slots; slot++) {
		const struct mc_kv_entry *e = mc_kv_table_get(&log->table, slot);

		if (e != NULL && e->kind == MC_KV_PART)
			settle_part(log, slot, known, n);
	}
	for (size_t i = 0; i < n; i++) {
		const struct mc_kv_gone *g = &known[i].g;

		if (g->part_bytes != 0 &&
			known[i].found == (g->size + g->part_bytes - 1) / g->part_bytes)
			continue;
		mc_kv_bad_drop(log, known[i].slot, "a part of it is missing");
		if (g->part_bytes != 0)
			drop_parts_locked(log, g);
	}
	log->n_gone = 0;
	mc_mutex_unlock(&log->lock);
	return 0;
}
