/* fsck of a cache directory or device: whole ones, what is special about some damage, what is no
 * damage, and what is refused. test-fsck-damage damages every file. */
#include "tests/fsck-fixture.h"
#include "tests/suite.h"
#include "tier/block-super.h"
#include "tier/io.h"

#include <errno.h>

static struct fsck_told told;

START_TEST(a_whole_directory_is_clean_and_nothing_of_it_changes)
{
	for (int killed = 0; killed < 2; killed++) {
		char *dir = tier_dir_make(fsck_parent());
		struct mc_fsck_result res;
		uint32_t before;

		fsck_world(dir, killed);
		before = fsck_tree(dir);
		res = fsck_run(dir, false, &told);
		ck_assert_msg(res.damaged == 0, "%s", told.all);
		ck_assert_uint_eq(res.images, FSCK_IMAGES);
		ck_assert_uint_eq(res.blocks, FSCK_BLOCKS);
		ck_assert_uint_eq(res.objects, FSCK_OBJECTS);
		ck_assert(!res.unfinished);
		ck_assert_uint_eq(fsck_tree(dir), before);
		ck_assert_uint_eq(fsck_run(dir, true, &told).damaged, 0);
		ck_assert_uint_eq(fsck_left(dir).all_blocks, FSCK_BLOCKS);
		ck_assert_uint_eq(fsck_left(dir).objects, FSCK_OBJECTS);
		tier_dir_remove(dir);
	}
}
END_TEST

/* Where the record of an object begins, by its bytes and the key behind them. */
static off_t find_record(int fd, unsigned object, uint64_t *ret_size)
{
	const uint64_t size = fsck_object_size(object);
	unsigned char *want = malloc(size + 64), *have = malloc(FSCK_SEGMENT);
	uint64_t len;
	off_t at = 0;

	tier_fill(want, (uint32_t)size, object, 0);
	fsck_key(object, (char *)want + size);
	len = size + strlen((char *)want + size);
	ck_assert_int_eq(pread(fd, have, FSCK_SEGMENT, 0), FSCK_SEGMENT);
	for (uint64_t i = 128; at == 0 && i + len <= FSCK_SEGMENT; i += 64)
		if (memcmp(have + i, want, len) == 0)
			at = (off_t)i;
	free(want);
	free(have);
	ck_assert_int_gt(at, 0);
	*ret_size = size;
	return at - 128;
}

static int open_below(const char *dir, const char *file)
{
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	return fd;
}

static void rename_to_longer(const char *dir, unsigned object)
{
	struct kv_owner o = {0};
	struct mc_kv_log *log = fsck_open_log(dir, &o);
	char key[64], longer[600];

	fsck_key(object, key);
	snprintf(longer, sizeof(longer), "dir/%0500u", object);
	ck_assert_int_eq(mc_kv_log_rename(log, key, longer), 0);
	mc_kv_log_close(log);
	kv_forget(&o);
}

START_TEST(damaged_framing_is_written_again_and_the_object_stays)
{
	char *dir = tier_dir_make(fsck_parent());
	struct mc_fsck_result res;
	uint64_t size;
	off_t at;
	int fd;

	fsck_world(dir, false);
	rename_to_longer(dir, 3);
	fd = open_below(dir, "segments/00000001");
	at = find_record(fd, 1, &size); /* its header */
	fsck_flip(fd, at + 40);
	at = find_record(fd, 4, &size); /* its payload's checksum behind the key */
	fsck_flip(fd, at + 128 + (off_t)size + 14);
	at = find_record(fd, 3, &size); /* the key it had */
	fsck_flip(fd, at + 128 + (off_t)size + 3);
	close(fd);
	res = fsck_run(dir, true, &told);
	ck_assert_msg(res.damaged == 3, "%s", told.all);
	ck_assert_uint_eq(res.bad_objects, 0);
	ck_assert_uint_eq(res.lost, 0);
	ck_assert(!res.unfinished);
	res = fsck_run(dir, false, &told);
	ck_assert_msg(res.damaged == 0, "%s", told.all);
	ck_assert_uint_eq(res.objects, FSCK_OBJECTS);
	ck_assert_uint_eq(fsck_left(dir).objects, FSCK_OBJECTS - 1); /* of those with old names */
	tier_dir_remove(dir);
}
END_TEST

START_TEST(of_damaged_objects_those_without_a_copy_are_named_as_lost)
{
	char *dir = tier_dir_make(fsck_parent()), key[64];
	struct mc_fsck_result res;
	struct fsck_left left;
	uint64_t size;
	int fd;

	fsck_world(dir, false);
	fd = open_below(dir, "segments/00000001");
	fsck_flip(fd, find_record(fd, 0, &size) + 128 + 50);
	fsck_flip(fd, find_record(fd, 1, &size) + 128 + 50);
	close(fd);
	res = fsck_run(dir, true, &told);
	ck_assert_msg(told.n[MC_FSCK_DAMAGE] == 1, "%s", told.all);
	ck_assert_uint_eq(told.n[MC_FSCK_LOST], 1);
	ck_assert_uint_eq(res.bad_objects, 2);
	ck_assert_uint_eq(res.lost, 1);
	fsck_key(1, key);
	ck_assert_ptr_nonnull(strstr(told.all, key));
	left = fsck_left(dir);
	ck_assert_uint_eq(left.objects, FSCK_OBJECTS - 2);
	ck_assert(!left.object[0] && !left.object[1]);
	tier_dir_remove(dir);
}
END_TEST

/* A check has no later start to wait for, as a daemon does. */
START_TEST(objects_of_a_segment_that_cannot_be_opened_are_named_and_given_up_by_a_repair)
{
	char *dir = tier_dir_make(fsck_parent()), path[4200];
	struct mc_fsck_result res;
	struct fsck_left left;

	fsck_world(dir, false);
	snprintf(path, sizeof(path), "%s/segments/00000001", dir);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	res = fsck_run(dir, false, &told);
	ck_assert_uint_ge(res.bad_objects, 1);
	ck_assert_ptr_nonnull(strstr(told.all, "its segment cannot be opened"));
	ck_assert_uint_eq(fsck_run(dir, true, &told).bad_objects, res.bad_objects);
	ck_assert_msg(fsck_run(dir, false, &told).damaged == 0, "%s", told.all);
	left = fsck_left(dir);
	ck_assert_uint_eq(left.objects, FSCK_OBJECTS - res.bad_objects);
	ck_assert_uint_eq(left.all_blocks, FSCK_BLOCKS);
	tier_dir_remove(dir);
}
END_TEST

static void swap(const char *dir, const char *a, const char *b)
{
	char from[4096], to[4096];

	snprintf(from, sizeof(from), "%s/%s", dir, a);
	snprintf(to, sizeof(to), "%s/%s", dir, b);
	ck_assert_int_eq(renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE), 0);
}

START_TEST(segments_and_images_that_changed_places_are_found)
{
	char *dir = tier_dir_make(fsck_parent()), a[128], b[128], name[MC_IMAGE_NAME_MAX];
	struct mc_file_id id = tier_file_id(0, fsck_size[0]);
	struct mc_fsck_result res;
	struct fsck_left left;

	fsck_world(dir, false);
	swap(dir, "segments/00000001", "segments/00000002");
	mc_image_name(&id, name);
	snprintf(a, sizeof(a), "images/%.2s/%s", name, name);
	id = tier_file_id(2, fsck_size[2]);
	mc_image_name(&id, name);
	snprintf(b, sizeof(b), "images/%.2s/%s", name, name);
	swap(dir, a, b);
	res = fsck_run(dir, true, &told);
	ck_assert_uint_eq(res.bad_blocks, 5);
	ck_assert_uint_ge(res.bad_objects, 2); /* one in either, at least */
	ck_assert(!res.unfinished);
	ck_assert_uint_eq(fsck_run(dir, false, &told).damaged, 0);
	left = fsck_left(dir);
	ck_assert_uint_eq(left.all_blocks, FSCK_BLOCKS - 5);
	ck_assert_uint_eq(left.objects, FSCK_OBJECTS - res.bad_objects);
	tier_dir_remove(dir);
}
END_TEST

#define STRANGE_IMAGE                                                                              \
	"images/00/0000000000000000000000000000000000000000000000000000000000000000-4096"

START_TEST(what_nobody_owns_is_named_and_removed_and_is_no_damage)
{
	static const char *const strangers[] = {"images/00/stranger", "held/stranger",
		"segments/stranger", "segments/000000ff", "segments/00000000", STRANGE_IMAGE};
	const unsigned n = sizeof(strangers) / sizeof(*strangers);
	char *dir = tier_dir_make(fsck_parent());
	struct mc_fsck_result res;

	fsck_world(dir, false);
	for (unsigned i = 0; i < n; i++)
		close(open_below(dir, strangers[i]));
	res = fsck_run(dir, false, &told);
	ck_assert_uint_eq(res.damaged, 0);
	ck_assert_msg(res.leftovers == n, "%s", told.all);
	for (unsigned i = 0; i < n; i++)
		ck_assert_ptr_nonnull(strstr(told.all, strangers[i]));
	ck_assert_uint_eq(fsck_run(dir, true, &told).leftovers, n);
	ck_assert_msg(fsck_run(dir, false, &told).leftovers == 0, "%s", told.all);
	ck_assert_uint_eq(fsck_left(dir).objects, FSCK_OBJECTS);
	ck_assert_uint_eq(fsck_left(dir).all_blocks, FSCK_BLOCKS);
	tier_dir_remove(dir);
}
END_TEST

/* The second MiB of whatever is large, and the middle of segments. */
static int64_t failing_pread(const struct mc_io *io, int fd, void *buf, size_t len, uint64_t off)
{
	(void)io;
	if (len > 65536 && off >= MIB)
		return -EIO;
	return mc_io_real()->pread(mc_io_real(), fd, buf, len, off);
}

START_TEST(what_cannot_be_read_is_damaged)
{
	char *dir = tier_dir_make(fsck_parent());
	struct mc_io io = *mc_io_real();
	struct mc_fsck_result res;

	fsck_world(dir, false);
	io.pread = failing_pread;
	res = fsck_run_with(dir, false, &io, &told);
	ck_assert_uint_eq(res.bad_blocks, 2); /* the tail of image 0 is short */
	ck_assert_uint_eq(res.bad_objects, 0);
	ck_assert(!res.unfinished);
	tier_dir_remove(dir);
}
END_TEST

/* ---- a block tier */

static struct mc_kv_log *open_device(const char *path, struct kv_owner *o)
{
	struct mc_kv_log_opts opts = {.device = path, .journal_bytes = 65536};

	return kv_open_with(&opts, o, 0);
}

static off_t find_on_device(int fd, unsigned object)
{
	const uint64_t size = fsck_object_size(object), bytes = 64 * MIB;
	unsigned char *want = malloc(size + 64), *have = malloc(bytes), *at;
	off_t found;

	tier_fill(want, (uint32_t)size, object, 0);
	fsck_key(object, (char *)want + size);
	ck_assert_int_eq(pread(fd, have, bytes, 0), (ssize_t)bytes);
	at = memmem(have, bytes, want, size + strlen((char *)want + size));
	ck_assert_ptr_nonnull(at);
	found = at - have;
	free(want);
	free(have);
	return found;
}

START_TEST(a_block_tier_is_checked_and_repaired_likewise)
{
	char *dir = tier_dir_make(fsck_parent()), path[4096], key[64];
	struct mc_block_format format = {.path = path, .bytes = 64 * MIB, .segment_bytes = MIB};
	struct mc_err err = {0};
	struct mc_fsck_result res;
	struct kv_owner o = {0};
	struct mc_kv_log *log;
	uint32_t before;
	int fd;

	snprintf(path, sizeof(path), "%s/device", dir);
	ck_assert_msg(mc_block_format(&format, &err) == 0, "%s", err.text);
	log = open_device(path, &o);
	fsck_fill_log(log, &o);
	mc_kv_log_close(log);
	kv_forget(&o);
	before = fsck_tree(dir);
	res = fsck_run(path, false, &told);
	ck_assert_msg(res.damaged == 0, "%s", told.all);
	ck_assert_uint_eq(res.objects, FSCK_OBJECTS);
	fd = open_below(dir, "device");
	fsck_flip(fd, 20);
	fsck_flip(fd, find_on_device(fd, 10) + 300);
	close(fd);
	ck_assert_uint_ne(fsck_tree(dir), before);
	before = fsck_tree(dir);
	res = fsck_run(path, false, &told);
	ck_assert_msg(res.damaged == 2 && res.lost == 1, "%s", told.all);
	ck_assert_uint_eq(fsck_tree(dir), before);
	ck_assert_uint_eq(fsck_run(path, true, &told).damaged, 2);
	ck_assert_msg(fsck_run(path, false, &told).damaged == 0, "%s", told.all);
	log = open_device(path, &o);
	for (unsigned i = 0; i < FSCK_OBJECTS; i++) {
		fsck_key(i, key);
		ck_assert_int_eq(kv_check(log, &o, key, i), i == 10 ? -ENOENT : 0);
	}
	mc_kv_log_close(log);
	kv_forget(&o);
	tier_dir_remove(dir);
}
END_TEST

START_TEST(a_directory_in_use_or_without_a_tier_is_refused)
{
	char *dir = tier_dir_make(fsck_parent()), pid[32];
	struct mc_fsck_opts opts = {.dir = dir};
	struct mc_err err = {0}, none = {0};
	struct mc_fsck_result res;
	struct mc_nvme *n;

	ck_assert_int_eq(mc_fsck(&opts, &res, &none), -ENOENT);
	ck_assert_ptr_nonnull(strstr(none.text, "holds no tier"));
	n = nvme_open(dir, 64 * MIB);
	ck_assert_int_eq(mc_fsck(&opts, &res, &err), -EBUSY);
	snprintf(pid, sizeof(pid), "process %d;", (int)getpid());
	ck_assert_msg(strstr(err.text, pid) != NULL, "%s", err.text);
	mc_nvme_close(n);
	ck_assert_int_eq(mc_fsck(&opts, &res, &err), 0);
	ck_assert_uint_eq(res.damaged, 0);
	tier_dir_remove(dir);
}
END_TEST

SUITE_MAIN("fsck", a_whole_directory_is_clean_and_nothing_of_it_changes,
	damaged_framing_is_written_again_and_the_object_stays,
	of_damaged_objects_those_without_a_copy_are_named_as_lost,
	objects_of_a_segment_that_cannot_be_opened_are_named_and_given_up_by_a_repair,
	segments_and_images_that_changed_places_are_found,
	what_nobody_owns_is_named_and_removed_and_is_no_damage, what_cannot_be_read_is_damaged,
	a_block_tier_is_checked_and_repaired_likewise,
	a_directory_in_use_or_without_a_tier_is_refused)
