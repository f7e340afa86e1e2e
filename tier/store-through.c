/*
 * Reads of derived files without an image of their own.
 *
 * Life of a read: plan → one contiguous piece: lent out of the source's blocks, no copy; else it
 * takes a place among max_gathering (or waits for one on store->derive), a buffer, and gathers →
 * lent → ended, and the buffer goes back.
 *
 * Invariants: H1 at most max_gathering buffers are kept; as many more as reads are lent at once
 * live until those end. H2 A read that waits holds neither buffer nor pin.
 */
#include "tier/store-through.h"

#include "tier/image-name.h"
#include "tier/store-gather.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A read spans a block and a page at most; see mc_file_read. */
#define BUFFER_BYTES (MC_BLOCK_SIZE + 4096)

struct mc_through {
	struct mc_work work; /* first member */
	struct mc_file_read *read;
	struct mc_plan plan;
	struct mc_file_read lent; /* of the source, when there is nothing to gather */
	struct mc_buffer_link *buffer;
};

/* The beginning of a buffer that nobody uses. */
struct mc_buffer_link {
	struct mc_buffer_link *next;
};

static struct mc_seen *seen_locked(struct mc_store *s, const struct mc_file *f) MC_REQUIRES(s->lock)
{
	uint64_t hash = mc_file_id_hash(&f->id);
	struct mc_seen *e = &s->seen[hash % MC_SEEN];

	if (e->hash != hash)
		*e = (struct mc_seen){.hash = hash};
	return e;
}

bool mc_through_wanted_locked(struct mc_store *s, const struct mc_file_read *r)
{
	const struct mc_file *f = r->file;
	struct mc_seen *e;

	if (!r->direct || f->src->ops->block_crc != NULL || f->pinned || f->n_pairs > 0 ||
		f->n_runs > 0)
		return false;
	e = seen_locked(s, f);
	if (e->bytes >= f->id.size)
		return false;
	e->bytes += r->len;
	return true;
}

static struct mc_buffer_link *buffer_take(struct mc_store *s)
{
	struct mc_buffer_link *b;

	mc_mutex_lock(&s->lock);
	b = s->buffers;
	if (b != NULL) {
		s->buffers = b->next;
		s->n_buffers--;
	}
	mc_mutex_unlock(&s->lock);
	return b != NULL ? b : aligned_alloc(4096, BUFFER_BYTES);
}

static void buffer_put(struct mc_store *s, struct mc_buffer_link *b)
{
	mc_mutex_lock(&s->lock);
	if (s->n_buffers < s->max_gathering) {
		b->next = s->buffers;
		s->buffers = b;
		s->n_buffers++;
		b = NULL;
	}
	mc_mutex_unlock(&s->lock);
	free(b);
}

static void through_free(struct mc_through *t)
{
	mc_plan_done(&t->plan);
	free(t);
}

/* Nothing is lent: the caller hears of the error. */
static void fail(struct mc_through *t, int res)
{
	struct mc_file_read *r = t->read;
	struct mc_store *s = r->file->store;

	if (t->buffer != NULL)
		buffer_put(s, t->buffer);
	through_free(t);
	r->through = NULL;
	mc_mutex_lock(&s->lock);
	s->st.read_errors++;
	mc_mutex_unlock(&s->lock);
	r->done(r, res);
}

static void lent_done(struct mc_file_read *lent, int res)
{
	struct mc_through *t = lent->ctx;
	struct mc_file_read *r = t->read;

	if (res < 0) {
		fail(t, res);
		return;
	}
	memcpy(r->iov, lent->iov, sizeof(r->iov));
	r->n_iov = lent->n_iov;
	r->done(r, 0);
}

/* The range is a stretch of one source. */
static bool is_stretch(const struct mc_plan *p)
{
	return p->n == 1 && p->pieces[0].kind == MC_PIECE_FILE && p->pieces[0].strides.rank == 0;
}

static void lend(struct mc_through *t)
{
	const struct mc_piece *p = &t->plan.pieces[0];

	t->lent = (struct mc_file_read){.file = p->file,
		.off = p->off,
		.len = p->len,
		.planned = true,
		.done = lent_done,
		.ctx = t};
	mc_file_read(&t->lent);
}

/* The place among those that gather is free again. */
static void leave(struct mc_store *s)
{
	mc_mutex_lock(&s->lock);
	s->gathering--;
	mc_store_wake_locked(s);
	if (s->stopping)
		mc_cond_broadcast(&s->wake);
	mc_mutex_unlock(&s->lock);
}

static void gathered(void *ctx, int res)
{
	struct mc_through *t = ctx;
	struct mc_file_read *r = t->read;

	leave(r->file->store);
	if (res < 0) {
		fail(t, mc_read_error(res));
		return;
	}
	r->iov[0] = (struct iovec){.iov_base = t->buffer, .iov_len = r->len};
	r->n_iov = 1;
	r->done(r, 0);
}

/* With a place: what the plan itself holds, then the gathering of the rest. */
static void gather(struct mc_store *s, struct mc_work *w)
{
	struct mc_through *t = (struct mc_through *)w;
	uint8_t *at;
	int r;

	t->buffer = buffer_take(s);
	if (t->buffer == NULL) {
		gathered(t, -ENOMEM);
		return;
	}
	at = (uint8_t *)t->buffer;
	for (size_t i = 0; i < t->plan.n; at += t->plan.pieces[i++].len) {
		const struct mc_piece *p = &t->plan.pieces[i];

		if (p->kind == MC_PIECE_HOLE)
			memset(at, 0, p->len);
		else if (p->kind == MC_PIECE_INLINE)
			memcpy(at, p->data, p->len);
		else
			assert(p->kind == MC_PIECE_FILE); /* derived files have no objects */
	}
	if (!mc_gather_wanted(&t->plan)) {
		gathered(t, 0);
		return;
	}
	r = mc_gather_start(&t->plan, (uint8_t *)t->buffer, gathered, t);
	if (r < 0)
		gathered(t, r);
}

/* A place for it now, or later from the queue. */
static void start_gathering(struct mc_store *s, struct mc_through *t)
{
	bool now;

	t->work.run = gather;
	t->work.home = &s->derive;
	mc_mutex_lock(&s->lock);
	now = s->gathering < s->max_gathering && s->derive.head == NULL;
	if (now)
		s->gathering++;
	else
		mc_queue_push(&s->derive, &t->work);
	mc_mutex_unlock(&s->lock);
	if (now)
		gather(s, &t->work);
}

void mc_through_start(struct mc_file_read *r)
{
	struct mc_source *src = r->file->src;
	struct mc_through *t = calloc(1, sizeof(*t));
	int res;

	r->through = t;
	if (t == NULL) {
		r->done(r, -ENOMEM);
		return;
	}
	t->read = r;
	mc_plan_init(&t->plan);
	res = src->ops->plan(src, r->off, r->len, &t->plan);
	if (res == 0 && mc_plan_len(&t->plan) != r->len)
		res = -EBADMSG;
	if (res < 0)
		fail(t, mc_read_error(res));
	else if (is_stretch(&t->plan))
		lend(t);
	else
		start_gathering(r->file->store, t);
}

void mc_through_end(struct mc_file_read *r)
{
	struct mc_through *t = r->through;

	r->through = NULL;
	if (t->buffer != NULL)
		buffer_put(r->file->store, t->buffer);
	else
		mc_file_read_end(&t->lent);
	through_free(t);
}

static bool fetch_one(void *ctx, struct mc_file *src, uint64_t block)
{
	(void)ctx;
	return mc_read_fetch_ahead(src, block);
}

void mc_through_ahead(struct mc_file *f, uint64_t first, uint32_t n)
{
	bool more = true;

	for (uint64_t b = first; more && b < first + n && b < f->blocks; b++) {
		struct mc_plan plan;

		mc_plan_init(&plan);
		if (f->src->ops->plan(
			    f->src, b << MC_BLOCK_SHIFT, mc_block_len(f->id.size, b), &plan) == 0)
			more = mc_gather_blocks(&plan, fetch_one, NULL);
		mc_plan_done(&plan);
	}
}

void mc_through_free_all(struct mc_store *s)
{
	while (s->buffers != NULL) {
		struct mc_buffer_link *next = s->buffers->next;

		free(s->buffers);
		s->buffers = next;
	}
}
