/*
 * What mount(8) and umount(8) call: the program under the names mount.fuse.mooncakefs and
 * umount.fuse.mooncakefs, with their arguments and their exit codes.
 */
#include "tools/mount-helper.h"

#include "tools/command.h"
#include "fs/mount-table.h"

#include <errno.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

/* Exit codes of mount(8). */
enum { MOUNT_OK = 0, MOUNT_USAGE = 1, MOUNT_FAILED = 32 };

static int exit_code(int code)
{
	return code == MC_EXIT_OK ? MOUNT_OK : code == MC_EXIT_USAGE ? MOUNT_USAGE : MOUNT_FAILED;
}

/* fstab's first column may be a name that says nothing: the configuration file then has the remote.
 */
static bool names_a_remote(const char *source)
{
	static const char *const empty[] = {"", "none", "mooncake", "mooncakefs"};

	for (size_t i = 0; i < sizeof(empty) / sizeof(*empty); i++)
		if (strcmp(source, empty[i]) == 0)
			return false;
	return true;
}

static int usage(const char *text)
{
	fprintf(stderr, "Usage: %s\n", text);
	return MOUNT_USAGE;
}

/* mount.fuse.mooncakefs SOURCE MOUNTPOINT [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE] */
static int mount_by_helper(int argc, char **argv)
{
	char remote[] = "--remote", words[] = "-o", end[] = "--";
	char *line[8], *options = NULL;
	bool fake = false;
	int n = 0, c;

	while ((c = getopt(argc, argv, "sfnvN:o:t:")) != -1) {
		if (c == '?')
			return usage(
				"mount.fuse.mooncakefs SOURCE MOUNTPOINT [-sfnv] [-o OPTIONS]");
		fake = fake || c == 'f';
		options = c == 'o' ? optarg : options;
	}
	if (argc - optind != 2)
		return usage("mount.fuse.mooncakefs SOURCE MOUNTPOINT [-sfnv] [-o OPTIONS]");
	if (options != NULL) {
		line[n++] = words;
		line[n++] = options;
	}
	if (names_a_remote(argv[optind])) {
		line[n++] = remote;
		line[n++] = argv[optind];
	}
	line[n++] = end;
	line[n++] = argv[optind + 1];
	if (fake)
		return exit_code(mc_command_check(mc_command_find("mount"), n, line));
	return exit_code(mc_command_run(mc_command_find("mount"), n, line));
}

/* Ends the connection too: who waits for an answer of the daemon gets an error. */
static int unmount_by_force(const char *dir)
{
	char path[PATH_MAX];
	int r = mc_mount_resolve(dir, path);

	if (r == 0 && umount2(path, MNT_FORCE | UMOUNT_NOFOLLOW) < 0)
		r = -errno;
	if (r < 0)
		fprintf(stderr, "mooncakefs: %s: %s\n", dir, strerror(-r));
	return r == 0 ? MOUNT_OK : MOUNT_FAILED;
}

/* umount.fuse.mooncakefs MOUNTPOINT [-flnrv] [-N NAMESPACE] [-t TYPE] */
static int unmount_by_helper(int argc, char **argv)
{
	char lazy[] = "--lazy", end[] = "--";
	char *line[3];
	bool force = false;
	int n = 0, c;

	while ((c = getopt(argc, argv, "flnrvN:t:")) != -1) {
		if (c == '?')
			return usage("umount.fuse.mooncakefs MOUNTPOINT [-flnrv]");
		force = force || c == 'f';
		if (c == 'l' && n == 0)
			line[n++] = lazy;
	}
	if (argc - optind != 1)
		return usage("umount.fuse.mooncakefs MOUNTPOINT [-flnrv]");
	if (force && n == 0)
		return unmount_by_force(argv[optind]);
	line[n++] = end;
	line[n++] = argv[optind];
	return exit_code(mc_command_run(mc_command_find("umount"), n, line));
}

bool mc_mount_helper(int argc, char **argv, int *ret_code)
{
	const char *name = argc > 0 ? strrchr(argv[0], '/') : NULL;

	name = name != NULL ? name + 1 : argc > 0 ? argv[0] : "";
	if (strcmp(name, "mount.fuse.mooncakefs") == 0)
		*ret_code = mount_by_helper(argc, argv);
	else if (strcmp(name, "umount.fuse.mooncakefs") == 0)
		*ret_code = unmount_by_helper(argc, argv);
	else
		return false;
	return true;
}
