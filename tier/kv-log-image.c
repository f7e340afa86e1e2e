/*
 * Objects too large for a segment: kvimages/<2 hex>/<version>.<number>, preallocated, written
 * through the same buffers, removed once their end is durable.
 */
#include "tier/kv-log-impl.h"

#include "tier/cleanup.h"
#include "tier/digest.h"
#include "tier/io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int mc_kv_image_path(
	const struct mc_kv_log *log, const uint8_t version[16], uint32_t generation, char **ret)
{
	char hex[33];

	mc_hex_encode(version, 16, hex);
	return asprintf(ret, "%s/kvimages/%.2s/%s.%" PRIu32, log->store->name, hex, hex, generation) < 0
		? -ENOMEM
		: 0;
}

int mc_kv_images_init(struct mc_kv_log *log)
{
	cleanup_free char *path = NULL;
	int r;

	if (asprintf(&path, "%s/kvimages", log->store->name) < 0)
		return -ENOMEM;
	r = log->io->mkdir(log->io, path, 0700);
	return r == 0 || r == -EEXIST ? mc_io_sync_dir(log->io, log->store->name) : r;
}

static int make_folder(const struct mc_kv_log *log, unsigned folder)
{
	cleanup_free char *path = NULL, *parent = NULL;
	int r;

	if (asprintf(&path, "%s/kvimages/%02x", log->store->name, folder) < 0 ||
		asprintf(&parent, "%s/kvimages", log->store->name) < 0)
		return -ENOMEM;
	r = log->io->mkdir(log->io, path, 0700);
	if (r == -EEXIST)
		return 0;
	return r == 0 ? mc_io_sync_dir(log->io, parent) : r;
}

/* Accounts the image, giving up unused segment files for it. -EAGAIN: reclaim first. */
static int take_room(struct mc_kv_log *log, uint64_t bytes)
{
	uint64_t least = 2 * log->segment_bytes;

	if (bytes + least > log->capacity)
		return -ENOSPC;
	for (;;) {
		struct mc_kv_segment *spare = NULL;
		bool fits;

		mc_mutex_lock(&log->lock);
		fits = log->image_bytes + bytes + log->n_files * log->segment_bytes <=
				log->capacity &&
			log->image_bytes + bytes + least <= log->capacity;
		if (fits)
			log->image_bytes += bytes;
		for (uint32_t id = 1; !fits && id < log->n_segs && log->n_files > 2; id++)
			if (log->segs[id] != NULL && log->segs[id]->state == MC_KV_SEG_FREE &&
				log->segs[id]->place.fd >= 0)
				spare = log->segs[id];
		mc_mutex_unlock(&log->lock);
		if (fits)
			return 0;
		if (spare == NULL)
			return -EAGAIN;
		mc_kv_segment_remove(log, spare);
	}
}

static int make_file(
	struct mc_kv_log *log, const struct mc_kv_meta *m, uint32_t generation, int *ret_fd)
{
	cleanup_free char *path = NULL;
	int fd, r = mc_kv_image_path(log, m->version, generation, &path);

	if (r == 0)
		r = make_folder(log, m->version[0]);
	if (r != 0)
		return r;
	fd = log->io->open(
		log->io, path, O_RDWR | O_CREAT | O_TRUNC | (log->store->direct ? O_DIRECT : 0), 0600);
	if (fd < 0)
		return fd;
	r = log->io->fallocate(log->io, fd, 0, 0, mc_kv_up(m->size, MC_KV_ALIGN));
	if (r != 0 && r != -EOPNOTSUPP) {
		log->io->close(log->io, fd);
		log->io->unlink(log->io, path);
		return r;
	}
	*ret_fd = fd;
	return 0;
}

static void write_all(struct mc_kv_log *log, const struct mc_kv_op *op, unsigned file)
{
	const char *from = op->item->buf;

	for (uint64_t at = 0; at < op->meta.size; at += MC_KV_PACK_BYTES) {
		struct mc_kv_pack *p = mc_kv_pack_take(log, file, at);
		uint64_t left = op->meta.size - at;

		p->len = left < MC_KV_PACK_BYTES ? (uint32_t)left : MC_KV_PACK_BYTES;
		memcpy(p->buf, from + at, p->len);
		mc_kv_pack_submit(log, p);
	}
}

int mc_kv_image_write(struct mc_kv_log *log, struct mc_kv_op *op)
{
	const struct mc_kv_meta *m = &op->item->meta;
	uint64_t bytes = mc_kv_up(m->size, MC_KV_ALIGN);
	uint32_t generation;
	unsigned file = 0;
	int fd = -1, r = take_room(log, bytes);

	if (r != 0)
		return r;
	mc_mutex_lock(&log->lock);
	generation = log->image_seq++;
	mc_mutex_unlock(&log->lock);
	r = make_file(log, m, generation, &fd);
	if (r == 0)
		r = mc_kv_group_file(log, NULL, &file);
	if (r != 0) {
		if (fd >= 0)
			log->io->close(log->io, fd);
		mc_mutex_lock(&log->lock);
		if (fd >= 0)
			mc_kv_image_gone_locked(log, m->version, generation, m->size);
		else
			log->image_bytes -= bytes;
		mc_mutex_unlock(&log->lock);
		if (r == -EDQUOT || r == -EFBIG)
			r = -ENOSPC;
		mc_kv_failed(log, r);
		return r;
	}
	op->loc = (struct mc_kv_loc){MC_KV_IMAGE, generation, 0};
	op->file = file;
	mc_mutex_lock(&log->lock);
	log->open->files[file].fd = fd;
	log->open->files[file].folder = m->version[0];
	mc_mutex_unlock(&log->lock);
	mc_kv_list_add(&log->open->ops, op);
	log->open->last_ns = mc_now_ns();
	log->open->payload += m->size;
	if (op->seq < log->open->first_seq)
		log->open->first_seq = op->seq;
	write_all(log, op, file);
	return 0;
}

int mc_kv_image_sync(struct mc_kv_log *log, struct mc_kv_file *f)
{
	cleanup_free char *dir = NULL;
	int r = log->io->fdatasync(log->io, f->fd);

	if (r != 0)
		return r;
	if (asprintf(&dir, "%s/kvimages/%02x", log->store->name, f->folder) < 0)
		return -ENOMEM;
	return mc_io_sync_dir(log->io, dir);
}

/* Without memory the file stays, accounted, until the next start. */
void mc_kv_image_gone_locked(
	struct mc_kv_log *log, const uint8_t version[16], uint32_t generation, uint64_t size)
{
	struct mc_kv_gone *g;

	if (log->n_gone == log->cap_gone) {
		size_t cap = log->cap_gone != 0 ? 2 * log->cap_gone : 16;

		g = reallocarray(log->gone, cap, sizeof(*g));
		if (g == NULL)
			return;
		log->gone = g;
		log->cap_gone = cap;
	}
	g = &log->gone[log->n_gone++];
	memcpy(g->version, version, sizeof(g->version));
	g->generation = generation;
	g->size = size;
}

/* Those that nobody holds, in *ret, owned by the caller; the others wait. Their number. */
static size_t take_gone(struct mc_kv_log *log, struct mc_kv_gone **ret)
{
	struct mc_kv_gone *gone;
	size_t n, kept = 0, taken = 0;

	mc_mutex_lock(&log->lock);
	n = log->n_gone;
	gone = n > 0 ? calloc(n, sizeof(*gone)) : NULL;
	for (size_t i = 0; i < n && gone != NULL; i++) {
		const struct mc_kv_gone *g = &log->gone[i];

		if (mc_kv_image_held_locked(log, g->version, g->generation))
			log->gone[kept++] = *g;
		else
			gone[taken++] = *g;
	}
	if (gone != NULL)
		log->n_gone = kept;
	mc_mutex_unlock(&log->lock);
	*ret = gone;
	return taken;
}

void mc_kv_images_remove(struct mc_kv_log *log)
{
	cleanup_free struct mc_kv_gone *gone = NULL;
	size_t n = take_gone(log, &gone);
	int r = n > 0 ? mc_kv_commit(log) : 0;

	for (size_t i = 0; i < n; i++) {
		cleanup_free char *path = NULL;

		if (r != 0) { /* its end is not durable yet */
			mc_mutex_lock(&log->lock);
			mc_kv_image_gone_locked(
				log, gone[i].version, gone[i].generation, gone[i].size);
			mc_mutex_unlock(&log->lock);
			continue;
		}
		if (mc_kv_image_path(log, gone[i].version, gone[i].generation, &path) != 0)
			continue;
		log->io->unlink(log->io, path);
		mc_mutex_lock(&log->lock);
		log->image_bytes -= mc_kv_up(gone[i].size, MC_KV_ALIGN);
		mc_mutex_unlock(&log->lock);
	}
}
