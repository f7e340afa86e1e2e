/*
 * Memory of the KV store's DRAM tier: files f/<number> for writers and objects of 64 KiB and more,
 * recycled through a small pool whose memory is allocated already.
 *
 * Invariants
 * 1. used = room of every file: writers', objects' (rounded to pages), in the pool, held; no file
 * but a writer's has more memory than that, and what those have is in unseen soon.
 * 2. A file is emptied and used again, or removed, only while a lease says that nobody else has it
 * open; else it is held, keeps its name, and its bytes stay counted until the last one lets go. So
 * memory is given back by this process alone, see full-watch.h.
 */
#include "tier/kv-impl.h"

#include "tier/full-watch.h"
#include "tier/lease.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#define POOL_FILES 32
#define PAGE UINT64_C(4096)

void kv_file_path(const struct mc_kv *kv, uint64_t id, char *path, size_t len)
{
	snprintf(path, len, "%s/f/%016" PRIx64, kv->opts.dram_dir, id);
}

int kv_file_open(const struct mc_kv *kv, uint64_t id, int flags)
{
	char path[4200];
	int fd;

	kv_file_path(kv, id, path, sizeof(path));
	fd = open(path, flags | O_CLOEXEC, 0600);
	return fd < 0 ? -errno : fd;
}

uint64_t kv_total_locked(struct mc_kv *kv)
{
	return kv->used + mc_slab_used(kv->slab) + kv->unseen;
}

void kv_look(struct mc_kv *kv)
{
	uint64_t before, after, free_bytes;
	struct statvfs v;

	mc_mutex_lock(&kv->lock);
	before = kv_total_locked(kv) - kv->unseen;
	mc_mutex_unlock(&kv->lock);
	if (statvfs(kv->opts.dram_dir, &v) != 0)
		return;
	free_bytes = (uint64_t)v.f_bavail * v.f_frsize;
	mc_mutex_lock(&kv->lock);
	after = kv_total_locked(kv) - kv->unseen;
	if (before > after) /* counted until it is free */
		after = before;
	kv->unseen = after + free_bytes < kv->opts.dram_capacity
		? kv->opts.dram_capacity - after - free_bytes
		: 0;
	mc_mutex_unlock(&kv->lock);
}

bool kv_room_locked(struct mc_kv *kv, uint64_t bytes)
{
	uint64_t pooled = 0; /* counted as used already */

	if (kv->dirty + bytes > kv->opts.dirty_bound)
		return false;
	if (kv->pool != NULL)
		pooled = bytes < kv->pool->room ? bytes : kv->pool->room;
	return kv_total_locked(kv) + bytes - pooled <= kv->opts.dram_capacity;
}

uint64_t kv_res_bytes(const struct kv_object *obj)
{
	return (obj->size + PAGE - 1) / PAGE * PAGE;
}

static void uncount(struct mc_kv *kv, uint64_t bytes)
{
	mc_mutex_lock(&kv->lock);
	assert(kv->used >= bytes);
	kv->used -= bytes;
	kv_room_changed_locked(kv);
	mc_mutex_unlock(&kv->lock);
}

static int new_file(struct mc_kv *kv, struct kv_file **ret)
{
	struct kv_file *f = calloc(1, sizeof(*f));

	if (f == NULL)
		return -ENOMEM;
	f->id = atomic_fetch_add(&kv->next_file, 1);
	f->fd = kv_file_open(kv, f->id, O_RDWR | O_CREAT | O_EXCL);
	if (f->fd < 0) {
		int r = f->fd;

		free(f);
		return r;
	}
	*ret = f;
	return 0;
}

static void destroy_file(struct mc_kv *kv, struct kv_file *f)
{
	char path[4200];

	kv_file_path(kv, f->id, path, sizeof(path));
	mc_full_watch_remove(kv->full, f->fd, path);
	if (f->room > 0)
		uncount(kv, f->room);
	free(f);
}

int kv_file_grow(struct mc_kv *kv, struct kv_file *f, uint64_t room)
{
	int r;

	if (room <= f->room)
		return 0;
	mc_mutex_lock(&kv->lock); /* first, so that used is never too low */
	kv->used += room - f->room;
	mc_mutex_unlock(&kv->lock);
	r = mc_full_watch_allocate(kv->full, f->fd, FALLOC_FL_KEEP_SIZE, f->room, room - f->room);
	if (r == 0)
		f->room = room;
	else
		uncount(kv, room - f->room);
	return r;
}

int kv_file_take(struct mc_kv *kv, uint64_t room, struct kv_file **ret)
{
	struct kv_file *f;
	int r = 0;

	room = (room + PAGE - 1) / PAGE * PAGE;
	mc_mutex_lock(&kv->lock);
	f = kv->pool;
	if (f != NULL) {
		kv->pool = f->next;
		kv->n_pool--;
	}
	mc_mutex_unlock(&kv->lock);
	if (f == NULL)
		r = new_file(kv, &f);
	if (r < 0)
		return r;
	r = kv_file_grow(kv, f, room);
	if (r < 0) {
		destroy_file(kv, f);
		return r;
	}
	f->next = NULL;
	*ret = f;
	return 0;
}

int kv_file_cut(struct mc_kv *kv, int fd, uint64_t size)
{
	/* Twice: growing to a size keeps what was allocated beyond it, cutting to the same does
	 * not.
	 */
	int r = mc_full_watch_truncate(kv->full, fd, size);

	if (r == 0)
		r = mc_full_watch_truncate(kv->full, fd, size);
	/* A hole would have no memory; reading it through a full tmpfs is a SIGBUS. */
	return r < 0 ? r : mc_full_watch_allocate(kv->full, fd, 0, 0, size);
}

/* Whether it is as the caller wants it; see mc_kv_writer_adopt. */
static bool is_as(const struct stat *st, const struct stat *want)
{
	return want == NULL ||
		(st->st_size == want->st_size &&
			(want->st_mtim.tv_nsec == UTIME_OMIT ||
				(st->st_mtim.tv_sec == want->st_mtim.tv_sec &&
					st->st_mtim.tv_nsec == want->st_mtim.tv_nsec)));
}

int kv_file_adopt(struct mc_kv *kv, uint64_t id, const struct stat *want, struct kv_file **ret)
{
	struct kv_file *f = calloc(1, sizeof(*f));
	struct stat st;

	if (f == NULL)
		return -ENOMEM;
	f->id = id;
	f->fd = kv_file_open(kv, id, O_RDWR);
	if (f->fd < 0 || fstat(f->fd, &st) < 0 || !is_as(&st, want)) {
		if (f->fd >= 0)
			close(f->fd);
		free(f);
		return -ENOENT;
	}
	f->room = (uint64_t)st.st_blocks * 512;
	mc_mutex_lock(&kv->lock);
	kv->used += f->room;
	mc_mutex_unlock(&kv->lock);
	*ret = f;
	return 0;
}

static void hold(struct mc_kv *kv, struct kv_file *f)
{
	mc_mutex_lock(&kv->lock);
	f->next = kv->held;
	kv->held = f;
	kv->held_bytes += f->room;
	mc_mutex_unlock(&kv->lock);
}

/* Takes a lease: false while somebody else has the file, or it cannot be found out. */
static bool is_ours(struct mc_kv *kv, struct kv_file *f)
{
	int r;

	if (f->fd < 0)
		f->fd = kv_file_open(kv, f->id, O_RDWR);
	r = f->fd >= 0 ? mc_lease_take(f->fd) : -EAGAIN;
	return r != -EAGAIN && r != -EWOULDBLOCK;
}

void kv_file_remove(struct mc_kv *kv, struct kv_file *f)
{
	if (is_ours(kv, f)) {
		mc_lease_drop(f->fd);
		destroy_file(kv, f);
	} else {
		hold(kv, f);
	}
}

void kv_file_give(struct mc_kv *kv, struct kv_file *f)
{
	uint64_t typical, had = f->room;
	bool keep;

	if (!is_ours(kv, f)) { /* lives on until let go */
		hold(kv, f);
		return;
	}
	mc_mutex_lock(&kv->lock);
	typical = kv->typical;
	keep = kv->n_pool < POOL_FILES && !kv->closing &&
		(kv->n_pool + 1) * typical <= kv->opts.dram_capacity / 16 &&
		kv_total_locked(kv) - f->room + typical <= kv->opts.dram_capacity / 4 * 3;
	mc_mutex_unlock(&kv->lock);
	if (keep && mc_full_watch_truncate(kv->full, f->fd, 0) == 0) {
		f->room = 0;
		keep = kv_file_grow(kv, f, typical) == 0;
		uncount(kv, had);
	} else {
		keep = false;
	}
	mc_lease_drop(f->fd);
	if (!keep) {
		destroy_file(kv, f);
		return;
	}
	mc_mutex_lock(&kv->lock);
	f->next = kv->pool;
	kv->pool = f;
	kv->n_pool++;
	mc_mutex_unlock(&kv->lock);
}

void kv_file_to_object(struct mc_kv *kv, struct kv_file *f, struct kv_res *res, uint64_t size)
{
	uint64_t bytes = (size + PAGE - 1) / PAGE * PAGE;

	mc_mutex_lock(&kv->lock);
	kv->used += bytes;
	kv->used -= f->room;
	mc_mutex_unlock(&kv->lock);
	res->is_file = true;
	res->data = f->id;
	close(f->fd);
	free(f);
}

void kv_held_check(struct mc_kv *kv)
{
	struct kv_file *list, *f;

	mc_mutex_lock(&kv->lock);
	list = kv->held;
	kv->held = NULL;
	kv->held_bytes = 0;
	mc_mutex_unlock(&kv->lock);
	while ((f = list) != NULL) {
		list = f->next;
		kv_file_remove(kv, f);
	}
}

bool kv_pool_shrink(struct mc_kv *kv)
{
	struct kv_file *f;

	mc_mutex_lock(&kv->lock);
	f = kv->pool;
	if (f != NULL) {
		kv->pool = f->next;
		kv->n_pool--;
	}
	mc_mutex_unlock(&kv->lock);
	if (f != NULL)
		destroy_file(kv, f);
	return f != NULL;
}

void kv_pool_done(struct mc_kv *kv)
{
	struct kv_file *list, *f;

	mc_mutex_lock(&kv->lock);
	list = kv->pool;
	kv->pool = NULL;
	kv->n_pool = 0;
	mc_mutex_unlock(&kv->lock);
	while ((f = list) != NULL) {
		list = f->next;
		destroy_file(kv, f);
	}
	mc_mutex_lock(&kv->lock);
	list = kv->held;
	kv->held = NULL;
	mc_mutex_unlock(&kv->lock);
	while ((f = list) != NULL) {
		list = f->next;
		if (f->fd >= 0)
			close(f->fd);
		free(f);
	}
}

/* ---- residents */

void kv_res_free(struct mc_kv *kv, struct kv_res *r, uint64_t size)
{
	assert(r->pins == 0 && r->maps == 0 && r->waiters == NULL);
	if (r->meta != 0)
		kv_meta_clear(kv, r->meta);
	if (r->data != 0 && !r->is_file)
		mc_slab_free(kv->slab, r->data);
	if (r->data != 0 && r->is_file) {
		struct kv_file *f = calloc(1, sizeof(*f));

		if (f != NULL) { /* else it stays until the next daemon's adoption */
			*f = (struct kv_file){.id = r->data,
				.fd = kv_file_open(kv, r->data, O_RDWR),
				.room = (size + PAGE - 1) / PAGE * PAGE};
			kv_file_give(kv, f);
		}
	}
	free(r);
}

int kv_res_map(struct mc_kv *kv, struct kv_res *r, uint64_t size, char **ret)
{
	char *map, *loser = NULL;
	int fd;

	assert(r->data != 0 || size == 0);
	if (!r->is_file) {
		*ret = r->data != 0 ? mc_slab_ptr(kv->slab, r->data) : (char *)r;
		return 0;
	}
	mc_mutex_lock(&kv->lock);
	map = r->map;
	if (map != NULL)
		r->maps++;
	mc_mutex_unlock(&kv->lock);
	*ret = map;
	if (map != NULL)
		return 0;
	fd = kv_file_open(kv, r->data, O_RDWR);
	if (fd < 0)
		return fd;
	map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED) {
		int res = -errno;

		close(fd);
		return res;
	}
	close(fd);
	mc_mutex_lock(&kv->lock);
	if (r->map != NULL) {
		loser = map;
		map = r->map;
	}
	r->map = map;
	r->maps++;
	mc_mutex_unlock(&kv->lock);
	if (loser != NULL)
		munmap(loser, size);
	*ret = map;
	return 0;
}

void kv_res_unmap(struct mc_kv *kv, struct kv_res *r, uint64_t size)
{
	char *map = NULL;

	if (!r->is_file)
		return;
	mc_mutex_lock(&kv->lock);
	assert(r->maps > 0);
	if (--r->maps == 0) {
		map = r->map;
		r->map = NULL;
	}
	mc_mutex_unlock(&kv->lock);
	if (map != NULL)
		munmap(map, size);
}
