/* The session: mounted, or attached to a mount that another process made. For fs/run.c. */
#pragma once

#include "fs/state.h"

/* Finds out where the mount is to be, or is: sets fs->mountpoint. */
int mc_attach_prepare(struct mc_fs *fs, struct mc_err *err);
/* Sets fs->se, ready to receive requests. */
int mc_attach(struct mc_fs *fs, struct mc_err *err);
/* Unmounts and closes the device; nobody waits for an answer any more. */
void mc_detach(struct mc_fs *fs);
