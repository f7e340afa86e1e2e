/*
 * The images of files, and how many of them stay open.
 *
 * An open image costs descriptors and mappings, of which a process has only so many, while a tier
 * holds as many files as fit. So what nobody references keeps its images open for a while only: at
 * most max_idle files, the ones used last. The content stays where it is; the next use opens it.
 *
 * Invariants: 1. a referenced file with VALID blocks has its DRAM image open: whoever takes the
 * first reference opens it before it looks at blocks; 2. images are closed only while the file has
 * no references, so those who hold one may use the pointers without the lock.
 */
#include "tier/store-impl.h"

#include <errno.h>
#include <sys/resource.h>

#define MIN_IDLE 16
#define MAX_IDLE 8192 /* two mappings each, of the 65,530 that Linux grants by default */

unsigned mc_store_max_idle(void)
{
	struct rlimit l;

	/* Two descriptors each: a quarter of what there is. */
	if (getrlimit(RLIMIT_NOFILE, &l) < 0 || l.rlim_cur / 8 < MIN_IDLE)
		return MIN_IDLE;
	return l.rlim_cur / 8 < MAX_IDLE ? (unsigned)(l.rlim_cur / 8) : MAX_IDLE;
}

int mc_file_dram_open(struct mc_file *f, bool create)
{
	struct mc_store *s = f->store;
	struct mc_dram_image *img;
	bool have;
	int r;

	mc_mutex_lock(&s->lock);
	have = f->dram != NULL;
	mc_mutex_unlock(&s->lock);
	if (have)
		return 0;
	r = mc_dram_image_get(s->dram, &f->id, create, &img);
	if (r < 0)
		return r;
	mc_mutex_lock(&s->lock);
	have = f->dram != NULL;
	if (!have)
		f->dram = img;
	mc_mutex_unlock(&s->lock);
	if (have)
		mc_dram_image_put(img);
	return 0;
}

int mc_file_nvme_open(struct mc_file *f, bool create)
{
	struct mc_store *s = f->store;
	struct mc_nvme_image *img;
	bool have;
	int r;

	mc_mutex_lock(&s->lock);
	have = f->nvme != NULL;
	mc_mutex_unlock(&s->lock);
	if (have)
		return 0;
	r = mc_nvme_image_get(s->nvme, &f->id, create, &img);
	if (r < 0)
		return r;
	mc_mutex_lock(&s->lock);
	have = f->nvme != NULL;
	if (!have)
		f->nvme = img;
	mc_mutex_unlock(&s->lock);
	if (have)
		mc_nvme_image_put(img);
	return 0;
}

int mc_file_images_open(struct mc_file *f)
{
	struct mc_store *s = f->store;
	bool dram, nvme;
	int r = 0;

	mc_mutex_lock(&s->lock);
	dram = f->n_valid > 0 && f->dram == NULL;
	nvme = f->n_runs > 0 && f->nvme == NULL;
	mc_mutex_unlock(&s->lock);
	if (dram)
		r = mc_file_dram_open(f, false);
	if (nvme)
		mc_file_nvme_open(f, false); /* without it the blocks come from the remote */
	return r;
}

void mc_file_idle_locked(struct mc_store *s, struct mc_file *f, struct mc_images *ret)
{
	*ret = (struct mc_images){0};
	if (f->dram == NULL && f->nvme == NULL)
		return;
	mc_queue_push(&s->idle, &f->idle);
	if (s->idle.n <= s->max_idle)
		return;
	f = (struct mc_file *)((char *)s->idle.head - offsetof(struct mc_file, idle));
	mc_queue_take(&s->idle, &f->idle);
	*ret = (struct mc_images){.dram = f->dram, .nvme = f->nvme};
	f->dram = NULL;
	f->nvme = NULL;
}

void mc_images_close(const struct mc_images *im)
{
	if (im->dram != NULL)
		mc_dram_image_put(im->dram);
	if (im->nvme != NULL)
		mc_nvme_image_put(im->nvme);
}
