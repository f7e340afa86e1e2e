/*
 * The engine behind uring.h.
 *
 * Invariants:
 * 1. Only the engine's thread touches the ring: the kernel cancels requests of a task that exits,
 * so the submitters' threads must never own one.
 * 2. in_flight counts requests the kernel (or a pool thread) has; it never passes depth. The rest
 * waits in the FIFO.
 * 3. A request is in the FIFO, or in flight, or done; done runs after it left both.
 * 4. wake_sent: a token lies in event_fd or its read has completed and was not yet noticed by the
 *    thread; submitters write only when it is clear.
 */
#include "tier/uring.h"

#include "tier/future.h"
#include "tier/io.h"
#include "tier/lock.h"

#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define DEFAULT_DEPTH 64
#define DEFAULT_THREADS 4

struct mc_uring {
	struct mc_mutex lock;
	struct mc_cond more; /* pool: the FIFO got an entry, or stopping */
	struct mc_uring_req *head MC_GUARDED_BY(lock);
	struct mc_uring_req **tail MC_GUARDED_BY(lock);
	bool stopping MC_GUARDED_BY(lock);
	bool wake_sent MC_GUARDED_BY(lock);
	unsigned in_flight MC_GUARDED_BY(lock);
	unsigned depth;
	const struct mc_io *io; /* borrowed */
	bool native;
	struct io_uring ring; /* the engine's thread only */
	int event_fd;         /* owned */
	uint64_t event_value; /* target of the pending read of event_fd */
	bool event_armed;     /* the engine's thread only */
	pthread_t *threads;   /* owned */
	unsigned n_threads;
};

static uint32_t needed(const struct mc_uring_req *r)
{
	return r->need != 0 ? r->need : r->len;
}

static void take_off(struct mc_uring_req *r, size_t moved)
{
	while (moved > 0) {
		size_t n = moved < r->iov->iov_len ? moved : r->iov->iov_len;

		r->iov->iov_base = (char *)r->iov->iov_base + n;
		r->iov->iov_len -= n;
		moved -= n;
		if (r->iov->iov_len > 0)
			return;
		r->iov++;
		r->n_iov--;
	}
}

/*
 * Takes the outcome of one attempt. True when the request is over, with *ret_res for done; false
 * when it has to be tried again from r->moved on.
 */
static bool attempt_over(struct mc_uring_req *r, int64_t res, int64_t *ret_res)
{
	if (res == -EINTR || res == -EAGAIN)
		return false;
	if (r->kind == MC_URING_DATASYNC) {
		*ret_res = res < 0 ? res : 0;
		return true;
	}
	/* O_DIRECT: an end of file off the sector grid is noticed only by the refused continuation.
	 */
	if (res == -EINVAL && r->kind == MC_URING_READ && r->moved % 512 != 0)
		res = 0;
	if (res < 0) {
		*ret_res = res;
		return true;
	}
	r->moved += (uint32_t)res;
	if (r->kind == MC_URING_GATHER)
		take_off(r, (size_t)res);
	if (r->moved >= needed(r) || (res == 0 && r->kind == MC_URING_READ)) {
		*ret_res = r->moved;
		return true;
	}
	*ret_res = -EIO; /* a write that moves nothing */
	return res == 0;
}

static struct mc_uring_req *pop_locked(struct mc_uring *u) MC_REQUIRES(u->lock)
{
	struct mc_uring_req *r = u->head;

	if (r == NULL)
		return NULL;
	u->head = r->next;
	if (u->head == NULL)
		u->tail = &u->head;
	u->in_flight++;
	return r;
}

/* ---- io_uring */

static void prepare(struct mc_uring *u, struct mc_uring_req *r)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);

	assert(sqe != NULL); /* the ring has depth + 1 entries */
	switch (r->kind) {
	case MC_URING_READ:
		io_uring_prep_read(sqe, r->fd, (char *)r->buf + r->moved, r->len - r->moved,
			r->off + r->moved);
		break;
	case MC_URING_WRITE:
		io_uring_prep_write(sqe, r->fd, (char *)r->buf + r->moved, r->len - r->moved,
			r->off + r->moved);
		break;
	case MC_URING_GATHER:
		io_uring_prep_writev(sqe, r->fd, r->iov, r->n_iov, r->off + r->moved);
		break;
	case MC_URING_DATASYNC:
		io_uring_prep_fsync(sqe, r->fd, IORING_FSYNC_DATASYNC);
		break;
	}
	io_uring_sqe_set_data(sqe, r);
}

static void ring_done(struct mc_uring *u, struct mc_uring_req *r, int res)
{
	int64_t final;

	if (!attempt_over(r, res, &final)) {
		prepare(u, r);
		return;
	}
	mc_mutex_lock(&u->lock);
	u->in_flight--;
	mc_mutex_unlock(&u->lock);
	r->done(r, final);
}

/* Moves the FIFO into the ring as far as depth allows. False: nothing left and stopping. */
static bool ring_fill(struct mc_uring *u)
{
	struct mc_uring_req *batch = NULL, **end = &batch;
	bool go_on;

	mc_mutex_lock(&u->lock);
	while (u->in_flight < u->depth) {
		struct mc_uring_req *r = pop_locked(u);

		if (r == NULL)
			break;
		r->next = NULL;
		*end = r;
		end = &r->next;
	}
	go_on = u->in_flight > 0 || !u->stopping;
	mc_mutex_unlock(&u->lock);
	while (batch != NULL) {
		struct mc_uring_req *r = batch;

		batch = r->next;
		prepare(u, r);
	}
	return go_on;
}

static void ring_arm(struct mc_uring *u)
{
	struct io_uring_sqe *sqe;

	if (u->event_armed)
		return;
	sqe = io_uring_get_sqe(&u->ring);
	assert(sqe != NULL);
	io_uring_prep_read(sqe, u->event_fd, &u->event_value, sizeof(u->event_value), 0);
	io_uring_sqe_set_data(sqe, NULL);
	u->event_armed = true;
}

static void *ring_main(void *arg)
{
	struct mc_uring *u = arg;

	pthread_setname_np(pthread_self(), "mc-uring");
	while (ring_fill(u)) {
		struct io_uring_cqe *cqe;
		int r;

		ring_arm(u);
		r = io_uring_submit_and_wait(&u->ring, 1);
		assert(r >= 0 || r == -EINTR || r == -EAGAIN || r == -EBUSY);
		while (io_uring_peek_cqe(&u->ring, &cqe) == 0) {
			struct mc_uring_req *req = io_uring_cqe_get_data(cqe);
			int res = cqe->res;

			io_uring_cqe_seen(&u->ring, cqe);
			if (req != NULL) {
				ring_done(u, req, res);
				continue;
			}
			u->event_armed = false;
			mc_mutex_lock(&u->lock);
			u->wake_sent = false;
			mc_mutex_unlock(&u->lock);
		}
	}
	return NULL;
}

/* ---- the pool */

static int64_t pool_attempt(struct mc_uring *u, struct mc_uring_req *r)
{
	uint64_t off = r->off + r->moved;
	uint32_t left = r->len - r->moved;

	switch (r->kind) {
	case MC_URING_READ:
		return u->io->pread(u->io, r->fd, (char *)r->buf + r->moved, left, off);
	case MC_URING_WRITE:
		return u->io->pwrite(u->io, r->fd, (char *)r->buf + r->moved, left, off);
	case MC_URING_GATHER: /* as a short write */
		return u->io->pwrite(u->io, r->fd, r->iov->iov_base, r->iov->iov_len, off);
	case MC_URING_DATASYNC:
		break;
	}
	return u->io->fdatasync(u->io, r->fd);
}

static void *pool_main(void *arg)
{
	struct mc_uring *u = arg;

	pthread_setname_np(pthread_self(), "mc-disk");
	mc_mutex_lock(&u->lock);
	for (;;) {
		struct mc_uring_req *r = pop_locked(u);
		int64_t res = 0;

		if (r == NULL) {
			/* A callback under way may still submit: the last one out stops the others.
			 */
			if (u->stopping && u->in_flight == 0)
				break;
			mc_cond_wait(&u->more, &u->lock);
			continue;
		}
		mc_mutex_unlock(&u->lock);
		while (!attempt_over(r, pool_attempt(u, r), &res))
			;
		r->done(r, res);
		mc_mutex_lock(&u->lock);
		u->in_flight--;
		if (u->stopping && u->in_flight == 0)
			mc_cond_broadcast(&u->more);
	}
	mc_mutex_unlock(&u->lock);
	return NULL;
}

/* ---- the interface */

static int start_threads(struct mc_uring *u, unsigned n, void *(*run)(void *))
{
	u->threads = calloc(n, sizeof(*u->threads));
	if (u->threads == NULL)
		return -ENOMEM;
	for (; u->n_threads < n; u->n_threads++)
		if (pthread_create(&u->threads[u->n_threads], NULL, run, u) != 0)
			return u->n_threads > 0 && !u->native ? 0 : -EAGAIN;
	return 0;
}

static bool try_ring(struct mc_uring *u)
{
	u->event_fd = eventfd(0, EFD_CLOEXEC);
	if (u->event_fd < 0)
		return false;
	return io_uring_queue_init(u->depth + 1, &u->ring, 0) == 0;
}

int mc_uring_open(const struct mc_uring_opts *opts, struct mc_uring **ret)
{
	static const struct mc_uring_opts none;
	struct mc_uring *u = calloc(1, sizeof(*u));
	int r;

	if (u == NULL)
		return -ENOMEM;
	if (opts == NULL)
		opts = &none;
	u->depth = opts->depth != 0 ? opts->depth : DEFAULT_DEPTH;
	u->io = opts->io != NULL ? opts->io : mc_io_real();
	u->event_fd = -1;
	u->tail = &u->head;
	mc_mutex_init(&u->lock);
	mc_cond_init(&u->more);
	u->native = !opts->pool && u->io == mc_io_real() && try_ring(u);
	if (u->native)
		r = start_threads(u, 1, ring_main);
	else
		r = start_threads(
			u, opts->threads != 0 ? opts->threads : DEFAULT_THREADS, pool_main);
	if (r != 0) {
		mc_uring_close(u);
		return r;
	}
	*ret = u;
	return 0;
}

static void wake_locked(struct mc_uring *u) MC_REQUIRES(u->lock)
{
	uint64_t one = 1;
	ssize_t n;

	if (!u->native) {
		mc_cond_signal(&u->more);
		return;
	}
	if (u->wake_sent)
		return;
	u->wake_sent = true;
	n = write(u->event_fd, &one, sizeof(one));
	assert(n == (ssize_t)sizeof(one));
	(void)n;
}

void mc_uring_close(struct mc_uring *u)
{
	if (u == NULL)
		return;
	mc_mutex_lock(&u->lock);
	u->stopping = true;
	if (u->native)
		wake_locked(u);
	mc_cond_broadcast(&u->more);
	mc_mutex_unlock(&u->lock);
	for (unsigned i = 0; i < u->n_threads; i++)
		pthread_join(u->threads[i], NULL);
	assert(u->head == NULL && u->in_flight == 0);
	if (u->native)
		io_uring_queue_exit(&u->ring);
	if (u->event_fd >= 0)
		close(u->event_fd);
	mc_cond_done(&u->more);
	mc_mutex_done(&u->lock);
	free(u->threads);
	free(u);
}

bool mc_uring_native(const struct mc_uring *u)
{
	return u->native;
}

void mc_uring_submit(struct mc_uring *u, struct mc_uring_req *req)
{
	req->next = NULL;
	req->moved = 0;
	mc_mutex_lock(&u->lock);
	*u->tail = req;
	u->tail = &req->next;
	wake_locked(u);
	mc_mutex_unlock(&u->lock);
}

static void waiter_done(struct mc_uring_req *req, int64_t res)
{
	mc_future_set(req->ctx, res);
}

int64_t mc_uring_run(struct mc_uring *u, struct mc_uring_req *req)
{
	struct mc_future w;

	mc_future_init(&w);
	req->done = waiter_done;
	req->ctx = &w;
	mc_uring_submit(u, req);
	return mc_future_wait(&w);
}
