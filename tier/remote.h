/*
 * A remote: the place below the local tiers where every byte has a whole copy. One door for all
 * kinds; the URL chooses: "nfs://server/export[/sub]?nfsport=…" (libnfs, NFSv3),
 * "dir:/absolute/path" (a mounted DFS, or any directory). Several of them may stand behind one door
 * (remote-set.h).
 *
 * Paths are relative to the root the URL names: components separated by '/', none empty, ".", or
 * "..", each ≤ 255 bytes, ≤ 4,095 together; stat, list and mkdir take "" for the root itself. A
 * path that breaks the rules is answered -EINVAL before any I/O. Symbolic links are followed on the
 * way and by reads, as long as they stay below the root (-EACCES otherwise); stat and list show the
 * link.
 *
 * Every operation ends by its deadline: -ETIMEDOUT when the server did not answer, -EIO when it
 * failed, -ESHUTDOWN when the remote is being closed. A lost connection is reconnected inside and
 * idempotent requests are retried until the deadline, so a caller sees only the final outcome.
 */
#pragma once

#include "tier/error.h"
#include "tier/plan.h"

#include <sys/types.h>

struct mc_remote;

struct mc_remote_opts {
	unsigned connections;   /* to one server; 0 = 2 */
	unsigned depth;         /* requests of ≤ 1 MiB in flight on each connection; 0 = 8 */
	unsigned inactivity_ms; /* a connection without an answer for this long is cut; 0 = 5,000 */
	unsigned deadline_ms;   /* the whole operation, retries included; 0 = 30,000 */
	const char *node;       /* names this node's place under tmp/; borrowed until open returns;
				   NULL = a random name for this process */
	bool aside; /* of a mounted directory: calls end at their deadline whatever the kernel does
		     */
};

enum mc_remote_type { MC_REMOTE_FILE, MC_REMOTE_DIR, MC_REMOTE_SYMLINK, MC_REMOTE_OTHER };

struct mc_remote_attr {
	enum mc_remote_type type;
	uint64_t size; /* bytes */
	uint32_t mode; /* permission bits */
	int64_t mtime_s;
	uint32_t mtime_ns;
	uint64_t fileid; /* inode number on the server */
};

struct mc_remote_space {
	uint64_t total; /* bytes */
	uint64_t avail; /* bytes */
};

struct mc_remote_stats {
	uint64_t bytes_read; /* payload delivered by successful reads */
	uint64_t bytes_written;
	uint64_t requests; /* sent to the backend */
	uint64_t errors;   /* operations that ended in an error */
	uint64_t reconnects;
	uint64_t in_flight; /* requests now */
	bool connected;     /* false while every connection is down */
};

/*
 * Opens a remote. Tries to reach it once: fails with a text in err (naming the URL and the way out)
 * when it is unreachable, refuses, or is no directory. opts may be NULL.
 */
int mc_remote_open(const char *url, const struct mc_remote_opts *opts, struct mc_remote **ret,
	struct mc_err *err);
/* Fails what is queued or in flight with -ESHUTDOWN, waits for those callbacks, frees. NULL
 * allowed. */
void mc_remote_close(struct mc_remote *r);
/* The URL as given, borrowed until close. */
const char *mc_remote_url(const struct mc_remote *r);
void mc_remote_stats(struct mc_remote *r, struct mc_remote_stats *ret);

/*
 * One asynchronous read. The caller fills the upper part and owns the struct, path and buf until
 * done runs; done runs exactly once, from any thread, possibly before mc_remote_read returns, with
 * no lock held. It must not block. res: 0 when all len bytes stand in buf, or -errno: -ENOENT no
 * such object, -ESTALE the object does not match its guard or ends before off + len. On failure
 * buf's content is undefined.
 */
struct mc_remote_read {
	const char *path;
	uint64_t off;
	uint32_t len; /* bytes, 1 .. 1 MiB */
	void *buf;    /* any alignment; page alignment of buf, off and len allows O_DIRECT */
	struct mc_guard guard;
	/* Of several copies: bits of those that gave wrong bytes, from `served` of earlier reads of
	 * this path. They are not asked again, but looked at and mended. -EBADMSG when none is
	 * left.
	 */
	uint32_t avoid;
	void (*done)(struct mc_remote_read *req, int res);
	void *ctx; /* the caller's */
	/* Answer: which object the bytes are of. Two reads of one path with equal values saw the
	 * same one, not a replacement of the same size and time. */
	uint64_t instance;
	uint32_t served; /* answer: the bit of the copy the bytes are of; 0 = there is but one */
	/* The remote's, while in flight. */
	struct mc_remote *owner;
	uint64_t deadline_ns; /* CLOCK_MONOTONIC */
	struct mc_remote_read *next;
	uint64_t priv[4];
};
/* Queues the read; the queue is bounded by the caller (see fetch.h). */
void mc_remote_read(struct mc_remote *r, struct mc_remote_read *req);

/*
 * The rest is synchronous: it blocks the calling thread until the deadline at the most and may be
 * called from several threads. err may be NULL.
 */
int mc_remote_stat(
	struct mc_remote *r, const char *path, struct mc_remote_attr *ret, struct mc_err *err);
/*
 * Whole object into a new buffer (owned by the caller, free()); -EFBIG when larger than max bytes,
 * -EISDIR or -ELOOP when it is no plain file. One version of the object, never a mixture.
 */
int mc_remote_get(struct mc_remote *r, const char *path, size_t max, void **ret_buf,
	size_t *ret_len, struct mc_err *err);
/*
 * Publishes a whole object atomically and durably: temporary name under tmp/<node>/, data durable,
 * size checked, rename into place (parents are made). With MC_PUT_EXCL -EEXIST when the name
 * exists. A failure leaves the old object or none, never a part. Its name is durable after
 * mc_remote_sync, with MC_PUT_DURABLE on return; where that fails the object may be there.
 */
enum { MC_PUT_EXCL = 1, MC_PUT_DURABLE = 2 };
int mc_remote_put(struct mc_remote *r, const char *path, const void *buf, size_t len,
	unsigned flags, struct mc_err *err);
/* Makes every rename and mkdir done by earlier calls durable (one sync for a batch, before what
 * refers to them). */
int mc_remote_sync(struct mc_remote *r, struct mc_err *err);
/* Calls each for every entry but "." and ".." until it returns non-zero, which is then returned. */
int mc_remote_list(struct mc_remote *r, const char *path,
	int (*each)(void *ctx, const char *name, const struct mc_remote_attr *attr), void *ctx,
	struct mc_err *err);
int mc_remote_mkdir(struct mc_remote *r, const char *path, struct mc_err *err); /* with parents */
int mc_remote_unlink(
	struct mc_remote *r, const char *path, struct mc_err *err); /* file or empty dir */
/* The same, durable on return. */
int mc_remote_remove(struct mc_remote *r, const char *path, struct mc_err *err);
/* Renames a file, over another if there is one; the new name's directory is there already. -ENOENT
 * when there is no such file. */
int mc_remote_rename(
	struct mc_remote *r, const char *path, const char *new_path, struct mc_err *err);
/* Sets mtime to the server's now (a dedup hit keeps a chunk from garbage collection). */
int mc_remote_touch(struct mc_remote *r, const char *path, struct mc_err *err);
int mc_remote_space(struct mc_remote *r, struct mc_remote_space *ret, struct mc_err *err);
