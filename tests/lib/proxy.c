/*
 * The TCP proxy: one thread, one poll loop, two one-buffer pipes per connection.
 *
 * Invariants
 * 1. Only the loop thread touches connections and the listening socket; other threads leave an
 *    order under the lock, wake the loop and wait until it has been taken.
 * 2. A pipe reads only when its buffer is empty, so what it holds is at most PIPE_SIZE.
 * 3. A slot of conns[] is free exactly while its client descriptor is −1.
 */
#include "tests/lib/proxy.h"

#include "tier/lock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNS_MAX 128
#define PIPE_SIZE (256u << 10)
#define BURST_NS 20000000u /* tokens of at most 20 ms are saved up */
#define UP 0               /* client → server */
#define DOWN 1             /* server → client */

struct pipe {
	uint8_t *buf; /* owned, PIPE_SIZE */
	size_t pos, end;
	bool eof; /* the source has ended and that was passed on */
};

struct conn {
	int fd[2]; /* client, server; owned */
	struct pipe pipe[2];
	uint64_t left; /* bytes to the client until this connection is cut, UINT64_MAX = never */
};

struct proxy {
	uint16_t port, target;
	int wake_fd; /* owned */
	pthread_t thread;

	struct mc_mutex lock;
	struct mc_cond taken;
	uint64_t orders, orders_taken;
	enum proxy_mode order_mode;
	uint64_t order_value;
	bool stop;
	struct proxy_stats stats;

	/* the loop's own */
	int listen_fd; /* −1 while connections are refused */
	enum proxy_mode mode;
	uint64_t value;
	int64_t tokens[2];
	uint64_t refilled_ns;
	struct conn conns[CONNS_MAX];
};

static int listen_on(uint16_t port, uint16_t *ret_port)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1, r;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, CONNS_MAX) < 0 ||
		getsockname(fd, (struct sockaddr *)&a, &len) < 0) {
		r = -errno;
		close(fd);
		return r;
	}
	if (ret_port)
		*ret_port = ntohs(a.sin_port);
	return fd;
}

static int connect_to(uint16_t port)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), r;

	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
		r = -errno;
		close(fd);
		return r;
	}
	return fd;
}

static void conn_end(struct conn *c)
{
	for (int d = 0; d < 2; d++) {
		if (c->fd[d] >= 0)
			close(c->fd[d]);
		c->fd[d] = -1;
		free(c->pipe[d].buf);
		c->pipe[d] = (struct pipe){0};
	}
}

static void conns_end(struct proxy *p)
{
	for (size_t i = 0; i < CONNS_MAX; i++)
		conn_end(&p->conns[i]);
}

static struct conn *free_slot(struct proxy *p)
{
	for (size_t i = 0; i < CONNS_MAX; i++)
		if (p->conns[i].fd[0] < 0)
			return &p->conns[i];
	return NULL;
}

static void accept_one(struct proxy *p)
{
	int fd = accept4(p->listen_fd, NULL, NULL, SOCK_CLOEXEC), one = 1;
	struct conn *c = free_slot(p);

	if (fd < 0)
		return;
	if (!c) {
		close(fd);
		return;
	}
	c->fd[0] = fd;
	c->fd[1] = connect_to(p->target);
	c->pipe[UP].buf = malloc(PIPE_SIZE);
	c->pipe[DOWN].buf = malloc(PIPE_SIZE);
	c->left = p->mode == PROXY_CUT_EACH ? p->value : UINT64_MAX;
	if (c->fd[1] < 0 || !c->pipe[UP].buf || !c->pipe[DOWN].buf) {
		conn_end(c);
		return;
	}
	setsockopt(c->fd[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(c->fd[1], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	mc_mutex_lock(&p->lock);
	p->stats.connections++;
	mc_mutex_unlock(&p->lock);
}

/* A cut that has nothing left to let through happens now. */
static void apply(struct proxy *p, enum proxy_mode mode, uint64_t value)
{
	p->mode = mode;
	p->value = value;
	p->tokens[UP] = p->tokens[DOWN] = 0;
	if (mode == PROXY_REFUSE || (mode == PROXY_CUT && value == 0)) {
		conns_end(p);
		if (mode == PROXY_CUT)
			p->mode = PROXY_PASS;
	}
	if (mode == PROXY_REFUSE && p->listen_fd >= 0) {
		close(p->listen_fd);
		p->listen_fd = -1;
	} else if (mode != PROXY_REFUSE && p->listen_fd < 0) {
		p->listen_fd = listen_on(p->port, NULL);
	}
}

/* How many of len bytes may go now in direction d of c. */
static size_t allowed(const struct proxy *p, const struct conn *c, int d, size_t len)
{
	if (p->mode == PROXY_HANG)
		return 0;
	if (p->mode == PROXY_RATE && p->tokens[d] < (int64_t)len)
		len = p->tokens[d] > 0 ? (size_t)p->tokens[d] : 0;
	if (d == DOWN && p->mode == PROXY_CUT && p->value < len)
		len = (size_t)p->value;
	if (d == DOWN && c->left < len)
		len = (size_t)c->left;
	return len;
}

/* Books n bytes that went in direction d, and cuts where they were the last ones allowed. */
static void book(struct proxy *p, struct conn *c, int d, size_t n)
{
	mc_mutex_lock(&p->lock);
	*(d == UP ? &p->stats.to_server : &p->stats.to_client) += n;
	mc_mutex_unlock(&p->lock);
	if (p->mode == PROXY_RATE)
		p->tokens[d] -= (int64_t)n;
	if (d == UP)
		return;
	if (c->left != UINT64_MAX)
		c->left -= n;
	if (c->left == 0)
		conn_end(c);
	if (p->mode == PROXY_CUT) {
		p->value -= n;
		if (p->value == 0)
			apply(p, PROXY_CUT, 0);
	}
}

/* One read or write of a pipe whose descriptor is ready. */
static void pipe_move(struct proxy *p, struct conn *c, int d)
{
	struct pipe *q = &c->pipe[d];
	int from = c->fd[d], to = c->fd[1 - d];
	size_t len;
	ssize_t n;

	if (q->pos == q->end) {
		n = recv(from, q->buf, PIPE_SIZE, MSG_DONTWAIT);
		if (n < 0 && errno != EAGAIN && errno != EINTR) {
			conn_end(c);
		} else if (n == 0) {
			q->eof = true;
			shutdown(to, SHUT_WR);
			if (c->pipe[1 - d].eof)
				conn_end(c);
		} else if (n > 0) {
			q->pos = 0;
			q->end = (size_t)n;
		}
		if (n <= 0)
			return;
	}
	len = allowed(p, c, d, q->end - q->pos);
	if (len == 0)
		return;
	n = send(to, q->buf + q->pos, len, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n < 0) {
		if (errno != EAGAIN && errno != EINTR)
			conn_end(c);
		return;
	}
	q->pos += (size_t)n;
	book(p, c, d, (size_t)n);
}

static void refill(struct proxy *p)
{
	uint64_t now = mc_now_ns(), dt = now - p->refilled_ns;

	p->refilled_ns = now;
	if (p->mode != PROXY_RATE)
		return;
	if (dt > BURST_NS)
		dt = BURST_NS;
	for (int d = 0; d < 2; d++) {
		int64_t cap = (int64_t)((double)p->value * BURST_NS / 1e9) + 1;

		p->tokens[d] += (int64_t)((double)p->value * (double)dt / 1e9 + 0.5);
		if (p->tokens[d] > cap)
			p->tokens[d] = cap;
	}
}

/* Takes the waiting order, if any; false when the loop has to end. */
static bool take_order(struct proxy *p)
{
	uint64_t drained;
	bool go_on;

	if (read(p->wake_fd, &drained, sizeof(drained)) < 0 && errno != EAGAIN)
		return false;
	mc_mutex_lock(&p->lock);
	if (p->orders_taken != p->orders) {
		apply(p, p->order_mode, p->order_value);
		p->orders_taken = p->orders;
		mc_cond_broadcast(&p->taken);
	}
	go_on = !p->stop;
	mc_mutex_unlock(&p->lock);
	return go_on;
}

/* Fills fds with what the pipes of all connections wait for; returns false if tokens are awaited.
 */
static bool interests(const struct proxy *p, struct pollfd *fds)
{
	bool flowing = true;

	for (size_t i = 0; i < CONNS_MAX; i++) {
		const struct conn *c = &p->conns[i];

		for (int k = 0; k < 2; k++)
			fds[2 * i + (size_t)k] = (struct pollfd){.fd = -1};
		if (c->fd[0] < 0 || p->mode == PROXY_HANG)
			continue;
		for (int d = 0; d < 2; d++) {
			const struct pipe *q = &c->pipe[d];

			if (q->pos == q->end && !q->eof)
				fds[2 * i + (size_t)d].events |= POLLIN;
			else if (q->pos < q->end && allowed(p, c, d, 1) > 0)
				fds[2 * i + 1 - (size_t)d].events |= POLLOUT;
			else if (q->pos < q->end)
				flowing = false;
		}
		for (int k = 0; k < 2; k++)
			if (fds[2 * i + (size_t)k].events)
				fds[2 * i + (size_t)k].fd = c->fd[k];
	}
	return flowing;
}

static void move_all(struct proxy *p, struct pollfd *fds)
{
	for (size_t i = 0; i < CONNS_MAX; i++) {
		struct conn *c = &p->conns[i];

		for (int d = 0; d < 2 && c->fd[0] >= 0; d++) {
			const struct pipe *q = &c->pipe[d];
			bool empty = q->pos == q->end;
			short got = fds[2 * i + (size_t)(empty ? d : 1 - d)].revents;

			if (fds[2 * i].fd < 0 && fds[2 * i + 1].fd < 0)
				break;
			if (empty ? !q->eof && got & (POLLIN | POLLHUP | POLLERR)
				  : got & (POLLOUT | POLLERR))
				pipe_move(p, c, d);
		}
	}
}

static void *loop(void *arg)
{
	struct proxy *p = arg;
	struct pollfd fds[2 + 2 * CONNS_MAX];

	while (take_order(p)) {
		bool flowing;

		refill(p);
		flowing = interests(p, fds + 2);
		fds[0] = (struct pollfd){.fd = p->wake_fd, .events = POLLIN};
		fds[1] = (struct pollfd){.fd = p->listen_fd, .events = POLLIN};
		if (poll(fds, 2 + 2 * CONNS_MAX, flowing ? -1 : 1) < 0 && errno != EINTR)
			break;
		refill(p);
		move_all(p, fds + 2);
		if (fds[1].revents & POLLIN)
			accept_one(p);
	}
	return NULL;
}

int proxy_open(uint16_t target_port, struct proxy **ret_proxy)
{
	struct proxy *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return -ENOMEM;
	p->target = target_port;
	p->refilled_ns = mc_now_ns();
	for (size_t i = 0; i < CONNS_MAX; i++)
		p->conns[i].fd[0] = p->conns[i].fd[1] = -1;
	p->listen_fd = listen_on(0, &p->port);
	if (p->listen_fd < 0) {
		r = p->listen_fd;
		free(p);
		return r;
	}
	p->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r = p->wake_fd < 0 ? -errno : 0;
	mc_mutex_init(&p->lock);
	mc_cond_init(&p->taken);
	if (r == 0)
		r = -pthread_create(&p->thread, NULL, loop, p);
	if (r < 0) {
		if (p->wake_fd >= 0)
			close(p->wake_fd);
		close(p->listen_fd);
		mc_cond_done(&p->taken);
		mc_mutex_done(&p->lock);
		free(p);
		return r;
	}
	*ret_proxy = p;
	return 0;
}

static void wake(struct proxy *p)
{
	uint64_t one = 1;
	ssize_t n = write(p->wake_fd, &one, sizeof(one));

	assert(n == sizeof(one));
	(void)n;
}

void proxy_close(struct proxy *p)
{
	if (!p)
		return;
	mc_mutex_lock(&p->lock);
	p->stop = true;
	mc_mutex_unlock(&p->lock);
	wake(p);
	pthread_join(p->thread, NULL);
	conns_end(p);
	if (p->listen_fd >= 0)
		close(p->listen_fd);
	close(p->wake_fd);
	mc_cond_done(&p->taken);
	mc_mutex_done(&p->lock);
	free(p);
}

uint16_t proxy_port(const struct proxy *p)
{
	return p->port;
}

void proxy_set(struct proxy *p, enum proxy_mode mode, uint64_t value)
{
	uint64_t mine;

	mc_mutex_lock(&p->lock);
	p->order_mode = mode;
	p->order_value = value;
	mine = ++p->orders;
	wake(p);
	while (p->orders_taken < mine)
		mc_cond_wait(&p->taken, &p->lock);
	mc_mutex_unlock(&p->lock);
}

void proxy_stats(struct proxy *p, struct proxy_stats *ret_stats)
{
	mc_mutex_lock(&p->lock);
	*ret_stats = p->stats;
	mc_mutex_unlock(&p->lock);
}
