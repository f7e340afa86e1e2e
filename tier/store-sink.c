/*
 * What NVMe gives up goes on to the device below it.
 *
 * A run that is to leave is read back, verified, by the thread that evicts it: that one waits for
 * NVMe anyway. The bytes lie in buffers of their own from then on, so the run can go before they
 * are durable below; a crash between the two costs a fetch. Readers wait for those on the way. What
 * the device has already is not written again.
 *
 * Invariants
 * 1. At most max_sinking blocks have a buffer; what finds none left just goes.
 * 2. While half of them are in use, write-behinds that need room in NVMe wait on sink_wait, so that
 * what is loaded faster than the device writes is not lost. They wait for no device that hangs.
 */
#include "tier/store-impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct mc_sink {
	struct mc_work work;         /* first member */
	struct mc_sink *prev, *next; /* on store->sinks, from its place on */
	struct mc_block_op op;
	struct mc_file *file; /* owned reference */
	uint64_t block;
	void *buf; /* owned */
	int res;
};

/* None of them has ended for long. */
static bool hangs_locked(const struct mc_store *s) MC_REQUIRES(s->lock)
{
	return s->sinking > 0 && mc_now_ns() > s->sink_ns + mc_store_patience_ns(s);
}

static bool is_full_locked(const struct mc_store *s) MC_REQUIRES(s->lock)
{
	return s->sinking > s->max_sinking / 2;
}

bool mc_sink_wait(struct mc_store *s, struct mc_work *w)
{
	bool wait;

	mc_mutex_lock(&s->lock);
	wait = is_full_locked(s) && !s->stopping && !hangs_locked(s);
	if (wait)
		mc_queue_push(&s->sink_wait, w);
	mc_mutex_unlock(&s->lock);
	return wait;
}

void mc_sink_look_locked(struct mc_store *s, bool all)
{
	struct mc_work *w;

	if (s->sink_wait.head == NULL || (!all && is_full_locked(s) && !hangs_locked(s)))
		return;
	while ((w = s->sink_wait.head) != NULL) {
		mc_queue_take(&s->sink_wait, w);
		mc_queue_push(&s->ready, w);
	}
	mc_cond_broadcast(&s->wake);
}

bool mc_sink_brings_locked(struct mc_store *s, const struct mc_file *f, uint64_t block)
{
	const struct mc_run *run = f->runs[block >> MC_RUN_SHIFT];
	const struct mc_sink *k = f->sinking > 0 ? s->sinks : NULL;

	if (hangs_locked(s))
		return false;
	while (k != NULL && (k->file != f || k->block != block))
		k = k->next;
	return k != NULL || (run != NULL && run->evicting);
}

static void sink_free(struct mc_sink *k)
{
	free(k->buf);
	free(k);
}

static void leave_locked(struct mc_store *s, struct mc_sink *k) MC_REQUIRES(s->lock)
{
	if (k->prev != NULL)
		k->prev->next = k->next;
	else
		s->sinks = k->next;
	if (k->next != NULL)
		k->next->prev = k->prev;
	s->sinking--;
	k->file->sinking--;
	s->sink_ns = mc_now_ns();
	mc_sink_look_locked(s, false);
	mc_store_room_locked(s);
	if (s->stopping)
		mc_cond_broadcast(&s->wake);
}

static void sink_finish(struct mc_store *s, struct mc_work *w)
{
	struct mc_sink *k = (struct mc_sink *)w;

	if (k->res < 0 && k->res != -ESHUTDOWN && k->res != -ENOSPC)
		mc_event_device(s, k->file, "write-below-failed", "block=%llu: %s; it is left out",
			(unsigned long long)k->block, strerror(-k->res));
	mc_mutex_lock(&s->lock);
	s->st.sunk += k->res == 0;
	s->st.behind_skipped += k->res < 0;
	leave_locked(s, k);
	mc_mutex_unlock(&s->lock);
	mc_file_put(k->file);
	sink_free(k);
}

static void sink_written(struct mc_block_op *op, int res)
{
	struct mc_sink *k = op->ctx;

	k->res = res;
	k->work.run = sink_finish;
	mc_store_post(k->file->store, &k->work);
}

/* A place, and a buffer for it; NULL: none is left. *ret_hurry: others wait, or will soon. */
static struct mc_sink *sink_make(
	struct mc_store *s, struct mc_file *f, uint64_t block, bool *ret_hurry)
{
	struct mc_sink *k = calloc(1, sizeof(*k));
	bool ok;

	if (k == NULL || posix_memalign(&k->buf, 4096, MC_BLOCK_SIZE) != 0) {
		free(k);
		return NULL;
	}
	mc_mutex_lock(&s->lock);
	ok = s->sinking < s->max_sinking && !s->stopping && !hangs_locked(s);
	if (ok) {
		if (s->sinking++ == 0)
			s->sink_ns = mc_now_ns();
		f->sinking++;
		k->file = mc_file_ref_locked(s, f);
		k->block = block;
		k->next = s->sinks;
		if (k->next != NULL)
			k->next->prev = k;
		s->sinks = k;
	} else {
		s->st.behind_skipped++;
	}
	*ret_hurry = is_full_locked(s);
	mc_mutex_unlock(&s->lock);
	if (ok)
		return k;
	sink_free(k);
	return NULL;
}

static void sink_block(struct mc_store *s, struct mc_file *f, uint64_t block)
{
	bool hurry;
	struct mc_sink *k = sink_make(s, f, block, &hurry);
	int r;

	if (k == NULL)
		return;
	r = mc_nvme_check(f->nvme, block, k->buf);
	if (r < 0) { /* it is gone, or what is there is nothing to keep */
		mc_mutex_lock(&s->lock);
		leave_locked(s, k);
		mc_mutex_unlock(&s->lock);
		mc_file_put(f);
		sink_free(k);
		return;
	}
	k->op = (struct mc_block_op){.cache = s->opts.blocks,
		.id = &f->id,
		.block = block,
		.buf = k->buf,
		.crc = mc_crc32c(0, k->buf, mc_block_len(f->id.size, block)),
		.done = sink_written,
		.ctx = k};
	mc_block_cache_write(&k->op, hurry);
}

void mc_sink_run(struct mc_store *s, const struct mc_run *run)
{
	struct mc_file *f = run->file;
	uint64_t first = (uint64_t)run->index << MC_RUN_SHIFT, end = first + MC_RUN_BLOCKS;
	unsigned present = 0;

	if (s->opts.blocks == NULL || mc_file_nvme_open(f, false) != 0)
		return;
	end = end < f->blocks ? end : f->blocks;
	for (uint64_t b = first; b < end; b++)
		present += mc_nvme_present(f->nvme, b);
	if (present < run->blocks) /* some are not journalled yet */
		mc_nvme_sync(s->nvme);
	for (uint64_t b = first; b < end; b++)
		if (mc_nvme_present(f->nvme, b) && !mc_block_cache_has(s->opts.blocks, &f->id, b))
			sink_block(s, f, b);
}
