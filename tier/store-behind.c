/*
 * Write-behind: a block that came from the remote goes on to NVMe, or the device, straight from its
 * DRAM image.
 *
 * The pair and the run (a device has none) are pinned until the tier no longer needs the buffer.
 * The backlog is bounded; a block that finds it full is tried again when it is about to leave DRAM
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
	union {
		struct mc_nvme_op op;
		struct mc_block_op bop;
	};
	uint64_t block;
	struct mc_file *file; /* owned reference */
	struct mc_pair *pair; /* pinned */
	struct mc_run *run;   /* pinned; NULL: there are none */
	bool hurry;           /* half of the backlog waits */
	bool to_device;
	unsigned tries;
	int res;
};

static void behind_finish(struct mc_store *s, struct mc_work *w);

static void written(struct behind *b, int res)
{
	b->res = res;
	b->work.run = behind_finish;
	mc_store_post(b->file->store, &b->work);
}

static void nvme_written(struct mc_nvme_op *op, int res)
{
	written(op->ctx, res);
}

static void device_written(struct mc_block_op *op, int res)
{
	written(op->ctx, res);
}

/* Pins the run the block will lie in. */
static bool take_run_locked(struct mc_store *s, struct behind *b) MC_REQUIRES(s->lock)
{
	struct mc_file *f = b->file;
	struct mc_run *run = mc_run_make_locked(s, f, b->block);

	if (run == NULL || run->evicting)
		return false;
	if (!mc_policy_linked(&run->entry))
		mc_policy_insert(s->nvme_policy, &run->entry, mc_file_id_hash(&f->id) + run->index,
			MC_RUN_BLOCKS * MC_BLOCK_SIZE);
	run->pins++;
	b->run = run;
	return true;
}

/* Pins what the write needs; false when the block is gone, on its way already, or the backlog full.
 */
static bool take_locked(struct mc_store *s, struct behind *b) MC_REQUIRES(s->lock)
{
	struct mc_pair *p = mc_file_pair(b->file, b->block);
	struct mc_pair_block *blk = p != NULL ? &p->blk[b->block & 1] : NULL;

	if (blk == NULL || blk->state != MC_BLK_VALID || blk->behind != MC_BEHIND_NONE)
		return false;
	if (s->behind_blocks >= s->max_behind) {
		if (p->todo.on == NULL)
			mc_queue_push(&s->behind_todo, &p->todo);
		return false;
	}
	if (s->nvme != NULL && !take_run_locked(s, b))
		return false;
	p->pins++;
	blk->behind = MC_BEHIND_RUNNING;
	s->behind_blocks++;
	b->pair = p;
	b->hurry = s->behind_blocks >= s->max_behind / 2;
	return true;
}

static void send(struct mc_store *s, struct behind *b)
{
	struct mc_file *f = b->file;
	void *buf = mc_dram_ptr(f->dram, b->block);
	uint32_t crc = mc_crc32c(0, buf, mc_block_len(f->id.size, b->block));

	if (!b->to_device) {
		b->op = (struct mc_nvme_op){.img = f->nvme,
			.block = b->block,
			.buf = buf,
			.crc = crc,
			.done = nvme_written,
			.ctx = b};
		mc_nvme_write(&b->op);
		return;
	}
	b->bop = (struct mc_block_op){.cache = s->opts.blocks,
		.id = &f->id,
		.block = b->block,
		.buf = buf,
		.crc = crc,
		.done = device_written,
		.ctx = b};
	mc_block_cache_write(&b->bop, b->hurry);
}

void mc_behind_start(struct mc_file *f, uint64_t block)
{
	struct mc_store *s = f->store;
	struct behind *b = calloc(1, sizeof(*b));
	bool ok = b != NULL && mc_file_images_open(f) == 0 &&
		(s->nvme == NULL || mc_file_nvme_open(f, true) == 0);

	if (!ok) {
		free(b);
		return;
	}
	mc_mutex_lock(&s->lock);
	b->file = f;
	b->block = block;
	b->to_device = s->nvme == NULL;
	ok = take_locked(s, b);
	if (ok)
		mc_file_ref_locked(s, f);
	mc_mutex_unlock(&s->lock);
	if (!ok) {
		free(b);
		return;
	}
	send(s, b);
}

void mc_behind_forget(struct mc_file *f, uint64_t block)
{
	struct mc_store *s = f->store;
	struct mc_pair *p;

	mc_mutex_lock(&s->lock);
	p = mc_file_pair(f, block);
	if (p != NULL && p->blk[block & 1].behind == MC_BEHIND_DONE)
		p->blk[block & 1].behind = MC_BEHIND_NONE;
	mc_mutex_unlock(&s->lock);
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

static void leave_run_locked(struct mc_store *s, const struct behind *b) MC_REQUIRES(s->lock)
{
	b->run->pins--;
	b->run->blocks += b->res == 0 && !b->to_device;
	if (b->run->blocks > 0 || b->run->pins > 0)
		return;
	mc_policy_remove(s->nvme_policy, &b->run->entry);
	mc_run_free_locked(s, b->run);
}

/* What to do about a refusal of NVMe: make room, or write to the device below. False: nothing. */
static bool again(struct mc_store *s, struct behind *b)
{
	if (b->res == -ENOSPC && b->tries < MAX_TRIES) {
		if (mc_sink_wait(s, &b->work))
			return true;
		if (++b->tries < MAX_TRIES && mc_evict_nvme(s) > 0) {
			mc_nvme_write(&b->op);
			return true;
		}
	}
	if (b->res == 0 || b->res == -ESHUTDOWN || s->opts.blocks == NULL)
		return false;
	b->to_device = true;
	send(s, b);
	return true;
}

static void behind_finish(struct mc_store *s, struct mc_work *w)
{
	struct behind *b = (struct behind *)w;
	struct mc_file *f = b->file;

	if (!b->to_device && again(s, b))
		return;
	if (b->res < 0 && b->res != -ESHUTDOWN)
		mc_event_nvme(s, f, "write-behind-failed",
			"block=%llu: %s%s; reads go on without it", (unsigned long long)b->block,
			strerror(-b->res),
			b->res == -ENOSPC
				? "; give the tier a size that its file system has, or make room"
				: "");
	mc_mutex_lock(&s->lock);
	b->pair->blk[b->block & 1].behind = MC_BEHIND_DONE;
	b->pair->pins--;
	if (b->res < 0)
		s->st.behind_skipped++;
	if (b->run != NULL)
		leave_run_locked(s, b);
	s->behind_blocks--;
	mc_store_room_locked(s);
	if (s->stopping)
		mc_cond_broadcast(&s->wake);
	mc_mutex_unlock(&s->lock);
	mc_file_put(f);
	free(b);
	start_next(s);
}
