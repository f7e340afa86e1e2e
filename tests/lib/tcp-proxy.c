/*
 * The TCP proxy as a program, for shell scripts:
 *   tcp-proxy run DIR TARGET_PORT   proxy in the foreground; DIR/port appears when it listens
 *   tcp-proxy set DIR MODE [VALUE]  pass | rate BYTES_PER_S | cut BYTES | cut-each BYTES | hang |
 * refuse tcp-proxy stats DIR             print "connections to_server to_client" tcp-proxy stop DIR
 * end it Orders go through the socket DIR/control and are in effect when the command returns.
 */
#include "tests/lib/proxy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static const struct {
	const char *name;
	enum proxy_mode mode;
	bool has_value;
} modes[] = {
	{"pass", PROXY_PASS, false},
	{"rate", PROXY_RATE, true},
	{"cut", PROXY_CUT, true},
	{"cut-each", PROXY_CUT_EACH, true},
	{"hang", PROXY_HANG, false},
	{"refuse", PROXY_REFUSE, false},
};

static int control_socket(const char *dir, struct sockaddr_un *ret_addr)
{
	*ret_addr = (struct sockaddr_un){.sun_family = AF_UNIX};
	if (snprintf(ret_addr->sun_path, sizeof(ret_addr->sun_path), "%s/control", dir) >=
		(int)sizeof(ret_addr->sun_path)) {
		fprintf(stderr, "tcp-proxy: %s: path too long for a socket\n", dir);
		return -1;
	}
	return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
}

/* Writes the port under a temporary name first: whoever sees DIR/port reads all of it. */
static int write_port(const char *dir, uint16_t port)
{
	char path[4096], tmp[4096];
	FILE *f;

	snprintf(path, sizeof(path), "%s/port", dir);
	snprintf(tmp, sizeof(tmp), "%s/port.tmp", dir);
	f = fopen(tmp, "we");
	if (!f)
		return -1;
	fprintf(f, "%u\n", port);
	return fclose(f) == 0 && rename(tmp, path) == 0 ? 0 : -1;
}

/* Executes one order and leaves the answer in reply; false when the proxy has to end. */
static bool obey(struct proxy *p, char *order, char *reply, size_t size)
{
	char *text = strchr(order, ' '), *end = NULL, *name = order;
	uint64_t value = 0;
	struct proxy_stats s;

	if (text) {
		*text++ = '\0';
		value = strtoull(text, &end, 10);
	}

	if (strcmp(name, "stats") == 0) {
		proxy_stats(p, &s);
		snprintf(reply, size, "%" PRIu64 " %" PRIu64 " %" PRIu64, s.connections,
			s.to_server, s.to_client);
		return true;
	}
	snprintf(reply, size, "ok");
	if (strcmp(name, "stop") == 0)
		return false;
	for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++)
		if (strcmp(name, modes[i].name) == 0 && (!end || !*end) &&
			(text != NULL) == modes[i].has_value) {
			proxy_set(p, modes[i].mode, value);
			return true;
		}
	snprintf(reply, size, "error: no such order: %.100s", order);
	return true;
}

static int run(const char *dir, const char *target)
{
	struct sockaddr_un a;
	struct proxy *p;
	bool go_on = true;
	int fd = control_socket(dir, &a), r;

	if (fd < 0)
		return 1;
	unlink(a.sun_path);
	r = proxy_open((uint16_t)strtoul(target, NULL, 10), &p);
	if (r < 0) {
		fprintf(stderr, "tcp-proxy: %s\n", strerror(-r));
		return 1;
	}
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, 8) < 0 ||
		write_port(dir, proxy_port(p)) < 0) {
		fprintf(stderr, "tcp-proxy: %s: %s\n", dir, strerror(errno));
		return 1;
	}
	while (go_on) {
		char order[128], reply[256];
		int c = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
		ssize_t n = c < 0 ? -1 : recv(c, order, sizeof(order) - 1, 0);

		if (n > 0) {
			order[n] = '\0';
			go_on = obey(p, order, reply, sizeof(reply));
			send(c, reply, strlen(reply), MSG_NOSIGNAL);
		}
		if (c >= 0)
			close(c);
	}
	proxy_close(p);
	unlink(a.sun_path);
	close(fd);
	return 0;
}

static int order(const char *dir, int argc, char **argv)
{
	char line[128] = "", reply[256];
	struct sockaddr_un a;
	int fd = control_socket(dir, &a);
	ssize_t n;

	for (int i = 0; i < argc; i++) {
		size_t used = strlen(line);

		snprintf(line + used, sizeof(line) - used, "%s%s", i ? " " : "", argv[i]);
	}
	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0 ||
		send(fd, line, strlen(line), MSG_NOSIGNAL) < 0 ||
		(n = recv(fd, reply, sizeof(reply) - 1, 0)) <= 0) {
		fprintf(stderr, "tcp-proxy: %s: %s\n", dir, strerror(errno));
		return 1;
	}
	close(fd);
	reply[n] = '\0';
	if (strncmp(reply, "error", 5) == 0) {
		fprintf(stderr, "tcp-proxy: %s\n", reply);
		return 2;
	}
	if (strcmp(reply, "ok") != 0)
		puts(reply);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 4 && strcmp(argv[1], "run") == 0)
		return run(argv[2], argv[3]);
	if (argc >= 4 && strcmp(argv[1], "set") == 0)
		return order(argv[2], argc - 3, argv + 3);
	if (argc == 3 && (strcmp(argv[1], "stats") == 0 || strcmp(argv[1], "stop") == 0))
		return order(argv[2], 1, argv + 1);
	fprintf(stderr,
		"usage: tcp-proxy run DIR TARGET_PORT\n"
		"       tcp-proxy set DIR pass|hang|refuse\n"
		"       tcp-proxy set DIR rate|cut|cut-each BYTES\n"
		"       tcp-proxy stats|stop DIR\n");
	return 2;
}
