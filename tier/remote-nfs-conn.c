/*
 * Calls on one NFS connection, and the thread that owns it: nobody else touches its libnfs context.
 *
 * 1. A call is in one place: inbox (any thread puts it there), ready, a slot, later, or lost;
 * finish takes it out of the last and is the only one to run its done.
 * 2. A busy slot is one callback that libnfs owes. A call may leave its slot before (deadline): the
 *    slot stays busy, its answer is thrown away. Ending the socket frees all slots.
 * 3. When the socket ends, what was in flight goes back to ready if it may be sent twice, else it
 * is finished with -ECONNRESET. Nothing of an answer that did not come whole is ever used.
 * 4. The counts of progress: a connection with calls in flight on which no byte moved for
 *    inactivity_ms is cut.
 */
#include "tier/remote-nfs-conn.h"

#include "tier/cleanup.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#define TICK_NS UINT64_C(100000000) /* how late a deadline may be noticed */
#define LOAD_DOWN (1u << 20)        /* more than any queue: a connection that stands goes first */

static void list_init(struct mc_nfs_list *l)
{
	l->head = NULL;
	l->tail = &l->head;
}

static void list_push(struct mc_nfs_list *l, struct mc_nfs_call *call)
{
	call->next = NULL;
	*l->tail = call;
	l->tail = &call->next;
}

static struct mc_nfs_call *list_pop(struct mc_nfs_list *l)
{
	struct mc_nfs_call *call = l->head;

	if (call != NULL) {
		l->head = call->next;
		if (l->head == NULL)
			l->tail = &l->head;
	}
	return call;
}

/* Moves everything of from to the end of to. */
static void list_append(struct mc_nfs_list *to, struct mc_nfs_list *from)
{
	if (from->head == NULL)
		return;
	*to->tail = from->head;
	to->tail = from->tail;
	list_init(from);
}

static void finish(struct mc_nfs_conn *c, struct mc_nfs_call *call, int res)
{
	atomic_fetch_sub(&c->load, 1);
	call->done(call, res);
}

static void finish_all(struct mc_nfs_conn *c, struct mc_nfs_list *l, int res)
{
	struct mc_nfs_call *call;

	while ((call = list_pop(l)) != NULL)
		finish(c, call, res);
}

static void on_reply(struct rpc_context *rpc, int status, void *data, void *priv)
{
	struct mc_nfs_slot *s = priv;
	struct mc_nfs_conn *c = s->conn;
	struct mc_nfs_call *call = s->call;
	int nfs;

	(void)rpc;
	if (!s->busy) /* the socket is being ended */
		return;
	s->busy = false;
	s->call = NULL;
	c->in_flight--;
	c->progress_ns = mc_now_ns();
	if (call == NULL)
		return;
	if (status != RPC_STATUS_SUCCESS || data == NULL) {
		list_push(&c->lost, call);
		return;
	}
	nfs = (int)*(const nfsstat3 *)data; /* the first word of every NFSv3 result */
	if (nfs == NFS3ERR_JUKEBOX)
		list_push(&c->later, call);
	else
		finish(c, call, nfs == NFS3_OK ? call->proc->reply(call, data) : mc_nfs_errno(nfs));
}

/* Ends the socket and sorts what was in flight; see 3. */
static void cut(struct mc_nfs_conn *c, int error, const char *text)
{
	struct mc_nfs_list again, over;
	struct mc_nfs_call *call;

	list_init(&again);
	list_init(&over);
	for (unsigned i = 0; i < c->depth; i++) {
		if (c->slots[i].busy && c->slots[i].call != NULL)
			list_push(&c->lost, c->slots[i].call);
		c->slots[i].busy = false;
		c->slots[i].call = NULL;
	}
	c->in_flight = 0;
	atomic_store(&c->usable, false);
	mc_nfs_link_drop(c, error, text);
	while ((call = list_pop(&c->lost)) != NULL)
		list_push(call->proc->replay ? &again : &over, call);
	list_append(&again, &c->ready);
	list_append(&c->ready, &again);
	finish_all(c, &over, -ECONNRESET);
}

static struct mc_nfs_slot *free_slot(struct mc_nfs_conn *c)
{
	for (unsigned i = 0; i < c->depth; i++)
		if (!c->slots[i].busy)
			return &c->slots[i];
	return NULL;
}

static void send_ready(struct mc_nfs_conn *c)
{
	bool sent = false;
	struct mc_nfs_slot *s;

	while (c->link.phase == MC_NFS_UP && c->ready.head != NULL && (s = free_slot(c)) != NULL) {
		struct mc_nfs_call *call = list_pop(&c->ready);

		s->busy = true;
		s->call = call;
		if (c->in_flight++ == 0) {
			c->progress_ns = mc_now_ns();
			c->moved = 0;
		}
		atomic_fetch_add(&c->n->counters->requests, 1);
		if (call->proc->send(c->link.rpc, on_reply, call, s) < 0) {
			s->busy = false;
			s->call = NULL;
			c->in_flight--;
			finish(c, call, -ENOMEM);
		}
		sent = true;
	}
	/* Write at once what fits into the socket, without another turn of poll. */
	if (sent && c->link.phase == MC_NFS_UP && rpc_service(c->link.rpc, POLLOUT) < 0)
		cut(c, -EIO, rpc_get_error(c->link.rpc));
}

/* libnfs may still read a WRITE's data (and 6.0 still write a READ's) after we have given up. */
static bool pins_buffer(const struct mc_nfs_call *call)
{
#ifdef LIBNFS_API_V2
	if (call->proc == &mc_nfs_read_proc)
		return true;
#endif
	return call->proc == &mc_nfs_write;
}

static void expire_list(struct mc_nfs_list *l, struct mc_nfs_list *over, uint64_t now)
{
	struct mc_nfs_list keep;
	struct mc_nfs_call *call;

	list_init(&keep);
	while ((call = list_pop(l)) != NULL)
		list_push(now >= call->deadline_ns ? over : &keep, call);
	list_append(l, &keep);
}

/* What waits for a socket that does not come goes to a connection that has one. */
static void hand_over(struct mc_nfs_conn *c)
{
	struct mc_nfs_conn *other;
	struct mc_nfs_call *call;

	if (c->mounts || c->link.phase == MC_NFS_UP || c->ready.head == NULL)
		return;
	other = mc_nfs_bulk(c->n);
	if (other == c || !atomic_load(&other->usable))
		return;
	while ((call = list_pop(&c->ready)) != NULL) {
		atomic_fetch_sub(&c->load, 1);
		mc_nfs_conn_submit(other, call);
	}
}

/* Deadlines, postponed calls, and silence. */
static void tick(struct mc_nfs_conn *c)
{
	uint64_t now = mc_now_ns(), moved;
	struct mc_nfs_list over;
	bool pinned = false;

	if (now - c->tick_ns < TICK_NS)
		return;
	c->tick_ns = now;
	list_init(&over);
	list_append(&c->ready, &c->later);
	expire_list(&c->ready, &over, now);
	for (unsigned i = 0; i < c->depth; i++) {
		struct mc_nfs_slot *s = &c->slots[i];

		if (!s->busy || s->call == NULL || now < s->call->deadline_ns)
			continue;
		pinned = pinned || pins_buffer(s->call);
		list_push(&over, s->call);
		s->call = NULL;
	}
	if (pinned) {
		cut(c, -ETIMEDOUT, "a write was not answered in time");
	} else if (c->in_flight > 0 &&
		now - c->progress_ns > c->n->server.inactivity_ms * UINT64_C(1000000)) {
		moved = mc_nfs_link_moved(c);
		if (moved != c->moved) {
			c->moved = moved;
			c->progress_ns = now;
		} else {
			cut(c, -ETIMEDOUT, "the server went silent");
		}
	}
	finish_all(c, &over, -ETIMEDOUT);
	hand_over(c);
}

static int poll_timeout_ms(const struct mc_nfs_conn *c)
{
	uint64_t now = mc_now_ns();
	int ms = -1;

	if (c->ready.head != NULL || c->later.head != NULL || c->in_flight > 0 ||
		(c->link.phase != MC_NFS_DOWN && c->link.phase != MC_NFS_UP))
		ms = (int)(TICK_NS / 1000000);
	if (c->link.phase == MC_NFS_DOWN) {
		uint64_t left = c->link.retry_ns > now ? (c->link.retry_ns - now) / 1000000 + 1 : 0;

		if (ms < 0 || left < (uint64_t)ms)
			ms = (int)left;
	}
	return ms;
}

static void service(struct mc_nfs_conn *c, int revents)
{
	struct mc_nfs_link *l = &c->link;
	int fd = rpc_get_fd(l->rpc), r;

	if (l->phase != MC_NFS_UP)
		mc_nfs_link_note_error(c, revents);
	r = rpc_service(l->rpc, revents);

	if (l->phase != MC_NFS_UP) {
		if (r < 0 && l->answer == 0)
			l->answer = -EIO;
		return;
	}
	if (r < 0 || rpc_get_fd(l->rpc) != fd)
		cut(c, -EIO, rpc_get_error(l->rpc));
	else
		finish_all(c, &c->lost, -EIO); /* refused as an RPC, the connection is well */
}

/* Sleeps until there is something to do, and takes the inbox. False when stopping. */
static bool wait_for_work(struct mc_nfs_conn *c)
{
	struct rpc_context *rpc = c->link.rpc;
	struct pollfd p[2] = {{.fd = c->event_fd, .events = POLLIN}, {.fd = -1}};
	bool stopping;

	if (rpc != NULL) {
		p[1].fd = rpc_get_fd(rpc);
		p[1].events = (short)rpc_which_events(rpc);
	}
	if (poll(p, 2, poll_timeout_ms(c)) < 0)
		p[0].revents = p[1].revents = 0;
	mc_mutex_lock(&c->lock);
	if (p[0].revents != 0) {
		uint64_t n;

		if (read(c->event_fd, &n, sizeof(n)) == (ssize_t)sizeof(n))
			c->wake_sent = false;
	}
	list_append(&c->ready, &c->inbox);
	stopping = c->stopping;
	mc_mutex_unlock(&c->lock);
	if (!stopping && p[1].revents != 0)
		service(c, p[1].revents);
	return !stopping;
}

static void *conn_main(void *arg)
{
	struct mc_nfs_conn *c = arg;

	pthread_setname_np(pthread_self(), "mc-nfs");
	do {
		if (atomic_exchange(&c->remount, false) && c->link.phase == MC_NFS_UP)
			cut(c, -ESTALE, "the root's handle is stale");
		if (c->link.phase == MC_NFS_DOWN && mc_now_ns() >= c->link.retry_ns)
			mc_nfs_link_start(c);
		if (mc_nfs_link_step(c))
			atomic_store(&c->usable, true);
		send_ready(c);
		tick(c);
	} while (wait_for_work(c));
	cut(c, -ESHUTDOWN, "closing");
	list_append(&c->ready, &c->later);
	finish_all(c, &c->ready, -ESHUTDOWN);
	return NULL;
}

static void wake_locked(struct mc_nfs_conn *c) MC_REQUIRES(c->lock)
{
	uint64_t one = 1;

	if (!c->wake_sent)
		c->wake_sent = write(c->event_fd, &one, sizeof(one)) == (ssize_t)sizeof(one);
}

void mc_nfs_conn_submit(struct mc_nfs_conn *c, struct mc_nfs_call *call)
{
	bool stopping;

	atomic_fetch_add(&c->load, 1);
	mc_mutex_lock(&c->lock);
	stopping = c->stopping;
	if (!stopping && pthread_equal(pthread_self(), c->thread)) {
		list_push(&c->ready, call); /* from a done callback: the thread sends it next */
	} else if (!stopping) {
		list_push(&c->inbox, call);
		wake_locked(c);
	}
	mc_mutex_unlock(&c->lock);
	if (stopping)
		finish(c, call, -ESHUTDOWN);
}

void mc_nfs_conn_remount(struct mc_nfs_conn *c)
{
	atomic_store(&c->remount, true);
	mc_mutex_lock(&c->lock);
	wake_locked(c);
	mc_mutex_unlock(&c->lock);
}

unsigned mc_nfs_conn_load(const struct mc_nfs_conn *c)
{
	return atomic_load(&c->load) + (atomic_load(&c->usable) ? 0 : LOAD_DOWN);
}

int mc_nfs_conn_wait_up(struct mc_nfs_conn *c, uint64_t deadline_ns, struct mc_err *err)
{
	int res = 0;

	mc_mutex_lock(&c->lock);
	while (!c->up && !c->failed && res == 0)
		res = -mc_cond_wait_until(&c->settled, &c->lock, deadline_ns);
	if (c->up)
		res = 0;
	else if (c->failed)
		res = mc_err_set(err, c->error, "%s", c->text);
	mc_mutex_unlock(&c->lock);
	return res;
}

int mc_nfs_conn_open(struct mc_nfs *n, unsigned depth, bool mounts, struct mc_nfs_conn **ret)
{
	struct mc_nfs_conn *c = calloc(1, sizeof(*c));
	int r;

	if (c == NULL)
		return -ENOMEM;
	c->slots = calloc(depth, sizeof(*c->slots));
	c->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	c->n = n;
	c->mounts = mounts;
	c->depth = depth;
	c->link.seed = (unsigned)(mc_now_ns() ^ (uintptr_t)c);
	list_init(&c->inbox);
	list_init(&c->ready);
	list_init(&c->later);
	list_init(&c->lost);
	for (unsigned i = 0; c->slots != NULL && i < depth; i++)
		c->slots[i].conn = c;
	mc_mutex_init(&c->lock);
	mc_cond_init(&c->settled);
	r = c->slots == NULL ? -ENOMEM : c->event_fd < 0 ? -EMFILE : 0;
	if (r == 0) {
		atomic_fetch_add(&n->counters->down, 1);
		mc_mutex_lock(&c->lock); /* the thread's number is written before it can look */
		r = -pthread_create(&c->thread, NULL, conn_main, c);
		mc_mutex_unlock(&c->lock);
	}
	if (r == 0) {
		*ret = c;
		return 0;
	}
	if (c->event_fd >= 0)
		close(c->event_fd);
	mc_cond_done(&c->settled);
	mc_mutex_done(&c->lock);
	free(c->slots);
	free(c);
	return r;
}

void mc_nfs_conn_stop(struct mc_nfs_conn *c)
{
	mc_mutex_lock(&c->lock);
	c->stopping = true;
	wake_locked(c);
	mc_mutex_unlock(&c->lock);
}

void mc_nfs_conn_close(struct mc_nfs_conn *c)
{
	if (c == NULL)
		return;
	pthread_join(c->thread, NULL);
	close(c->event_fd);
	mc_cond_done(&c->settled);
	mc_mutex_done(&c->lock);
	free(c->slots);
	free(c);
}
