/* The walk over a source directory that lies on the remote and is reached only through it. */
#include "manifest/scan.h"

#include "tier/cleanup.h"
#include "tier/remote.h"

#include <errno.h>
#include <string.h>

/* One directory being listed. */
struct listing {
	struct mc_scan *s;
	const char *path; /* of the directory, in the imported tree */
	struct mc_err *err;
};

static void take_attr(struct mc_scan_entry *e, const struct mc_remote_attr *a)
{
	e->mode = a->mode & 07777;
	e->mtime_s = a->mtime_s;
	e->mtime_ns = a->mtime_ns;
	e->ino = a->fileid;
	e->size = e->type == MC_ENTRY_FILE ? a->size : 0;
}

static int add(void *ctx, const char *name, const struct mc_remote_attr *attr)
{
	struct listing *l = ctx;
	cleanup_free char *path = NULL;
	struct mc_scan_entry *e;
	int r = mc_scan_join(l->path, name, &path);

	if (r < 0)
		return mc_err_set(l->err, r, "source: out of memory");
	r = mc_scan_check_name(path, l->err);
	if (r < 0)
		return r;
	if (attr->type == MC_REMOTE_SYMLINK)
		return mc_err_set(l->err, -EINVAL,
			"source: %s is a link; import through a mounted copy of the export "
			"(dir:) to follow it",
			path);
	if (attr->type == MC_REMOTE_OTHER)
		return mc_err_set(l->err, -EINVAL,
			"source: %s is neither file, directory nor link; remove it or leave it out",
			path);
	e = mc_scan_add(l->s, attr->type == MC_REMOTE_DIR ? MC_ENTRY_DIR : MC_ENTRY_FILE, path);
	if (e == NULL)
		return mc_err_set(l->err, -ENOMEM, "source: out of memory");
	take_attr(e, attr);
	return mc_scan_add_data(e, 0, e->size);
}

int mc_scan_remote(struct mc_remote *r, const char *src, struct mc_scan *ret, struct mc_err *err)
{
	struct mc_remote_attr attr;
	struct mc_scan_entry *top;
	int res = mc_remote_stat(r, src, &attr, err);

	*ret = (struct mc_scan){.on_remote = true};
	if (res < 0)
		return mc_err_prefix(err, res, "source %s", src);
	if (attr.type != MC_REMOTE_DIR)
		return mc_err_set(
			err, -ENOTDIR, "source: %s on %s is no directory", src, mc_remote_url(r));
	ret->root = strdup(src);
	top = mc_scan_add(ret, MC_ENTRY_DIR, "");
	if (ret->root == NULL || top == NULL)
		return mc_err_set(err, -ENOMEM, "source: out of memory");
	take_attr(top, &attr);
	/* Breadth first: directories found are entries still to be listed. */
	for (size_t i = 0; i < ret->n; i++) {
		cleanup_free char *path = NULL;
		cleanup_free char *from = NULL;
		struct listing l = {.s = ret, .err = err};

		if (ret->entries[i].type != MC_ENTRY_DIR)
			continue;
		/* The entry moves when the list grows. */
		path = strdup(ret->entries[i].path);
		if (path == NULL || mc_scan_join(src, path, &from) < 0)
			return mc_err_set(err, -ENOMEM, "source: out of memory");
		l.path = path;
		res = mc_remote_list(r, from, add, &l, err);
		if (res < 0)
			return mc_err_prefix(err, res, "source %s", from);
	}
	mc_scan_finish(ret);
	return 0;
}
