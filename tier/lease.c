/* F_SETLEASE as the question "does a client still hold this backing file". */
#include "tier/lease.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>

int mc_lease_take(int fd)
{
	/* An open during the lease sends a signal, SIGIO unless told: SIGURG is ignored by default.
	 */
	if (fcntl(fd, F_SETSIG, SIGURG) != 0)
		return -errno;
	if (fcntl(fd, F_SETLEASE, F_WRLCK) != 0)
		return -errno;
	return 0;
}

void mc_lease_drop(int fd)
{
	fcntl(fd, F_SETLEASE, F_UNLCK);
}

bool mc_lease_supported(int fd)
{
	if (mc_lease_take(fd) != 0)
		return false;
	mc_lease_drop(fd);
	return true;
}
