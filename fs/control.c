/*
 * The control socket: an acceptor, and a thread for each connection, of which there are few.
 *
 * Invariants: 1. a slot is busy from accept until its thread's last act, and is used again only
 * after the thread was joined; 2. nothing is read beyond MC_CONTROL_LINE bytes of a line, no
 * connection stays without a request for longer than IDLE_MS, and no write waits longer than
 * WRITE_MS; 3. after stopping is set no command begins, and those under way learn it from waits.
 */
#include "fs/control.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "fs/control-request.h"
#include "fs/log.h"
#include "fs/state.h"
#include "tier/cleanup.h"

#define SLOTS 8
#define IDLE_MS 60000
#define WRITE_MS 10000

struct slot {
	struct mc_control *control;
	pthread_t thread;
	int fd;        /* owned by the thread */
	bool busy;     /* see 1 */
	bool finished; /* busy, and the thread only has to be joined */
};

struct mc_control {
	struct mc_fs *fs;
	char *path; /* owned */
	int listen_fd, quit_fd;
	dev_t dev; /* of the socket's file: not removed when another took the name */
	ino_t ino;
	pthread_t acceptor;
	atomic_bool stopping;
	struct mc_mutex lock;
	struct mc_cond ended;
	struct slot slots[SLOTS]; /* guarded by lock */
	unsigned alive;           /* threads of slots that have not finished; likewise */
};

/* Waits for events of fd, or the end. 0, -ETIMEDOUT, -ESHUTDOWN. */
static int wait_for(struct mc_control *c, int fd, short events, int timeout_ms)
{
	struct pollfd p[2] = {{.fd = fd, .events = events}, {.fd = c->quit_fd, .events = POLLIN}};
	int n;

	do
		n = poll(p, 2, timeout_ms);
	while (n < 0 && errno == EINTR);
	if (p[1].revents != 0)
		return -ESHUTDOWN;
	return n > 0 ? 0 : -ETIMEDOUT;
}

static bool send_all(struct slot *s, const char *data, size_t len)
{
	while (len > 0) {
		ssize_t n = send(s->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n > 0) {
			data += n;
			len -= (size_t)n;
		} else if (n == 0 || (errno != EAGAIN && errno != EINTR) ||
			wait_for(s->control, s->fd, POLLOUT, WRITE_MS) < 0) {
			return false;
		}
	}
	return true;
}

static bool send_line(void *ctx, const char *line, size_t len)
{
	return send_all(ctx, line, len) && send_all(ctx, "\n", 1);
}

/* A peer that closed its end waits for nothing. */
static bool still_waits(void *ctx)
{
	struct slot *s = ctx;
	char byte;
	ssize_t n = recv(s->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

	return !atomic_load(&s->control->stopping) && (n > 0 || (n < 0 && errno == EAGAIN));
}

/* The next line without its break: its length; 0 = empty; -errno when there is none. buf holds
 * *have bytes from before and keeps what follows the line, which is moved to the front by the next
 * call. */
static ssize_t read_line(struct slot *s, char *buf, size_t *have, size_t *used)
{
	memmove(buf, buf + *used, *have - *used);
	*have -= *used;
	*used = 0;
	for (;;) {
		char *end = memchr(buf, '\n', *have);
		ssize_t n;
		int r;

		if (end != NULL) {
			*used = (size_t)(end - buf) + 1;
			return end - buf;
		}
		if (*have == MC_CONTROL_LINE)
			return -EMSGSIZE;
		r = wait_for(s->control, s->fd, POLLIN, IDLE_MS);
		if (r < 0)
			return r;
		n = recv(s->fd, buf + *have, MC_CONTROL_LINE - *have, MSG_DONTWAIT);
		if (n == 0)
			return -ECONNRESET;
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return -errno;
		*have += n > 0 ? (size_t)n : 0;
	}
}

static void serve(struct slot *s)
{
	const struct mc_control_peer peer = {.send = send_line, .waits = still_waits, .ctx = s};
	cleanup_free char *buf = malloc(MC_CONTROL_LINE);
	size_t have = 0, used = 0;
	ssize_t len = buf == NULL ? -ENOMEM : 0;

	while (len >= 0 && !atomic_load(&s->control->stopping)) {
		struct mc_control_request q;
		const char *why;
		int r;

		len = read_line(s, buf, &have, &used);
		if (len < 0)
			break;
		r = mc_control_parse(buf, (size_t)len, &q, &why);
		if (r < 0) {
			mc_control_refuse(&peer, r, why);
			continue;
		}
		mc_control_run(s->control->fs, &q, &peer);
		mc_control_request_done(&q);
	}
	if (len == -EMSGSIZE)
		mc_control_refuse(&peer, -EMSGSIZE, "a request has at most 64 KiB");
}

static void *slot_main(void *arg)
{
	struct slot *s = arg;
	struct mc_control *c = s->control;

	pthread_setname_np(pthread_self(), "mc-control");
	serve(s);
	close(s->fd);
	mc_mutex_lock(&c->lock);
	s->finished = true;
	c->alive--;
	mc_cond_signal(&c->ended);
	mc_mutex_unlock(&c->lock);
	return NULL;
}

/* Only root and whoever mounted. */
static bool may_connect(const struct mc_control *c, int fd)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0 &&
		(cred.uid == 0 || cred.uid == c->fs->uid);
}

static struct slot *take_slot(struct mc_control *c)
{
	struct slot *found = NULL;
	bool join = false;

	mc_mutex_lock(&c->lock);
	for (int i = 0; i < SLOTS && found == NULL; i++)
		if (!c->slots[i].busy || c->slots[i].finished)
			found = &c->slots[i];
	if (found != NULL) {
		join = found->busy;
		found->busy = true;
		found->finished = false;
		c->alive++;
	}
	mc_mutex_unlock(&c->lock);
	if (join)
		pthread_join(found->thread, NULL);
	return found;
}

static void give_slot_back(struct mc_control *c, struct slot *s)
{
	mc_mutex_lock(&c->lock);
	s->busy = false;
	c->alive--;
	mc_mutex_unlock(&c->lock);
}

static void turn_away(struct mc_control *c, int fd, int error, const char *text)
{
	struct slot s = {.control = c, .fd = fd};
	const struct mc_control_peer peer = {.send = send_line, .ctx = &s};

	mc_control_refuse(&peer, error, text);
	close(fd);
}

static void *accept_main(void *arg)
{
	struct mc_control *c = arg;

	pthread_setname_np(pthread_self(), "mc-control");
	while (wait_for(c, c->listen_fd, POLLIN, -1) != -ESHUTDOWN) {
		int fd = accept4(c->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		struct slot *s;

		if (fd < 0) {
			/* Out of descriptors or the like: the peer waits in the queue. */
			wait_for(c, -1, 0, errno == EAGAIN || errno == ECONNABORTED ? 0 : 100);
			continue;
		}
		if (!may_connect(c, fd)) {
			turn_away(c, fd, -EACCES, "only root and the user of the mount may");
			continue;
		}
		s = take_slot(c);
		if (s == NULL) {
			turn_away(c, fd, -EBUSY, "too many connections; try again");
			continue;
		}
		s->control = c;
		s->fd = fd;
		if (pthread_create(&s->thread, NULL, slot_main, s) != 0) {
			give_slot_back(c, s);
			turn_away(c, fd, -EAGAIN, "no thread for the connection");
		}
	}
	return NULL;
}

static int listen_at(struct mc_control *c)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	struct stat st;

	if (strlen(c->path) >= sizeof(at.sun_path))
		return -ENAMETOOLONG;
	memcpy(at.sun_path, c->path, strlen(c->path) + 1);
	c->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (c->listen_fd < 0)
		return -errno;
	/* What a killed daemon left. */
	if (unlink(c->path) < 0 && errno != ENOENT)
		return -errno;
	if (bind(c->listen_fd, (struct sockaddr *)&at, sizeof(at)) < 0 ||
		chmod(c->path, 0600) < 0 || listen(c->listen_fd, SLOTS) < 0 ||
		stat(c->path, &st) < 0)
		return -errno;
	c->dev = st.st_dev;
	c->ino = st.st_ino;
	return 0;
}

/* Everything but the threads. */
static void control_free(struct mc_control *c)
{
	struct stat st;

	if (c->path != NULL && stat(c->path, &st) == 0 && st.st_dev == c->dev &&
		st.st_ino == c->ino)
		unlink(c->path);
	if (c->listen_fd >= 0)
		close(c->listen_fd);
	if (c->quit_fd >= 0)
		close(c->quit_fd);
	mc_cond_done(&c->ended);
	mc_mutex_done(&c->lock);
	free(c->path);
	free(c);
}

int mc_control_open(struct mc_fs *fs, const char *path, struct mc_control **ret)
{
	struct mc_control *c = calloc(1, sizeof(*c));
	int r;

	if (c == NULL)
		return -ENOMEM;
	c->fs = fs;
	c->listen_fd = -1;
	c->path = strdup(path);
	mc_mutex_init(&c->lock);
	mc_cond_init(&c->ended);
	c->quit_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r = c->path == NULL ? -ENOMEM : c->quit_fd < 0 ? -EMFILE : listen_at(c);
	if (r == 0)
		r = -pthread_create(&c->acceptor, NULL, accept_main, c);
	if (r < 0) {
		control_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

int mc_control_close(struct mc_control *c, uint64_t deadline_ns)
{
	uint64_t one = 1;
	ssize_t n;
	bool late;
	int r = 0;

	if (c == NULL)
		return 0;
	atomic_store(&c->stopping, true);
	n = write(c->quit_fd, &one, sizeof(one)); /* never read: every thread sees it */
	(void)n;
	pthread_join(c->acceptor, NULL);
	mc_mutex_lock(&c->lock);
	while (c->alive > 0 && r == 0)
		r = mc_cond_wait_until(&c->ended, &c->lock, deadline_ns);
	late = c->alive > 0;
	mc_mutex_unlock(&c->lock);
	if (late)
		return -ETIMEDOUT;
	for (int i = 0; i < SLOTS; i++)
		if (c->slots[i].busy)
			pthread_join(c->slots[i].thread, NULL);
	control_free(c);
	return 0;
}
