/* One answer to readdir. */
#include "fs/page.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

int mc_page_init(struct mc_page *p, fuse_req_t req, size_t size, bool plus)
{
	*p = (struct mc_page){.req = req, .buf = malloc(size), .size = size, .plus = plus};
	return p->buf != NULL ? 0 : -ENOMEM;
}

void mc_page_done(struct mc_page *p)
{
	free(p->buf);
	p->buf = NULL;
}

bool mc_page_put(struct mc_page *p, const char *name, const struct fuse_entry_param *e, off_t next)
{
	size_t left = p->size - p->used, len;

	if (p->plus)
		len = fuse_add_direntry_plus(p->req, p->buf + p->used, left, name, e, next);
	else
		len = fuse_add_direntry(p->req, p->buf + p->used, left, name, &e->attr, next);
	if (len > left)
		return false;
	p->used += len;
	return true;
}

bool mc_page_put_bare(struct mc_page *p, const char *name, mode_t mode, uint64_t ino, off_t next)
{
	const struct fuse_entry_param e = {.attr = {.st_ino = ino, .st_mode = mode}};

	return mc_page_put(p, name, &e, next);
}

bool mc_page_put_dots(struct mc_page *p, uint64_t ino, off_t *off)
{
	for (; *off < 2; ++*off) {
		/* The parent's number does not matter: the kernel answers ".." itself. */
		if (!mc_page_put_bare(p, *off == 0 ? "." : "..", S_IFDIR, ino, *off + 1))
			return false;
	}
	return true;
}

int mc_page_reply(struct mc_page *p)
{
	return fuse_reply_buf(p->req, p->buf, p->used);
}
