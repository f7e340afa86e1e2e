/*
 * A KV log in a directory.
 *
 * Layout: KVLOCK (flock, pid), KVSTORE (format, uuid), kvjournal/, segments/<8 hex>, preallocated,
 * KVPROBE (while the error budget is spent). Other names in the directory belong to others; inside
 * our folders everything is ours.
 */
#include "tier/kv-store.h"

#include "tier/cleanup.h"
#include "tier/digest.h"
#include "tier/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>

#define STORE_TEXT "mooncakefs kv format 1\nuuid "

struct files {
	struct mc_kv_store s; /* first */
	int lock_fd;          /* owned */
	char *segments;       /* owned: path of the folder */
	char *journal;        /* owned: likewise */
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
	return f->s.io->open(f->s.io, path, O_RDWR | flags | (f->s.direct ? O_DIRECT : 0), 0600);
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

static int look_at(struct files *f, const char *name,
	int (*each)(void *ctx, uint32_t id, const struct mc_kv_place *p, bool whole), void *ctx)
{
	const struct mc_io *io = f->s.io;
	cleanup_free char *path = NULL, *again = NULL;
	struct mc_kv_place p = {.fd = -1};
	uint32_t id = 0;
	struct stat st;
	int r;

	if (asprintf(&path, "%s/%s", f->segments, name) < 0)
		return -ENOMEM;
	if (sscanf(name, "%8" SCNx32, &id) != 1 || path_of(f, id, &again) != 0 ||
		strcmp(path, again) != 0) {
		io->unlink(io, path);
		return 0;
	}
	p.fd = open_segment(f, path, 0);
	if (p.fd < 0)
		return p.fd;
	r = io->fstat(io, p.fd, &st);
	if (r == 0)
		r = each(ctx, id, &p, (uint64_t)st.st_size == f->s.segment_bytes);
	if (r <= 0)
		io->close(io, p.fd);
	if (r == 0)
		io->unlink(io, path);
	return r < 0 ? r : 0;
}

static int find(struct mc_kv_store *s,
	int (*each)(void *ctx, uint32_t id, const struct mc_kv_place *p, bool whole), void *ctx)
{
	DIR *d = opendir(self(s)->segments);
	struct dirent *e;
	int r = 0;

	if (d == NULL)
		return -errno;
	while (r == 0 && (e = readdir(d)) != NULL)
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			r = look_at(self(s), e->d_name, each, ctx);
	closedir(d);
	return r;
}

/* Writes, syncs and reads back a page. */
static int probe(struct mc_kv_store *s)
{
	cleanup_free char *path = NULL, *out = malloc(MC_KV_PROBE_BYTES);
	cleanup_free char *in = malloc(MC_KV_PROBE_BYTES);
	int fd, r;

	if (out == NULL || in == NULL || asprintf(&path, "%s/KVPROBE", s->name) < 0)
		return -ENOMEM;
	memset(out, 0x5a, MC_KV_PROBE_BYTES);
	fd = s->io->open(s->io, path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (fd < 0)
		return fd;
	r = mc_io_write_full(s->io, fd, out, MC_KV_PROBE_BYTES, 0);
	if (r == 0)
		r = s->io->fdatasync(s->io, fd);
	if (r == 0)
		r = mc_io_read_full(s->io, fd, in, MC_KV_PROBE_BYTES, 0);
	if (r == 0 && memcmp(out, in, MC_KV_PROBE_BYTES) != 0)
		r = -EIO;
	s->io->close(s->io, fd);
	s->io->unlink(s->io, path);
	return r;
}

/* ---- opening */

/* Our folders, durable before anything is put in them. */
static int make_layout(struct files *f)
{
	const struct mc_io *io = f->s.io;
	int r;

	if (asprintf(&f->segments, "%s/segments", f->s.name) < 0 ||
		asprintf(&f->journal, "%s/kvjournal", f->s.name) < 0)
		return -ENOMEM;
	f->s.journal_dir = f->journal;
	r = io->mkdir(io, f->segments, 0700);
	if (r == 0 || r == -EEXIST)
		r = io->mkdir(io, f->journal, 0700);
	return r == 0 || r == -EEXIST ? mc_io_sync_dir(io, f->s.name) : r;
}

static int take_lock(struct files *f, struct mc_err *err)
{
	cleanup_free char *path = NULL;
	char pid[32] = "";
	int fd, len;

	if (asprintf(&path, "%s/KVLOCK", f->s.name) < 0)
		return -ENOMEM;
	f->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (f->lock_fd < 0)
		return -errno;
	if (flock(f->lock_fd, LOCK_EX | LOCK_NB) != 0) {
		if (errno != EWOULDBLOCK)
			return -errno;
		if (pread(f->lock_fd, pid, sizeof(pid) - 1, 0) < 0)
			pid[0] = '\0';
		pid[strcspn(pid, "\n")] = '\0';
		return mc_err_set(err, -EBUSY,
			"KV log %s: in use by process %s; one daemon per directory", f->s.name,
			pid[0] != '\0' ? pid : "unknown");
	}
	fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	f->s.direct = fd >= 0;
	if (fd >= 0)
		close(fd);
	len = snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
	if (ftruncate(f->lock_fd, 0) != 0 || pwrite(f->lock_fd, pid, (size_t)len, 0) != len)
		return errno == ENOSPC ? 0 : -EIO; /* the text is a courtesy */
	return 0;
}

static int write_store(struct files *f, const char *path)
{
	const struct mc_io *io = f->s.io;
	cleanup_free char *tmp = NULL;
	char hex[33], text[128];
	int fd, r, len;

	if (getrandom(f->s.uuid, sizeof(f->s.uuid), 0) != (ssize_t)sizeof(f->s.uuid))
		return -EIO;
	mc_hex_encode(f->s.uuid, sizeof(f->s.uuid), hex);
	len = snprintf(text, sizeof(text), STORE_TEXT "%s\n", hex);
	if (asprintf(&tmp, "%s.tmp", path) < 0)
		return -ENOMEM;
	fd = io->open(io, tmp, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (fd < 0)
		return fd;
	r = mc_io_write_full(io, fd, text, (size_t)len, 0);
	if (r == 0)
		r = io->fsync(io, fd);
	io->close(io, fd);
	if (r == 0)
		r = io->rename(io, tmp, path);
	return r == 0 ? mc_io_sync_dir(io, f->s.name) : r;
}

static int read_store(struct files *f, struct mc_err *err)
{
	static const size_t front = sizeof(STORE_TEXT) - 1;
	const struct mc_io *io = f->s.io;
	cleanup_free char *path = NULL;
	char text[128] = "";
	int fd, r;

	if (asprintf(&path, "%s/KVSTORE", f->s.name) < 0)
		return -ENOMEM;
	fd = io->open(io, path, O_RDONLY, 0);
	if (fd == -ENOENT)
		return write_store(f, path);
	if (fd < 0)
		return fd;
	r = (int)io->pread(io, fd, text, sizeof(text) - 1, 0);
	io->close(io, fd);
	if (r < 0)
		return r;
	if (strncmp(text, STORE_TEXT, front) != 0 || strlen(text) != front + 33)
		return mc_err_set(err, -EPROTONOSUPPORT,
			"KV log %s: KVSTORE names a format this program does not know", f->s.name);
	text[front + 32] = '\0';
	return mc_hex_decode(text + front, f->s.uuid, sizeof(f->s.uuid));
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
	.close = close_files};

int mc_kv_store_files_open(const char *dir, const struct mc_io *io, uint64_t segment_bytes,
	struct mc_kv_store **ret, struct mc_err *err)
{
	struct files *f = calloc(1, sizeof(*f));
	int r;

	if (f == NULL)
		return -ENOMEM;
	f->s = (struct mc_kv_store){.ops = &files_ops,
		.io = io,
		.segment_bytes = segment_bytes,
		.capacity = UINT64_MAX,
		.journal_fd = -1};
	f->lock_fd = -1;
	r = io->mkdir(io, dir, 0700);
	if (r == 0 || r == -EEXIST) {
		f->s.name = realpath(dir, NULL);
		r = f->s.name == NULL ? -errno : take_lock(f, err);
	}
	if (r == 0)
		r = read_store(f, err);
	if (r == 0)
		r = make_layout(f);
	if (r != 0) {
		close_files(&f->s);
		return r;
	}
	*ret = &f->s;
	return 0;
}
