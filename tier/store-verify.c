/*
 * The verifier: one thread that reads adopted NVMe images through, so that they may be passed
 * through, and mends what clients read past us; and the store's part of a scrub, block by block.
 * Both look at a block by the same call and treat a damaged one alike (store-mend.c). An image
 * takes as long as its size; nothing else waits for it, and a stop ends it.
 */
#include "tier/store-scrub.h"

#include "tier/image-name.h"
#include "tier/store-impl.h"

#include <errno.h>
#include <string.h>

static void found_bad(void *ctx, uint64_t block)
{
	mc_file_damaged(ctx, block);
}

/* Reads one adopted image through; the file is referenced by the queue. */
static void verify_one(struct mc_store *s, struct mc_work *w)
{
	struct mc_file *f = (struct mc_file *)((char *)w - offsetof(struct mc_file, verify_work));
	int r = mc_nvme_verify(f->nvme, found_bad, f);

	if (r < 0 && r != -ECANCELED)
		mc_event_nvme(s, f, "nvme-verify-failed",
			"cannot be read through: %s; it is served block by block", strerror(-r));
	mc_mutex_lock(&s->lock);
	f->verify_queued = false;
	mc_mutex_unlock(&s->lock);
	mc_file_put(f);
}

void *mc_verify_main(void *arg)
{
	struct mc_store *s = arg;

	pthread_setname_np(pthread_self(), "mc-verify");
	mc_mutex_lock(&s->lock);
	while (!s->stopping || s->verify.head != NULL) {
		struct mc_work *w = s->verify.head, *hurt = s->mending.head;
		bool due = hurt != NULL && mc_now_ns() >= s->mend_ns;

		if (w == NULL && !due) {
			if (hurt != NULL)
				mc_cond_wait_until(&s->verify_more, &s->lock, s->mend_ns);
			else
				mc_cond_wait(&s->verify_more, &s->lock);
			continue;
		}
		mc_queue_take(w != NULL ? &s->verify : &s->mending, w != NULL ? w : hurt);
		s->verifying = w != NULL;
		mc_mutex_unlock(&s->lock);
		if (w != NULL)
			verify_one(s, w);
		else
			mc_mend_again(s, hurt);
		mc_mutex_lock(&s->lock);
		s->verifying = false;
	}
	mc_mutex_unlock(&s->lock);
	return NULL;
}

/* ---- scrub */

/* Counts what the look at a block said. */
static void judge(struct mc_file *f, uint64_t block, int r, struct mc_scrub_counts *c)
{
	if (r == -EIO) {
		c->failed++;
		return;
	}
	if (r != 0 && r != -EBADMSG)
		return; /* it left meanwhile */
	c->checked++;
	c->bytes += mc_block_len(f->id.size, block);
	if (r == 0)
		return;
	c->bad++;
	switch (mc_file_damaged(f, block)) {
	case MC_MEND_REPAIRED:
		c->repaired++;
		break;
	case MC_MEND_WAITS:
		c->waiting++;
		break;
	case MC_MEND_DROPPED:
		c->dropped++;
		break;
	}
}

/* The first present block from at->block on is looked at; false: there is none. */
static bool look(struct mc_file *f, struct mc_scrub_file *at, void *buf, struct mc_scrub_counts *c)
{
	while (at->block < f->blocks && !mc_nvme_present(f->nvme, at->block))
		at->block++;
	if (at->block >= f->blocks)
		return false;
	judge(f, at->block, mc_nvme_check(f->nvme, at->block, buf), c);
	at->block++;
	return true;
}

int mc_store_scrub(
	struct mc_store *s, struct mc_scrub_file *at, void *buf, struct mc_scrub_counts *counts)
{
	while (s->nvme != NULL) {
		struct mc_file *f = NULL;
		bool looked;

		if (at->begun) {
			mc_mutex_lock(&s->lock);
			f = mc_file_find_locked(s, &at->id);
			if (f != NULL)
				mc_file_ref_locked(s, f);
			mc_mutex_unlock(&s->lock);
		}
		looked = f != NULL && mc_file_images_open(f) == 0 && f->nvme != NULL &&
			look(f, at, buf, counts);
		if (f != NULL)
			mc_file_put(f);
		if (looked)
			return 0;
		if (!mc_nvme_next(s->nvme, at->begun ? &at->id : NULL, &at->id))
			break;
		at->begun = true;
		at->block = 0;
	}
	return -ENOENT;
}
