/*
 * .mooncake/. A file's text is rendered at open and stays until its release, so that a reader sees
 * one moment; the page cache is left out, which is why the size that stat shows does not matter.
 */
#include "fs/generated.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "fs/page.h"
#include "fs/state.h"
#include "fs/status.h"

#define FOREVER_S 86400.0

static const struct {
	const char *name;
	int (*render)(struct mc_fs *fs, FILE *out);
} files[] = {
	{"status", mc_status_json},
	{"metrics", mc_status_metrics},
	{"config", mc_status_config},
	{"events", mc_status_events},
};
#define N_FILES (sizeof(files) / sizeof(*files))

static struct mc_fs *fs_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

/* The file of a node id, or N_FILES for the directory and what is none. */
static size_t file_of(fuse_ino_t ino)
{
	uint64_t i = ino - MC_GENERATED_ROOT_ID - 1;

	return i < N_FILES ? (size_t)i : N_FILES;
}

static void attr(const struct mc_fs *fs, fuse_ino_t ino, struct stat *st)
{
	memset(st, 0, sizeof(*st));
	st->st_ino = ino;
	st->st_uid = fs->uid;
	st->st_gid = fs->gid;
	st->st_nlink = 1;
	st->st_mode = file_of(ino) < N_FILES ? S_IFREG | 0444 : S_IFDIR | 0555;
	clock_gettime(CLOCK_REALTIME, &st->st_mtim);
	st->st_atim = st->st_mtim;
	st->st_ctim = st->st_mtim;
}

static void reply_entry(fuse_req_t req, fuse_ino_t ino)
{
	struct fuse_entry_param e = {.ino = ino, .entry_timeout = FOREVER_S};

	attr(fs_of(req), ino, &e.attr);
	fuse_reply_entry(req, &e);
}

void mc_genop_lookup_root(fuse_req_t req)
{
	reply_entry(req, MC_GENERATED_ROOT_ID);
}

void mc_genop_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	const struct fuse_entry_param missing = {.entry_timeout = FOREVER_S};
	size_t i = 0;

	if (parent != MC_GENERATED_ROOT_ID) {
		fuse_reply_err(req, ENOTDIR);
		return;
	}
	while (i < N_FILES && strcmp(name, files[i].name) != 0)
		i++;
	if (i < N_FILES)
		reply_entry(req, MC_GENERATED_ROOT_ID + 1 + i);
	else
		fuse_reply_entry(req, &missing);
}

void mc_genop_getattr(fuse_req_t req, fuse_ino_t ino)
{
	struct stat st;

	attr(fs_of(req), ino, &st);
	fuse_reply_attr(req, &st, 0);
}

void mc_genop_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, bool plus)
{
	struct mc_page p;

	if (off < 0 || mc_page_init(&p, req, size, plus) < 0) {
		fuse_reply_err(req, off < 0 ? EINVAL : ENOMEM);
		return;
	}
	if (mc_page_put_dots(&p, ino, &off)) {
		for (size_t i = (size_t)off - 2; i < N_FILES; i++) {
			if (!mc_page_put_bare(&p, files[i].name, S_IFREG,
				    MC_GENERATED_ROOT_ID + 1 + i, (off_t)i + 3))
				break;
		}
	}
	mc_page_reply(&p);
	mc_page_done(&p);
}

static int render(struct mc_fs *fs, size_t file, struct mc_handle *ret)
{
	FILE *out;
	int r;

	*ret = (struct mc_handle){0};
	out = open_memstream(&ret->text, &ret->len);
	if (out == NULL)
		return -ENOMEM;
	r = files[file].render(fs, out);
	if (fclose(out) != 0 && r == 0)
		r = -ENOMEM;
	if (r < 0) {
		free(ret->text);
		ret->text = NULL;
	}
	return r;
}

void mc_genop_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct mc_fs *fs = fs_of(req);
	size_t file = file_of(ino);
	struct mc_handle h;
	int r;

	if (file == N_FILES || (fi->flags & O_ACCMODE) != O_RDONLY || (fi->flags & O_TRUNC) != 0) {
		fuse_reply_err(req, file == N_FILES ? EISDIR : EROFS);
		return;
	}
	r = render(fs, file, &h);
	if (r == 0)
		r = mc_handles_add(fs->handles, &h, &fi->fh);
	if (r < 0) {
		fuse_reply_err(req, -r);
		return;
	}
	fi->direct_io = 1;
	fi->noflush = 1;
	if (fuse_reply_open(req, fi) == -ENOENT)
		mc_handles_remove(fs->handles, fi->fh); /* aborted: no release will come */
}

void mc_genop_read(fuse_req_t req, const struct fuse_file_info *fi, size_t size, off_t off)
{
	struct mc_handle *h = mc_handles_find(fs_of(req)->handles, fi->fh);
	size_t left;

	if (h == NULL || h->text == NULL || off < 0) {
		fuse_reply_err(req, ESTALE); /* too many were opened since */
	} else {
		left = (uint64_t)off < h->len ? h->len - (size_t)off : 0;
		fuse_reply_buf(req, left > 0 ? h->text + off : NULL, left < size ? left : size);
	}
	mc_handle_put(h);
}
