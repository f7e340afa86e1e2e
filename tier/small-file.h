/* Small files beside a tier that are written as a whole and survive a crash old or new. */
#pragma once

#include <stddef.h>

/* [blocks] dir/name has these bytes, durably; through dir/name.tmp. 0 or -errno. */
int mc_small_file_write(const char *dir, const char *name, const void *bytes, size_t len);
/* [blocks] Up to size - 1 bytes and a NUL into ret. 0, -ENOENT, -EFBIG or -errno. */
int mc_small_file_read(const char *dir, const char *name, char *ret, size_t size);
