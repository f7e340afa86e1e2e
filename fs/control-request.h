/* A request of the control socket: parsed strictly, then carried out. */
#pragma once

#include "tier/store.h"

#include <stdio.h>

struct mc_fs;

#define MC_CONTROL_LINE (64 * 1024) /* bytes of a request, its line break included */
#define MC_CONTROL_PATHS 1024       /* of one request */

enum mc_control_command {
	MC_CONTROL_STATUS,
	MC_CONTROL_CONFIG,
	MC_CONTROL_METRICS,
	MC_CONTROL_EVENTS,
	MC_CONTROL_RESIDENCY,
	MC_CONTROL_WARM,
	MC_CONTROL_EVICT,
	MC_CONTROL_PIN,
	MC_CONTROL_UNPIN,
	MC_CONTROL_REFRESH,
	MC_CONTROL_SCRUB,
	MC_CONTROL_N
};

struct mc_control_request {
	enum mc_control_command command;
	char **paths; /* owned, as are the texts */
	size_t n_paths;
	enum mc_tier tier;
	bool all_tiers;            /* EVICT without a tier: the local ones */
	uint64_t bytes_per_second; /* 0 = no limit */
};

/* 0, or -EINVAL with a sentence in *ret_why (static text), or -ENOMEM. done follows success. */
int mc_control_parse(
	const char *line, size_t len, struct mc_control_request *ret, const char **ret_why);
void mc_control_request_done(struct mc_control_request *q);

/* Who waits for the answer. */
struct mc_control_peer {
	/* Sends a line (without its break); false: the peer is gone, or the daemon stops. */
	bool (*send)(void *ctx, const char *line, size_t len);
	/* Whether it still waits. */
	bool (*waits)(void *ctx);
	void *ctx;
};
/* Carries the request out and sends its answers. */
void mc_control_run(
	struct mc_fs *fs, const struct mc_control_request *q, const struct mc_control_peer *peer);
/* Sends obj, which it consumes, as a line; false: nobody waits any more. */
struct json_t;
bool mc_control_send(const struct mc_control_peer *peer, struct json_t *obj);
/* Sends the answer {"ok": true, "result": …}; consumes result. */
void mc_control_accept(const struct mc_control_peer *peer, struct json_t *result);
/* [blocks] A pass of the scrub, watched. */
void mc_control_scrub(
	struct mc_fs *fs, const struct mc_control_request *q, const struct mc_control_peer *peer);
/* Sends the answer {"ok": false, …}. */
void mc_control_refuse(const struct mc_control_peer *peer, int error, const char *text);
