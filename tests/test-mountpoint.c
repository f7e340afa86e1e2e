/* The mount point before mounting: what is accepted, what is refused and why. */
#include "fs/mountpoint.h"
#include "tests/suite.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

START_TEST(the_mount_of_proc_is_found_with_its_device)
{
	struct mc_mount m;
	struct stat st;

	ck_assert_int_eq(stat("/proc", &st), 0);
	ck_assert_int_eq(mc_mount_find("/proc", &m), 0);
	ck_assert_str_eq(m.type, "proc");
	ck_assert_uint_eq(makedev(m.major, m.minor), st.st_dev);
}
END_TEST

START_TEST(a_directory_below_a_mount_is_no_mount)
{
	struct mc_mount m;

	ck_assert_int_eq(mc_mount_find("/proc/self", &m), -ENOENT);
	ck_assert_int_eq(mc_mount_find("/pro", &m), -ENOENT);
	ck_assert_int_eq(mc_mountpoint_mounted("/proc"), false);
}
END_TEST

START_TEST(a_directory_is_made_canonical)
{
	char dir[] = "/tmp/mc-mountpoint-XXXXXX", link[64], text[96];
	struct mc_err err = {0};
	char *path = NULL;

	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(link, sizeof(link), "%s/link", dir);
	snprintf(text, sizeof(text), "%s/../%s/", dir, strrchr(dir, '/') + 1);
	ck_assert_int_eq(mc_mountpoint_prepare(text, &path, &err), 0);
	ck_assert_str_eq(path, dir);
	free(path);
	ck_assert_int_eq(symlink(dir, link), 0);
	ck_assert_int_eq(mc_mountpoint_prepare(link, &path, &err), 0);
	ck_assert_str_eq(path, dir);
	free(path);
	unlink(link);
	rmdir(dir);
}
END_TEST

START_TEST(a_refusal_names_the_path)
{
	static const struct {
		const char *path;
		int res;
	} cases[] = {{"/proc/version", -ENOTDIR}, {"/proc/no-such-thing", -ENOENT},
		{"/proc/version/below", -ENOTDIR}, {"", -ENOENT}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct mc_err err = {0};
		char *path = NULL;

		ck_assert_int_eq(mc_mountpoint_prepare(cases[i].path, &path, &err), cases[i].res);
		ck_assert_ptr_null(path);
		ck_assert_ptr_nonnull(strstr(err.text, cases[i].path));
	}
}
END_TEST

START_TEST(readahead_of_what_is_not_mounted_is_enoent)
{
	ck_assert_int_eq(mc_mountpoint_set_readahead("/no-such-mount", 1024), -ENOENT);
}
END_TEST

SUITE_MAIN("mountpoint", the_mount_of_proc_is_found_with_its_device,
	a_directory_below_a_mount_is_no_mount, a_directory_is_made_canonical,
	a_refusal_names_the_path, readahead_of_what_is_not_mounted_is_enoent)
