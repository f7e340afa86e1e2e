/*
 * libfuse, and the one place that knows its versions: the tree compiles with 3.14 and later,
 * passthrough needs 3.17 (fuse_file_info.backing_id, fuse_set_feature_flag).
 */
#pragma once

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>

#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
#define MC_FUSE_PASSTHROUGH 1
#else
#define MC_FUSE_PASSTHROUGH 0
#endif
