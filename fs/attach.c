/* The session: a mount of our own, or the device of one that another process made. */
#include "fs/attach.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fs/log.h"
#include "fs/mountpoint.h"
#include "fs/ops.h"

int mc_attach_prepare(struct mc_fs *fs, struct mc_err *err)
{
	const struct mc_fs_opts *o = fs->opts;

	if (o->device < 0)
		return mc_mountpoint_prepare(o->mountpoint, &fs->mountpoint, err);
	fs->mountpoint = strdup(o->mountpoint);
	return fs->mountpoint != NULL ? 0 : -ENOMEM;
}

__attribute__((format(printf, 2, 0))) static void fuse_line(
	enum fuse_log_level level, const char *fmt, va_list ap)
{
	char text[512];

	vsnprintf(text, sizeof(text), fmt, ap);
	text[strcspn(text, "\n")] = '\0';
	mc_log(level <= FUSE_LOG_ERR ? MC_LOG_ERROR : MC_LOG_WARNING, "libfuse", "text=\"%s\"",
		text);
}

/* What libfuse failed with: after its helper has tried, errno says little. */
static int refused(const char *mountpoint, int r, struct mc_err *err)
{
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	if (fd < 0) {
		r = -errno;
		return mc_err_set(err, r, "mounting at %s: /dev/fuse: %s%s", mountpoint,
			strerror(-r), r == -ENOENT ? "; load the module fuse" : mc_err_hint(r));
	}
	close(fd);
	if (r == -ENOENT) /* of the search for its helper: device and mount point are there */
		r = -EPERM;
	return mc_err_set(err, r, "mounting at %s: refused (%s)%s", mountpoint, strerror(-r),
		geteuid() != 0 ? "; it takes root, or fusermount3 and a mount point of one's own"
			: r != -EINVAL ? "; it takes CAP_SYS_ADMIN"
				       : "");
}

int mc_attach(struct mc_fs *fs, struct mc_err *err)
{
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	const char *extra = fs->opts->fuse_options;
	char device[32];
	int r = -ENOMEM;

	fuse_set_log_func(fuse_line);
	if (fuse_opt_add_arg(&args, "mooncakefs") < 0 ||
		fuse_opt_add_arg(&args,
			"-ofsname=mooncake,subtype=mooncakefs,default_permissions,"
			"nosuid,nodev") < 0 ||
		(geteuid() == 0 && fuse_opt_add_arg(&args, "-oallow_other") < 0) ||
		(extra != NULL && extra[0] != '\0' &&
			(fuse_opt_add_arg(&args, "-o") < 0 || fuse_opt_add_arg(&args, extra) < 0)))
		goto out;
	r = -EINVAL;
	fs->se = fuse_session_new(&args, mc_ops(), sizeof(*mc_ops()), fs);
	if (fs->se == NULL) {
		mc_err_set(
			err, r, "mount options: %s", extra != NULL ? extra : "refused by libfuse");
		goto out;
	}
	errno = 0;
	if (fs->opts->device >= 0)
		snprintf(device, sizeof(device), "/dev/fd/%d", fs->opts->device);
	r = fuse_session_mount(fs->se, fs->opts->device >= 0 ? device : fs->mountpoint) == 0
		? 0
		: -errno;
	if (r == 0 && fuse_session_fd(fs->se) < 0)
		r = -EIO;
	if (r < 0)
		r = refused(fs->mountpoint, r, err);
out:
	fuse_opt_free_args(&args);
	return r;
}

static void quiet(enum fuse_log_level level, const char *fmt, va_list ap)
{
	(void)level;
	(void)fmt;
	(void)ap;
}

/* libfuse does not know where a mount is that was taken over. */
void mc_detach(struct mc_fs *fs)
{
	if (fs->opts->device >= 0) {
		if (mc_mountpoint_mounted(fs->mountpoint))
			mc_mountpoint_unmount(fs->mountpoint);
		fuse_set_log_func(quiet);
	}
	fuse_session_unmount(fs->se);
}
