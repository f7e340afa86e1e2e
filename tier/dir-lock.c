/* Lock files of directories. */
#include "tier/dir-lock.h"

#include "tier/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

/* Whoever locked without writing is known to the kernel only; 0: it does not say. */
static int holder_of(int fd)
{
	char line[256];
	struct stat st;
	int found = 0;
	FILE *in;

	if (fstat(fd, &st) != 0)
		return 0;
	in = fopen("/proc/locks", "re");
	while (in != NULL && found == 0 && fgets(line, sizeof(line), in) != NULL) {
		unsigned long long inode;
		unsigned major, minor;
		int pid;

		if (sscanf(line, "%*u: FLOCK ADVISORY WRITE %d %x:%x:%llu", &pid, &major, &minor,
			    &inode) == 4 &&
			inode == st.st_ino && makedev(major, minor) == st.st_dev && pid > 0)
			found = pid;
	}
	if (in != NULL)
		fclose(in);
	return found;
}

static int busy(int fd, const char *dir, const char *what, struct mc_err *err)
{
	char pid[32] = "";
	int holder = holder_of(fd);

	if (holder != 0)
		snprintf(pid, sizeof(pid), "%d", holder);
	else if (pread(fd, pid, sizeof(pid) - 1, 0) < 0)
		pid[0] = '\0';
	pid[strcspn(pid, "\n")] = '\0';
	return mc_err_set(err, -EBUSY, "%s %s: in use by process %s; one daemon per directory",
		what, dir, pid[0] != '\0' ? pid : "unknown");
}

static int write_pid(int fd)
{
	char pid[32];
	int len = snprintf(pid, sizeof(pid), "%d\n", (int)getpid());

	if (ftruncate(fd, 0) != 0 || pwrite(fd, pid, (size_t)len, 0) != len)
		return errno == ENOSPC ? 0 : -EIO; /* the text is a courtesy */
	return 0;
}

int mc_dir_lock(const char *dir, const char *name, bool own, const char *what, int *ret_fd,
	struct mc_err *err)
{
	cleanup_free char *path = NULL;
	cleanup_close int fd = -1;
	int r;

	if (asprintf(&path, "%s/%s", dir, name) < 0)
		return -ENOMEM;
	fd = open(path, own ? O_RDWR | O_CREAT | O_CLOEXEC : O_RDONLY | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) != 0)
		return errno == EWOULDBLOCK ? busy(fd, dir, what, err) : -errno;
	r = own ? write_pid(fd) : 0;
	if (r == 0)
		*ret_fd = steal_fd(fd);
	return r;
}
