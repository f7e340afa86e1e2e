/*
 * The verifier: one thread that reads adopted NVMe images through, so that they may be passed
 * through. An image takes as long as its size; nothing else waits for it, and a stop ends it.
 */
#include "tier/store-impl.h"

#include <errno.h>
#include <string.h>

/* Reads one adopted image through; the file is referenced by the queue. */
static void verify_one(struct mc_store *s, struct mc_file *f)
{
	uint64_t before, after;
	int r;

	before = mc_nvme_present_blocks(f->nvme);
	r = mc_nvme_verify(f->nvme);
	after = mc_nvme_present_blocks(f->nvme);
	if (r < 0 && r != -ECANCELED)
		mc_event_nvme(s, f, "nvme-verify-failed",
			"cannot be read through: %s; it is served block by block", strerror(-r));
	if (after < before) {
		mc_event_nvme(s, f, "nvme-bad-blocks",
			"%llu damaged blocks dropped; they are fetched again when read",
			(unsigned long long)(before - after));
		mc_mutex_lock(&s->lock);
		s->st.bad_blocks += before - after;
		mc_mutex_unlock(&s->lock);
	}
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
		struct mc_work *w = s->verify.head;
		struct mc_file *f;

		if (w == NULL) {
			mc_cond_wait(&s->verify_more, &s->lock);
			continue;
		}
		f = (struct mc_file *)((char *)w - offsetof(struct mc_file, verify_work));
		mc_queue_take(&s->verify, w);
		mc_mutex_unlock(&s->lock);
		verify_one(s, f);
		mc_mutex_lock(&s->lock);
	}
	mc_mutex_unlock(&s->lock);
	return NULL;
}
