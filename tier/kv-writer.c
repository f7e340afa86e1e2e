/*
 * A writer's file on behalf of clients that do not write past us: what it takes beyond its
 * preallocation is counted and made room for, a step ahead, so that they never fill memory to the
 * last page, which others may meet that do.
 */
#include "tier/full-watch.h"
#include "tier/kv-impl.h"

#include <sys/statvfs.h>

#define STEP (UINT64_C(8) << 20) /* bytes allocated ahead of a writer */

int mc_kv_writer_fd(const struct mc_kv_writer *w)
{
	return w->file->fd;
}

uint64_t mc_kv_writer_file(const struct mc_kv_writer *w)
{
	return w->file->id;
}

int mc_kv_writer_truncate(struct mc_kv_writer *w, uint64_t size)
{
	return mc_full_watch_truncate(w->kv->full, w->file->fd, size);
}

int mc_kv_writer_allocate(struct mc_kv_writer *w, int mode, uint64_t off, uint64_t len)
{
	return mc_full_watch_allocate(w->kv->full, w->file->fd, mode, off, len);
}

uint64_t mc_kv_full_count(struct mc_kv *kv)
{
	return mc_full_watch_count(kv->full);
}

bool mc_kv_is_watched(const struct mc_kv *kv)
{
	return kv->mounted;
}

/* Bytes taken that are not counted, as clients took them by themselves: kv_look leaves out what the
 * file system has beyond the capacity. */
static uint64_t hidden(struct mc_kv *kv)
{
	uint64_t total, taken;
	struct statvfs v;

	if (!kv->mounted || statvfs(kv->opts.dram_dir, &v) != 0)
		return 0;
	taken = (uint64_t)(v.f_blocks - v.f_bavail) * v.f_frsize;
	mc_mutex_lock(&kv->lock);
	total = kv_total_locked(kv);
	mc_mutex_unlock(&kv->lock);
	return taken > total ? taken - total : 0;
}

static bool has_room(struct mc_kv *kv, uint64_t bytes)
{
	bool fits;

	kv_look(kv);
	bytes += hidden(kv);
	kv_make_room(kv, bytes);
	mc_mutex_lock(&kv->lock);
	fits = kv_total_locked(kv) + bytes <= kv->opts.dram_capacity;
	mc_mutex_unlock(&kv->lock);
	return fits;
}

static int grow_to(struct mc_kv_writer *w, uint64_t end)
{
	return has_room(w->kv, end - w->file->room) ? kv_file_grow(w->kv, w->file, end) : -ENOSPC;
}

/* Memory for the bytes from off to end; behind a hole it is taken as they are written. */
static int grow(struct mc_kv_writer *w, uint64_t off, uint64_t end)
{
	int r = 0;

	mc_mutex_lock(&w->growing);
	if (off > w->file->room) {
		r = has_room(w->kv, end - off) ? 0 : -ENOSPC;
	} else if (end > w->file->room) {
		r = grow_to(w, (end + STEP) / STEP * STEP);
		if (r == -ENOSPC)
			r = grow_to(w, (end + 4095) / 4096 * 4096);
	}
	mc_mutex_unlock(&w->growing);
	return r;
}

size_t mc_kv_writer_write(
	struct mc_kv_writer *w, const char *buf, size_t len, uint64_t off, int *ret_error)
{
	size_t at = 0;

	*ret_error = grow(w, off, off + len);
	while (at < len && *ret_error == 0) {
		ssize_t n = pwrite(w->file->fd, buf + at, len - at, (off_t)(off + at));

		if (n > 0)
			at += (size_t)n;
		else if (n == 0 || errno != EINTR)
			*ret_error = n == 0 ? -EIO : -errno;
	}
	return at;
}
