/* The names of an export: directories and temporary files before the data, links and times after
 * it. */
#include "manifest/export-state.h"

#include "manifest/path.h"
#include "manifest/piece-read.h"
#include "tier/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

int mc_export_failed(const char *path, int code, struct mc_err *err)
{
	if (code == -ENOSPC || code == -EDQUOT)
		return mc_err_set(err, code,
			"%s: the file system is full; make room and export again into an empty "
			"directory",
			path);
	return mc_err_set(err, code, "%s: %s", path, strerror(-code));
}

/* dest/path of the entry, or dest itself for the root. */
static int entry_path(const struct mc_export *x, uint32_t entry, char **ret)
{
	char path[MC_PATH_MAX + 1];
	int r = mc_manifest_path(x->m, entry, path, sizeof(path));

	if (r < 0)
		return r;
	return asprintf(ret, "%s%s%s", x->dest, *path == '\0' ? "" : "/", path) < 0 ? -ENOMEM : 0;
}

/* dest exists afterwards and is empty. */
static int make_dest(const struct mc_export *x, struct mc_err *err)
{
	struct dirent *de;
	DIR *dir;
	int r = 0;

	if (mkdir(x->dest, 0700) < 0)
		r = -errno;
	if (r == 0)
		return 0;
	if (r != -EEXIST)
		return mc_export_failed(x->dest, r, err);
	dir = opendir(x->dest);
	if (dir == NULL) {
		r = -errno;
		return mc_export_failed(x->dest, r, err);
	}
	r = 0;
	while (r == 0 && (de = readdir(dir)) != NULL)
		if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
			r = mc_err_set(err, -ENOTEMPTY,
				"%s is not empty; give a directory that does not exist", x->dest);
	closedir(dir);
	return r;
}

static int add_range(struct mc_export *x, uint64_t off, uint32_t len)
{
	if (x->n_ranges == x->cap_ranges) {
		size_t cap = x->cap_ranges == 0 ? 256 : 2 * x->cap_ranges;
		struct mc_export_range *more = reallocarray(x->ranges, cap, sizeof(*more));

		if (more == NULL)
			return -ENOMEM;
		x->ranges = more;
		x->cap_ranges = cap;
	}
	x->ranges[x->n_ranges++] = (struct mc_export_range){
		.off = off, .len = len, .file = (uint32_t)(x->n_files - 1)};
	return 0;
}

/* Cuts the blocks that hold data into ranges. */
static int cut_file(struct mc_export *x, struct mc_export_file *f, uint64_t size)
{
	uint64_t at = 0, start, end;
	int r = 0;

	while (at < size && r == 0) {
		r = f->src->ops->next_data(f->src, at, &start, &end);
		if (r == -ENXIO)
			return 0;
		if (r < 0)
			return r;
		start &= ~(MC_BLOCK_SIZE - 1);
		if (start < at)
			start = at;
		end = (end + MC_BLOCK_SIZE - 1) & ~(MC_BLOCK_SIZE - 1);
		if (end > size)
			end = size;
		for (at = start; at < end && r == 0; f->left++) {
			uint32_t len =
				end - at < MC_PIECE_MAX ? (uint32_t)(end - at) : MC_PIECE_MAX;

			r = add_range(x, at, len);
			at += len;
			x->total += len;
		}
	}
	return r;
}

int mc_export_finish_file(struct mc_export *x, struct mc_export_file *f, int fd, struct mc_err *err)
{
	struct mc_entry e;
	struct timespec times[2];
	int r = 0;

	mc_manifest_entry(x->m, f->entry, &e);
	times[0] = (struct timespec){.tv_nsec = UTIME_OMIT};
	times[1] = (struct timespec){.tv_sec = e.mtime_s, .tv_nsec = (long)e.mtime_ns};
	if (fchmod(fd, e.mode) < 0 || futimens(fd, times) < 0)
		r = -errno;
	if (close(fd) < 0 && r == 0)
		r = -errno;
	if (r == 0 && rename(f->tmp, f->path) < 0)
		r = -errno;
	f->finished = r == 0;
	return r < 0 ? mc_export_failed(f->path, r, err) : 0;
}

int mc_export_create(struct mc_export *x, struct mc_export_file *f, int *ret, struct mc_err *err)
{
	struct mc_entry e;
	int r = 0, fd = open(f->tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0) {
		r = -errno;
		return mc_export_failed(f->tmp, r, err);
	}
	mc_manifest_entry(x->m, f->entry, &e);
	if (ftruncate(fd, (off_t)e.size) < 0)
		r = -errno;
	if (r < 0) {
		close(fd);
		return mc_export_failed(f->tmp, r, err);
	}
	*ret = fd;
	return 0;
}

static int add_file(
	struct mc_export *x, uint32_t entry, const struct mc_entry *e, struct mc_err *err)
{
	struct mc_export_file *f = &x->files[x->n_files++];
	int fd, r;

	*f = (struct mc_export_file){.entry = entry, .fd = -1};
	r = entry_path(x, entry, &f->path);
	if (r == 0 &&
		asprintf(&f->tmp, "%.*s/.mooncakefs-%u.tmp", (int)(strrchr(f->path, '/') - f->path),
			f->path, entry) < 0)
		r = -ENOMEM;
	if (r == 0 && e->size > 0)
		r = mc_manifest_source(x->m, entry, &f->src);
	if (r == 0 && e->size > 0)
		r = cut_file(x, f, e->size);
	if (r < 0)
		return mc_err_set(err, r, "manifest: %s: %s", e->name, strerror(-r));
	x->bytes += e->size;
	if (f->left > 0)
		return 0;
	r = mc_export_create(x, f, &fd, err);
	return r < 0 ? r : mc_export_finish_file(x, f, fd, err);
}

/* Directories exist before what they hold: entry numbers grow from parent to child. */
int mc_export_make_tree(struct mc_export *x, struct mc_err *err)
{
	uint32_t n = mc_manifest_entries(x->m);
	int r = make_dest(x, err);

	x->files = calloc((size_t)n + 1, sizeof(*x->files));
	if (x->files == NULL)
		return mc_err_set(err, -ENOMEM, "out of memory");
	for (uint32_t i = 1; i < n && r == 0; i++) {
		cleanup_free char *path = NULL;
		struct mc_entry e;

		mc_manifest_entry(x->m, i, &e);
		if (e.type != MC_ENTRY_DIR)
			continue;
		r = entry_path(x, i, &path);
		if (r < 0)
			return mc_err_set(err, r, "out of memory");
		if (mkdir(path, 0700) < 0) {
			r = -errno;
			mc_export_failed(path, r, err);
		}
	}
	for (uint32_t i = 1; i < n && r == 0; i++) {
		struct mc_entry e;

		mc_manifest_entry(x->m, i, &e);
		if (e.type == MC_ENTRY_FILE)
			r = add_file(x, i, &e, err);
	}
	return r;
}

/* Links, then modes and times from the last entry to the root, so that no later step touches them.
 */
int mc_export_finish_tree(struct mc_export *x, struct mc_err *err)
{
	for (uint32_t i = mc_manifest_entries(x->m); i-- > 0;) {
		cleanup_free char *path = NULL;
		struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}};
		struct mc_entry e;
		int r;

		mc_manifest_entry(x->m, i, &e);
		if (e.type == MC_ENTRY_FILE)
			continue;
		r = entry_path(x, i, &path);
		if (r < 0)
			return mc_err_set(err, r, "out of memory");
		if (e.type == MC_ENTRY_SYMLINK && symlink(e.target, path) < 0)
			r = -errno;
		if (e.type == MC_ENTRY_DIR && chmod(path, e.mode) < 0)
			r = -errno;
		times[1] = (struct timespec){.tv_sec = e.mtime_s, .tv_nsec = (long)e.mtime_ns};
		if (r == 0 && utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW) < 0)
			r = -errno;
		if (r < 0)
			return mc_export_failed(path, r, err);
	}
	return 0;
}

/* One sync of the file system makes all names durable. */
int mc_export_sync(const struct mc_export *x, struct mc_err *err)
{
	cleanup_close int fd = open(x->dest, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = 0;

	if (fd < 0 || syncfs(fd) < 0)
		r = -errno;
	/* A directory whose exported mode forbids reading cannot be opened; its data are synced. */
	return r == -EACCES || r == 0 ? 0 : mc_export_failed(x->dest, r, err);
}
