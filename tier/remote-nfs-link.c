/*
 * The TCP side of an NFS connection: mount, connect, give up, back off. libnfs' own reconnect stays
 * off: with it a connection cut in the middle of a READ answer yields the right length and wrong
 * bytes.
 *
 * 1. One attempt is the phases of enum mc_nfs_phase in order; each has a deadline; the first that
 *    fails ends the attempt.
 * 2. libnfs' callbacks only note the answer: contexts are made and destroyed outside of them.
 */
#include "tier/remote-nfs-conn.h"

#include <errno.h>
#include <netinet/in.h>
#include <linux/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define MS UINT64_C(1000000)
#define BACKOFF_MIN_NS (50 * MS)
/* So that a server that came back is in use within two seconds. */
#define BACKOFF_MAX_NS (1500 * MS)
#define CONNECT_MAX_MS 3000 /* of a phase */

static void on_phase(struct rpc_context *rpc, int status, void *data, void *priv)
{
	struct mc_nfs_conn *c = priv;

	(void)rpc;
	(void)data;
	if (c->link.answer == 0)
		c->link.answer = status == RPC_STATUS_SUCCESS ? 1 : -EIO;
}

static void on_mount(struct rpc_context *rpc, int status, void *data, void *priv)
{
	struct mc_nfs_conn *c = priv;
	const mountres3 *res = data;
	const fhandle3 *fh;

	(void)rpc;
	if (c->link.answer != 0)
		return;
	if (status != RPC_STATUS_SUCCESS || res == NULL) {
		c->link.answer = -EIO;
		return;
	}
	fh = &res->mountres3_u.mountinfo.fhandle;
	if (res->fhs_status != MNT3_OK) {
		c->link.answer = mountstat3_to_errno((int)res->fhs_status);
		if (c->link.answer >= 0)
			c->link.answer = -EIO;
	} else if (fh->fhandle3_len == 0 || fh->fhandle3_len > NFS3_FHSIZE) {
		c->link.answer = -EBADMSG;
	} else {
		mc_mutex_lock(&c->n->lock);
		c->n->root.len = fh->fhandle3_len;
		memcpy(c->n->root.data, fh->fhandle3_val, fh->fhandle3_len);
		mc_mutex_unlock(&c->n->lock);
		c->link.answer = 1;
	}
}

static void destroy(struct mc_nfs_link *l)
{
	/* While it connects, libnfs frees what the attempt holds only when the attempt ends. */
	if (l->rpc != NULL && l->answer == 0 &&
		(l->phase == MC_NFS_MOUNT_CONNECT || l->phase == MC_NFS_CONNECT))
		rpc_service(l->rpc, POLLHUP);
	if (l->rpc != NULL)
		rpc_destroy_context(l->rpc);
	l->rpc = NULL;
}

/* A new context that connects to a program of the server. */
static int connect_to(struct mc_nfs_conn *c, int port, int program, int version)
{
	struct mc_nfs_link *l = &c->link;
	const struct mc_nfs_server *s = &c->n->server;

	destroy(l);
	l->rpc = rpc_init_context();
	l->answer = 0;
	if (l->rpc == NULL)
		return -ENOMEM;
	if (s->uid >= 0)
		rpc_set_uid(l->rpc, s->uid);
	if (s->gid >= 0)
		rpc_set_gid(l->rpc, s->gid);
	if (port != 0)
		return rpc_connect_port_async(l->rpc, s->host, port, program, version, on_phase, c);
	return rpc_connect_program_async(l->rpc, s->host, program, version, on_phase, c);
}

static void enter_phase(struct mc_nfs_conn *c, enum mc_nfs_phase phase)
{
	const struct mc_nfs_server *s = &c->n->server;
	struct mc_nfs_link *l = &c->link;
	unsigned ms = s->inactivity_ms < CONNECT_MAX_MS ? s->inactivity_ms : CONNECT_MAX_MS;
	int r = 0;

	l->phase = phase;
	l->deadline_ns = mc_now_ns() + ms * MS;
	if (phase == MC_NFS_MOUNT_CONNECT)
		r = connect_to(c, s->mountport, MOUNT_PROGRAM, MOUNT_V3);
	else if (phase == MC_NFS_CONNECT)
		r = connect_to(c, s->nfsport, NFS_PROGRAM, NFS_V3);
	else if (phase == MC_NFS_MOUNT) {
		l->answer = 0;
#ifdef LIBNFS_API_V2
		r = rpc_mount3_mnt_task(l->rpc, on_mount, s->export, c) == NULL ? -ENOMEM : 0;
#else
		r = rpc_mount3_mnt_async(l->rpc, on_mount, s->export, c);
#endif
	}
	if (r != 0 && l->answer == 0)
		l->answer = -EIO;
}

void mc_nfs_link_start(struct mc_nfs_conn *c)
{
	enter_phase(c, c->mounts ? MC_NFS_MOUNT_CONNECT : MC_NFS_CONNECT);
}

void mc_nfs_link_drop(struct mc_nfs_conn *c, int error, const char *text)
{
	struct mc_nfs_link *l = &c->link;
	uint64_t half;

	mc_mutex_lock(&c->lock);
	c->up = false;
	if (!c->failed) {
		c->failed = true;
		c->error = error;
		snprintf(c->text, sizeof(c->text), "%s", text != NULL ? text : "");
	}
	mc_cond_broadcast(&c->settled);
	mc_mutex_unlock(&c->lock);
	if (l->phase == MC_NFS_UP) {
		atomic_fetch_sub(&c->n->counters->up, 1);
		atomic_fetch_add(&c->n->counters->down, 1);
	}
	destroy(l);
	l->phase = MC_NFS_DOWN;
	if (l->backoff_ns < BACKOFF_MIN_NS)
		l->backoff_ns = BACKOFF_MIN_NS;
	half = l->backoff_ns / 2;
	l->retry_ns = mc_now_ns() + half + half * ((unsigned)rand_r(&l->seed) % 1024) / 1024;
	l->backoff_ns *= 2;
	if (l->backoff_ns > BACKOFF_MAX_NS)
		l->backoff_ns = BACKOFF_MAX_NS;
}

/* A server may export only a parent of the URL's path: mount that, and look the rest up. */
static bool try_parent_export(struct mc_nfs_conn *c)
{
	struct mc_nfs_server *s = &c->n->server;
	int e = c->link.answer;
	char *slash = strrchr(s->export, '/');
	char *sub = NULL;

	if (s->export_ok || slash == NULL || slash == s->export ||
		(e != -ENOENT && e != -EACCES && e != -ENOTDIR && e != -EINVAL && e != -EIO))
		return false;
	if (asprintf(&sub, "%s%s%s", slash + 1, *s->sub == '\0' ? "" : "/", s->sub) < 0)
		return false;
	free(s->sub);
	s->sub = sub;
	*slash = '\0';
	enter_phase(c, MC_NFS_MOUNT);
	return true;
}

void mc_nfs_link_note_error(struct mc_nfs_conn *c, int revents)
{
	socklen_t len = sizeof(int);
	int error = 0;

	if (!(revents & (POLLERR | POLLHUP)) || c->link.answer != 0)
		return;
	if (getsockopt(rpc_get_fd(c->link.rpc), SOL_SOCKET, SO_ERROR, &error, &len) == 0 &&
		error > 0)
		c->link.answer = -error;
}

static void give_up(struct mc_nfs_conn *c)
{
	const struct mc_nfs_server *s = &c->n->server;
	struct mc_nfs_link *l = &c->link;
	int error = l->answer != 0 ? l->answer : -ETIMEDOUT;
	int port = l->phase == MC_NFS_CONNECT ? s->nfsport : s->mountport;
	char text[sizeof(c->text)], at[40] = "found by its port mapper";

	if (port != 0)
		snprintf(at, sizeof(at), "on port %d", port);
	if (l->phase == MC_NFS_MOUNT && l->answer != 0)
		snprintf(text, sizeof(text), "the server refuses to mount %s: %s%s", s->export,
			strerror(-error),
			error == -EACCES ? "; is it exported to this host (\"insecure\" for "
					   "others than root)?"
					 : "");
	else
		snprintf(text, sizeof(text),
			"the %s service of %s, %s, does not answer: %s; is the server up, and are "
			"nfsport= and mountport= right?",
			l->phase == MC_NFS_CONNECT ? "NFS" : "MOUNT", s->host, at,
			strerror(-error));
	mc_nfs_link_drop(c, error, text);
}

bool mc_nfs_link_step(struct mc_nfs_conn *c)
{
	struct mc_nfs_link *l = &c->link;

	if (l->phase == MC_NFS_DOWN || l->phase == MC_NFS_UP)
		return false;
	if (l->answer == 0 && mc_now_ns() < l->deadline_ns)
		return false;
	if (l->answer <= 0) {
		if (l->phase != MC_NFS_MOUNT || l->answer == 0 || !try_parent_export(c))
			give_up(c);
		return false;
	}
	if (l->phase != MC_NFS_CONNECT) {
		if (l->phase == MC_NFS_MOUNT)
			c->n->server.export_ok = true;
		enter_phase(c, l->phase == MC_NFS_MOUNT ? MC_NFS_CONNECT : MC_NFS_MOUNT);
		return false;
	}
	l->phase = MC_NFS_UP;
	l->backoff_ns = 0;
	atomic_fetch_sub(&c->n->counters->down, 1);
	atomic_fetch_add(&c->n->counters->up, 1);
	if (l->was_up)
		atomic_fetch_add(&c->n->counters->reconnects, 1);
	l->was_up = true;
	mc_mutex_lock(&c->lock);
	c->up = true;
	mc_cond_broadcast(&c->settled);
	mc_mutex_unlock(&c->lock);
	return true;
}

uint64_t mc_nfs_link_moved(const struct mc_nfs_conn *c)
{
	struct tcp_info ti = {0};
	socklen_t len = sizeof(ti);

	if (getsockopt(rpc_get_fd(c->link.rpc), IPPROTO_TCP, TCP_INFO, &ti, &len) < 0)
		return 0;
	return ti.tcpi_bytes_received + ti.tcpi_bytes_acked;
}
