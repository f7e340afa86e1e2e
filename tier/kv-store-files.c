/*
 * A KV log in a directory.
 *
 * Layout: KVLOCK (flock, pid), KVSTORE (format, uuid), KVBELOW (uuid of the device below it),
 * kvjournal/, segments/<8 hex>, preallocated, KVPROBE (while the error budget is spent). Other
 * names in the directory belong to others; inside our folders everything is ours.
 */
#include "tier/kv-store.h"

#include "tier/cleanup.h"
#include "tier/dir-lock.h"
#include "tier/disk-health.h"
#include "tier/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define ALIGN 4096u

struct files {
	struct mc_kv_store s; /* first */
	int lock_fd;          /* owned, -1: the lock is somebody else's */
	bool read_only;
	char *segments; /* owned: path of the folder */
	char *journal;  /* owned: likewise */
};

static struct files *self(struct mc_kv_store *s)
{
	return (struct files *)s;
}

/* ---- segments */

static int path_of(const struct files *f, uint32_t id, char **ret)
{
	return asprintf(ret, "%s/%08" PRIx32, f->segments, id) < 0 ? -ENOMEM : 0;
}

static int open_segment(const struct files *f, const char *path, int flags)
{
	flags |= (f->read_only ? O_RDONLY : O_RDWR) | (f->s.direct ? O_DIRECT : 0);
	return f->s.io->open(f->s.io, path, flags, 0600);
}

static int make(struct mc_kv_store *s, uint32_t id, struct mc_kv_place *ret)
{
	struct files *f = self(s);
	cleanup_free char *path = NULL;
	int fd, r = path_of(f, id, &path);

	if (r != 0)
		return r;
	fd = open_segment(f, path, O_CREAT | O_TRUNC);
	if (fd < 0)
		return fd;
	r = s->io->fallocate(s->io, fd, 0, 0, s->segment_bytes);
	if (r == -EOPNOTSUPP)
		r = s->io->ftruncate(s->io, fd, s->segment_bytes);
	if (r != 0) {
		s->io->close(s->io, fd);
		s->io->unlink(s->io, path);
		return r;
	}
	*ret = (struct mc_kv_place){.fd = fd};
	return 0;
}

static int remove_segment(struct mc_kv_store *s, uint32_t id, const struct mc_kv_place *p)
{
	cleanup_free char *path = NULL;
	int r = path_of(self(s), id, &path);

	s->io->close(s->io, p->fd);
	return r == 0 ? s->io->unlink(s->io, path) : r;
}

static void leave(struct mc_kv_store *s, const struct mc_kv_place *p)
{
	s->io->close(s->io, p->fd);
}

static int sync_segment(struct mc_kv_store *s, const struct mc_kv_place *p, bool made)
{
	int r = s->io->fdatasync(s->io, p->fd);

	return r == 0 && made ? mc_io_sync_dir(s->io, self(s)->segments) : r;
}

/* A preallocated file keeps its blocks: the next segment gets them. */
static void discard(struct mc_kv_store *s, const struct mc_kv_place *p)
{
	(void)s;
	(void)p;
}

static void spare(struct files *f, const char *path)
{
	struct stat st = {0};

	if (f->s.spare == NULL)
		f->s.io->unlink(f->s.io, path);
	else if (lstat(path, &st) == 0)
		f->s.spare(f->s.spare_ctx, path, (uint64_t)st.st_blocks * 512);
}

/* Opens it, or says why that fails. */
static void find_segment(struct files *f, const char *path, struct mc_kv_found *found)
{
	const struct mc_io *io = f->s.io;
	int fd = open_segment(f, path, 0);
	struct stat st;

	found->error = fd < 0 ? fd : io->fstat(io, fd, &st);
	if (found->error == 0) {
		found->place.fd = fd;
		found->whole = (uint64_t)st.st_size == f->s.segment_bytes;
	} else if (fd >= 0) {
		io->close(io, fd);
	}
}

static int look_at(struct files *f, const char *name,
	int (*each)(void *ctx, const struct mc_kv_found *f), void *ctx)
{
	struct mc_kv_found found = {.place = {.fd = -1}};
	cleanup_free char *path = NULL, *again = NULL;
	int r;

	if (asprintf(&path, "%s/%s", f->segments, name) < 0)
		return -ENOMEM;
	if (sscanf(name, "%8" SCNx32, &found.id) != 1 || path_of(f, found.id, &again) != 0 ||
		strcmp(path, again) != 0) {
		spare(f, path);
		return 0;
	}
	find_segment(f, path, &found);
	r = each(ctx, &found);
	if (r <= 0 && found.place.fd >= 0)
		f->s.io->close(f->s.io, found.place.fd);
	if (r == 0)
		spare(f, path);
	return r < 0 ? r : 0;
}

static int find(
	struct mc_kv_store *s, int (*each)(void *ctx, const struct mc_kv_found *f), void *ctx)
{
	DIR *d = opendir(self(s)->segments);
	struct dirent *e;
	int r = 0;

	if (d == NULL)
		return errno == ENOENT ? 0 : -errno;
	while (r == 0 && (e = readdir(d)) != NULL)
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			r = look_at(self(s), e->d_name, each, ctx);
	closedir(d);
	return r;
}

static int probe(struct mc_kv_store *s)
{
	cleanup_free char *path = NULL;

	if (asprintf(&path, "%s/KVPROBE", s->name) < 0)
		return -ENOMEM;
	return mc_disk_probe(s->io, path);
}

static struct mc_dir_id below_id(const struct mc_kv_store *s)
{
	return (struct mc_dir_id){.dir = s->name,
		.name = "KVBELOW",
		.kind = "kv below",
		.what = "KV log",
		.format = 1};
}

static int bind_files(struct mc_kv_store *s, const uint8_t uuid[16])
{
	struct mc_dir_id id = below_id(s);

	return mc_dir_id_write(s->io, &id, uuid);
}

static int find_bound(struct mc_kv_store *s, struct mc_err *err)
{
	struct mc_dir_id id = below_id(s);
	int r = mc_dir_id_read(s->io, &id, s->bound, err);

	return r == -ENOENT ? 0 : r;
}

/* ---- opening */

static int name_paths(struct files *f)
{
	if (asprintf(&f->segments, "%s/segments", f->s.name) < 0 ||
		asprintf(&f->journal, "%s/kvjournal", f->s.name) < 0)
		return -ENOMEM;
	f->s.journal_dir = f->journal;
	return 0;
}

int mc_kv_store_files_layout(const struct mc_kv_store *s)
{
	const struct files *f = (const struct files *)s;
	int r = s->io->mkdir(s->io, f->segments, 0700);

	if (r == 0 || r == -EEXIST)
		r = s->io->mkdir(s->io, f->journal, 0700);
	return r == 0 || r == -EEXIST ? mc_io_sync_dir(s->io, s->name) : r;
}

struct mc_dir_id mc_kv_store_files_id(const struct mc_kv_store *s)
{
	return (struct mc_dir_id){
		.dir = s->name, .name = "KVSTORE", .kind = "kv", .what = "KV log", .format = 2};
}

static void find_direct(struct files *f)
{
	cleanup_free char *path = NULL;
	cleanup_close int fd = -1;

	if (asprintf(&path, "%s/KVLOCK", f->s.name) < 0)
		return;
	fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	f->s.direct = fd >= 0;
}

static void close_files(struct mc_kv_store *s)
{
	struct files *f = self(s);

	if (f->lock_fd >= 0)
		close(f->lock_fd);
	free(f->segments);
	free(f->journal);
	free(s->name);
	free(f);
}

static const struct mc_kv_store_ops files_ops = {.make = make,
	.remove = remove_segment,
	.leave = leave,
	.sync = sync_segment,
	.discard = discard,
	.find = find,
	.probe = probe,
	.bind = bind_files,
	.close = close_files};

static struct files *new_files(const struct mc_io *io, uint64_t segment_bytes)
{
	struct files *f = calloc(1, sizeof(*f));

	if (f == NULL)
		return NULL;
	f->s = (struct mc_kv_store){.ops = &files_ops,
		.io = io,
		.segment_bytes = segment_bytes,
		.capacity = UINT64_MAX,
		.journal_fd = -1};
	f->lock_fd = -1;
	return f;
}

static int bring_up(struct files *f, const char *dir, struct mc_err *err)
{
	const struct mc_io *io = f->s.io;
	struct mc_dir_id id;
	int r = mc_io_make_dir(io, dir, &f->s.name);

	if (r != 0)
		return r;
	r = mc_dir_lock(f->s.name, "KVLOCK", true, "KV log", &f->lock_fd, err);
	if (r != 0)
		return r;
	find_direct(f);
	id = mc_kv_store_files_id(&f->s);
	r = mc_dir_id_read(io, &id, f->s.uuid, err);
	if (r == -ENOENT)
		r = mc_dir_id_make(io, &id, f->s.uuid);
	if (r == 0)
		r = find_bound(&f->s, err);
	if (r == 0)
		r = name_paths(f);
	return r == 0 ? mc_kv_store_files_layout(&f->s) : r;
}

int mc_kv_store_files_open(const char *dir, const struct mc_io *io, uint64_t segment_bytes,
	struct mc_kv_store **ret, struct mc_err *err)
{
	struct files *f = new_files(io, segment_bytes);
	int r = f == NULL ? -ENOMEM : bring_up(f, dir, err);

	if (r == 0)
		*ret = &f->s;
	else if (f != NULL)
		close_files(&f->s);
	return r;
}

/* ---- looking */

/* The size that more than half of the segments have: pairs of different ones cancel. */
static int find_size(struct files *f)
{
	DIR *d = opendir(f->segments);
	struct dirent *e;
	unsigned lead = 0;

	if (d == NULL)
		return errno == ENOENT ? 0 : -errno;
	while ((e = readdir(d)) != NULL) {
		struct stat st;

		if (fstatat(dirfd(d), e->d_name, &st, 0) != 0 || !S_ISREG(st.st_mode) ||
			st.st_size == 0 || st.st_size % ALIGN != 0)
			continue;
		if (lead == 0)
			f->s.segment_bytes = (uint64_t)st.st_size;
		if ((uint64_t)st.st_size == f->s.segment_bytes)
			lead++;
		else
			lead--;
	}
	closedir(d);
	return 0;
}

int mc_kv_store_files_look(
	const char *dir, const struct mc_io *io, bool write, struct mc_kv_store **ret)
{
	struct files *f = new_files(io, mc_kv_store_segment_bytes(UINT64_MAX));
	int r;

	if (f == NULL)
		return -ENOMEM;
	f->read_only = !write;
	f->s.name = strdup(dir);
	r = f->s.name == NULL ? -ENOMEM : name_paths(f);
	if (r == 0)
		r = find_size(f);
	if (r == 0)
		r = find_bound(&f->s, NULL);
	if (r != 0) {
		close_files(&f->s);
		return r;
	}
	find_direct(f);
	*ret = &f->s;
	return 0;
}
