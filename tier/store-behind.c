/*
 * Write-behind: a block that came from the remote goes on to NVMe, straight from its DRAM image.
 *
 * The pair and the run are pinned until the tier no longer needs the buffer. The backlog is
 * bounded; a block that finds it full is tried again when it is about to leave DRAM
 * (store-evict.c), and a tier that is full makes room first. A block NVMe refuses is served from
 * DRAM and the remote all the same.
 */
#include "tier/image-name.h"
#include "tier/store-impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TRIES 4 /* evict and write again */

struct behind {
	struct mc_work work; /* first member */
	struct mc_nvme_op op;
	struct mc_file *file; /* owned reference */
	struct mc_pair *pair; /* pinned */
	struct mc_run *run;   /* pinned */
	unsigned tries;
	int res;
};

static void behind_finish(struct mc_store *s, struct mc_work *w);

static void written(struct mc_nvme_op *op, int res)
{
	struct behind *b = op->ctx;

	b->res = res;
	b->work.run = behind_finish;
	mc_store_post(b->file->store, &b->work);
}

/* Pins what the write needs; false when the block is gone, on its way already, or the backlog full.
 */
static bool take_locked(struct mc_store *s, struct behind *b, uint64_t block) MC_REQUIRES(s->lock)
{
	struct mc_file *f = b->file;
	struct mc_pair *p = mc_file_pair(f, block);
	struct mc_pair_block *blk = p != NULL ? &p->blk[block & 1] : NULL;
	struct mc_run *run;

	if (blk == NULL || blk->state != MC_BLK_VALID || blk->behind != MC_BEHIND_NONE)
		return false;
	if (s->behind_blocks >= s->max_behind) {
		if (p->todo.on == NULL)
			mc_queue_push(&s->behind_todo, &p->todo);
		return false;
	}
	run = mc_run_make_locked(s, f, block);
	if (run == NULL || run->evicting)
		return false;
	if (!mc_policy_linked(&run->entry))
		mc_policy_insert(s->nvme_policy, &run->entry, mc_file_id_hash(&f->id) + run->index,
			MC_RUN_BLOCKS * MC_BLOCK_SIZE);
	run->pins++;
	p->pins++;
	blk->behind = MC_BEHIND_RUNNING;
	s->behind_blocks++;
	b->pair = p;
	b->run = run;
	return true;
}

void mc_behind_start(struct mc_file *f, uint64_t block)
{
	struct mc_store *s = f->store;
	struct behind *b = calloc(1, sizeof(*b));
	bool ok = b != NULL && mc_file_images_open(f) == 0 && mc_file_nvme_open(f, true) == 0;

	if (!ok) {
		free(b);
		return;
	}
	mc_mutex_lock(&s->lock);
	b->file = f;
	ok = take_locked(s, b, block);
	if (ok)
		mc_file_ref_locked(s, f);
	mc_mutex_unlock(&s->lock);
	if (!ok) {
		free(b);
		return;
	}
	b->op = (struct mc_nvme_op){.img = f->nvme,
		.block = block,
		.buf = mc_dram_ptr(f->dram, block),
		.crc = mc_crc32c(0, mc_dram_ptr(f->dram, block), mc_block_len(f->id.size, block)),
		.done = written,
		.ctx = b};
	mc_nvme_write(&b->op);
}

/* The backlog has room: the next pair that waits for it. */
static void start_next(struct mc_store *s)
{
	struct mc_work *w;
	struct mc_pair *p;
	struct mc_file *f = NULL;
	uint64_t block = 0;

	mc_mutex_lock(&s->lock);
	w = s->stopping ? NULL : s->behind_todo.head;
	if (w != NULL) {
		mc_queue_take(&s->behind_todo, w);
		p = (struct mc_pair *)((char *)w - offsetof(struct mc_pair, todo));
		block = (uint64_t)p->index << 1;
		f = mc_file_ref_locked(s, p->file);
	}
	mc_mutex_unlock(&s->lock);
	if (f == NULL)
		return;
	mc_behind_start(f, block);
	if (block + 1 < f->blocks)
		mc_behind_start(f, block + 1);
	mc_file_put(f);
}

static void behind_finish(struct mc_store *s, struct mc_work *w)
{
	struct behind *b = (struct behind *)w;
	struct mc_file *f = b->file;

	if (b->res == -ENOSPC && ++b->tries < MAX_TRIES && mc_evict_nvme(s) > 0) {
		mc_nvme_write(&b->op);
		return;
	}
	if (b->res < 0)
		mc_event_nvme(s, f, "write-behind-failed",
			"block=%llu: %s%s; reads go on without it", (unsigned long long)b->op.block,
			strerror(-b->res),
			b->res == -ENOSPC
				? "; give the tier a size that its file system has, or make room"
				: "");
	mc_mutex_lock(&s->lock);
	b->pair->blk[b->op.block & 1].behind = MC_BEHIND_DONE;
	b->pair->pins--;
	b->run->pins--;
	if (b->res == 0)
		b->run->blocks++;
	else
		s->st.behind_skipped++;
	if (b->run->blocks == 0 && b->run->pins == 0) {
		mc_policy_remove(s->nvme_policy, &b->run->entry);
		mc_run_free_locked(s, b->run);
	}
	s->behind_blocks--;
	mc_store_room_locked(s);
	if (s->stopping)
		mc_cond_broadcast(&s->wake);
	mc_mutex_unlock(&s->lock);
	mc_file_put(f);
	free(b);
	start_next(s);
}
