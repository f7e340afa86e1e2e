/* One fdatasync for several writers; see shared-sync.h. */
#include "tier/shared-sync.h"

#include <errno.h>

#include "tier/io.h"

void mc_shared_sync_init(struct mc_shared_sync *s)
{
	mc_mutex_init(&s->lock);
	mc_mutex_lock(&s->lock);
	s->failures = 0;
	mc_mutex_unlock(&s->lock);
}

void mc_shared_sync_done(struct mc_shared_sync *s)
{
	mc_mutex_done(&s->lock);
}

void mc_shared_sync_begin(struct mc_shared_sync *s, uint64_t *ret_seen)
{
	*ret_seen = 0;
	if (s == NULL)
		return;
	mc_mutex_lock(&s->lock);
	*ret_seen = s->failures;
	mc_mutex_unlock(&s->lock);
}

int mc_shared_sync(struct mc_shared_sync *s, const struct mc_io *io, int fd, uint64_t *seen)
{
	int r;

	if (s == NULL)
		return io->fdatasync(io, fd);
	mc_mutex_lock(&s->lock);
	r = io->fdatasync(io, fd);
	s->failures += r != 0;
	if (r == 0 && s->failures != *seen)
		r = -EIO;
	*seen = s->failures;
	mc_mutex_unlock(&s->lock);
	return r;
}
