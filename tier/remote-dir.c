/*
 * Remote kind "dir:/path": a directory of a file system the kernel has mounted (a DFS, NFS, local).
 * Here: opening, safe paths, metadata. Reads are in remote-dir-read.c, publishing in
 * remote-dir-put.c.
 *
 * 1. Every path is opened relative to the root's descriptor with RESOLVE_BENEATH: no name, ".." or
 *    symbolic link that others put there leads out of the root.
 * 2. The kernel's I/O cannot be taken back: an operation that a hung mount holds ends when the
 * mount answers; deadlines are looked at between system calls, and for reads before they start.
 */
#include "tier/remote-dir.h"

#include "tier/cleanup.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/syscall.h>

int mc_dir_open_at(struct mc_dir *d, const char *path, int flags, mode_t mode)
{
	struct open_how how = {.flags = (uint64_t)(flags | O_CLOEXEC),
		.mode = mode,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};

	/* EAGAIN: something was renamed while ".." of a link was resolved. */
	for (int tries = 0; tries < 8; tries++) {
		long fd = syscall(
			SYS_openat2, d->root, *path == '\0' ? "." : path, &how, sizeof(how));

		if (fd >= 0)
			return (int)fd;
		if (errno == EXDEV)
			return -EACCES;
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
	}
	return -EIO;
}

int mc_dir_open_parent(struct mc_dir *d, const char *path, const char **ret_name)
{
	const char *slash = strrchr(path, '/');
	char parent[MC_REMOTE_PATH_MAX];
	size_t n = slash == NULL ? 0 : (size_t)(slash - path);

	memcpy(parent, path, n);
	parent[n] = '\0';
	*ret_name = slash == NULL ? path : slash + 1;
	return mc_dir_open_at(d, parent, O_PATH | O_DIRECTORY, 0);
}

int mc_dir_check(struct mc_dir *d, const struct mc_remote_call *c)
{
	if (atomic_load(&d->stopping))
		return -ESHUTDOWN;
	atomic_fetch_add(&d->counters->requests, 1);
	return mc_now_ns() >= c->deadline_ns ? -ETIMEDOUT : 0;
}

static void attr_from_stat(const struct stat *st, struct mc_remote_attr *ret)
{
	*ret = (struct mc_remote_attr){
		.type = S_ISREG(st->st_mode)   ? MC_REMOTE_FILE
			: S_ISDIR(st->st_mode) ? MC_REMOTE_DIR
			: S_ISLNK(st->st_mode) ? MC_REMOTE_SYMLINK
					       : MC_REMOTE_OTHER,
		.size = (uint64_t)st->st_size,
		.mode = st->st_mode & 07777,
		.mtime_s = st->st_mtim.tv_sec,
		.mtime_ns = (uint32_t)st->st_mtim.tv_nsec,
		.fileid = st->st_ino,
	};
}

static int dir_stat(
	struct mc_backend *b, const struct mc_remote_call *c, struct mc_remote_attr *ret)
{
	struct mc_dir *d = (struct mc_dir *)b;
	const char *name = "";
	struct stat st;
	cleanup_close int fd = -1;
	int r = mc_dir_check(d, c);

	if (r < 0)
		return r;
	fd = *c->path == '\0' ? mc_dir_open_at(d, "", O_PATH | O_DIRECTORY, 0)
			      : mc_dir_open_parent(d, c->path, &name);
	if (fd < 0)
		return fd;
	if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) < 0)
		return -errno;
	mc_dir_reads_forget(d, c->path, &st);
	attr_from_stat(&st, ret);
	return 0;
}

static int dir_list(
	struct mc_backend *b, const struct mc_remote_call *c, mc_remote_each *each, void *ctx)
{
	struct mc_dir *d = (struct mc_dir *)b;
	int r = mc_dir_check(d, c), fd;
	DIR *dir;

	if (r < 0)
		return r;
	fd = mc_dir_open_at(d, c->path, O_RDONLY | O_DIRECTORY, 0);
	if (fd < 0)
		return fd;
	dir = fdopendir(fd);
	if (dir == NULL) {
		r = -errno;
		close(fd);
		return r;
	}
	while (r == 0) {
		struct mc_remote_attr attr;
		struct dirent *e;
		struct stat st;

		errno = 0;
		e = readdir(dir);
		if (e == NULL) {
			r = -errno;
			break;
		}
		if (fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
			r = errno == ENOENT ? 0 : -errno; /* removed meanwhile */
			continue;
		}
		attr_from_stat(&st, &attr);
		r = mc_now_ns() >= c->deadline_ns ? -ETIMEDOUT : each(ctx, e->d_name, &attr);
	}
	closedir(dir);
	return r;
}

static int dir_unlink(struct mc_backend *b, const struct mc_remote_call *c)
{
	struct mc_dir *d = (struct mc_dir *)b;
	const char *name;
	cleanup_close int fd = -1;
	int r = mc_dir_check(d, c);

	if (r < 0)
		return r;
	fd = mc_dir_open_parent(d, c->path, &name);
	if (fd < 0)
		return fd;
	mc_dir_reads_forget(d, c->path, NULL);
	if (unlinkat(fd, name, 0) == 0)
		return c->durable ? mc_dir_name_sync(d, c) : 0;
	if (errno != EISDIR && errno != EPERM) /* POSIX says EPERM for a directory */
		return -errno;
	r = -errno;
	if (unlinkat(fd, name, AT_REMOVEDIR) < 0)
		return errno == ENOTDIR ? r : -errno;
	return 0;
}

static int dir_rename(struct mc_backend *b, const struct mc_remote_call *c)
{
	struct mc_dir *d = (struct mc_dir *)b;
	const char *name, *new_name;
	cleanup_close int from = -1, to = -1;
	int r = mc_dir_check(d, c);

	if (r < 0)
		return r;
	from = mc_dir_open_parent(d, c->path, &name);
	if (from < 0)
		return from;
	to = mc_dir_open_parent(d, c->new_path, &new_name);
	if (to < 0)
		return to;
	r = renameat(from, name, to, new_name) < 0 ? -errno : 0;
	mc_dir_reads_forget(d, c->path, NULL);
	mc_dir_reads_forget(d, c->new_path, NULL);
	return r < 0 ? r : mc_dir_name_made(d, c->new_path);
}

static int dir_touch(struct mc_backend *b, const struct mc_remote_call *c)
{
	struct mc_dir *d = (struct mc_dir *)b;
	const char *name;
	cleanup_close int fd = -1;
	int r = mc_dir_check(d, c);

	if (r < 0)
		return r;
	fd = mc_dir_open_parent(d, c->path, &name);
	if (fd < 0)
		return fd;
	if (utimensat(fd, name, NULL, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	/* Who touches counts on the name; whoever made it may have died before its sync. */
	return mc_dir_name_made(d, c->path);
}

static int dir_space(
	struct mc_backend *b, const struct mc_remote_call *c, struct mc_remote_space *ret)
{
	struct mc_dir *d = (struct mc_dir *)b;
	struct statfs sf;
	int r = mc_dir_check(d, c);

	if (r < 0)
		return r;
	if (fstatfs(d->root, &sf) < 0)
		return -errno;
	ret->total = (uint64_t)sf.f_blocks * (uint64_t)sf.f_bsize;
	ret->avail = (uint64_t)sf.f_bavail * (uint64_t)sf.f_bsize;
	return 0;
}

static void dir_stop(struct mc_backend *b)
{
	struct mc_dir *d = (struct mc_dir *)b;

	atomic_store(&d->stopping, true);
	mc_dir_reads_stop(d);
}

static void dir_close(struct mc_backend *b)
{
	struct mc_dir *d = (struct mc_dir *)b;

	mc_dir_reads_done(d);
	mc_dir_puts_done(d);
	close(d->root);
	free(d->tmp);
	free(d);
}

static const struct mc_backend_ops dir_ops = {
	.read = mc_dir_read,
	.stat = dir_stat,
	.put = mc_dir_put,
	.sync = mc_dir_sync,
	.list = dir_list,
	.mkdir = mc_dir_mkdir,
	.unlink = dir_unlink,
	.rename = dir_rename,
	.touch = dir_touch,
	.space = dir_space,
	.stop = dir_stop,
	.close = dir_close,
};

static int open_root(const char *path, const char *url, struct mc_err *err)
{
	int fd;

	if (path[0] != '/')
		return mc_err_set(err, -EINVAL, "%s: dir: needs an absolute path", url);
	fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0) {
		int r = -errno;

		return mc_err_set(err, r, "%s: %s%s", url, strerror(-r),
			r == -ENOENT ? "; make the directory, or mount the file system first"
				: r == -ENOTDIR ? "; give the directory that holds the checkpoints"
						: mc_err_hint(r));
	}
	return fd;
}

int mc_remote_dir_open(const char *url, const struct mc_remote_opts *opts,
	struct mc_remote_counters *counters, struct mc_backend **ret, struct mc_err *err)
{
	cleanup_close int root = open_root(url + strlen("dir:"), url, err);
	struct mc_dir *d;
	int r;

	if (root < 0)
		return root;
	d = calloc(1, sizeof(*d));
	if (d == NULL)
		return -ENOMEM;
	d->base.ops = &dir_ops;
	d->root = root;
	d->counters = counters;
	r = asprintf(&d->tmp, "tmp/%s", opts->node) < 0 ? -ENOMEM : mc_dir_puts_init(d);
	if (r == 0) {
		r = mc_dir_reads_init(d, opts);
		if (r == 0) {
			d->root = steal_fd(root);
			atomic_store(&counters->up, 1);
			*ret = &d->base;
			return 0;
		}
		mc_dir_puts_done(d);
	}
	free(d->tmp);
	free(d);
	return r;
}
