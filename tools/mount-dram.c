/* Where the DRAM tier of a mount lies. */
#include "tools/mount-dram.h"

#include "tier/cleanup.h"
#include "tier/digest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#define DRAM_DIRS 8 /* daemons of one remote and mountpoint at a time */

/* Whether a daemon holds the lock of the DRAM tier at dir. */
static bool in_use(const char *dir)
{
	cleanup_free char *path = NULL;
	cleanup_close int fd = -1;

	if (asprintf(&path, "%s/LOCK", dir) < 0)
		return false;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}

/* Anybody may make names in /dev/shm: what lies there already must be ours alone, or another user
 * could change what readers get. */
static int make_private(const char *dir, struct mc_err *err)
{
	struct stat st;
	int r;

	if ((mkdir(dir, 0700) < 0 && errno != EEXIST) || lstat(dir, &st) < 0) {
		r = -errno;
		return mc_err_set(err, r, "DRAM tier: %s: %s", dir, strerror(-r));
	}
	if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 022) != 0)
		return mc_err_set(err, -EACCES,
			"DRAM tier: %s must be a directory that only user %u can write to; "
			"remove it",
			dir, (unsigned)geteuid());
	return 0;
}

int mc_mount_dram_dir(const char *run_dir, const char *remote, const char *mountpoint,
	const char *was, char ret[PATH_MAX], struct mc_err *err)
{
	cleanup_free char *text = NULL;
	uint8_t digest[MC_SHA256_SIZE];
	char hex[33];
	/* The first one: what the tier holds stays of use when others are added behind it. */
	int n = asprintf(&text, "%.*s\n%s", (int)strcspn(remote, "\n"), remote, mountpoint);
	int r = n < 0 ? -ENOMEM : mc_sha256(text, (size_t)n, digest);

	if (r < 0)
		return mc_err_set(err, r, "out of memory");
	mc_hex_encode(digest, 16, hex);
	r = make_private(run_dir, err);
	if (r < 0)
		return r;
	snprintf(ret, PATH_MAX, "%s/%s", run_dir, hex);
	/* What is taken over goes on there, unless the options now give it another name. */
	if (strncmp(was, ret, strlen(ret)) == 0) {
		snprintf(ret, PATH_MAX, "%s", was);
		return 0;
	}
	/* After a lazy unmount the old daemon keeps its tier until its last reader is gone. */
	for (int i = 1; in_use(ret) && i < DRAM_DIRS; i++)
		snprintf(ret, PATH_MAX, "%s/%s-%d", run_dir, hex, i);
	return 0;
}
