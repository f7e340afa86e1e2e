/* The proxy that plays network troubles: each mode does what it says, byte for byte. */
#include "tests/suite.h"

#include "tests/lib/proxy.h"
#include "tier/lock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int listener(uint16_t *ret_port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	ck_assert_int_eq(listen(fd, 8), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&a, &len), 0);
	*ret_port = ntohs(a.sin_port);
	return fd;
}

/* Returns a connected descriptor, or −errno. */
static int dial(uint16_t port)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), r;

	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
		return fd;
	r = -errno;
	close(fd);
	return r;
}

struct rig {
	struct proxy *proxy;
	int listen_fd;
};

static void rig_open(struct rig *g)
{
	uint16_t port;

	g->listen_fd = listener(&port);
	ck_assert_int_eq(proxy_open(port, &g->proxy), 0);
}

static void rig_connect(struct rig *g, int *ret_client, int *ret_server)
{
	*ret_client = dial(proxy_port(g->proxy));
	ck_assert_int_ge(*ret_client, 0);
	*ret_server = accept(g->listen_fd, NULL, NULL);
	ck_assert_int_ge(*ret_server, 0);
}

static void rig_close(struct rig *g)
{
	proxy_close(g->proxy);
	close(g->listen_fd);
}

/* Receives until the end of the stream or len bytes; counts a reset as an end. */
static size_t receive(int fd, uint8_t *buf, size_t len)
{
	size_t got = 0;

	while (got < len) {
		ssize_t n = recv(fd, buf + got, len - got, 0);

		if (n <= 0)
			break;
		got += (size_t)n;
	}
	return got;
}

START_TEST(pass_forwards_both_directions_and_the_end_of_stream)
{
	struct rig g;
	uint8_t buf[16];
	struct proxy_stats s;
	int client, server;

	rig_open(&g);
	rig_connect(&g, &client, &server);
	ck_assert_int_eq(send(client, "request", 7, 0), 7);
	ck_assert_uint_eq(receive(server, buf, 7), 7);
	ck_assert_mem_eq(buf, "request", 7);
	ck_assert_int_eq(send(server, "reply", 5, 0), 5);
	close(server);
	ck_assert_uint_eq(receive(client, buf, sizeof(buf)), 5);
	ck_assert_mem_eq(buf, "reply", 5);
	close(client);
	proxy_stats(g.proxy, &s);
	ck_assert_uint_eq(s.connections, 1);
	ck_assert_uint_eq(s.to_server, 7);
	ck_assert_uint_eq(s.to_client, 5);
	rig_close(&g);
}
END_TEST

START_TEST(cut_ends_the_connection_after_exactly_n_bytes_and_then_passes)
{
	struct rig g;
	uint8_t sent[4096], buf[4096];
	int client, server;

	memset(sent, 7, sizeof(sent));
	rig_open(&g);
	rig_connect(&g, &client, &server);
	proxy_set(g.proxy, PROXY_CUT, 1001);
	ck_assert_int_eq(send(server, sent, sizeof(sent), 0), sizeof(sent));
	ck_assert_uint_eq(receive(client, buf, sizeof(buf)), 1001);
	close(client);
	close(server);
	rig_connect(&g, &client, &server);
	ck_assert_int_eq(send(server, sent, sizeof(sent), 0), sizeof(sent));
	ck_assert_uint_eq(receive(client, buf, sizeof(buf)), sizeof(buf));
	close(client);
	close(server);
	rig_close(&g);
}
END_TEST

START_TEST(cut_each_ends_every_new_connection_after_n_bytes)
{
	struct rig g;
	uint8_t buf[64];
	int client, server;

	rig_open(&g);
	proxy_set(g.proxy, PROXY_CUT_EACH, 3);
	for (int i = 0; i < 3; i++) {
		rig_connect(&g, &client, &server);
		ck_assert_int_eq(send(server, "123456", 6, 0), 6);
		ck_assert_uint_eq(receive(client, buf, sizeof(buf)), 3);
		close(client);
		close(server);
	}
	rig_close(&g);
}
END_TEST

START_TEST(hang_moves_nothing_and_pass_resumes)
{
	struct timeval wait = {.tv_usec = 50000};
	struct timeval forever = {0};
	struct rig g;
	uint8_t buf[8];
	int client, server;

	rig_open(&g);
	rig_connect(&g, &client, &server);
	proxy_set(g.proxy, PROXY_HANG, 0);
	ck_assert_int_eq(send(client, "ping", 4, 0), 4);
	setsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	ck_assert_int_eq(recv(server, buf, sizeof(buf), 0), -1);
	ck_assert_int_eq(errno, EAGAIN);
	setsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &forever, sizeof(forever));
	proxy_set(g.proxy, PROXY_PASS, 0);
	ck_assert_uint_eq(receive(server, buf, 4), 4);
	close(client);
	close(server);
	rig_close(&g);
}
END_TEST

START_TEST(refuse_ends_connections_and_the_port_comes_back)
{
	struct rig g;
	uint8_t buf[8];
	int client, server;

	rig_open(&g);
	rig_connect(&g, &client, &server);
	proxy_set(g.proxy, PROXY_REFUSE, 0);
	ck_assert_uint_eq(receive(client, buf, sizeof(buf)), 0);
	close(client);
	close(server);
	ck_assert_int_eq(dial(proxy_port(g.proxy)), -ECONNREFUSED);
	proxy_set(g.proxy, PROXY_PASS, 0);
	rig_connect(&g, &client, &server);
	ck_assert_int_eq(send(client, "x", 1, 0), 1);
	ck_assert_uint_eq(receive(server, buf, 1), 1);
	close(client);
	close(server);
	rig_close(&g);
}
END_TEST

static void *send_all(void *arg)
{
	static uint8_t block[1 << 20];
	int fd = *(int *)arg;

	for (int i = 0; i < 20; i++)
		for (size_t at = 0; at < sizeof(block);) {
			ssize_t n = send(fd, block + at, sizeof(block) - at, MSG_NOSIGNAL);

			if (n <= 0)
				return NULL;
			at += (size_t)n;
		}
	shutdown(fd, SHUT_WR);
	return NULL;
}

START_TEST(rate_is_an_upper_bound)
{
	const uint64_t rate = 100000000, total = 20u << 20;
	static uint8_t buf[1 << 20];
	struct rig g;
	pthread_t thread;
	uint64_t got = 0, start, took_ns;
	int client, server;

	rig_open(&g);
	rig_connect(&g, &client, &server);
	proxy_set(g.proxy, PROXY_RATE, rate);
	start = mc_now_ns();
	ck_assert_int_eq(pthread_create(&thread, NULL, send_all, &server), 0);
	for (ssize_t n; (n = recv(client, buf, sizeof(buf), 0)) > 0;)
		got += (uint64_t)n;
	took_ns = mc_now_ns() - start;
	pthread_join(thread, NULL);
	ck_assert_uint_eq(got, total);
	/* 20 MiB take 0.21 s; the bucket may hold 20 ms of tokens at the start. */
	ck_assert_uint_ge(took_ns, 180000000);
	close(client);
	close(server);
	rig_close(&g);
}
END_TEST

SUITE_MAIN("proxy", pass_forwards_both_directions_and_the_end_of_stream,
	cut_ends_the_connection_after_exactly_n_bytes_and_then_passes,
	cut_each_ends_every_new_connection_after_n_bytes, hang_moves_nothing_and_pass_resumes,
	refuse_ends_connections_and_the_port_comes_back, rate_is_an_upper_bound)
