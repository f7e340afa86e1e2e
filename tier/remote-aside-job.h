/* One call that remote-aside.c has made by a thread of its own: what goes in and what comes out. */
#pragma once

#include "tier/remote-backend.h"

enum aside_op {
	ASIDE_OPEN,
	ASIDE_STAT,
	ASIDE_PUT,
	ASIDE_SYNC,
	ASIDE_LIST,
	ASIDE_MKDIR,
	ASIDE_UNLINK,
	ASIDE_RENAME,
	ASIDE_TOUCH,
	ASIDE_SPACE
};

struct aside_entry {
	struct aside_entry *next;
	struct mc_remote_attr attr;
	char name[];
};

struct aside_job {
	struct aside_job *next;
	enum aside_op op;
	struct mc_remote_call c; /* its strings are path and new_path */
	char *path, *new_path;   /* owned; of OPEN the URL */
	void *buf;               /* owned, of PUT */
	size_t len;
	unsigned flags;
	/* The outcome. */
	int res;
	struct mc_err err;
	struct mc_remote_attr attr;
	struct mc_remote_space space;
	struct aside_entry *first, **last; /* owned */
	/* Under the lock: */
	bool running, over, left;
};

/* With copies of what c names. NULL: no memory. */
struct aside_job *mc_aside_job_new(enum aside_op op, const struct mc_remote_call *c);
void mc_aside_job_free(struct aside_job *j); /* NULL allowed */
/* The mc_remote_each of a job, its ctx: one more entry. */
int mc_aside_job_keep(void *job, const char *name, const struct mc_remote_attr *attr);
