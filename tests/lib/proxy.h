/*
 * A TCP proxy on loopback whose behaviour tests change while it runs: the network between a
 * client and a server, with its troubles.
 */
#pragma once

#include <stdint.h>

enum proxy_mode {
	PROXY_PASS, /* forward as fast as possible */
	PROXY_RATE, /* at most value bytes/s, each direction for itself */
	PROXY_CUT,  /* once value more bytes have gone to clients: end all connections, then pass */
	PROXY_CUT_EACH, /* every connection made from now on ends after value bytes to the client */
	PROXY_HANG,     /* a black hole: connections are accepted and stay open, no byte moves */
	PROXY_REFUSE,   /* end all connections and refuse new ones */
};

struct proxy_stats {
	uint64_t connections; /* accepted so far */
	uint64_t to_server;   /* bytes */
	uint64_t to_client;   /* bytes */
};

struct proxy;

/* Listens on a free port of 127.0.0.1 for connections to target_port there. 0 or −errno. */
int proxy_open(uint16_t target_port, struct proxy **ret_proxy);
void proxy_close(struct proxy *p);

uint16_t proxy_port(const struct proxy *p);

/* Any thread. In effect when it returns. */
void proxy_set(struct proxy *p, enum proxy_mode mode, uint64_t value);
void proxy_stats(struct proxy *p, struct proxy_stats *ret_stats);
