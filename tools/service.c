/* The notification protocol of service managers: datagrams of lines NAME=VALUE, sd_notify(3). */
#include "tools/service.h"

#include "tier/cleanup.h"
#include "tier/lock.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* A path, or "@name" for one in the abstract name space. */
static bool address(const char *name, struct sockaddr_un *ret, socklen_t *ret_len)
{
	size_t len = strlen(name);

	*ret = (struct sockaddr_un){.sun_family = AF_UNIX};
	if ((name[0] != '/' && name[0] != '@') || len < 2 || len >= sizeof(ret->sun_path))
		return false;
	memcpy(ret->sun_path, name, len);
	if (name[0] == '@')
		ret->sun_path[0] = '\0';
	*ret_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
	return true;
}

void mc_service_notify(const char *fmt, ...)
{
	const char *name = getenv("NOTIFY_SOCKET");
	cleanup_close int fd = -1;
	struct sockaddr_un to;
	socklen_t to_len;
	char text[512];
	ssize_t sent;
	va_list ap;

	if (name == NULL || !address(name, &to, &to_len))
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return;
	sent = sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&to, to_len);
	(void)sent; /* a manager that does not listen is no reason to fail */
}

void mc_watchdog_open(struct mc_watchdog *w)
{
	const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");

	*w = (struct mc_watchdog){0};
	/* Set for another process: a variable that was merely inherited. */
	if (usec == NULL || (pid != NULL && strtol(pid, NULL, 10) != (long)getpid()))
		return;
	w->interval_ns = strtoull(usec, NULL, 10) * 1000 / 2;
}

void mc_watchdog_tick(struct mc_watchdog *w)
{
	uint64_t now = mc_now_ns();

	if (w->interval_ns == 0 || now < w->next_ns)
		return;
	w->next_ns = now + w->interval_ns;
	mc_service_notify("WATCHDOG=1");
}
