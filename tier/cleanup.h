/* Scope-bound release of memory and descriptors that have one owner. */
#pragma once

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static inline void mc_cleanup_free(void *p)
{
	free(*(void **)p);
}

/* Keeps errno: a cleanup must not disturb the value read on the line after a failed call. */
static inline void mc_cleanup_close(int *fd)
{
	if (*fd >= 0) {
		int saved = errno;

		close(*fd);
		errno = saved;
	}
}

#define cleanup_free __attribute__((cleanup(mc_cleanup_free)))
#define cleanup_close __attribute__((cleanup(mc_cleanup_close)))

/* Hands the value over to another owner and disarms the cleanup. */
static inline void *mc_steal(void *p)
{
	void *v = *(void **)p;

	*(void **)p = NULL;
	return v;
}
#define steal_ptr(p) ((__typeof__(p))mc_steal(&(p)))

static inline int mc_steal_fd(int *fd)
{
	int v = *fd;

	*fd = -1;
	return v;
}
#define steal_fd(fd) mc_steal_fd(&(fd))
