/*
 * What a kind of remote implements. Called by remote.c and remote-call.c only, which have checked
 * paths, lengths and states before, and check results after; a backend may rely on that. Every
 * operation is required.
 */
#pragma once

#include "tier/remote.h"

#include <stdatomic.h>

#define MC_REMOTE_READ_MAX (UINT32_C(1) << 20) /* bytes of one read request */
#define MC_REMOTE_PATH_MAX 4096                /* with the NUL */
#define MC_REMOTE_NAME_MAX 255

/* Counted by the backend, read by the wrapper. */
struct mc_remote_counters {
	_Atomic uint64_t requests;   /* sent to the server or the kernel */
	_Atomic uint64_t reconnects; /* connections made after the first */
	_Atomic uint64_t down;       /* connections that are down now */
	_Atomic uint64_t up;         /* connections that are up now */
};

/* A synchronous operation: what is common to all of them. All borrowed. */
struct mc_remote_call {
	const char *path;
	const char *new_path; /* of rename, else NULL */
	bool durable;         /* of unlink: on return */
	uint64_t deadline_ns; /* CLOCK_MONOTONIC */
	struct mc_err *err;   /* may be NULL */
};

typedef int mc_remote_each(void *ctx, const char *name, const struct mc_remote_attr *attr);

struct mc_backend;

struct mc_backend_ops {
	/* Ends with exactly one mc_backend_read_done, also after stop (-ESHUTDOWN). Does not block.
	 */
	void (*read)(struct mc_backend *b, struct mc_remote_read *req);
	/* Must drop whatever is cached about the path when the object is another one now. */
	int (*stat)(
		struct mc_backend *b, const struct mc_remote_call *c, struct mc_remote_attr *ret);
	int (*put)(struct mc_backend *b, const struct mc_remote_call *c, const void *buf,
		size_t len, unsigned flags);
	int (*sync)(struct mc_backend *b, const struct mc_remote_call *c);
	int (*list)(struct mc_backend *b, const struct mc_remote_call *c, mc_remote_each *each,
		void *ctx);
	int (*mkdir)(struct mc_backend *b, const struct mc_remote_call *c);
	int (*unlink)(struct mc_backend *b, const struct mc_remote_call *c);
	int (*rename)(struct mc_backend *b, const struct mc_remote_call *c);
	int (*touch)(struct mc_backend *b, const struct mc_remote_call *c);
	int (*space)(
		struct mc_backend *b, const struct mc_remote_call *c, struct mc_remote_space *ret);
	/* Makes everything in flight and everything that still comes end with -ESHUTDOWN, soon. */
	void (*stop)(struct mc_backend *b);
	/* After stop, when no operation is left: frees. */
	void (*close)(struct mc_backend *b);
};

/* First member of every backend. */
struct mc_backend {
	const struct mc_backend_ops *ops;
};

/* opts with the defaults filled in, node not NULL. counters live as long as the backend. */
typedef int mc_backend_open(const char *url, const struct mc_remote_opts *opts,
	struct mc_remote_counters *counters, struct mc_backend **ret, struct mc_err *err);
mc_backend_open mc_remote_dir_open;
mc_backend_open mc_remote_nfs_open;

/* Puts a door before a backend made elsewhere; owns b and counters from success on. For
 * remote-fault.c and remote-set.c; the rest uses URLs. deadline_ns: length of an operation. */
int mc_remote_from_backend(const char *url, uint64_t deadline_ns, struct mc_backend *b,
	struct mc_remote_counters *counters, struct mc_remote **ret);
/* The other way; borrowed until close. */
struct mc_backend *mc_remote_backend(struct mc_remote *r);
/* From now on operations end after deadline_ns, and those that move no data (stat, mkdir, unlink,
 * touch, space) after quick_ns. For remote-set.c, which can ask another member then. */
void mc_remote_limit(struct mc_remote *r, uint64_t deadline_ns, uint64_t quick_ns);
/* Length of an operation, ns. */
uint64_t mc_remote_patience(const struct mc_remote *r);

/* The first half of close: from now on everything ends with -ESHUTDOWN. May be called twice. */
void mc_remote_stop(struct mc_remote *r);

/* The one way in which a read ends. No lock held; req belongs to the caller again. */
void mc_backend_read_done(struct mc_remote_read *req, int res);

/* mc_remote_read with a deadline of its own. For remotes that stand before others. */
void mc_remote_read_until(struct mc_remote *r, struct mc_remote_read *req, uint64_t deadline_ns);

/* mc_remote_get between begin and end; in remote-get.c. */
int mc_remote_get_whole(struct mc_remote *r, const struct mc_remote_call *c, size_t max,
	void **ret_buf, size_t *ret_len);

/* Removes what an earlier run of this node left unpublished; failures are left for the next time.
 */
void mc_remote_reap(struct mc_remote *r, const char *node);

/* The path's rules; see remote.h. 0 or -EINVAL. root: "" is allowed. */
int mc_remote_path_check(const char *path, bool root);
