/* One fdatasync for several writers; see shared-sync.h. */
#include "tier/shared-sync.h"

#include <errno.h>
#include <stdatomic.h>

#include "tier/io.h"

void mc_shared_sync_init(struct mc_shared_sync *s)
{
	mc_mutex_init(&s->lock);
	atomic_store(&s->failures, 0);
}

void mc_shared_sync_done(struct mc_shared_sync *s)
{
	mc_mutex_done(&s->lock);
}

void mc_shared_sync_begin(struct mc_shared_sync *s, uint64_t *ret_seen)
{
	*ret_seen = s != NULL ? atomic_load(&s->failures) : 0;
}

int mc_shared_sync(struct mc_shared_sync *s, const struct mc_io *io, int fd, uint64_t *seen)
{
	uint64_t now;
	int r;

	if (s == NULL)
		return io->fdatasync(io, fd);
	mc_mutex_lock(&s->lock);
	r = io->fdatasync(io, fd);
	now = atomic_load(&s->failures) + (r != 0);
	atomic_store(&s->failures, now);
	if (r == 0 && now != *seen)
		r = -EIO;
	*seen = now;
	mc_mutex_unlock(&s->lock);
	return r;
}
