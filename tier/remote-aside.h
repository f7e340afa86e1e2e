/* A mounted directory as a remote whose calls end at their deadline, though the kernel's may hang.
 */
#pragma once

#include "tier/remote-backend.h"

/* As mc_remote_dir_open, which may hang as well: -ETIMEDOUT then. */
mc_backend_open mc_remote_aside_open;
