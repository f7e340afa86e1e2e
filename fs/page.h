/* One answer to readdir or readdirplus being filled. */
#pragma once

#include "fs/fuse.h"

#include <stdbool.h>

struct mc_page {
	fuse_req_t req;
	char *buf;         /* owned */
	size_t size, used; /* bytes */
	bool plus;
};

/* size: what the kernel asked for, bytes. -ENOMEM. mc_page_done in every case. */
int mc_page_init(struct mc_page *p, fuse_req_t req, size_t size, bool plus);
void mc_page_done(struct mc_page *p);

/* False: it does not fit, and the page is full. next: the offset after this entry. */
bool mc_page_put(struct mc_page *p, const char *name, const struct fuse_entry_param *e, off_t next);
/* Only type and number, no node: the kernel looks the name up when it needs to. */
bool mc_page_put_bare(struct mc_page *p, const char *name, mode_t mode, uint64_t ino, off_t next);
/* "." and "..", from *off on, which is then at least 2. False: full. */
bool mc_page_put_dots(struct mc_page *p, uint64_t ino, off_t *off);
/* fuse_reply_buf's result. */
int mc_page_reply(struct mc_page *p);
