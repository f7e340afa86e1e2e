/*
 * Recovery: the journal says which blocks are there, the directory says which files are. A record
 * without its file is forgotten; a file without a record is removed, unless a client holds it;
 * space that belongs to no present block is punched. Then a snapshot starts a new generation.
 */
#include "tier/nvme-impl.h"

#include "tier/cleanup.h"
#include "tier/io.h"
#include "tier/lease.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* ---- replay */

#define ID_SIZE (MC_SHA256_SIZE + sizeof(uint64_t)) /* bytes of an identity in a record */

static void apply_blocks(struct mc_nvme_image *img, const unsigned char *p, size_t len)
{
	uint64_t first;
	uint32_t count;

	if (len < sizeof(first) + sizeof(count))
		return;
	memcpy(&first, p, sizeof(first));
	memcpy(&count, p + sizeof(first), sizeof(count));
	len -= sizeof(first) + sizeof(count);
	p += sizeof(first) + sizeof(count);
	if (len != count * sizeof(uint32_t) || first > img->n_blocks ||
		count > img->n_blocks - first)
		return;
	memcpy(&img->crc[first], p, len);
	for (uint64_t b = first; b < first + count; b++)
		if (!mc_bitmap_set(img->present, b))
			img->n_present++;
	img->verified_logged = false;
}

static void apply_evicted(struct mc_nvme_image *img, const unsigned char *p, size_t len)
{
	uint64_t range[2];

	if (len != sizeof(range))
		return;
	memcpy(range, p, len);
	for (uint64_t b = range[0]; b < img->n_blocks && b - range[0] < range[1]; b++)
		if (mc_bitmap_clear(img->present, b))
			img->n_present--;
}

static void apply_drop(struct mc_nvme_image *img)
{
	memset(img->present, 0, mc_bitmap_words(img->n_blocks) * sizeof(uint64_t));
	img->n_present = 0;
	img->verified_logged = false;
}

static int apply(void *ctx, uint8_t type, const void *rec, size_t len, struct mc_err *err)
{
	struct mc_nvme *n = ctx;
	const unsigned char *p = rec;
	struct mc_nvme_image *img;
	struct mc_file_id id;
	int r;

	if (type < MC_JOURNAL_BLOCKS || type > MC_JOURNAL_DROP)
		return mc_err_set(err, -EPROTONOSUPPORT,
			"NVMe tier %s: journal record of type %u was written by a newer version; "
			"use "
			"that, or remove the directory",
			n->dir, type);
	if (len < ID_SIZE)
		return 0;
	memcpy(id.digest, p, MC_SHA256_SIZE);
	memcpy(&id.size, p + MC_SHA256_SIZE, sizeof(id.size));
	if (id.size == 0)
		return 0;
	mc_mutex_lock(&n->lock);
	r = mc_nvme_image_find_locked(n, &id, type == MC_JOURNAL_BLOCKS, &img);
	if (r == 0) {
		img->refs = 0;
		if (type == MC_JOURNAL_BLOCKS)
			apply_blocks(img, p + ID_SIZE, len - ID_SIZE);
		else if (type == MC_JOURNAL_EVICTED)
			apply_evicted(img, p + ID_SIZE, len - ID_SIZE);
		else if (type == MC_JOURNAL_DROP)
			apply_drop(img);
		else
			img->verified_logged = true;
	}
	mc_mutex_unlock(&n->lock);
	return r == -ENOENT ? 0 : r;
}

/* ---- files */

/* Keeps a file that a client may hold accounted until mc_nvme_reap; removes it otherwise. */
static int keep_if_held(struct mc_nvme *n, const char *path, const struct mc_file_id *id)
{
	/* Its own: the image of that name in the table is a younger file. */
	struct mc_nvme_image *img = mc_nvme_image_new(n, id);
	struct stat st;

	if (img == NULL)
		return -ENOMEM;
	img->dropped = true;
	img->held_path = strdup(path);
	img->fd = n->io->open(n->io, path, O_RDWR, 0600);
	if (!n->leases || img->held_path == NULL || img->fd < 0 ||
		mc_lease_take(img->fd) != -EAGAIN || n->io->fstat(n->io, img->fd, &st) != 0) {
		n->io->unlink(n->io, path);
		mc_nvme_image_free(img);
		return 0;
	}
	img->overhead = (uint64_t)st.st_blocks * 512;
	n->used += img->overhead;
	n->held += img->overhead;
	img->next = n->held_images;
	n->held_images = img;
	return 0;
}

/* Dropped in the journal, but the daemon died before it moved the file aside. */
static int hold_orphan(
	struct mc_nvme *n, const char *path, const char *name, const struct mc_file_id *id)
{
	cleanup_free char *held = NULL;

	if (asprintf(&held, "%s/held/%s.%" PRIu64, n->dir, name, n->held_seq++) < 0)
		return -ENOMEM;
	if (n->io->rename(n->io, path, held) != 0) {
		n->io->unlink(n->io, path);
		return 0;
	}
	return keep_if_held(n, held, id);
}

/* Punches what no present block needs, unless a client holds the file: what was found damaged it
 * may go on reading, and zeros are no better. */
static void trim(struct mc_nvme_image *img)
{
	struct mc_nvme *n = img->nvme;

	if (mc_nvme_image_open_file(img, false) != 0)
		return;
	n->io->ftruncate(n->io, img->fd, img->id.size);
	for (uint64_t b = mc_nvme_held(img) ? img->n_blocks : 0; b < img->n_blocks;) {
		uint64_t run = 0;

		while (b + run < img->n_blocks && !mc_bitmap_get(img->present, b + run))
			run++;
		if (run > 0)
			mc_nvme_punch_file(img, b, run);
		b += run + 1;
	}
	mc_nvme_account_overhead(img);
	n->io->close(n->io, img->fd);
	img->fd = -1;
}

static void adopt_file(struct mc_nvme_image *img, const struct stat *st)
{
	struct mc_nvme *n = img->nvme;
	uint64_t space = 0, actual = (uint64_t)st->st_blocks * 512;

	img->on_disk = true;
	img->verified = img->verified_logged;
	for (uint64_t b = 0; b < img->n_blocks; b++) {
		if (!mc_bitmap_get(img->present, b))
			continue;
		mc_bitmap_set(img->allocated, b);
		img->n_allocated++;
		space += mc_nvme_space(img, b);
	}
	n->used += space;
	/* A file with less than its records say has holes where bytes should be. */
	if (actual < space)
		img->verified = false;
	if ((uint64_t)st->st_size != img->id.size ||
		(actual > space && img->n_present < img->n_blocks)) {
		trim(img);
	} else if (actual > space) {
		img->overhead = actual - space;
		n->used += img->overhead;
	}
}

static void parse_held(struct mc_nvme_found *f)
{
	char image[MC_IMAGE_NAME_MAX];
	const char *dot = strrchr(f->name, '.');

	if (dot == NULL || (size_t)(dot - f->name) >= sizeof(image))
		return;
	memcpy(image, f->name, (size_t)(dot - f->name));
	image[dot - f->name] = '\0';
	if (mc_image_name_parse(image, &f->id) != 0)
		return;
	f->kind = MC_NVME_HELD;
	f->seq = strtoull(dot + 1, NULL, 10);
}

static void parse_image(struct mc_nvme *n, struct mc_nvme_found *f)
{
	if (mc_image_name_parse(f->name, &f->id) != 0)
		return;
	mc_mutex_lock(&n->lock);
	if (mc_nvme_image_find_locked(n, &f->id, false, &f->img) == 0)
		f->img->refs = 0;
	mc_mutex_unlock(&n->lock);
	if (f->img != NULL && strcmp(f->img->path, f->path) != 0)
		f->kind = MC_NVME_STRANGER; /* in a folder that is not its own */
	else if (f->img == NULL || f->img->n_present == 0)
		f->kind = MC_NVME_ORPHAN;
	else
		f->kind = MC_NVME_IMAGE;
}

static int look_at(struct mc_nvme *n, const char *folder, const char *name,
	int (*each)(void *ctx, const struct mc_nvme_found *f), void *ctx)
{
	cleanup_free char *path = NULL;
	struct mc_nvme_found f = {.kind = MC_NVME_STRANGER, .name = name};

	if (asprintf(&path, "%s/%s/%s", n->dir, folder, name) < 0)
		return -ENOMEM;
	f.path = path;
	if (lstat(path, &f.st) != 0 || S_ISDIR(f.st.st_mode))
		return 0;
	if (S_ISREG(f.st.st_mode) && strcmp(folder, "held") == 0)
		parse_held(&f);
	else if (S_ISREG(f.st.st_mode))
		parse_image(n, &f);
	return each(ctx, &f);
}

/* Entries found while reading may be renamed or removed, never added to the folder that is read. */
static int look_through(struct mc_nvme *n, const char *folder,
	int (*each)(void *ctx, const struct mc_nvme_found *f), void *ctx)
{
	cleanup_free char *path = NULL;
	struct dirent *e;
	DIR *dir;
	int r = 0;

	if (asprintf(&path, "%s/%s", n->dir, folder) < 0)
		return -ENOMEM;
	dir = opendir(path);
	if (dir == NULL)
		return errno == ENOENT ? 0 : -errno;
	while (r == 0 && (e = readdir(dir)) != NULL)
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			r = look_at(n, folder, e->d_name, each, ctx);
	closedir(dir);
	return r;
}

int mc_nvme_walk(
	struct mc_nvme *n, int (*each)(void *ctx, const struct mc_nvme_found *f), void *ctx)
{
	char folder[16];
	int r = look_through(n, "held", each, ctx);

	for (unsigned i = 0; i < 256 && r == 0; i++) {
		snprintf(folder, sizeof(folder), "images/%02x", i);
		r = look_through(n, folder, each, ctx);
	}
	return r;
}

static int settle_file(void *ctx, const struct mc_nvme_found *f)
{
	struct mc_nvme *n = ctx;

	switch (f->kind) {
	case MC_NVME_STRANGER:
		n->io->unlink(n->io, f->path);
		return 0;
	case MC_NVME_HELD:
		if (f->seq >= n->held_seq)
			n->held_seq = f->seq + 1;
		return keep_if_held(n, f->path, &f->id);
	case MC_NVME_ORPHAN:
		return hold_orphan(n, f->path, f->name, &f->id);
	case MC_NVME_IMAGE:
		adopt_file(f->img, &f->st);
	}
	return 0;
}

static int remember(struct mc_nvme *n, const struct mc_file_id *id)
{
	if (n->n_recovered == n->cap_recovered) {
		size_t cap = n->cap_recovered != 0 ? 2 * n->cap_recovered : 64;
		struct mc_file_id *grown = reallocarray(n->recovered, cap, sizeof(*grown));

		if (grown == NULL)
			return -ENOMEM;
		n->recovered = grown;
		n->cap_recovered = cap;
	}
	n->recovered[n->n_recovered++] = *id;
	return 0;
}

/* Images whose file is gone leave the table; the others are what was recovered. */
static int settle_table(struct mc_nvme *n)
{
	int r = 0;

	mc_mutex_lock(&n->lock);
	for (size_t i = 0; i < MC_NVME_BUCKETS; i++) {
		struct mc_nvme_image **at = &n->buckets[i], *img;

		while ((img = *at) != NULL) {
			if (!img->on_disk) {
				*at = img->next;
				mc_nvme_image_free(img);
				continue;
			}
			if (r == 0)
				r = remember(n, &img->id);
			at = &img->next;
		}
	}
	mc_mutex_unlock(&n->lock);
	return r;
}

int mc_nvme_settle(struct mc_nvme *n)
{
	int r = mc_nvme_walk(n, settle_file, n);

	return r == 0 ? settle_table(n) : r;
}

int mc_nvme_replay(struct mc_nvme *n,
	void (*damaged)(void *ctx, const char *file, const char *what), void *ctx,
	struct mc_err *err)
{
	cleanup_free char *dir = NULL;
	struct mc_journal_opts o = {.io = n->io,
		.max_bytes = n->journal_bytes,
		.apply = apply,
		.ctx = n,
		.damaged = damaged,
		.damaged_ctx = ctx};
	unsigned places = 0;
	int r;

	if (asprintf(&dir, "%s/journal", n->dir) < 0)
		return -ENOMEM;
	o.dir = dir;
	memcpy(o.uuid, n->uuid, sizeof(o.uuid));
	r = mc_journal_open(&o, &n->journal, &places, err);
	n->stats.errors += places;
	return r;
}

int mc_nvme_recover(struct mc_nvme *n, struct mc_err *err)
{
	int r = mc_nvme_replay(n, NULL, NULL, err);

	if (r == 0)
		r = mc_nvme_settle(n);
	return r == 0 ? mc_nvme_snapshot(n) : r;
}
