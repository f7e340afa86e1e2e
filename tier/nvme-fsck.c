/*
 * The offline check of the checkpoint cache: the records of the journal, the files that lie there,
 * and every present block read as a daemon reads it (nvme-io.c).
 *
 * A repair is what a start does without the damaged blocks: they are left out of the table, a
 * snapshot makes that durable, and then the files are settled and a snapshot follows as at a start.
 */
#include "tier/nvme-impl.h"

#include "tier/cleanup.h"
#include "tier/fsck-impl.h"
#include "tier/io.h"
#include "tier/journal-super.h"
#include "tier/lease.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define AHEAD 8 /* blocks being read */

struct slot {
	struct mc_nvme_op op;
	struct check *check;
	void *buf; /* owned */
	bool busy; /* under the check's lock */
};

struct check {
	struct mc_fsck *f;
	struct mc_nvme *n;
	bool store_bad;
	uint64_t before; /* what had been told of when this part began */
	struct mc_mutex lock;
	struct mc_cond over; /* a slot is free again */
	struct slot slots[AHEAD];
	int error; /* under the lock: why a block was not looked at */
};

/* ---- STORE and the journal */

static void tell_journal(void *ctx, const char *file, const char *what)
{
	struct mc_fsck *f = ctx;

	mc_fsck_tell(f, MC_FSCK_DAMAGE, "%sjournal/%s: %s", f->prefix, file, what);
}

static int read_store(struct check *c, struct mc_err *err)
{
	struct mc_nvme *n = c->n;
	struct mc_dir_id id = mc_nvme_dir_id(n);
	cleanup_free char *journal = NULL;
	uint8_t uuid[16];
	bool known;

	if (asprintf(&journal, "%s/journal", n->dir) < 0)
		return -ENOMEM;
	known = mc_journal_super_uuid(n->io, journal, uuid) == 0;
	return mc_fsck_id(c->f, &id, known ? uuid : NULL, n->uuid, &c->store_bad, err);
}

/* ---- files */

static int look_at_file(void *ctx, const struct mc_nvme_found *found)
{
	struct check *c = ctx;
	const char *name = mc_fsck_name(c->f, found->path);
	uint64_t size = found->id.size;

	if (found->kind != MC_NVME_IMAGE) {
		mc_fsck_leftover(c->f, found->path, (uint64_t)found->st.st_blocks * 512);
		return 0;
	}
	found->img->on_disk = true;
	if ((uint64_t)found->st.st_size != size)
		mc_fsck_tell(c->f, MC_FSCK_DAMAGE, "%s: has %" PRIu64 " bytes instead of %" PRIu64,
			name, (uint64_t)found->st.st_size, size);
	c->f->bytes_total += mc_nvme_resident_bytes(found->img);
	return 0;
}

static void forget_blocks(struct mc_nvme_image *img)
{
	memset(img->present, 0, mc_bitmap_words(img->n_blocks) * sizeof(uint64_t));
	img->n_present = 0;
}

/* ---- blocks */

static void block_done(struct mc_nvme_op *op, int res)
{
	struct slot *s = op->ctx;
	struct check *c = s->check;

	if (res == -EIO) { /* as good as damaged */
		mc_mutex_lock(&c->n->lock);
		mc_nvme_quarantine_locked(op->img, op->block);
		mc_mutex_unlock(&c->n->lock);
		res = -EBADMSG;
	}
	mc_mutex_lock(&c->lock);
	if (res != 0 && res != -EBADMSG && c->error == 0)
		c->error = res;
	s->busy = false;
	mc_cond_signal(&c->over);
	mc_mutex_unlock(&c->lock);
}

static struct slot *free_slot_locked(struct check *c) MC_REQUIRES(c->lock)
{
	for (;;) {
		for (unsigned i = 0; i < AHEAD; i++)
			if (!c->slots[i].busy)
				return &c->slots[i];
		mc_cond_wait(&c->over, &c->lock);
	}
}

static void wait_all(struct check *c)
{
	mc_mutex_lock(&c->lock);
	for (unsigned i = 0; i < AHEAD; i++)
		while (c->slots[i].busy)
			mc_cond_wait(&c->over, &c->lock);
	mc_mutex_unlock(&c->lock);
}

static void read_blocks(struct check *c, struct mc_nvme_image *img)
{
	for (uint64_t b = 0; b < img->n_blocks; b++) {
		struct slot *s;

		if (!mc_nvme_present(img, b))
			continue;
		mc_mutex_lock(&c->lock);
		s = free_slot_locked(c);
		s->busy = true;
		mc_mutex_unlock(&c->lock);
		s->op = (struct mc_nvme_op){
			.img = img, .block = b, .buf = s->buf, .done = block_done, .ctx = s};
		mc_nvme_read(&s->op);
		c->f->res.blocks++;
		mc_fsck_advance(c->f, mc_block_len(img->id.size, b));
	}
	wait_all(c);
}

/* Blocks that were present before and are not any more, a line for each run. */
static void tell_bad(struct check *c, const struct mc_nvme_image *img, const uint64_t *before)
{
	const char *name = mc_fsck_name(c->f, img->path);

	for (uint64_t b = 0, run; b < img->n_blocks; b += run + 1) {
		for (run = 0; b + run < img->n_blocks; run++)
			if (!mc_bitmap_get(before, b + run) || mc_bitmap_get(img->present, b + run))
				break;
		if (run == 0)
			continue;
		c->f->res.bad_blocks += run;
		mc_fsck_tell(c->f, MC_FSCK_DAMAGE,
			"%s: bytes %" PRIu64 " to %" PRIu64 " are damaged, %" PRIu64
			" blocks; fetched again when read",
			name, b << MC_BLOCK_SHIFT,
			((b + run - 1) << MC_BLOCK_SHIFT) + mc_block_len(img->id.size, b + run - 1),
			run);
	}
}

static int check_image(struct check *c, struct mc_nvme_image *img)
{
	size_t words = mc_bitmap_words(img->n_blocks);
	cleanup_free uint64_t *before = calloc(words, sizeof(uint64_t));
	struct mc_nvme *n = c->n;

	if (before == NULL)
		return -ENOMEM;
	memcpy(before, img->present, words * sizeof(uint64_t));
	c->f->res.images++;
	if (!img->on_disk) {
		c->f->res.bad_blocks += img->n_present;
		mc_fsck_tell(c->f, MC_FSCK_DAMAGE,
			"%s: is missing; its %" PRIu64 " blocks are fetched again when read",
			mc_fsck_name(c->f, img->path), img->n_present);
		forget_blocks(img);
		return 0;
	}
	img->fd = n->io->open(n->io, img->path, O_RDONLY | (n->direct ? O_DIRECT : 0), 0);
	if (img->fd < 0) {
		c->f->res.bad_blocks += img->n_present;
		mc_fsck_tell(c->f, MC_FSCK_DAMAGE, "%s: %s", mc_fsck_name(c->f, img->path),
			strerror(-img->fd));
		img->fd = -1;
		forget_blocks(img);
		return 0;
	}
	read_blocks(c, img);
	n->io->close(n->io, img->fd);
	img->fd = -1;
	tell_bad(c, img, before);
	return c->error;
}

static int check_images(struct check *c)
{
	struct mc_nvme *n = c->n;
	int r = 0;

	for (size_t i = 0; i < MC_NVME_BUCKETS; i++)
		for (struct mc_nvme_image *img = n->buckets[i]; img != NULL && r == 0;
			img = img->next)
			if (img->n_present > 0)
				r = check_image(c, img);
	return r;
}

/* ---- the whole */

/* Whether clients can hold images. The lock file is open a second time. */
static bool leases(const struct mc_nvme *n)
{
	cleanup_free char *path = NULL;
	cleanup_close int fd = -1;

	if (asprintf(&path, "%s/STORE", n->dir) < 0)
		return false;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd >= 0 && mc_lease_supported(fd);
}

static int repair(struct check *c)
{
	struct mc_nvme *n = c->n;
	struct mc_dir_id id = mc_nvme_dir_id(n);
	int r = mc_nvme_make_layout(n);

	if (r == 0 && c->store_bad)
		r = mc_dir_id_write(n->io, &id, n->uuid);
	n->leases = leases(n);
	if (r == 0)
		r = mc_nvme_snapshot(n);
	if (r == 0)
		r = mc_nvme_settle(n);
	return r == 0 ? mc_nvme_snapshot(n) : r; /* the other page of SUPER is whole, too */
}

static int prepare(struct check *c)
{
	struct mc_uring_opts u = {.depth = AHEAD, .io = c->f->opts->io};
	int r = c->n->dir == NULL ? -ENOMEM : mc_uring_open(&u, &c->n->uring);

	for (unsigned i = 0; i < AHEAD && r == 0; i++) {
		c->slots[i].check = c;
		c->slots[i].buf = aligned_alloc(MC_NVME_ALIGN, MC_BLOCK_SIZE);
		if (c->slots[i].buf == NULL)
			r = -ENOMEM;
	}
	return r;
}

static int check(struct check *c, struct mc_err *err)
{
	int r = prepare(c);

	if (r == 0)
		r = read_store(c, err);
	if (r == 0)
		r = mc_nvme_replay(c->n, tell_journal, c->f, err);
	if (r == 0)
		r = mc_nvme_walk(c->n, look_at_file, c);
	if (r == 0)
		r = check_images(c);
	if (r == 0 && c->f->opts->repair && c->f->res.damaged + c->f->res.leftovers > c->before)
		r = repair(c);
	return r;
}

int mc_nvme_fsck(struct mc_fsck *f, struct mc_err *err)
{
	struct mc_nvme_opts o = {.dir = f->dir, .io = f->io, .capacity = UINT64_MAX};
	struct check c = {
		.f = f, .n = mc_nvme_new(&o), .before = f->res.damaged + f->res.leftovers};
	int r;

	if (c.n == NULL)
		return -ENOMEM;
	mc_mutex_init(&c.lock);
	mc_cond_init(&c.over);
	c.n->checking = true;
	c.n->dir = strdup(f->dir);
	mc_nvme_find_direct(c.n);
	r = check(&c, err);
	mc_nvme_free(c.n);
	for (unsigned i = 0; i < AHEAD; i++)
		free(c.slots[i].buf);
	mc_cond_done(&c.over);
	mc_mutex_done(&c.lock);
	return r;
}
