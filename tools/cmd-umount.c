/* mooncakefs umount: detaches a mount, names who keeps it busy, waits for the daemon's end. */
#include "tools/command.h"
#include "tools/json-line.h"
#include "tools/mount-users.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define HOLDERS_SHOWN 10
#define DAEMON_END_MS 35000 /* the daemon's own bound on a stop is 30 s */

/* Users who may not unmount go through the helper of FUSE. 0 or -errno. */
static int by_helper(const char *path, bool lazy)
{
	int status;
	pid_t pid = fork();

	if (pid < 0)
		return -errno;
	if (pid == 0) {
		execlp("fusermount3", "fusermount3", lazy ? "-uqz" : "-uq", "--", path,
			(char *)NULL);
		_exit(127);
	}
	if (waitpid(pid, &status, 0) < 0)
		return -errno;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	return WIFEXITED(status) && WEXITSTATUS(status) == 127 ? -EPERM : -EBUSY;
}

static int detach(const struct mc_mount *m, bool lazy)
{
	int r = 0;

	if (umount2(m->path, UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0)) < 0)
		r = -errno;
	return r == -EPERM && m->owner == getuid() ? by_helper(m->path, lazy) : r;
}

static void tell_holder(const struct mc_holder *h)
{
	struct mc_json_line j;

	mc_json_line_begin(&j, stdout);
	mc_json_line_text(&j, "event", "holder");
	mc_json_line_number(&j, "pid", (uint64_t)h->pid);
	mc_json_line_text(&j, "name", h->name);
	mc_json_line_text(&j, "how", h->how);
	mc_json_line_end(&j);
}

static void tell(const char *event, const char *path)
{
	struct mc_json_line j;

	mc_json_line_begin(&j, stdout);
	mc_json_line_text(&j, "event", event);
	mc_json_line_text(&j, "mountpoint", path);
	mc_json_line_end(&j);
}

static int busy(const char *path, bool json)
{
	struct mc_holder holders[HOLDERS_SHOWN];
	unsigned n = mc_mount_holders(path, holders, HOLDERS_SHOWN);

	fprintf(stderr, "mooncakefs: %s is in use%s\n", path, n == 0 ? "" : " by:");
	for (unsigned i = 0; i < n && i < HOLDERS_SHOWN; i++) {
		fprintf(stderr, "  process %d (%s): %s\n", (int)holders[i].pid, holders[i].name,
			holders[i].how);
		if (json)
			tell_holder(&holders[i]);
	}
	if (n > HOLDERS_SHOWN)
		fprintf(stderr, "  and %u more\n", n - HOLDERS_SHOWN);
	fprintf(stderr, "End %s, or detach with 'mooncakefs umount --lazy %s'.\n",
		n == 0 ? "what uses it (perhaps in another mount namespace)" : "them", path);
	if (json)
		tell("busy", path);
	return MC_EXIT_BUSY;
}

/* So that the cache directory is free for the next mount when this command returns. */
static void wait_for_end(int pidfd)
{
	struct pollfd p = {.fd = pidfd, .events = POLLIN};

	while (poll(&p, 1, DAEMON_END_MS) < 0 && errno == EINTR)
		;
	close(pidfd);
}

int mc_cmd_umount(const struct mc_options *o)
{
	bool lazy = mc_options_flag(o, MC_OPT_LAZY), json = mc_options_flag(o, MC_OPT_JSON);
	struct mc_err err = {0};
	char path[PATH_MAX];
	struct mc_mount m;
	pid_t daemon;
	int pidfd = -1;
	int r = mc_mount_resolve(o->args[0], path);

	if (r == 0)
		r = mc_mount_find(path, &m);
	if (r < 0)
		return mc_fail(&err,
			mc_err_set(&err, r,
				r == -ENOENT ? "nothing is mounted at %s" : "%s cannot be resolved",
				o->args[0]));
	if (strcmp(m.type, "fuse.mooncakefs") != 0)
		return mc_fail(&err,
			mc_err_set(
				&err, -EINVAL, "%s is a mount of type %s, not ours", path, m.type));
	daemon = mc_mount_daemon(&m);
	if (daemon > 0 && !lazy)
		pidfd = (int)syscall(SYS_pidfd_open, daemon, 0);
	r = detach(&m, lazy);
	if (r == 0 && pidfd >= 0)
		wait_for_end(pidfd);
	if (r == -EBUSY)
		return busy(path, json);
	if (r == 0 && json)
		tell(lazy ? "detached" : "unmounted", path);
	return r == 0 ? MC_EXIT_OK
		      : mc_fail(&err,
				mc_err_set(&err, r, "%s: %s%s", path, strerror(-r),
					r == -EPERM ? "; be root or the user who mounted" : ""));
}
