/*
 * Mounting the DRAM tier's tmpfs.
 *
 * The source name in /proc/self/mounts marks a mount as ours: a tmpfs that somebody else put at the
 * same place is used like a plain directory and never resized or unmounted.
 */
#include "tier/dram-mount.h"

#include "tier/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <mntent.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#define SOURCE "mooncakefs-dram"
#define FLAGS (MS_NOSUID | MS_NODEV | MS_NOEXEC)

int mc_dram_mount_mkdir(const char *dir)
{
	cleanup_free char *path = strdup(dir);

	if (path == NULL)
		return -ENOMEM;
	for (char *p = path + 1; *p != '\0'; p++) {
		if (*p != '/')
			continue;
		*p = '\0';
		if (mkdir(path, 0755) != 0 && errno != EEXIST)
			return -errno;
		*p = '/';
	}
	return mkdir(path, 0700) != 0 && errno != EEXIST ? -errno : 0;
}

/* Whether the topmost mount at dir (canonical) is ours. */
static bool find_mount(const char *dir, bool *ret_huge)
{
	FILE *f = setmntent("/proc/self/mounts", "re");
	struct mntent entry;
	char buf[4096];
	bool ours = false;

	if (f == NULL)
		return false;
	while (getmntent_r(f, &entry, buf, sizeof(buf)) != NULL) {
		const char *huge;

		if (strcmp(entry.mnt_dir, dir) != 0)
			continue;
		ours = strcmp(entry.mnt_fsname, SOURCE) == 0 &&
			strcmp(entry.mnt_type, "tmpfs") == 0;
		huge = hasmntopt(&entry, "huge");
		*ret_huge = huge != NULL && strncmp(huge, "huge=never", 10) != 0;
	}
	endmntent(f);
	return ours;
}

/* "deny" switches huge pages off whatever the mount says. */
static bool huge_denied(void)
{
	char text[128] = "";
	cleanup_close int fd =
		open("/sys/kernel/mm/transparent_hugepage/shmem_enabled", O_RDONLY | O_CLOEXEC);

	if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
		return true;
	return strstr(text, "[deny]") != NULL;
}

/* Map files take a page an image and a byte for 8 MiB; two files an image of a few blocks. */
static void size_options(uint64_t capacity, char *out, size_t len)
{
	snprintf(out, len, "mode=0700,size=%" PRIu64 ",nr_inodes=%" PRIu64,
		capacity + capacity / 64 + (UINT64_C(4) << 20), capacity / 32768 + 4096);
}

void mc_dram_mount_open(const char *dir, uint64_t capacity, struct mc_dram_mount *ret)
{
	static const char *const extras[] = {
		",huge=within_size,noswap", ",huge=within_size", ",noswap", ""};
	char base[128], options[192];
	bool huge = false;

	size_options(capacity, base, sizeof(base));
	ret->mounted = find_mount(dir, &huge);
	ret->fresh = !ret->mounted;
	for (size_t i = 0; i < sizeof(extras) / sizeof(*extras) && !ret->mounted; i++) {
		snprintf(options, sizeof(options), "%s%s", base, extras[i]);
		ret->mounted = mount(SOURCE, dir, "tmpfs", FLAGS, options) == 0;
		if (!ret->mounted && errno != EINVAL)
			break;
		huge = strstr(extras[i], "huge") != NULL;
	}
	ret->fresh = ret->fresh && ret->mounted;
	ret->huge = ret->mounted && huge && !huge_denied();
}

void mc_dram_mount_resize(const char *dir, uint64_t capacity)
{
	char base[128];

	size_options(capacity, base, sizeof(base));
	/* A size below what it holds is refused: accounting alone keeps the cap then. */
	(void)mount(SOURCE, dir, "tmpfs", MS_REMOUNT | FLAGS, base);
}

void mc_dram_mount_close(const char *dir)
{
	if (umount2(dir, UMOUNT_NOFOLLOW) != 0)
		umount2(dir, UMOUNT_NOFOLLOW | MNT_DETACH);
}
