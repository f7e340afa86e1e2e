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
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fs/log.h"

#define REPEATED (UINT64_C(1) << 63) /* FUSE_UNIQUE_RESEND of linux/fuse.h since 6.9 */

static _Thread_local bool repeated;

struct mc_loop {
	struct fuse_session *se;
	struct mc_loop_calls calls;
	int quit_fd;  /* eventfd, owned */
	int ended_fd; /* eventfd, owned */
	pthread_t *threads;
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

/* Serves requests until there is none. 0: poll again; < 0: the session is over. */
static int drain(struct mc_loop *l, struct fuse_buf *buf)
{
	for (;;) {
		int r = fuse_session_receive_buf(l->se, buf);

		if (r == -EAGAIN || r == -EINTR)
			return 0;
		if (r <= 0)
			return r < 0 ? r : -ENODEV;
		l->calls.received(l->calls.ctx, buf);
		repeated = is_repeated(buf);
		fuse_session_process_buf(l->se, buf);
		l->calls.served(l->calls.ctx);
	}
}

static void *loop_main(void *arg)
{
	struct mc_loop *l = arg;
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
		if (p[1].revents != 0)
			break;
		r = drain(l, &buf);
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
		r = -pthread_create(&l->threads[l->n_threads], NULL, loop_main, l);
		l->n_threads += r == 0;
	}
	if (r < 0) {
		mc_loop_close(l);
		return r;
	}
	*ret = l;
	return 0;
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
		pthread_join(l->threads[i], NULL);
	if (l->quit_fd >= 0)
		close(l->quit_fd);
	if (l->ended_fd >= 0)
		close(l->ended_fd);
	free(l->threads);
	free(l);
}
