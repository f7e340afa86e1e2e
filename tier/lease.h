/*
 * Asks the kernel whether anybody but ourselves reaches a backing file.
 *
 * A reader served in passthrough holds the backing file, not our FUSE file: its mapping outlives
 * the RELEASE, and the daemon too. F_SETLEASE/F_WRLCK is granted exactly while no other open file
 * description of the inode exists. A duplicate of our descriptor and a mapping made from it belong
 * to the same description and do not count; a second open of our own would, so an image has one.
 */
#pragma once

#include <stdbool.h>

/*
 * 0 and the lease is held: nobody else has the file open or mapped, and an open arriving now waits
 * for mc_lease_drop. -EAGAIN: somebody has. Other -errno: this file system knows no leases. Whoever
 * holds the image's lock calls it, and drops the lease before unlocking.
 */
int mc_lease_take(int fd);
void mc_lease_drop(int fd);
/* Whether the file system of this descriptor, which nobody else has open, grants leases. */
bool mc_lease_supported(int fd);
