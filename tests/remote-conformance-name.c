/* Conformance of remotes: names, links, directories, times and room. */
#include "tests/remote-conformance-impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

START_TEST(links_are_followed_below_the_root_and_not_out_of_it)
{
	char in[700], out[700];
	struct mc_remote_attr attr;
	uint8_t buf[8];

	put(at("blobs/b"), "data", 4);
	put(at("snap/x"), "x", 1);
	snprintf(in, sizeof(in), "%s/%s", kind_root(), at("snap/in"));
	snprintf(out, sizeof(out), "%s/%s", kind_root(), at("snap/out"));
	ck_assert_int_eq(symlink("../blobs/b", in), 0);
	ck_assert_int_eq(symlink("../../../../../../../../../../etc/passwd", out), 0);
	ck_assert_int_eq(mc_remote_stat(remote, at("snap/in"), &attr, NULL), 0);
	ck_assert_int_eq(attr.type, MC_REMOTE_SYMLINK);
	ck_assert_int_eq(read_at(at("snap/in"), 0, 4, buf), 0);
	ck_assert_mem_eq(buf, "data", 4);
	ck_assert_int_eq(read_at(at("snap/out"), 0, 4, buf), -EACCES);
	snprintf(in, sizeof(in), "%s/%s", kind_root(), at("dirlink"));
	snprintf(out, sizeof(out), "%s/%s", kind_root(), at("loop"));
	ck_assert_int_eq(symlink("blobs", in), 0);
	ck_assert_int_eq(symlink("loop", out), 0);
	ck_assert_int_eq(read_at(at("dirlink/b"), 0, 4, buf), 0);
	put(at("dirlink/c"), "via", 3);
	ck_assert_int_eq(read_at(at("blobs/c"), 0, 3, buf), 0);
	ck_assert_mem_eq(buf, "via", 3);
	ck_assert_int_eq(read_at(at("loop"), 0, 1, buf), -ELOOP);
	snprintf(out, sizeof(out), "%s/%s", kind_root(), at("abs"));
	ck_assert_int_eq(symlink("/etc/passwd", out), 0);
	ck_assert_int_eq(read_at(at("abs"), 0, 1, buf), -EACCES);
}
END_TEST

#define MANY 3000

static int mark_each(void *ctx, const char *name, const struct mc_remote_attr *attr)
{
	unsigned char *seen = ctx;
	int n = -1;

	ck_assert_int_eq(sscanf(name, "entry-%d", &n), 1);
	ck_assert_int_ge(n, 0);
	ck_assert_int_lt(n, MANY);
	ck_assert_int_eq(attr->type, n % 10 == 0 ? MC_REMOTE_DIR : MC_REMOTE_FILE);
	if (attr->type == MC_REMOTE_FILE)
		ck_assert_uint_eq(attr->size, (unsigned)n % 7);
	seen[n]++;
	return 0;
}

static int stop_each(void *ctx, const char *name, const struct mc_remote_attr *attr)
{
	(void)name;
	(void)attr;
	return ++*(int *)ctx == 5 ? 77 : 0;
}

START_TEST(list_names_each_of_many_entries_once)
{
	static unsigned char seen[MANY];
	int n = 0;

	ck_assert_int_eq(mc_remote_mkdir(remote, at("many"), NULL), 0);
	for (int i = 0; i < MANY; i++) {
		char path[700];

		snprintf(path, sizeof(path), "%s/%s/entry-%d", kind_root(), at("many"), i);
		if (i % 10 == 0) {
			ck_assert_int_eq(mkdir(path, 0755), 0);
		} else {
			int fd = open(path, O_CREAT | O_WRONLY | O_EXCL, 0644);

			ck_assert_int_ge(fd, 0);
			ck_assert_int_eq(ftruncate(fd, i % 7), 0);
			close(fd);
		}
	}
	ck_assert_int_eq(mc_remote_list(remote, at("many"), mark_each, seen, NULL), 0);
	for (int i = 0; i < MANY; i++)
		ck_assert_msg(seen[i] == 1, "entry-%d seen %d times", i, seen[i]);
	ck_assert_int_eq(mc_remote_list(remote, at("many"), stop_each, &n, NULL), 77);
	ck_assert_int_eq(n, 5);
	n = 0;
	ck_assert_int_eq(mc_remote_mkdir(remote, at("empty"), NULL), 0);
	ck_assert_int_eq(mc_remote_list(remote, at("empty"), count_each, &n, NULL), 0);
	ck_assert_int_eq(n, 0);
	put(at("f"), "x", 1);
	ck_assert_int_eq(mc_remote_list(remote, at("f"), count_each, &n, NULL), -ENOTDIR);
}
END_TEST

START_TEST(mkdir_and_unlink_do_files_and_empty_directories)
{
	struct mc_remote_attr attr;

	ck_assert_int_eq(mc_remote_mkdir(remote, at("a/b/c"), NULL), 0);
	ck_assert_int_eq(mc_remote_mkdir(remote, at("a/b/c"), NULL), 0);
	put(at("a/b/f"), "x", 1);
	ck_assert_int_eq(mc_remote_mkdir(remote, at("a/b/f"), NULL), -EEXIST);
	ck_assert_int_eq(mc_remote_unlink(remote, at("a/b"), NULL), -ENOTEMPTY);
	ck_assert_int_eq(mc_remote_unlink(remote, at("a/b/f"), NULL), 0);
	ck_assert_int_eq(mc_remote_stat(remote, at("a/b/f"), &attr, NULL), -ENOENT);
	ck_assert_int_eq(mc_remote_unlink(remote, at("a/b/c"), NULL), 0);
	ck_assert_int_eq(mc_remote_unlink(remote, at("a/b"), NULL), 0);
	ck_assert_int_eq(mc_remote_stat(remote, at("a/b"), &attr, NULL), -ENOENT);
	put(at("a/b/g"), "x", 1);
	ck_assert_int_eq(mc_remote_stat(remote, at("a/b/g"), &attr, NULL), 0);
}
END_TEST

START_TEST(rename_moves_a_file_and_keeps_its_time)
{
	struct mc_remote_attr before, after;
	uint8_t buf[4];

	put(at("from/f"), "old", 3);
	put(at("to/g"), "x", 1);
	ck_assert_int_eq(mc_remote_stat(remote, at("from/f"), &before, NULL), 0);
	ck_assert_int_eq(mc_remote_rename(remote, at("from/f"), at("to/f"), NULL), 0);
	ck_assert_int_eq(mc_remote_stat(remote, at("from/f"), &after, NULL), -ENOENT);
	ck_assert_int_eq(mc_remote_stat(remote, at("to/f"), &after, NULL), 0);
	ck_assert_uint_eq(after.fileid, before.fileid);
	ck_assert_int_eq(after.mtime_s, before.mtime_s);
	ck_assert_uint_eq(after.mtime_ns, before.mtime_ns);
	ck_assert_int_eq(mc_remote_rename(remote, at("to/f"), at("to/g"), NULL), 0);
	ck_assert_int_eq(read_at(at("to/g"), 0, 3, buf), 0);
	ck_assert_mem_eq(buf, "old", 3);
	ck_assert_int_eq(mc_remote_rename(remote, at("from/f"), at("to/h"), NULL), -ENOENT);
	ck_assert_int_eq(mc_remote_rename(remote, at("to/g"), "../g", NULL), -EINVAL);
}
END_TEST

START_TEST(touch_sets_mtime_to_now)
{
	struct mc_remote_attr before, after;
	char path[700];
	struct timespec ts[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};

	put(at("f"), "x", 1);
	snprintf(path, sizeof(path), "%s/%s", kind_root(), at("f"));
	ck_assert_int_eq(utimensat(AT_FDCWD, path, ts, 0), 0);
	ck_assert_int_eq(mc_remote_stat(remote, at("f"), &before, NULL), 0);
	ck_assert_int_eq(before.mtime_s, 1000);
	ck_assert_int_eq(mc_remote_touch(remote, at("f"), NULL), 0);
	ck_assert_int_eq(mc_remote_stat(remote, at("f"), &after, NULL), 0);
	ck_assert_int_ge(after.mtime_s, time(NULL) - 60);
	ck_assert_uint_eq(after.fileid, before.fileid);
}
END_TEST

START_TEST(space_is_sensible)
{
	struct mc_remote_space s = {0};

	ck_assert_int_eq(mc_remote_space(remote, &s, NULL), 0);
	ck_assert_uint_gt(s.total, MIB);
	ck_assert_uint_le(s.avail, s.total);
}
END_TEST

void conformance_names(TCase *t)
{
	const TTest *const tests[] = {
		links_are_followed_below_the_root_and_not_out_of_it,
		list_names_each_of_many_entries_once,
		mkdir_and_unlink_do_files_and_empty_directories,
		rename_moves_a_file_and_keeps_its_time,
		touch_sets_mtime_to_now,
		space_is_sensible,
	};

	conformance_add(t, tests, sizeof(tests) / sizeof(*tests));
}
