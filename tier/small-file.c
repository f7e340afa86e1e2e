/* Small files beside a tier: see small-file.h. */
#include "tier/small-file.h"

#include "tier/cleanup.h"
#include "tier/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

static int write_synced(const char *path, const void *bytes, size_t len)
{
	const struct mc_io *io = mc_io_real();
	int fd = io->open(io, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), r;

	if (fd < 0)
		return fd;
	r = mc_io_write_full(io, fd, bytes, len, 0);
	if (r == 0)
		r = io->fsync(io, fd);
	io->close(io, fd);
	return r;
}

int mc_small_file_write(const char *dir, const char *name, const void *bytes, size_t len)
{
	const struct mc_io *io = mc_io_real();
	cleanup_free char *path = NULL, *tmp = NULL;
	int r;

	if (asprintf(&path, "%s/%s", dir, name) < 0 || asprintf(&tmp, "%s/%s.tmp", dir, name) < 0)
		return -ENOMEM;
	r = write_synced(tmp, bytes, len);
	if (r == 0)
		r = io->rename(io, tmp, path);
	return r == 0 ? mc_io_sync_dir(io, dir) : r;
}

int mc_small_file_read(const char *dir, const char *name, char *ret, size_t size)
{
	cleanup_free char *path = NULL;
	size_t n;
	FILE *in;
	int r = 0;

	if (asprintf(&path, "%s/%s", dir, name) < 0)
		return -ENOMEM;
	in = fopen(path, "re");
	if (in == NULL)
		return -errno;
	n = fread(ret, 1, size, in);
	if (ferror(in))
		r = -EIO;
	else if (n == size)
		r = -EFBIG;
	else
		ret[n] = '\0';
	fclose(in);
	return r;
}
