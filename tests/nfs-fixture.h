/* A real NFS server for the C tests: started by tests/lib/nfs-server in a directory of its own. */
#pragma once

#include <stdbool.h>

/* Starts one; false: it cannot run here (skip with 77). */
bool nfs_fixture_start(void);
/* "start" was done; restart, stop, kill: the commands of tests/lib/nfs-server. Returns its status.
 */
int nfs_fixture_order(const char *order);
/* The setup of each test of a suite that kills the server: one that failed may have left it so. */
void nfs_fixture_revive(void);
const char *nfs_fixture_url(void);    /* without options beyond the ports */
const char *nfs_fixture_export(void); /* the exported directory on this machine */
int nfs_fixture_port(void);
int nfs_fixture_mount_port(void);
int nfs_fixture_pid(void);
/* Stops the server and removes its directory. */
void nfs_fixture_end(void);
