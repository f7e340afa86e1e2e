/* A device or file that is ours alone. */
#include "tier/block-super.h"

#include "tier/cleanup.h"
#include "tier/io.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#define SECTOR_MAX 4096 /* bytes: what all our transfers are multiples of */

/* O_EXCL without O_CREAT asks the kernel for a device that nobody else has: no file system, no
 * mapping over it. */
static int open_path(const char *path, bool is_device, bool make, struct mc_block_dev *d)
{
	int flags = O_RDWR | (is_device ? O_EXCL : 0) | (make ? O_CREAT : 0);

	d->direct = true;
	d->fd = d->io->open(d->io, path, flags | O_DIRECT, 0600);
	if (d->fd == -EINVAL) {
		d->direct = false;
		d->fd = d->io->open(d->io, path, flags, 0600);
	}
	return d->fd < 0 ? d->fd : 0;
}

static int find_size(struct mc_block_dev *d, const char *path, struct mc_err *err)
{
	struct stat st;
	int sector = 0, r;

	if (d->is_device) {
		if (ioctl(d->fd, BLKSSZGET, &sector) < 0 ||
			ioctl(d->fd, BLKGETSIZE64, &d->bytes) < 0)
			return -errno;
		if (sector > SECTOR_MAX)
			return mc_err_set(err, -EINVAL,
				"%s: sectors of %d bytes; at most %d are possible", path, sector,
				SECTOR_MAX);
		return 0;
	}
	r = d->io->fstat(d->io, d->fd, &st);
	if (r == 0)
		d->bytes = (uint64_t)st.st_size;
	return r;
}

static int make_file(struct mc_block_dev *d, const char *path, uint64_t bytes)
{
	cleanup_free char *dir = strdup(path);
	char *slash = dir != NULL ? strrchr(dir, '/') : NULL;
	int r = dir == NULL ? -ENOMEM : d->io->fallocate(d->io, d->fd, 0, 0, bytes);

	if (r == -EOPNOTSUPP)
		r = d->io->ftruncate(d->io, d->fd, bytes);
	if (r == 0)
		r = d->io->fsync(d->io, d->fd);
	if (slash != NULL)
		slash[slash == dir] = '\0';
	return r == 0 ? mc_io_sync_dir(d->io, slash != NULL ? dir : ".") : r;
}

static int open_locked(struct mc_block_dev *d, const char *path, uint64_t bytes, struct mc_err *err)
{
	struct stat st;
	bool there = stat(path, &st) == 0;
	int r;

	if (there && !S_ISBLK(st.st_mode) && !S_ISREG(st.st_mode))
		return mc_err_set(err, -ENOTBLK, "%s: neither a block device nor a file", path);
	d->is_device = there && S_ISBLK(st.st_mode);
	r = open_path(path, d->is_device, !there && bytes > 0, d);
	if (r == 0 && flock(d->fd, LOCK_EX | LOCK_NB) < 0)
		r = errno == EWOULDBLOCK ? -EBUSY : -errno;
	if (r == -EBUSY)
		return mc_err_set(err, r,
			"%s: in use: mounted, part of another device, or another daemon's", path);
	if (r == 0)
		r = find_size(d, path, err);
	if (r != 0 || d->is_device || d->bytes >= bytes)
		return r;
	r = make_file(d, path, bytes);
	return r == 0 ? find_size(d, path, err) : r;
}

int mc_block_dev_open(const char *path, const struct mc_io *io, uint64_t bytes,
	struct mc_block_dev *ret, struct mc_err *err)
{
	struct mc_block_dev d = {.io = io, .fd = -1};
	int r = open_locked(&d, path, bytes, err);

	if (r != 0) {
		mc_block_dev_close(&d);
		return mc_err_set(err, r, "%s: %s%s", path, strerror(-r),
			r == -ENOENT ? "; attach the device, or make the file with its size" : "");
	}
	*ret = d;
	return 0;
}

void mc_block_dev_close(struct mc_block_dev *d)
{
	if (d->fd >= 0)
		d->io->close(d->io, d->fd);
	d->fd = -1;
}

void mc_block_dev_discard(const struct mc_block_dev *d, uint64_t at, uint64_t bytes)
{
	uint64_t range[2] = {at, bytes};

	if (d->is_device)
		ioctl(d->fd, BLKDISCARD, range);
	else
		d->io->fallocate(
			d->io, d->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, bytes);
}
