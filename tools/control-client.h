/* Talking to the daemon of a mount through its control socket. */
#pragma once

#include "tier/error.h"
#include "fs/mount-table.h"

#include <stdint.h>

struct json_t;

struct mc_client {
	struct mc_mount mount;
	int fd;
	char *buf; /* owned: what was read and belongs to the next answer */
	size_t have, cap;
};

/*
 * Finds the mount (NULL: the only one of this machine) and connects to its daemon. -ENOENT no mount
 * there, -EEXIST which of several?, -ECONNREFUSED … the daemon does not answer; described in err.
 * The caller calls close after success.
 */
int mc_client_open(const char *mountpoint, struct mc_client *ret, struct mc_err *err);
/* The same for a mount that is known. */
int mc_client_connect(const struct mc_mount *m, struct mc_client *ret, struct mc_err *err);
void mc_client_close(struct mc_client *c);

/*
 * Sends a request (taken over) and waits for its answer; progress, if any, is told on the way.
 * *ret is the result, the caller's. -EPROTO, -ETIMEDOUT, or what the daemon refused with.
 */
struct mc_client_told {
	uint64_t bytes, total, paths; /* 0: not said */
};
struct mc_client_progress {
	void (*tell)(void *ctx, const struct mc_client_told *now); /* may be NULL */
	void *ctx;
};
int mc_client_ask(struct mc_client *c, struct json_t *request,
	const struct mc_client_progress *progress, struct json_t **ret, struct mc_err *err);
/* A request that is a command alone. */
int mc_client_command(
	struct mc_client *c, const char *command, struct json_t **ret, struct mc_err *err);
