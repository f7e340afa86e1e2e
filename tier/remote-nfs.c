/*
 * Remote kind "nfs://host/export[/dir]?options": an NFSv3 server, through libnfs' raw calls. Here:
 * the URL, opening and closing. The parts are described in remote-nfs.h.
 *
 * NFSv3 and not v4: libnfs 4.0 and 5.0 fail on v4 with large writes and reads. The options are
 * libnfs' own: nfsport, mountport (both present: no port mapper is needed), uid, gid, version (3).
 */
#include "tier/remote-nfs.h"

#include "tier/cleanup.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define META_DEPTH 64 /* small calls in flight */

struct mc_nfs_conn *mc_nfs_bulk(struct mc_nfs *n)
{
	unsigned first = atomic_fetch_add(&n->turn, 1), best = first % n->n_bulk;
	unsigned least = mc_nfs_conn_load(n->bulk[best]);

	for (unsigned i = 1; i < n->n_bulk; i++) {
		unsigned k = (first + i) % n->n_bulk;
		unsigned load = mc_nfs_conn_load(n->bulk[k]);

		if (load < least) {
			least = load;
			best = k;
		}
	}
	return n->bulk[best];
}

static int parse_number(const char *text, int min, int max, int *ret)
{
	char *end;
	long v;

	errno = 0;
	v = strtol(text, &end, 10);
	if (errno != 0 || end == text || *end != '\0' || v < min || v > max)
		return -EINVAL;
	*ret = (int)v;
	return 0;
}

static int parse_option(struct mc_nfs_server *s, const char *name, const char *value)
{
	int version;

	if (strcmp(name, "nfsport") == 0)
		return parse_number(value, 1, 65535, &s->nfsport);
	if (strcmp(name, "mountport") == 0)
		return parse_number(value, 1, 65535, &s->mountport);
	if (strcmp(name, "uid") == 0)
		return parse_number(value, 0, INT32_MAX, &s->uid);
	if (strcmp(name, "gid") == 0)
		return parse_number(value, 0, INT32_MAX, &s->gid);
	if (strcmp(name, "version") == 0)
		return parse_number(value, 3, 3, &version);
	return -EINVAL;
}

/* text: "a=1&b=2", changed. */
static int parse_options(struct mc_nfs_server *s, char *text, const char *url, struct mc_err *err)
{
	char *save = NULL;

	for (char *o = strtok_r(text, "&", &save); o != NULL; o = strtok_r(NULL, "&", &save)) {
		char *eq = strchr(o, '=');

		if (eq != NULL)
			*eq = '\0';
		if (parse_option(s, o, eq != NULL ? eq + 1 : "") < 0)
			return mc_err_set(err, -EINVAL,
				"%s: option \"%s\" is unknown or has no usable value; known: "
				"nfsport, "
				"mountport, uid, gid, version=3",
				url, o);
	}
	return 0;
}

/* The address once and for all: a reconnect must not wait for a name server. */
static int resolve(struct mc_nfs_server *s, const char *host, const char *url, struct mc_err *err)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *ai;
	char text[NI_MAXHOST];
	int r = getaddrinfo(host, NULL, &hints, &ai);

	if (r != 0)
		return mc_err_set(err, -EHOSTUNREACH, "%s: cannot resolve %s: %s", url, host,
			gai_strerror(r));
	r = getnameinfo(ai->ai_addr, ai->ai_addrlen, text, sizeof(text), NULL, 0, NI_NUMERICHOST);
	freeaddrinfo(ai);
	if (r != 0)
		return mc_err_set(err, -EHOSTUNREACH, "%s: %s", url, gai_strerror(r));
	s->host = strdup(text);
	return s->host == NULL ? -ENOMEM : 0;
}

static int parse_url(struct mc_nfs_server *s, const char *url, struct mc_err *err)
{
	cleanup_free char *copy = strdup(url + strlen("nfs://"));
	char *query, *path, *host;
	size_t len;
	int r;

	if (copy == NULL)
		return -ENOMEM;
	host = copy;
	query = strchr(copy, '?');
	if (query != NULL)
		*query++ = '\0';
	path = strchr(copy, '/');
	if (path == NULL || path == copy)
		return mc_err_set(err, -EINVAL, "%s: expected nfs://SERVER/EXPORT", url);
	for (len = strlen(path); len > 1 && path[len - 1] == '/'; len--)
		path[len - 1] = '\0';
	if (len > 1 && mc_remote_path_check(path + 1, false) < 0)
		return mc_err_set(err, -EINVAL, "%s: \"%s\" is not a valid path", url, path);
	s->uid = s->gid = -1;
	s->export = strdup(path);
	s->sub = strdup("");
	*path = '\0';
	if (host[0] == '[' && host[strlen(host) - 1] == ']') { /* an IPv6 address */
		host[strlen(host) - 1] = '\0';
		host++;
	}
	if (s->export == NULL || s->sub == NULL)
		return -ENOMEM;
	r = query != NULL ? parse_options(s, query, url, err) : 0;
	return r < 0 ? r : resolve(s, host, url, err);
}

static void backend_stop(struct mc_backend *b)
{
	struct mc_nfs *n = (struct mc_nfs *)b;

	atomic_store(&n->stopping, true);
	if (n->meta != NULL)
		mc_nfs_conn_stop(n->meta);
	for (unsigned i = 0; i < n->n_bulk; i++)
		mc_nfs_conn_stop(n->bulk[i]);
}

static void backend_close(struct mc_backend *b)
{
	struct mc_nfs *n = (struct mc_nfs *)b;

	mc_nfs_conn_close(n->meta);
	for (unsigned i = 0; i < n->n_bulk; i++)
		mc_nfs_conn_close(n->bulk[i]);
	mc_nfs_reads_done(n);
	mc_nfs_dirs_done(n);
	mc_nfs_puts_done(n);
	mc_cond_done(&n->synced);
	mc_mutex_done(&n->lock);
	free(n->bulk);
	free(n->tmp);
	free(n->server.host);
	free(n->server.export);
	free(n->server.sub);
	free(n);
}

static const struct mc_backend_ops nfs_ops = {
	.read = mc_nfs_read,
	.stat = mc_nfs_stat,
	.put = mc_nfs_put,
	.sync = mc_nfs_sync,
	.list = mc_nfs_list,
	.mkdir = mc_nfs_mkdir,
	.unlink = mc_nfs_unlink,
	.rename = mc_nfs_move,
	.touch = mc_nfs_touch,
	.space = mc_nfs_space,
	.stop = backend_stop,
	.close = backend_close,
};

/* What the server takes at once, and that the URL's directory is one. */
static int ask_limits(struct mc_nfs *n, uint64_t deadline_ns, struct mc_err *err)
{
	struct mc_nfs_call c = {.proc = &mc_nfs_fsinfo, .deadline_ns = deadline_ns};
	struct mc_nfs_node node;
	int r = mc_nfs_walk_run(n, "", true, deadline_ns, &node);

	if (r < 0)
		return mc_err_set(err, r, "%s%s%s: %s", n->server.export,
			*n->server.sub != '\0' ? "/" : "", n->server.sub, strerror(-r));
	if (node.attr.type != MC_REMOTE_DIR)
		return mc_err_set(err, -ENOTDIR, "not a directory");
	c.fh = node.fh;
	r = mc_nfs_call_run(n->meta, &c);
	if (r < 0)
		return r;
	n->rtmax = c.count == 0 || c.count > MC_NFS_XFER_MAX ? MC_NFS_XFER_MAX : c.count;
	n->wtmax = c.count2 == 0 || c.count2 > MC_NFS_XFER_MAX ? MC_NFS_XFER_MAX : c.count2;
	return 0;
}

static int connect_all(struct mc_nfs *n, const struct mc_remote_opts *opts, struct mc_err *err)
{
	uint64_t deadline_ns = mc_now_ns() + (uint64_t)opts->deadline_ms * 1000000;
	int r = mc_nfs_conn_open(n, META_DEPTH, true, &n->meta);

	if (r == 0)
		r = mc_nfs_conn_wait_up(n->meta, deadline_ns, err);
	if (r == 0)
		r = ask_limits(n, deadline_ns, err);
	n->bulk = calloc(opts->connections, sizeof(struct mc_nfs_conn *));
	if (r == 0 && n->bulk == NULL)
		r = -ENOMEM;
	while (r == 0 && n->n_bulk < opts->connections) {
		r = mc_nfs_conn_open(n, opts->depth, false, &n->bulk[n->n_bulk]);
		n->n_bulk += r == 0;
	}
	return r;
}

int mc_remote_nfs_open(const char *url, const struct mc_remote_opts *opts,
	struct mc_remote_counters *counters, struct mc_backend **ret, struct mc_err *err)
{
	struct mc_nfs *n = calloc(1, sizeof(*n));
	int r;

	if (n == NULL)
		return -ENOMEM;
	n->base.ops = &nfs_ops;
	n->counters = counters;
	n->server.inactivity_ms = opts->inactivity_ms;
	mc_mutex_init(&n->lock);
	mc_cond_init(&n->synced);
	r = mc_nfs_dirs_init(n);
	if (r == 0)
		r = mc_nfs_reads_init(n);
	if (r == 0)
		r = mc_nfs_puts_init(n);
	if (r == 0 && asprintf(&n->tmp, "tmp/%s", opts->node) < 0) {
		n->tmp = NULL;
		r = -ENOMEM;
	}
	if (r == 0)
		r = parse_url(&n->server, url, err);
	if (r == 0) {
		r = connect_all(n, opts, err);
		if (r < 0)
			mc_err_prefix(err, r, "%s", url);
	}
	if (r < 0) {
		backend_stop(&n->base);
		backend_close(&n->base);
		return r;
	}
	*ret = &n->base;
	return 0;
}
