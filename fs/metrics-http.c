/* An HTTP server of one page, by libmicrohttpd; one thread, few connections. */
#include "fs/metrics-http.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "fs/status.h"
#include "tier/address.h"
#include "tier/cleanup.h"

#define CONNECTIONS 16
#define IDLE_S 10u
#define TYPE "text/plain; version=0.0.4; charset=utf-8"

struct mc_metrics_http {
	struct mc_fs *fs;
	struct MHD_Daemon *daemon;
};

static enum MHD_Result reply(
	struct MHD_Connection *c, unsigned code, char *text, size_t len, const char *type)
{
	struct MHD_Response *r = MHD_create_response_from_buffer(len, text, MHD_RESPMEM_MUST_COPY);
	enum MHD_Result sent;

	if (r == NULL)
		return MHD_NO;
	MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	sent = MHD_queue_response(c, code, r);
	MHD_destroy_response(r);
	return sent;
}

static enum MHD_Result reply_metrics(struct MHD_Connection *c, struct mc_fs *fs)
{
	char empty[] = "";
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);
	int r = out == NULL ? -ENOMEM : mc_status_metrics(fs, out);
	enum MHD_Result sent;

	if (out != NULL && fclose(out) != 0)
		r = -ENOMEM;
	sent = r == 0 ? reply(c, MHD_HTTP_OK, text, len, TYPE)
		      : reply(c, MHD_HTTP_INTERNAL_SERVER_ERROR, empty, 0, TYPE);
	free(text);
	return sent;
}

static enum MHD_Result handle(void *ctx, struct MHD_Connection *c, const char *url,
	const char *method, const char *version, const char *data, size_t *size, void **state)
{
	static char only_metrics[] = "There is only /metrics.\n", only_get[] = "GET only.\n";
	struct mc_metrics_http *h = ctx;

	(void)version;
	(void)data;
	(void)state;
	*size = 0;
	if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
		return reply(c, MHD_HTTP_METHOD_NOT_ALLOWED, only_get, strlen(only_get), TYPE);
	if (strcmp(url, "/metrics") != 0)
		return reply(c, MHD_HTTP_NOT_FOUND, only_metrics, strlen(only_metrics), TYPE);
	return reply_metrics(c, h->fs);
}

/* The library's own listening does not say reliably why it failed. */
static int listen_at(const struct addrinfo *at)
{
	cleanup_close int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const int on = 1;
	int listening;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, at->ai_addr, at->ai_addrlen) != 0 || listen(fd, CONNECTIONS) != 0)
		return -errno;
	listening = fd;
	fd = -1;
	return listening;
}

/* 0, or why it does not serve on fd, which it then owns. */
static int serve(struct mc_metrics_http *h, int fd)
{
	errno = 0;
	h->daemon = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL, handle, h,
		MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS,
		MHD_OPTION_CONNECTION_TIMEOUT, IDLE_S, MHD_OPTION_END);
	if (h->daemon != NULL)
		return 0;
	return errno != 0 ? -errno : -EIO;
}

int mc_metrics_http_open(
	struct mc_fs *fs, const char *where, struct mc_metrics_http **ret, struct mc_err *err)
{
	struct mc_metrics_http *h = calloc(1, sizeof(*h));
	struct addrinfo *at = NULL;
	int r = h == NULL ? -ENOMEM : mc_address_parse(where, &at), fd;

	if (r < 0) {
		free(h);
		return mc_err_set(err, r,
			"--metrics: \"%s\" is not a numeric address and port such as "
			"127.0.0.1:9464",
			where);
	}
	h->fs = fs;
	fd = listen_at(at);
	freeaddrinfo(at);
	r = fd < 0 ? fd : serve(h, fd);
	if (r < 0) {
		free(h);
		return mc_err_set(err, r, "--metrics %s: %s", where, strerror(-r));
	}
	*ret = h;
	return 0;
}

void mc_metrics_http_close(struct mc_metrics_http *h)
{
	if (h == NULL)
		return;
	MHD_stop_daemon(h->daemon);
	free(h);
}
