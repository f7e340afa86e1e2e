/* The metrics over HTTP, for a Prometheus that does not read files of the mount. */
#pragma once

#include "tier/error.h"

struct mc_fs;
struct mc_metrics_http;

/* Serves GET /metrics at "ADDRESS:PORT", a numeric address ("127.0.0.1:9464", "[::1]:9464"), to
 * whoever reaches it. -EINVAL, -EADDRINUSE …, described in err. */
int mc_metrics_http_open(
	struct mc_fs *fs, const char *where, struct mc_metrics_http **ret, struct mc_err *err);
void mc_metrics_http_close(struct mc_metrics_http *h); /* NULL allowed */
