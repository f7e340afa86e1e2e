/*
 * A small asynchronous I/O engine: any thread submits a read, write or fdatasync; the engine's own
 * thread completes it. io_uring where the kernel grants it, else (or over a fault table) a pool of
 * threads behind the same interface.
 *
 * Buffers are never registered with the ring: pinned pages of an image and punched holes contradict
 * each other (a read into a punched block would report success and the file keep zeros).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

struct mc_io;
struct mc_uring;

enum mc_uring_kind { MC_URING_READ, MC_URING_WRITE, MC_URING_GATHER, MC_URING_DATASYNC };

/*
 * One request. The caller fills the upper part and owns the struct, fd and memory until done runs:
 * exactly once, on the engine's thread, perhaps before mc_uring_submit returns, with no lock held.
 * done may submit further requests and must not wait for them.
 *
 * res: bytes moved, or -errno. Short results of the kernel are continued until need bytes have
 * moved, so a write moved at least need, and a read moved less than need only because the file
 * ended there.
 *
 * MC_URING_GATHER writes pieces of memory one behind the other: iov instead of buf, len their sum.
 */
struct mc_uring_req {
	enum mc_uring_kind kind;
	int fd;
	uint64_t off; /* bytes */
	uint32_t len; /* bytes, ≤ 1 GiB; a multiple of 512 (as off and buf) on O_DIRECT descriptors
		       */
	uint32_t need; /* bytes that must move, ≤ len; 0 = len. An O_DIRECT tail asks len > need */
	void *buf;
	struct iovec *iov; /* the caller's as buf is; the engine takes off what has moved */
	unsigned n_iov;
	void (*done)(struct mc_uring_req *req, int64_t res);
	void *ctx; /* the caller's */
	/* The engine's, while in flight. */
	struct mc_uring_req *next;
	uint32_t moved;
};

struct mc_uring_opts {
	unsigned depth;   /* requests in the kernel at once, further ones wait in order; 0 = 64 */
	unsigned threads; /* of the pool; 0 = 4 */
	bool pool;        /* do not try io_uring */
	const struct mc_io
		*io; /* pool only: the table to call; NULL = the real one. Not real = pool */
};

/* opts may be NULL. 0, -ENOMEM, -EAGAIN (no thread). A refused io_uring is no error: see
 * mc_uring_native. */
int mc_uring_open(const struct mc_uring_opts *opts, struct mc_uring **ret);
/* Waits until everything submitted is done. Nobody submits any more, but for done callbacks. NULL
 * allowed. */
void mc_uring_close(struct mc_uring *u);
/* Whether io_uring is in effect. */
bool mc_uring_native(const struct mc_uring *u);
/* Never fails: errors arrive through done. Requests start in the order of submission. */
void mc_uring_submit(struct mc_uring *u, struct mc_uring_req *req);
/* Submits and waits; for threads other than the engine's. Returns what done would get. */
int64_t mc_uring_run(struct mc_uring *u, struct mc_uring_req *req);
