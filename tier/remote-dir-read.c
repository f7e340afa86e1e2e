/*
 * Reads of remote kind "dir": a few threads open and check, io_uring reads.
 *
 * 1. A read is in the queue, with one of the threads, or in the ring, and in one place only; the
 * one who takes it from there ends it or hands it on.
 * 2. A dir_fd is in the map or dead; it is freed by the last of its references, and only a dead one
 *    can lose its last reference: the map holds one.
 * 3. The object is looked at (fstat) before each read: a removed inode, a broken guard, or a
 *    path that no longer leads there after FD_TTL_NS lead to one new open before the answer is
 * -ESTALE.
 */
#include "tier/remote-dir.h"

#include "tier/cleanup.h"

#include <fcntl.h>
#include <stdio.h>

#define MAX_FDS 256
#define FD_TTL_NS UINT64_C(3000000000) /* a replaced object is noticed by reads after this */
#define DIRECT_ALIGN 4096
#define MAX_TRIES 3

#define DIRECT_UNTRIED (-1)

struct dir_fd {
	struct mc_lru_node node;
	int fd;                      /* owned */
	_Atomic int direct_fd;       /* owned when >= 0, of the same inode; else DIRECT_UNTRIED */
	_Atomic bool direct_refused; /* the file system does not take O_DIRECT */
	dev_t dev;
	ino_t ino;
	uint64_t instance; /* of this open inode: two that were open at once never share it */
	uint64_t seen_ns;  /* when the path was last known to lead here; under reads.lock */
	unsigned refs;     /* under reads.lock; the map's included */
};

/* A read in the ring. */
struct dir_io {
	struct mc_uring_req u;
	struct mc_dir *d;
	struct mc_remote_read *req;
	struct dir_fd *f; /* a reference */
	bool direct;
};

static void fd_unref_locked(struct dir_fd *f)
{
	if (--f->refs > 0)
		return;
	if (f->direct_fd >= 0)
		close(f->direct_fd);
	close(f->fd);
	free(f);
}

static void fd_drop_locked(struct mc_dir_reads *rs, struct dir_fd *f) MC_REQUIRES(rs->lock)
{
	if (f->node.key == NULL)
		return;
	mc_lru_remove(&rs->fds, &f->node);
	fd_unref_locked(f);
}

static void fd_put(struct mc_dir_reads *rs, struct dir_fd *f, bool drop)
{
	mc_mutex_lock(&rs->lock);
	if (drop)
		fd_drop_locked(rs, f);
	fd_unref_locked(f);
	mc_mutex_unlock(&rs->lock);
}

void mc_dir_reads_forget(struct mc_dir *d, const char *path, const struct stat *unless)
{
	struct mc_dir_reads *rs = &d->reads;
	struct dir_fd *f;

	mc_mutex_lock(&rs->lock);
	f = mc_lru_find(&rs->fds, path);
	if (f != NULL && (unless == NULL || unless->st_dev != f->dev || unless->st_ino != f->ino))
		fd_drop_locked(rs, f);
	mc_mutex_unlock(&rs->lock);
}

static int fd_open(struct mc_dir *d, const char *path, struct dir_fd **ret)
{
	/* O_NONBLOCK: a FIFO that somebody put there must not stop the thread. */
	cleanup_close int fd = mc_dir_open_at(d, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
	struct dir_fd *f;
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
	f = calloc(1, sizeof(*f));
	if (f == NULL)
		return -ENOMEM;
	f->fd = steal_fd(fd);
	f->direct_fd = DIRECT_UNTRIED;
	f->dev = st.st_dev;
	f->ino = st.st_ino;
	f->seen_ns = mc_now_ns();
	f->instance = atomic_fetch_add(&d->reads.instances, 1);
	f->refs = 1;
	*ret = f;
	return 0;
}

/* Whether the path still leads to the inode that f holds open (and whose number is thus not
 * reused). */
static bool still_there(struct mc_dir *d, const char *path, const struct dir_fd *f)
{
	cleanup_close int fd = mc_dir_open_at(d, path, O_PATH, 0);
	struct stat st;

	return fd >= 0 && fstat(fd, &st) == 0 && st.st_dev == f->dev && st.st_ino == f->ino;
}

/* The kept descriptor of that path with a reference, or NULL. */
static struct dir_fd *fd_kept(struct mc_dir *d, const char *path)
{
	struct mc_dir_reads *rs = &d->reads;
	uint64_t now = mc_now_ns();
	struct dir_fd *f;
	bool old;

	mc_mutex_lock(&rs->lock);
	f = mc_lru_find(&rs->fds, path);
	old = f != NULL && now - f->seen_ns > FD_TTL_NS;
	if (f != NULL)
		f->refs++;
	mc_mutex_unlock(&rs->lock);
	if (!old)
		return f;
	if (!still_there(d, path, f)) {
		fd_put(rs, f, true);
		return NULL;
	}
	mc_mutex_lock(&rs->lock);
	f->seen_ns = now;
	mc_mutex_unlock(&rs->lock);
	return f;
}

/* A reference to the open file of that path; *ret_fresh when it was opened for this call. */
static int fd_get(struct mc_dir *d, const char *path, struct dir_fd **ret, bool *ret_fresh)
{
	struct mc_dir_reads *rs = &d->reads;
	struct dir_fd *f = fd_kept(d, path), *other;
	int r;

	*ret_fresh = f == NULL;
	if (f != NULL) {
		*ret = f;
		return 0;
	}
	r = fd_open(d, path, &f);
	if (r < 0)
		return r;
	mc_mutex_lock(&rs->lock);
	other = mc_lru_find(&rs->fds, path);
	if (other != NULL && other->dev == f->dev && other->ino == f->ino) {
		other->refs++; /* another thread was as quick: one instance for both */
		fd_unref_locked(f);
		f = other;
	} else {
		if (other != NULL)
			fd_drop_locked(rs, other);
		if (mc_lru_insert(&rs->fds, &f->node, path) == 0)
			f->refs++;
		while (rs->fds.n > MAX_FDS)
			fd_drop_locked(rs, mc_lru_oldest(&rs->fds));
	}
	mc_mutex_unlock(&rs->lock);
	*ret = f;
	return 0;
}

static bool matches(const struct mc_remote_read *req, const struct stat *st)
{
	const struct mc_guard *g = &req->guard;

	if (st->st_nlink == 0)
		return false;
	if (g->set &&
		((uint64_t)st->st_size != g->size || st->st_mtim.tv_sec != g->mtime_s ||
			(uint32_t)st->st_mtim.tv_nsec != g->mtime_ns))
		return false;
	return req->off + req->len <= (uint64_t)st->st_size;
}

/* An open file that is what the request wants, or why there is none. */
static int fd_for(struct mc_dir *d, const struct mc_remote_read *req, struct dir_fd **ret)
{
	for (int tries = 0; tries < 2; tries++) {
		struct dir_fd *f;
		struct stat st;
		bool fresh;
		int r = fd_get(d, req->path, &f, &fresh);

		if (r < 0)
			return r;
		r = fstat(f->fd, &st) < 0 ? -errno : 0;
		if (r == 0 && matches(req, &st)) {
			*ret = f;
			return 0;
		}
		fd_put(&d->reads, f, true);
		if (r < 0 && r != -ESTALE)
			return r;
		if (fresh)
			break;
	}
	return -ESTALE;
}

/* The descriptor to read through; opens the O_DIRECT one at its first use. */
static int choose_fd(const struct mc_remote_read *req, struct dir_fd *f, bool *ret_direct)
{
	char link[32];
	int fd = f->direct_fd, expected = DIRECT_UNTRIED;

	*ret_direct = false;
	if (((uintptr_t)req->buf | req->off | req->len) % DIRECT_ALIGN != 0 || f->direct_refused)
		return f->fd;
	if (fd == DIRECT_UNTRIED) {
		snprintf(link, sizeof(link), "/proc/self/fd/%d", f->fd);
		fd = open(link, O_RDONLY | O_DIRECT | O_CLOEXEC);
		if (fd < 0) {
			f->direct_refused = true;
			return f->fd;
		}
		if (!atomic_compare_exchange_strong(&f->direct_fd, &expected, fd)) {
			close(fd);
			fd = expected;
		}
	}
	*ret_direct = true;
	return fd;
}

static void submit(struct dir_io *io)
{
	atomic_fetch_add(&io->d->counters->requests, 1);
	io->u.fd = choose_fd(io->req, io->f, &io->direct);
	mc_uring_submit(io->d->reads.uring, &io->u);
}

static void enqueue(struct mc_dir *d, struct mc_remote_read *req)
{
	struct mc_dir_reads *rs = &d->reads;
	bool stopping;

	req->next = NULL;
	mc_mutex_lock(&rs->lock);
	stopping = rs->stopping;
	if (!stopping) {
		*rs->tail = req;
		rs->tail = &req->next;
		mc_cond_signal(&rs->wake);
	}
	mc_mutex_unlock(&rs->lock);
	if (stopping)
		mc_backend_read_done(req, -ESHUTDOWN);
}

void mc_dir_read(struct mc_backend *b, struct mc_remote_read *req)
{
	req->priv[0] = 0; /* tries */
	enqueue((struct mc_dir *)b, req);
}

/* On the ring's thread. */
static void io_done(struct mc_uring_req *u, int64_t res)
{
	struct dir_io *io = u->ctx;
	struct mc_remote_read *req = io->req;
	struct mc_dir *d = io->d;

	if (res == -EINVAL && io->direct) {
		/* Refused at read time. The descriptor stays open: others may be using it. */
		atomic_store(&io->f->direct_refused, true);
		submit(io);
		return;
	}
	req->instance = io->f->instance;
	fd_put(&d->reads, io->f, res == -ESTALE);
	free(io);
	if (res == -ESTALE && ++req->priv[0] < MAX_TRIES)
		enqueue(d, req); /* a network file system forgot the inode: open again */
	else if (res < 0)
		mc_backend_read_done(req, res > -4096 ? (int)res : -EIO);
	else
		mc_backend_read_done(req, res == req->len ? 0 : -ESTALE);
}

static void start(struct mc_dir *d, struct mc_remote_read *req)
{
	struct dir_io *io;
	struct dir_fd *f;
	int r = mc_now_ns() >= req->deadline_ns ? -ETIMEDOUT : fd_for(d, req, &f);

	if (r < 0) {
		mc_backend_read_done(req, r);
		return;
	}
	io = calloc(1, sizeof(*io));
	if (io == NULL) {
		fd_put(&d->reads, f, false);
		mc_backend_read_done(req, -ENOMEM);
		return;
	}
	io->d = d;
	io->req = req;
	io->f = f;
	io->u = (struct mc_uring_req){.kind = MC_URING_READ,
		.off = req->off,
		.len = req->len,
		.buf = req->buf,
		.done = io_done,
		.ctx = io};
	submit(io);
}

static void *reads_main(void *arg)
{
	struct mc_dir *d = arg;
	struct mc_dir_reads *rs = &d->reads;
	bool stopping;

	pthread_setname_np(pthread_self(), "mc-dir-read");
	mc_mutex_lock(&rs->lock);
	for (;;) {
		struct mc_remote_read *req;

		while (rs->head == NULL && !rs->stopping)
			mc_cond_wait(&rs->wake, &rs->lock);
		req = rs->head;
		if (req == NULL)
			break;
		rs->head = req->next;
		if (rs->head == NULL)
			rs->tail = &rs->head;
		stopping = rs->stopping;
		mc_mutex_unlock(&rs->lock);
		if (stopping)
			mc_backend_read_done(req, -ESHUTDOWN);
		else
			start(d, req);
		mc_mutex_lock(&rs->lock);
	}
	mc_mutex_unlock(&rs->lock);
	return NULL;
}

int mc_dir_reads_init(struct mc_dir *d, const struct mc_remote_opts *opts)
{
	struct mc_dir_reads *rs = &d->reads;
	struct mc_uring_opts uo = {.depth = opts->connections * opts->depth};
	int r = mc_lru_init(&rs->fds, MAX_FDS);

	if (r < 0)
		return r;
	r = mc_uring_open(&uo, &rs->uring);
	if (r < 0) {
		mc_lru_done(&rs->fds);
		return r;
	}
	mc_mutex_init(&rs->lock);
	mc_cond_init(&rs->wake);
	rs->tail = &rs->head;
	while (rs->n_threads < sizeof(rs->threads) / sizeof(*rs->threads)) {
		if (pthread_create(&rs->threads[rs->n_threads], NULL, reads_main, d) != 0) {
			mc_dir_reads_stop(d);
			mc_dir_reads_done(d);
			return -EAGAIN;
		}
		rs->n_threads++;
	}
	return 0;
}

void mc_dir_reads_stop(struct mc_dir *d)
{
	struct mc_dir_reads *rs = &d->reads;

	mc_mutex_lock(&rs->lock);
	rs->stopping = true;
	mc_cond_broadcast(&rs->wake);
	mc_mutex_unlock(&rs->lock);
}

void mc_dir_reads_done(struct mc_dir *d)
{
	struct mc_dir_reads *rs = &d->reads;
	struct dir_fd *f;

	for (unsigned i = 0; i < rs->n_threads; i++)
		pthread_join(rs->threads[i], NULL);
	mc_uring_close(rs->uring);
	mc_mutex_lock(&rs->lock);
	while ((f = mc_lru_oldest(&rs->fds)) != NULL)
		fd_drop_locked(rs, f);
	mc_lru_done(&rs->fds);
	mc_mutex_unlock(&rs->lock);
	mc_cond_done(&rs->wake);
	mc_mutex_done(&rs->lock);
}
