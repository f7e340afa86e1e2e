/* The lock file of a directory that one process may use: flock, with the process id as text. */
#pragma once

#include "tier/error.h"

#include <stdbool.h>

/*
 * Locks dir/name; *ret_fd is owned by the caller, closing it unlocks. own: made if need be, and our
 * pid becomes its text; otherwise nothing on disk changes and -ENOENT says that it is not there.
 * -EBUSY: the text in err begins with what and names the holder.
 */
int mc_dir_lock(const char *dir, const char *name, bool own, const char *what, int *ret_fd,
	struct mc_err *err);
