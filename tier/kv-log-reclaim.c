/*
 * Reclaim: the live records of a segment are copied to the survivors' segment or evicted, as the
 * owner says, so that the segment can be reused. Where there is a floor below, all of them are
 * copied there instead: what to drop is decided when they have to leave that.
 *
 * Survivors lie together: what lived once tends to live on, and a segment of such records is not
 * copied again soon. Every record is verified before it is copied; what does not verify is evicted.
 */
#include "tier/kv-log-choose.h"

#include "tier/cleanup.h"
#include "tier/digest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW (UINT64_C(9) << 20) /* bytes read at once: a record and what is around it */
#define GAIN_PERCENT 5             /* of the segment must come free */

struct victim {
	struct mc_kv_segment *seg; /* NULL: the objects in parts */
	struct mc_kv_op **ops;     /* owned, each owned until queued: copies of the live entries */
	size_t n;
	uint64_t evict; /* bytes of those not to be kept */
	bool down;      /* to the lower floor */
};

static void free_victim(struct victim *v)
{
	for (size_t i = 0; i < v->n; i++)
		if (v->ops[i] != NULL)
			mc_kv_op_free(v->ops[i]);
	free(v->ops);
}

static int by_place(const void *a, const void *b)
{
	const struct mc_kv_op *const *x = a, *const *y = b;

	return (*x)->from.off < (*y)->from.off ? -1 : (*x)->from.off > (*y)->from.off;
}

static uint32_t next_live_locked(const struct mc_kv_log *log, const struct victim *v, uint32_t at)
	MC_REQUIRES(log->lock)
{
	if (v->seg == NULL)
		return mc_kv_table_next_head(&log->table, at);
	return at == 0 ? v->seg->head : mc_kv_table_get(&log->table, at)->seg_next;
}

/* What lives there now. */
static int list_live(struct mc_kv_log *log, struct victim *v)
{
	size_t cap = 0;
	int r = 0;

	mc_mutex_lock(&log->lock);
	for (uint32_t at = next_live_locked(log, v, 0); at != 0; at = next_live_locked(log, v, at))
		cap++;
	v->ops = calloc(cap + 1, sizeof(*v->ops));
	if (v->ops == NULL)
		r = -ENOMEM;
	for (uint32_t at = next_live_locked(log, v, 0); at != 0 && r == 0;
		at = next_live_locked(log, v, at)) {
		v->ops[v->n] = mc_kv_copy_op(mc_kv_table_get(&log->table, at), at, v->seg);
		if (v->ops[v->n] == NULL)
			r = -ENOMEM;
		else
			v->n++;
	}
	mc_mutex_unlock(&log->lock);
	if (r == 0)
		qsort(v->ops, v->n, sizeof(*v->ops), by_place);
	return r;
}

/* The key of the object a part belongs to, into op->key. */
static void name_whole(struct mc_kv_log *log, struct mc_kv_op *op)
{
	uint32_t slot;

	mc_mutex_lock(&log->lock);
	slot = mc_kv_split_find_locked(log, op->meta.version, op->meta.key);
	if (slot != 0)
		op->key = strdup(mc_kv_entry_key(mc_kv_table_get(&log->table, slot)));
	mc_mutex_unlock(&log->lock);
}

/* Nothing is dropped on the way down. A part whose object is gone, and that is still here, is held
 * by a reader. */
static void ask_owner(struct mc_kv_log *log, struct victim *v)
{
	struct mc_kv_log_owner o = mc_kv_owner(log);

	for (size_t i = 0; i < v->n && !v->down; i++) {
		struct mc_kv_op *op = v->ops[i];

		if (op->of_part)
			name_whole(log, op);
		op->cancelled = o.keep != NULL && (!op->of_part || op->key != NULL) &&
			!o.keep(o.ctx, mc_kv_op_key(op), op->meta.version);
		if (op->cancelled)
			v->evict += mc_kv_space(op->meta.size, op->meta.n_crc, op->from.segment);
	}
}

static void evict(struct mc_kv_log *log, struct mc_kv_op *op)
{
	struct mc_kv_log_owner o = mc_kv_owner(log);
	uint32_t slot = op->slot;
	struct mc_kv_loc from = op->from;
	const struct mc_kv_entry *e;
	char *key = NULL;
	bool dropped = false;

	mc_mutex_lock(&log->lock);
	/* A part goes with its object. */
	if (op->of_part)
		slot = mc_kv_split_find_locked(log, op->meta.version, op->meta.key);
	e = mc_kv_table_get(&log->table, slot);
	if (op->of_part && e != NULL)
		from = mc_kv_entry_loc(e);
	if (e != NULL && e->kind == MC_KV_OBJECT && memcmp(e->version, op->meta.version, 16) == 0) {
		struct mc_kv_loc at = mc_kv_entry_loc(e);

		if (mc_kv_loc_same(&at, &from)) {
			key = strdup(mc_kv_entry_key(e));
			mc_kv_drop_locked(log, slot);
			dropped = true;
		}
	}
	mc_mutex_unlock(&log->lock);
	if (dropped && o.evicted != NULL)
		o.evicted(o.ctx, key != NULL ? key : op->meta.key, op->meta.version, &from);
	free(key);
}

static bool verifies(struct mc_kv_log *log, const struct mc_kv_op *op, const unsigned char *record)
{
	const struct mc_kv_meta *m = &op->meta;
	const unsigned char *p = record + MC_KV_HEADER;

	if (mc_kv_record_check(log, record, &op->from, m->version, m->size) != 0)
		return false;
	for (uint32_t i = 0; i < m->n_crc; i++) {
		uint64_t at = (uint64_t)i << 20;
		uint64_t len = m->size - at < (1u << 20) ? m->size - at : 1u << 20;

		if (at >= m->size || mc_crc32c(0, p + at, len) != m->crc[i])
			return false;
	}
	return true;
}

/* A record that was made before the lower floor was there may be too large for it. */
static bool all_fit(struct mc_kv_log *log, const struct victim *v)
{
	bool fit = true;

	for (size_t i = 0; i < v->n; i++)
		fit &= mc_kv_record_bytes(&v->ops[i]->meta) + MC_KV_ALIGN <=
			mc_kv_bottom(log)->segment_bytes;
	return fit;
}

static int copy_one(struct mc_kv_log *log, struct victim *v, size_t i, const unsigned char *record)
{
	struct mc_kv_stream *to = v->down ? &mc_kv_bottom(log)->puts : &v->seg->floor->survivors;
	struct mc_kv_op *op = v->ops[i];
	int r;

	mc_mutex_lock(&log->lock);
	log->n_moving++;
	op->from_seg->writers++;
	mc_mutex_unlock(&log->lock);
	r = mc_kv_stream_record(log, to, op, record + MC_KV_HEADER);
	if (r == 0) {
		v->ops[i] = NULL;
		return 0;
	}
	mc_mutex_lock(&log->lock);
	log->n_moving--;
	op->from_seg->writers--;
	mc_mutex_unlock(&log->lock);
	return r;
}

/* All of it. */
static int read_window(struct mc_kv_log *log, struct mc_kv_segment *seg, uint64_t start,
	uint64_t len, unsigned char **buf)
{
	int64_t n = mc_kv_piece_read(log, seg, start, (uint32_t)len, buf);

	if (n >= 0 && (uint64_t)n < len) {
		n = -ENODATA;
		mc_kv_failed(log, seg->floor, (int)n);
	}
	return n < 0 ? (int)n : 0;
}

/* Copies the survivors that lie in one window from the i-th on; *ret_next is the first beyond. */
static int copy_window(
	struct mc_kv_log *log, struct victim *v, size_t i, unsigned char **buf, size_t *ret_next)
{
	uint64_t start = v->ops[i]->from.off / MC_KV_ALIGN * MC_KV_ALIGN, end = start + WINDOW;
	uint64_t last = start;
	size_t n = i;
	int r;

	if (end > v->seg->floor->segment_bytes)
		end = v->seg->floor->segment_bytes;
	for (; n < v->n; n++) {
		uint64_t to = v->ops[n]->from.off + MC_KV_HEADER + v->ops[n]->meta.size;

		if (to > end)
			break;
		if (!v->ops[n]->cancelled)
			last = to;
	}
	*ret_next = n > i ? n : i + 1; /* one that no window holds lies outside the segment */
	r = last > start ? read_window(log, v->seg, start, last - start, buf) : 0;
	for (size_t k = i; k < *ret_next; k++) {
		bool good = r == 0 && n > i && !v->ops[k]->cancelled;
		const unsigned char *record = good ? *buf + (v->ops[k]->from.off - start) : NULL;

		if (r != 0 && !v->ops[k]->cancelled)
			continue;
		if (good && !verifies(log, v->ops[k], record)) {
			mc_mutex_lock(&log->lock);
			log->stats.bad++;
			mc_mutex_unlock(&log->lock);
			good = false;
		}
		if (good)
			r = copy_one(log, v, k, record);
		else
			evict(log, v->ops[k]);
		if (r != 0)
			return r;
	}
	return r;
}

static int empty_victim(struct mc_kv_log *log, struct victim *v)
{
	cleanup_free unsigned char *buf = aligned_alloc(MC_KV_ALIGN, WINDOW + MC_KV_ALIGN);
	int r = buf == NULL ? -ENOMEM : 0;

	mc_mutex_lock(&log->lock);
	v->seg->state = MC_KV_SEG_MOVING;
	v->seg->writers++; /* until all copies are queued */
	mc_mutex_unlock(&log->lock);
	for (size_t i = 0; i < v->n && r == 0;)
		r = copy_window(log, v, i, &buf, &i);
	mc_mutex_lock(&log->lock);
	v->seg->writers--;
	mc_kv_poke_locked(log);
	mc_mutex_unlock(&log->lock);
	return r;
}

/* ---- the whole */

/* An object in parts that the owner does not keep. */
static int evict_split(struct mc_kv_log *log)
{
	struct victim v = {0};
	bool any = false;
	int r = list_live(log, &v);

	if (r == 0)
		ask_owner(log, &v);
	for (size_t i = 0; i < v.n && r == 0 && !any; i++) {
		if (!v.ops[i]->cancelled)
			continue;
		evict(log, v.ops[i]);
		any = true;
	}
	free_victim(&v);
	return any ? 0 : -ENOENT;
}

static int reclaim_one(
	struct mc_kv_log *log, const struct mc_kv_candidate *c, enum mc_kv_reclaim how)
{
	struct victim v = {.seg = c->seg, .down = how == MC_KV_RECLAIM_DOWN};
	int r = list_live(log, &v);

	if (r == 0)
		ask_owner(log, &v);
	if (r == 0 && how == MC_KV_RECLAIM_GAIN &&
		c->dead + v.evict < c->seg->floor->segment_bytes / 100 * GAIN_PERCENT)
		r = -ENOTSUP;
	if (r == 0 && v.down && !all_fit(log, &v))
		r = -ENOTSUP;
	if (r == 0)
		r = empty_victim(log, &v);
	free_victim(&v);
	return r;
}

int mc_kv_reclaim(struct mc_kv_log *log, struct mc_kv_floor *f, enum mc_kv_reclaim how)
{
	cleanup_free struct mc_kv_candidate *c = NULL;
	int64_t n;

	if (mc_kv_hangs(log, f))
		return -ENOENT;
	n = mc_kv_candidates(log, f, &c);
	if (n < 0)
		return (int)n;
	if (how == MC_KV_RECLAIM_DOWN && n > 0 && !mc_kv_any_fits_below(log, c, (size_t)n))
		return -EAGAIN;
	mc_kv_rank(log, f, c, (size_t)n);
	for (int64_t i = 0; i < n; i++) {
		int r = -EAGAIN;

		if (how != MC_KV_RECLAIM_DOWN || mc_kv_fits_below(log, c[i].seg))
			r = reclaim_one(log, &c[i], how);
		if (r != -ENOTSUP)
			return r;
	}
	return how == MC_KV_RECLAIM_GAIN ? evict_split(log) : -ENOENT;
}
