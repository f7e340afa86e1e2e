/* The notifier thread: drops page cache that a switch to passthrough left behind. */
#include "fs/notify.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "tier/lock.h"

#define MAX_QUEUED 1024

struct mc_notify {
	struct mc_mutex lock;
	struct mc_cond more;
	struct fuse_session *se;
	fuse_ino_t ring[MAX_QUEUED];
	unsigned head, n;
	bool closing;
	pthread_t thread;
};

static void *notify_main(void *arg)
{
	struct mc_notify *n = arg;

	pthread_setname_np(pthread_self(), "mc-notify");
	mc_mutex_lock(&n->lock);
	while (!n->closing) {
		fuse_ino_t ino;

		if (n->n == 0) {
			mc_cond_wait(&n->more, &n->lock);
			continue;
		}
		ino = n->ring[n->head];
		n->head = (n->head + 1) % MAX_QUEUED;
		n->n--;
		mc_mutex_unlock(&n->lock);
		/* -ENOENT: forgotten meanwhile, and its pages with it. */
		fuse_lowlevel_notify_inval_inode(n->se, ino, 0, 0);
		mc_mutex_lock(&n->lock);
	}
	mc_mutex_unlock(&n->lock);
	return NULL;
}

int mc_notify_open(struct fuse_session *se, struct mc_notify **ret)
{
	struct mc_notify *n = calloc(1, sizeof(*n));
	int r;

	if (n == NULL)
		return -ENOMEM;
	mc_mutex_init(&n->lock);
	mc_cond_init(&n->more);
	n->se = se;
	r = -pthread_create(&n->thread, NULL, notify_main, n);
	if (r < 0) {
		mc_cond_done(&n->more);
		mc_mutex_done(&n->lock);
		free(n);
		return r;
	}
	*ret = n;
	return 0;
}

void mc_notify_stop(struct mc_notify *n)
{
	if (n == NULL)
		return;
	mc_mutex_lock(&n->lock);
	n->closing = true;
	mc_cond_broadcast(&n->more);
	mc_mutex_unlock(&n->lock);
	pthread_join(n->thread, NULL);
}

void mc_notify_free(struct mc_notify *n)
{
	if (n == NULL)
		return;
	mc_cond_done(&n->more);
	mc_mutex_done(&n->lock);
	free(n);
}

void mc_notify_drop_pages(struct mc_notify *n, fuse_ino_t ino)
{
	mc_mutex_lock(&n->lock);
	if (n->n < MAX_QUEUED) {
		n->ring[(n->head + n->n++) % MAX_QUEUED] = ino;
		mc_cond_signal(&n->more);
	}
	mc_mutex_unlock(&n->lock);
}
