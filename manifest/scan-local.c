/*
 * The walk over a local source directory.
 *
 * Invariants: 1. while a directory is walked it stands on the chain of ancestors, so a link that
 * leads back to one is found instead of walked for ever; 2. below a link that left the source every
 * link is followed (outside is set), because its own ".." would mean another place in the imported
 * tree.
 */
#include "manifest/scan.h"

#include "manifest/path.h"
#include "tier/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct dir {
	const struct dir *parent; /* the chain of ancestors, borrowed */
	const char *path;         /* in the imported tree */
	const char *real;         /* absolute, no link in it unless inside */
	bool outside;
	uint64_t dev, ino;
};

static int walk(struct mc_scan *s, const struct dir *d, struct mc_err *err);

static int failed(const char *path, int code, const char *what, struct mc_err *err)
{
	return mc_err_set(err, code, "source: %s: %s: %s", path, what, strerror(-code));
}

static void take_stat(struct mc_scan_entry *e, const struct stat *st)
{
	e->mode = st->st_mode & 07777;
	e->mtime_s = st->st_mtim.tv_sec;
	e->mtime_ns = (uint32_t)st->st_mtim.tv_nsec;
	e->dev = st->st_dev;
	e->ino = st->st_ino;
	e->size = e->type == MC_ENTRY_FILE ? (uint64_t)st->st_size : 0;
}

/* The data ranges of a file that has fewer blocks than bytes. */
static int find_holes(struct mc_scan_entry *e, int fd)
{
	uint64_t off = 0;

	while (off < e->size) {
		off_t data = lseek(fd, (off_t)off, SEEK_DATA), hole;
		int r;

		if (data < 0)
			r = -errno;
		else
			r = 0;
		if (r == -ENXIO)
			return 0;
		if (r < 0)
			return r;
		hole = lseek(fd, data, SEEK_HOLE);
		if (hole < 0)
			return -errno;
		if ((uint64_t)hole > e->size)
			hole = (off_t)e->size;
		if (hole <= data)
			return 0;
		r = mc_scan_add_data(e, (uint64_t)data, (uint64_t)(hole - data));
		if (r < 0)
			return r;
		off = (uint64_t)hole;
	}
	return 0;
}

static int add_file(struct mc_scan *s, const char *path, const char *real, const struct stat *st,
	bool outside, struct mc_err *err)
{
	struct mc_scan_entry *e = mc_scan_add(s, MC_ENTRY_FILE, path);
	cleanup_close int fd = -1;
	int r = 0;

	if (e == NULL)
		return mc_err_set(err, -ENOMEM, "source: out of memory");
	take_stat(e, st);
	if (outside) {
		e->outside = strdup(real);
		if (e->outside == NULL)
			return mc_err_set(err, -ENOMEM, "source: out of memory");
	}
	if (e->size == 0)
		return 0;
	/* Opened also when it has no hole: what cannot be read is better known now than in an hour.
	 */
	fd = open(real, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0)
		return failed(real, -errno, "cannot be opened", err);
	if ((uint64_t)st->st_blocks * 512 < e->size)
		r = find_holes(e, fd);
	else
		r = mc_scan_add_data(e, 0, e->size);
	return r < 0 ? failed(real, r, "cannot be searched for holes", err) : 0;
}

static int add_dir(
	struct mc_scan *s, const struct dir *d, const struct stat *st, struct mc_err *err)
{
	struct mc_scan_entry *e;

	for (const struct dir *a = d->parent; a != NULL; a = a->parent)
		if (a->dev == d->dev && a->ino == d->ino)
			return mc_err_set(err, -ELOOP,
				"source: the link %s leads back to the directory %s; remove it or "
				"leave it out",
				d->path, a->real);
	e = mc_scan_add(s, MC_ENTRY_DIR, d->path);
	if (e == NULL)
		return mc_err_set(err, -ENOMEM, "source: out of memory");
	take_stat(e, st);
	return walk(s, d, err);
}

static bool is_below(const char *path, const char *root)
{
	size_t n = strlen(root);

	if (n == 1) /* "/" */
		return true;
	return strncmp(path, root, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

/* The target that leads from the link at path to inside (both relative to the source). */
static int relative_target(const char *path, const char *inside, char out[PATH_MAX])
{
	size_t common = 0, n = 0;

	for (size_t i = 0; path[i] == inside[i] && path[i] != '\0'; i++)
		if (path[i] == '/')
			common = i + 1;
	out[0] = '\0';
	for (const char *c = path + common; (c = strchr(c, '/')) != NULL; c++) {
		if (n + 4 > PATH_MAX)
			return -ENAMETOOLONG;
		n += (size_t)snprintf(out + n, PATH_MAX - n, "../");
	}
	if (n + strlen(inside + common) + 1 > PATH_MAX)
		return -ENAMETOOLONG;
	strcpy(out + n, inside + common);
	return 0;
}

static int add_link(struct mc_scan *s, const char *path, const char *target, const struct stat *st,
	struct mc_err *err)
{
	struct mc_scan_entry *e;
	const char *fault = mc_link_fault(path, target);

	if (fault != NULL)
		return mc_err_set(err, -EINVAL,
			"source: the link %s cannot be kept in a manifest (%s); remove it or leave "
			"it out",
			path, fault);
	e = mc_scan_add(s, MC_ENTRY_SYMLINK, path);
	if (e == NULL)
		return mc_err_set(err, -ENOMEM, "source: out of memory");
	take_stat(e, st);
	e->target = strdup(target);
	return e->target == NULL ? mc_err_set(err, -ENOMEM, "source: out of memory") : 0;
}

static int add_entry(struct mc_scan *s, const struct dir *d, const char *path, const char *real,
	bool outside, struct mc_err *err)
{
	struct stat st;
	int r;

	if (lstat(real, &st) < 0) {
		r = -errno;
		return failed(real, r, "cannot be examined", err);
	}
	if (S_ISREG(st.st_mode))
		return add_file(s, path, real, &st, outside, err);
	if (S_ISDIR(st.st_mode)) {
		struct dir sub = {d, path, real, outside, st.st_dev, st.st_ino};

		return add_dir(s, &sub, &st, err);
	}
	return mc_err_set(err, -EINVAL,
		"source: %s is neither file, directory nor link; remove it or leave it out", real);
}

/* A link at real, which is path in the imported tree. */
static int follow_or_keep(struct mc_scan *s, const struct dir *d, const char *path,
	const char *real, const struct stat *st, struct mc_err *err)
{
	char target[PATH_MAX], to[PATH_MAX];
	ssize_t n = readlink(real, target, sizeof(target) - 1);
	int r;

	if (n < 0) {
		r = -errno;
		return failed(real, r, "the link cannot be read", err);
	}
	target[n] = '\0';
	if (!d->outside && mc_link_fault(path, target) == NULL)
		return add_link(s, path, target, st, err);
	if (realpath(real, to) == NULL) {
		r = -errno;
		return mc_err_set(err, r,
			"source: the link %s leads to %s, which cannot be reached: %s; remove it "
			"or "
			"restore what it points to",
			real, target, strerror(-r));
	}
	if (d->outside || !is_below(to, s->root))
		return add_entry(s, d, path, to, true, err);
	/* "/" as the source keeps no separator to skip. */
	n = (ssize_t)strlen(s->root);
	r = relative_target(path, to + n + (n > 1 && to[n] == '/'), target);
	return r < 0 ? failed(real, r, "the link cannot be kept", err)
		     : add_link(s, path, target, st, err);
}

static int visit(struct mc_scan *s, const struct dir *d, const char *name, struct mc_err *err)
{
	cleanup_free char *path = NULL, *real = NULL;
	struct stat st;
	int r = mc_scan_join(d->path, name, &path);

	if (r == 0)
		r = mc_scan_join(strcmp(d->real, "/") == 0 ? "" : d->real, name, &real);
	if (r < 0)
		return mc_err_set(err, r, "source: out of memory");
	r = mc_scan_check_name(path, err);
	if (r < 0)
		return r;
	if (lstat(real, &st) < 0) {
		r = -errno;
		return failed(real, r, "cannot be examined", err);
	}
	if (S_ISLNK(st.st_mode))
		return follow_or_keep(s, d, path, real, &st, err);
	return add_entry(s, d, path, real, d->outside, err);
}

static int walk(struct mc_scan *s, const struct dir *d, struct mc_err *err)
{
	DIR *dir = opendir(d->real);
	int r = 0;

	if (dir == NULL) {
		r = -errno;
		return failed(d->real, r, "the directory cannot be opened", err);
	}
	while (r == 0) {
		const struct dirent *de;

		errno = 0;
		de = readdir(dir);
		if (de == NULL) {
			r = -errno;
			if (r < 0)
				failed(d->real, r, "the directory cannot be read", err);
			break;
		}
		if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
			r = visit(s, d, de->d_name, err);
	}
	closedir(dir);
	return r;
}

int mc_scan_local(const char *src, struct mc_scan *ret, struct mc_err *err)
{
	struct dir top = {.path = ""};
	struct stat st;
	int r;

	*ret = (struct mc_scan){0};
	ret->root = realpath(src, NULL);
	if (ret->root == NULL || stat(ret->root, &st) < 0) {
		r = -errno;
		return mc_err_set(err, r, "source: %s: %s", src, strerror(-r));
	}
	if (!S_ISDIR(st.st_mode))
		return mc_err_set(err, -ENOTDIR,
			"source: %s is no directory; give the directory that holds the checkpoint",
			src);
	top.real = ret->root;
	top.dev = st.st_dev;
	top.ino = st.st_ino;
	r = add_dir(ret, &top, &st, err);
	if (r == 0)
		mc_scan_finish(ret);
	return r;
}
