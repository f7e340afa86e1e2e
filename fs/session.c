/*
 * The event loop.
 *
 * Invariants: 1. The device descriptor is non-blocking: several threads poll it, one gets the
 * request, the others find nothing. 2. quit_fd is written once and never read, so every thread sees
 * it.
 */
#include "fs/session.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fs/log.h"
#include "tier/lock.h"

#define REST_NS UINT64_C(1000000000)
#define REPEATED (UINT64_C(1) << 63) /* FUSE_UNIQUE_RESEND of linux/fuse.h since 6.9 */

static _Thread_local bool repeated;

struct thread {
	struct mc_loop *loop;
	pthread_t id;
	_Atomic(uint64_t) since_ns; /* when its request came; 0 = it waits for one */
};

struct mc_loop {
	struct fuse_session *se;
	struct mc_loop_calls calls;
	int quit_fd;               /* eventfd, owned */
	int ended_fd;              /* eventfd, owned */
	_Atomic(uint64_t) rest_ns; /* after quit_fd: until when requests are served that wait */
	struct thread *threads;    /* owned */
	unsigned n_threads;
};

static void post(int fd)
{
	uint64_t one = 1;
	ssize_t n = write(fd, &one, sizeof(one));

	(void)n; /* only fails when the counter is full, and then it is readable anyway */
}

static bool is_repeated(const struct fuse_buf *buf)
{
	struct fuse_in_header h;

	if (buf->size < sizeof(h) || (buf->flags & FUSE_BUF_IS_FD) != 0)
		return false;
	memcpy(&h, buf->mem, sizeof(h));
	return (h.unique & REPEATED) != 0;
}

bool mc_loop_is_repeated(void)
{
	return repeated;
}

/* Serves requests until there is none, or it is until_ns. 0: poll again; < 0: the session is over.
 */
static int drain(struct thread *t, struct fuse_buf *buf, uint64_t until_ns)
{
	struct mc_loop *l = t->loop;

	while (mc_now_ns() < until_ns) {
		int r = fuse_session_receive_buf(l->se, buf);

		if (r == -EAGAIN || r == -EINTR)
			return 0;
		if (r <= 0)
			return r < 0 ? r : -ENODEV;
		atomic_store_explicit(&t->since_ns, mc_now_ns(), memory_order_relaxed);
		l->calls.received(l->calls.ctx, buf);
		repeated = is_repeated(buf);
		fuse_session_process_buf(l->se, buf);
		l->calls.served(l->calls.ctx);
		atomic_store_explicit(&t->since_ns, 0, memory_order_relaxed);
	}
	return 0;
}

static void *loop_main(void *arg)
{
	struct thread *t = arg;
	struct mc_loop *l = t->loop;
	struct fuse_buf buf = {0};
	struct pollfd p[2] = {{.fd = fuse_session_fd(l->se), .events = POLLIN},
		{.fd = l->quit_fd, .events = POLLIN}};
	int r = 0;

	pthread_setname_np(pthread_self(), "mc-fuse");
	while (r == 0) {
		r = poll(p, 2, -1);
		if (r < 0) {
			r = errno == EINTR ? 0 : -errno;
			continue;
		}
		if (p[1].revents != 0) {
			r = drain(t, &buf, atomic_load(&l->rest_ns));
			break;
		}
		r = drain(t, &buf, UINT64_MAX);
	}
	if (r < 0 && r != -ENODEV)
		mc_log(MC_LOG_ERROR, "device-failed", "error=\"%s\"", strerror(-r));
	free(buf.mem);
	post(l->ended_fd);
	return NULL;
}

int mc_loop_open(struct fuse_session *se, unsigned threads, const struct mc_loop_calls *calls,
	struct mc_loop **ret)
{
	struct mc_loop *l = calloc(1, sizeof(*l));
	int flags = fcntl(fuse_session_fd(se), F_GETFL);
	int r = 0;

	if (l == NULL)
		return -ENOMEM;
	*l = (struct mc_loop){.se = se, .calls = *calls};
	l->quit_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	l->ended_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	l->threads = calloc(threads, sizeof(*l->threads));
	if (l->quit_fd < 0 || l->ended_fd < 0)
		r = -EMFILE;
	else if (l->threads == NULL)
		r = -ENOMEM;
	else if (flags < 0 || fcntl(fuse_session_fd(se), F_SETFL, flags | O_NONBLOCK) < 0)
		r = -errno;
	while (r == 0 && l->n_threads < threads) {
		struct thread *t = &l->threads[l->n_threads];

		t->loop = l;
		r = -pthread_create(&t->id, NULL, loop_main, t);
		l->n_threads += r == 0;
	}
	if (r < 0) {
		mc_loop_close(l);
		return r;
	}
	*ret = l;
	return 0;
}

uint64_t mc_loop_busy_ns(const struct mc_loop *l, uint64_t now_ns)
{
	uint64_t longest = 0;

	for (unsigned i = 0; i < l->n_threads; i++) {
		uint64_t since =
			atomic_load_explicit(&l->threads[i].since_ns, memory_order_relaxed);

		if (since != 0 && since < now_ns && now_ns - since > longest)
			longest = now_ns - since;
	}
	return longest;
}

int mc_loop_ended_fd(const struct mc_loop *l)
{
	return l->ended_fd;
}

void mc_loop_close(struct mc_loop *l)
{
	if (l == NULL)
		return;
	if (l->quit_fd >= 0)
		post(l->quit_fd);
	for (unsigned i = 0; i < l->n_threads; i++)
		pthread_join(l->threads[i].id, NULL);
	if (l->quit_fd >= 0)
		close(l->quit_fd);
	if (l->ended_fd >= 0)
		close(l->ended_fd);
	free(l->threads);
	free(l);
}

void mc_loop_finish(struct mc_loop *l)
{
	if (l != NULL)
		atomic_store(&l->rest_ns, mc_now_ns() + REST_NS);
	mc_loop_close(l);
}

bool mc_session_is_idle(struct fuse_session *se)
{
	struct pollfd p = {.fd = fuse_session_fd(se), .events = POLLIN};

	return poll(&p, 1, 0) == 0;
}
