/*
 * The recording disk: see disk.h.
 *
 * Invariants: 1. base (a shared mapping of the image) holds the first n_base operations of log[0].
 * 2. view is what the device shows: a private mapping of the image and changes. 3. Views change
 * while nothing has the device mounted.
 */
#define FUSE_USE_VERSION 314

#include "tests/disk.h"

#include "tests/disk-log.h"
#include "tier/lock.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define FILE_INO 2
#define REQUEST_MAX (1u << 20)

struct disk {
	struct mc_mutex lock;
	struct fuse_session *session;
	pthread_t server;
	int image_fd, loop_fd;
	uint64_t size;
	char device[32], path[4096];
	char *base, *view;
	size_t n_base;
	struct disk_log log[2];
	struct disk_log *record;     /* one of log, NULL = none */
	_Atomic(uint64_t) *position; /* shared with children */
	uint64_t cut, seed;          /* of the state that is shown */
};

/* ---- the file system */

static struct disk *self(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

static struct stat attributes(const struct disk *d, fuse_ino_t ino)
{
	struct stat st = {.st_ino = ino, .st_nlink = 1, .st_mode = S_IFDIR | 0700};

	if (ino == FILE_INO) {
		st.st_mode = S_IFREG | 0600;
		st.st_size = (off_t)d->size;
	}
	return st;
}

static void on_init(void *ctx, struct fuse_conn_info *conn)
{
	(void)ctx;
	conn->max_write = conn->max_read = REQUEST_MAX;
}

static void on_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e = {.ino = FILE_INO, .attr_timeout = 1e6, .entry_timeout = 1e6};

	if (parent != FUSE_ROOT_ID || strcmp(name, "disk") != 0) {
		fuse_reply_err(req, ENOENT);
		return;
	}
	e.attr = attributes(self(req), FILE_INO);
	fuse_reply_entry(req, &e);
}

static void on_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct stat st = attributes(self(req), ino);

	(void)fi;
	fuse_reply_attr(req, &st, 1e6);
}

static void on_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	if (ino != FILE_INO) {
		fuse_reply_err(req, EISDIR);
		return;
	}
	fi->direct_io = 1;
	fuse_reply_open(req, fi);
}

static void on_read(
	fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct disk *d = self(req);
	size_t left = (uint64_t)off < d->size ? d->size - (uint64_t)off : 0;

	(void)ino;
	(void)fi;
	mc_mutex_lock(&d->lock);
	fuse_reply_buf(req, d->view + off, size < left ? size : left);
	mc_mutex_unlock(&d->lock);
}

static void on_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
	struct fuse_file_info *fi)
{
	struct disk *d = self(req);

	(void)ino;
	(void)fi;
	assert((uint64_t)off + size <= d->size);
	mc_mutex_lock(&d->lock);
	memcpy(d->view + off, buf, size);
	if (d->record != NULL) {
		disk_log_write(d->record, (uint64_t)off, buf, (uint32_t)size);
		atomic_store(d->position, d->record->n);
	}
	mc_mutex_unlock(&d->lock);
	fuse_reply_write(req, size);
}

static void on_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct disk *d = self(req);

	(void)ino;
	(void)datasync;
	(void)fi;
	mc_mutex_lock(&d->lock);
	if (d->record != NULL) {
		disk_log_flush(d->record);
		atomic_store(d->position, d->record->n);
	}
	mc_mutex_unlock(&d->lock);
	fuse_reply_err(req, 0);
}

static const struct fuse_lowlevel_ops file_system = {
	.init = on_init,
	.lookup = on_lookup,
	.getattr = on_getattr,
	.open = on_open,
	.read = on_read,
	.write = on_write,
	.fsync = on_fsync,
};

static void *serve(void *arg)
{
	struct disk *d = arg;

	fuse_session_loop(d->session);
	return NULL;
}

static int start_server(struct disk *d, const char *mountpoint)
{
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	bool ok = fuse_opt_add_arg(&args, "disk") == 0 &&
		fuse_opt_add_arg(&args, "-omax_read=1048576") == 0;

	snprintf(d->path, sizeof(d->path), "%s/disk", mountpoint);
	if (ok)
		d->session = fuse_session_new(&args, &file_system, sizeof(file_system), d);
	fuse_opt_free_args(&args);
	if (d->session == NULL)
		return -ENODEV;
	if (fuse_session_mount(d->session, mountpoint) != 0) {
		fuse_session_destroy(d->session);
		return -ENODEV;
	}
	return -pthread_create(&d->server, NULL, serve, d);
}

static void stop_server(struct disk *d)
{
	fuse_session_exit(d->session);
	fuse_session_unmount(d->session);
	pthread_join(d->server, NULL);
	fuse_session_destroy(d->session);
}

/* ---- the loop device */

static int attach(struct disk *d)
{
	struct loop_config c = {.block_size = DISK_SECTOR,
		.info.lo_flags = LO_FLAGS_DIRECT_IO | LO_FLAGS_AUTOCLEAR};
	int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC), r = -EBUSY;

	if (control < 0)
		return -errno;
	c.fd = (uint32_t)open(d->path, O_RDWR | O_CLOEXEC);
	/* Somebody else may take the free one first. */
	for (unsigned i = 0; i < 20 && r == -EBUSY && (int)c.fd >= 0; i++) {
		int n = ioctl(control, LOOP_CTL_GET_FREE);

		snprintf(d->device, sizeof(d->device), "/dev/loop%d", n);
		d->loop_fd = n >= 0 ? open(d->device, O_RDWR | O_CLOEXEC) : -1;
		if (d->loop_fd < 0)
			break;
		r = ioctl(d->loop_fd, LOOP_CONFIGURE, &c) == 0 ? 0 : -errno;
		if (r != 0)
			close(d->loop_fd);
	}
	if ((int)c.fd >= 0)
		close((int)c.fd);
	close(control);
	return r;
}

/* ---- views */

/* A fresh view of the base. The device forgets what it has cached. */
static void renew_view(struct disk *d)
{
	int prot = PROT_READ | PROT_WRITE;

	mc_mutex_lock(&d->lock);
	if (d->view != NULL)
		munmap(d->view, d->size);
	d->view = mmap(NULL, d->size, prot, MAP_PRIVATE | MAP_NORESERVE, d->image_fd, 0);
	assert(d->view != MAP_FAILED);
	madvise(d->view, d->size, MADV_DONTFORK);
	mc_mutex_unlock(&d->lock);
}

static bool is_cached(const struct disk *d)
{
	size_t pages = d->size / DISK_SECTOR;
	void *map = mmap(NULL, d->size, PROT_READ, MAP_SHARED, d->loop_fd, 0);
	unsigned char *there = malloc(pages);
	bool any = false;

	assert(map != MAP_FAILED && there != NULL && mincore(map, d->size, there) == 0);
	for (size_t i = 0; i < pages; i++)
		any |= (there[i] & 1) != 0;
	munmap(map, d->size);
	free(there);
	return any;
}

/* BLKFLSBUF passes over pages that somebody has hold of at that moment. */
static void forget_cached(const struct disk *d)
{
	do {
		ioctl(d->loop_fd, BLKFLSBUF);
	} while (is_cached(d));
}

static void set_record(struct disk *d, struct disk_log *log)
{
	forget_cached(d);
	mc_mutex_lock(&d->lock);
	d->record = log;
	if (log != NULL) {
		disk_log_clear(log);
		atomic_store(d->position, 0);
	}
	mc_mutex_unlock(&d->lock);
}

void disk_record(struct disk *d)
{
	renew_view(d);
	set_record(d, &d->log[0]);
	d->n_base = 0;
}

void disk_pause(struct disk *d)
{
	set_record(d, NULL);
}

static void show(struct disk *d)
{
	size_t certain = disk_log_certain(&d->log[0], d->cut);

	set_record(d, NULL);
	assert(certain >= d->n_base);
	disk_log_apply(&d->log[0], d->n_base, certain, d->base);
	d->n_base = certain;
	renew_view(d);
	if (d->seed != DISK_CERTAIN)
		disk_log_tear(&d->log[0], certain, d->cut, d->view, d->seed);
}

void disk_show(struct disk *d, uint64_t cut, uint64_t seed)
{
	d->cut = cut;
	d->seed = seed;
	show(d);
	set_record(d, &d->log[1]);
}

void disk_show_again(struct disk *d, uint64_t seed)
{
	const struct disk_log *l = &d->log[1];
	size_t cut, certain;

	show(d);
	cut = seed * UINT64_C(0x9e3779b97f4a7c15) % (l->n + 1);
	certain = disk_log_certain(l, cut);
	disk_log_apply(l, 0, certain, d->view);
	disk_log_tear(l, certain, cut, d->view, seed);
	forget_cached(d);
}

/* ---- life */

struct disk *disk_open(const struct disk_opts *o, const char **ret_why)
{
	struct disk *d = calloc(1, sizeof(*d));
	int prot = PROT_READ | PROT_WRITE;
	struct stat st;

	assert(d != NULL);
	mc_mutex_init(&d->lock);
	d->image_fd = open(o->image, O_RDWR | O_CLOEXEC);
	assert(d->image_fd >= 0 && fstat(d->image_fd, &st) == 0);
	d->size = (uint64_t)st.st_size;
	d->base = mmap(NULL, d->size, prot, MAP_SHARED, d->image_fd, 0);
	d->position = mmap(NULL, 4096, prot, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert(d->base != MAP_FAILED && d->position != MAP_FAILED);
	renew_view(d);
	*ret_why = "FUSE cannot be mounted here";
	if (start_server(d, o->mountpoint) != 0)
		return NULL;
	*ret_why = "loop devices cannot be used here";
	if (attach(d) != 0) {
		stop_server(d);
		return NULL;
	}
	return d;
}

void disk_close(struct disk *d)
{
	close(d->loop_fd); /* the last: it is detached */
	stop_server(d);
	disk_log_clear(&d->log[0]);
	disk_log_clear(&d->log[1]);
	munmap(d->view, d->size);
	munmap(d->base, d->size);
	munmap(d->position, 4096);
	close(d->image_fd);
	mc_mutex_done(&d->lock);
	free(d);
}

void disk_forget(struct disk *d)
{
	close(fuse_session_fd(d->session));
	close(d->loop_fd);
}

const char *disk_device(const struct disk *d)
{
	return d->device;
}

bool disk_is_mounted(const struct disk *d)
{
	int fd = open(d->device, O_RDONLY | O_EXCL | O_CLOEXEC);

	if (fd >= 0)
		close(fd);
	return fd < 0;
}

uint64_t disk_position(const struct disk *d)
{
	return atomic_load(d->position);
}
