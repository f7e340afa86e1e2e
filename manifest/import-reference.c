/*
 * Import by reference: where the source's files lie on the remote.
 *
 * A dir: remote is a directory of this machine. On NFS the source is given by its path below the
 * export, or by the path under which this machine has the export mounted: which that is, the
 * directory's own inode number and time tell, and links and holes are then seen as well.
 */
#include "manifest/import-state.h"

#include "tier/cleanup.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

/* The directory that a dir: URL names, or NULL. */
static const char *dir_of_url(const char *url)
{
	return strncmp(url, "dir:", 4) == 0 ? url + 4 : NULL;
}

/* Part of path (absolute, no links) below root (the same), or NULL. */
static const char *below(const char *path, const char *root)
{
	size_t n = strlen(root);

	if (strncmp(path, root, n) != 0)
		return NULL;
	if (n > 0 && root[n - 1] == '/')
		return path + n;
	return path[n] == '/' ? path + n + 1 : path[n] == '\0' ? path + n : NULL;
}

static bool is_same_dir(struct mc_import *im, const char *path, const struct stat *local)
{
	struct mc_remote_attr a;
	struct mc_err ignored = {0};

	return mc_remote_stat(im->remote, path, &a, &ignored) == 0 && a.type == MC_REMOTE_DIR &&
		a.fileid == local->st_ino && a.mtime_s == local->st_mtim.tv_sec &&
		a.mtime_ns == (uint32_t)local->st_mtim.tv_nsec;
}

/* Where this machine has the remote's root, when src is a directory below it; NULL otherwise. Tries
 * every tail of the path, the longest first. The caller frees it. */
static char *find_local_root(struct mc_import *im, const char *src)
{
	char real[PATH_MAX];
	struct stat st;

	if (realpath(src, real) == NULL || stat(real, &st) < 0 || !S_ISDIR(st.st_mode))
		return NULL;
	for (const char *tail = real; tail != NULL; tail = strchr(tail, '/')) {
		while (*tail == '/')
			tail++;
		if (is_same_dir(im, tail, &st))
			return tail - real <= 1 ? strdup("/")
						: strndup(real, (size_t)(tail - real) - 1);
	}
	return is_same_dir(im, "", &st) ? strdup(real) : NULL;
}

int mc_import_scan_reference(struct mc_import *im, struct mc_err *err)
{
	const char *dir = dir_of_url(mc_remote_url(im->remote)), *src = im->opts->src;
	struct mc_err why = {0};
	int r;

	if (dir != NULL) {
		im->ref_root = realpath(dir, NULL);
		if (im->ref_root == NULL) {
			r = -errno;
			return mc_err_set(err, r, "remote %s: %s", dir, strerror(-r));
		}
	} else {
		im->ref_root = find_local_root(im, src);
	}
	if (im->ref_root != NULL)
		return mc_scan_local(src, &im->scan, err);
	while (*src == '/')
		src++;
	r = mc_scan_remote(im->remote, src, &im->scan, &why);
	if (r == -ENOENT || r == -EINVAL)
		return mc_err_set(err, r,
			"%s; --reference takes a path below the export, or a directory of this "
			"machine "
			"that lies on it",
			why.text);
	return r < 0 ? mc_err_set(err, r, "%s", why.text) : 0;
}

static int not_below(const char *path, const char *root, struct mc_err *err)
{
	return mc_err_set(err, -EXDEV,
		"source: %s does not lie under the remote's directory %s, so it cannot be "
		"referenced; "
		"import it without --reference, or move it there",
		path, root);
}

int mc_import_ext_paths(struct mc_import *im, struct mc_err *err)
{
	for (size_t i = 0; i < im->n_files; i++) {
		struct mc_import_file *f = &im->files[i];
		const char *rel =
			im->ref_root == NULL ? f->open_path : below(f->open_path, im->ref_root);

		if (rel == NULL)
			return not_below(f->open_path, im->ref_root, err);
		f->ext_path = strdup(rel);
		if (f->ext_path == NULL)
			return mc_err_set(err, -ENOMEM, "out of memory");
	}
	return 0;
}
