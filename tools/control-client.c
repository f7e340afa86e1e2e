/* The other end of fs/control.c. */
#include "tools/control-client.h"

#include "fs/fs.h"
#include "tier/cleanup.h"

#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define ANSWER_MAX (UINT64_C(64) << 20) /* bytes of one line */
#define SILENCE_MS 60000 /* progress comes four times a second; other answers at once */

static int find(const char *mountpoint, struct mc_mount *ret, struct mc_err *err)
{
	char path[PATH_MAX];
	int r;

	if (mountpoint == NULL) {
		r = mc_mount_only(ret);
		return r == -EEXIST ? mc_err_set(err, r,
					      "there are several mounts, such as %s: say which "
					      "MOUNTPOINT",
					      ret->path)
			: r < 0     ? mc_err_set(err, r, "no mooncakefs is mounted here")
				    : 0;
	}
	r = mc_mount_resolve(mountpoint, path);
	if (r == 0)
		r = mc_mount_find(path, ret);
	if (r == 0 && strcmp(ret->type, "fuse.mooncakefs") != 0)
		r = -ENOENT;
	return r < 0 ? mc_err_set(err, r, "no mooncakefs is mounted at %s", mountpoint) : 0;
}

/* Only the daemon's user, or root, may pass for the daemon. */
static int check_peer(const struct mc_client *c, struct mc_err *err)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	if (getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0 ||
		(cred.uid != 0 && cred.uid != c->mount.owner))
		return mc_err_set(err, -EACCES, "the control socket of %s belongs to another user",
			c->mount.path);
	return 0;
}

int mc_client_connect(const struct mc_mount *m, struct mc_client *ret, struct mc_err *err)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	char dir[64];
	int r;

	*ret = (struct mc_client){.mount = *m, .fd = -1};
	mc_run_dir(m->owner, dir, sizeof(dir));
	snprintf(to.sun_path, sizeof(to.sun_path), "%s/" MC_CONTROL_NAME, dir, m->minor);
	ret->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (ret->fd < 0)
		return mc_err_set(err, -errno, "socket: %s", strerror(errno));
	if (connect(ret->fd, (struct sockaddr *)&to, sizeof(to)) < 0) {
		r = -errno;
		mc_client_close(ret);
		return mc_err_set(err, r, "the daemon of %s does not listen at %s: %s%s", m->path,
			to.sun_path, strerror(-r),
			r == -EACCES ? "; be root or the user who mounted" : "");
	}
	r = check_peer(ret, err);
	if (r < 0)
		mc_client_close(ret);
	return r;
}

int mc_client_open(const char *mountpoint, struct mc_client *ret, struct mc_err *err)
{
	struct mc_mount m;
	int r = find(mountpoint, &m, err);

	return r < 0 ? r : mc_client_connect(&m, ret, err);
}

void mc_client_close(struct mc_client *c)
{
	if (c->fd >= 0)
		close(c->fd);
	free(c->buf);
	*c = (struct mc_client){.fd = -1};
}

static int lost(const struct mc_client *c, int r, struct mc_err *err)
{
	return mc_err_set(err, r, "the daemon of %s: %s", c->mount.path,
		r == -EPIPE ? "it has ended the connection" : strerror(-r));
}

static int send_line(struct mc_client *c, const char *line, struct mc_err *err)
{
	cleanup_free char *text = NULL;
	int len = asprintf(&text, "%s\n", line);
	ssize_t n;

	if (len < 0)
		return mc_err_set(err, -ENOMEM, "out of memory");
	for (size_t at = 0; at < (size_t)len; at += (size_t)n) {
		n = send(c->fd, text + at, (size_t)len - at, MSG_NOSIGNAL);
		if (n < 0)
			return lost(c, -errno, err);
	}
	return 0;
}

/* Room for more, and more. */
static int receive(struct mc_client *c, struct mc_err *err)
{
	struct pollfd p = {.fd = c->fd, .events = POLLIN};
	ssize_t n;

	if (c->have == c->cap) {
		size_t cap = c->cap == 0 ? 65536 : c->cap * 2;
		char *more = cap > ANSWER_MAX ? NULL : realloc(c->buf, cap);

		if (more == NULL)
			return mc_err_set(err, -EMSGSIZE, "the answer of the daemon is too long");
		c->buf = more;
		c->cap = cap;
	}
	do
		n = poll(&p, 1, SILENCE_MS);
	while (n < 0 && errno == EINTR);
	if (n == 0)
		return lost(c, -ETIMEDOUT, err);
	n = recv(c->fd, c->buf + c->have, c->cap - c->have, 0);
	if (n <= 0)
		return lost(c, n == 0 ? -EPIPE : -errno, err);
	c->have += (size_t)n;
	return 0;
}

/* The next line as JSON, the caller's. */
static int read_answer(struct mc_client *c, json_t **ret, struct mc_err *err)
{
	char *end;
	size_t len, looked = 0;
	int r = 0;

	while ((end = c->have > looked ? memchr(c->buf + looked, '\n', c->have - looked) : NULL) ==
			NULL &&
		r == 0) {
		looked = c->have;
		r = receive(c, err);
	}
	if (r < 0)
		return r;
	len = (size_t)(end - c->buf);
	*ret = json_loadb(c->buf, len, 0, NULL);
	memmove(c->buf, end + 1, c->have - len - 1);
	c->have -= len + 1;
	return json_is_object(*ret) ? 0 : (json_decref(*ret), lost(c, -EPROTO, err));
}

static uint64_t number(const json_t *obj, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(obj, key));
}

int mc_client_ask(struct mc_client *c, json_t *request, const struct mc_client_progress *progress,
	json_t **ret, struct mc_err *err)
{
	cleanup_free char *line = request != NULL ? json_dumps(request, JSON_COMPACT) : NULL;
	json_t *answer, *part;
	int r;

	json_decref(request);
	r = line == NULL ? mc_err_set(err, -ENOMEM, "out of memory") : send_line(c, line, err);
	if (r < 0)
		return r;
	for (;;) {
		r = read_answer(c, &answer, err);
		if (r < 0)
			return r;
		part = json_object_get(answer, "progress");
		if (part == NULL)
			break;
		if (progress != NULL && progress->tell != NULL)
			progress->tell(progress->ctx,
				&(struct mc_client_told){.bytes = number(part, "bytes"),
					.total = number(part, "total"),
					.paths = number(part, "paths")});
		json_decref(answer);
	}
	if (json_is_true(json_object_get(answer, "ok"))) {
		*ret = json_incref(json_object_get(answer, "result"));
		r = *ret != NULL ? 0 : lost(c, -EPROTO, err);
	} else {
		const char *text = json_string_value(json_object_get(answer, "text"));

		r = mc_err_set(err, -EREMOTEIO, "the daemon refused: %s",
			text != NULL ? text : "no reason given");
	}
	json_decref(answer);
	return r;
}

int mc_client_command(struct mc_client *c, const char *command, json_t **ret, struct mc_err *err)
{
	return mc_client_ask(c, json_pack("{s:s}", "command", command), NULL, ret, err);
}
