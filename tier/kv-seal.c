/*
 * Sealing: a writer's bytes get their place, their checksums and their record in memory.
 *
 * From 64 KiB on the file itself is the object's backing file; below, the bytes are copied into the
 * slab and the file goes back to the pool, unless the slab is full.
 */
#include "tier/kv-impl.h"

#include "tier/digest.h"

#include <sys/mman.h>
#include <sys/random.h>

static int read_all(int fd, char *buf, uint64_t size)
{
	for (uint64_t at = 0; at < size;) {
		ssize_t n = pread(fd, buf + at, size - at, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		at += (uint64_t)n;
	}
	return 0;
}

static void checksum(struct kv_object *obj, const char *bytes)
{
	uint32_t *crc = obj->size <= MC_BLOCK_SIZE ? &obj->crc.one : obj->crc.many;

	for (uint64_t b = 0; b < mc_block_count(obj->size); b++)
		crc[b] = mc_crc32c(0, bytes + (b << MC_BLOCK_SHIFT), mc_block_len(obj->size, b));
}

static int seal_small(struct mc_kv_writer *w, struct kv_object *obj, struct kv_res *res)
{
	char *to;
	int r;

	if (obj->size == 0)
		return 0;
	r = mc_slab_alloc(w->kv->slab, MC_SLAB_DATA, (uint32_t)obj->size, &res->data);
	if (r == -ENOSPC) {
		kv_make_room(w->kv, MC_SLAB_PIECE);
		r = mc_slab_alloc(w->kv->slab, MC_SLAB_DATA, (uint32_t)obj->size, &res->data);
	}
	if (r < 0)
		return r;
	to = mc_slab_ptr(w->kv->slab, res->data);
	r = read_all(w->file->fd, to, obj->size);
	if (r == 0)
		checksum(obj, to);
	return r;
}

/* Somebody may still store through a mapping of the file: its bytes as they are now, elsewhere. */
static int copy_file(struct mc_kv_writer *w, uint64_t size)
{
	struct kv_file *copy;
	int r = kv_file_take(w->kv, size, &copy);

	if (r < 0)
		return r;
	for (uint64_t at = 0; at < size && r == 0;) {
		off_t from = (off_t)at, to = (off_t)at;
		ssize_t n = copy_file_range(w->file->fd, &from, copy->fd, &to, size - at, 0);

		if (n <= 0)
			r = n < 0 ? -errno : -EIO;
		else
			at += (uint64_t)n;
	}
	if (r < 0) {
		kv_file_give(w->kv, copy);
		return r;
	}
	kv_file_give(w->kv, w->file);
	w->file = copy;
	return 0;
}

/* The writer's file becomes the object's; what lies beyond the end is given back. */
static int seal_file(struct mc_kv_writer *w, struct kv_object *obj, struct kv_res *res, bool copy)
{
	struct mc_kv *kv = w->kv;
	uint64_t bytes = kv_res_bytes(obj);
	int r = copy ? copy_file(w, obj->size) : 0;
	char *map;

	if (r < 0)
		return r;
	r = kv_file_cut(kv, w->file->fd, obj->size);
	if (r < 0)
		return r;
	map = mmap(NULL, obj->size, PROT_READ, MAP_SHARED | MAP_POPULATE, w->file->fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	checksum(obj, map);
	munmap(map, obj->size);
	mc_mutex_lock(&kv->lock);
	kv->used += bytes;
	kv->used -= w->file->room;
	mc_mutex_unlock(&kv->lock);
	w->file->room = bytes;
	res->is_file = true;
	res->data = w->file->id;
	return 0;
}

/* Where the slab has no room the file stays, however small: it has its memory. */
static int seal_bytes(struct mc_kv_writer *w, struct kv_object *obj, struct kv_res *res, bool copy)
{
	int r = obj->size < KV_SMALL ? seal_small(w, obj, res) : seal_file(w, obj, res, copy);

	if (r == -ENOSPC) {
		kv_make_room(w->kv, obj->size);
		r = seal_file(w, obj, res, copy);
	}
	return r;
}

int kv_seal(struct mc_kv_writer *w, struct kv_object *obj, struct kv_res *res, const char *key,
	bool copy)
{
	int r;

	if (getrandom(obj->version, sizeof(obj->version), 0) != (ssize_t)sizeof(obj->version))
		return -EIO;
	r = seal_bytes(w, obj, res, copy);
	if (r < 0)
		return r;
	r = kv_meta_write(w->kv, obj, key, res, &res->meta);
	if (r == -ENOSPC) {
		kv_make_room(w->kv, MC_SLAB_PIECE);
		r = kv_meta_write(w->kv, obj, key, res, &res->meta);
	}
	return r;
}
