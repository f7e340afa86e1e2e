/* fsck of a cache directory: every kind of damage to each of its files is found, named with the
 * file, and repaired; what was not damaged is whole afterwards. */
#include "tests/fsck-fixture.h"
#include "tests/suite.h"

#include <ftw.h>

static struct fsck_told told;

enum damage { FLIP_FIRST, FLIP_EARLY, FLIP_MIDDLE, FLIP_LAST, CUT_HALF, CUT_ALL, MISSING, DAMAGES };

static const char *const damage_names[] = {"first byte flipped", "early byte flipped",
	"middle byte flipped", "last byte flipped", "cut in half", "emptied", "missing"};

static char *files[256];
static unsigned n_files;
static size_t top_len;

/* Two of those that are alike say as much as all. */
static bool is_one_more(const char *name)
{
	const char *slash = strchr(name, '/');
	unsigned alike = 0;

	if (slash == NULL || name[0] != 's')
		return false;
	for (unsigned i = 0; i < n_files; i++)
		alike += strncmp(files[i], name, (size_t)(slash - name)) == 0;
	return alike >= 2;
}

static int remember_file(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	const char *name = path + top_len + 1;

	(void)ftw;
	if (type == FTW_F && strcmp(name, "LOCK") != 0 && strcmp(name, "KVLOCK") != 0 &&
		st->st_size > 0 && !is_one_more(name)) {
		ck_assert_uint_lt(n_files, 256);
		files[n_files++] = strdup(name);
	}
	return 0;
}

static void list_files(const char *dir)
{
	n_files = 0;
	top_len = strlen(dir);
	ck_assert_int_eq(nftw(dir, remember_file, 16, FTW_PHYS), 0);
	ck_assert_uint_gt(n_files, 8);
}

static void do_damage(const char *dir, const char *file, enum damage what)
{
	char path[4096];
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	if (what == MISSING) {
		ck_assert_int_eq(unlink(path), 0);
		return;
	}
	fd = open(path, O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fstat(fd, &st), 0);
	if (what == CUT_HALF || what == CUT_ALL)
		ck_assert_int_eq(ftruncate(fd, what == CUT_ALL ? 0 : st.st_size / 2), 0);
	else if (what == FLIP_FIRST)
		fsck_flip(fd, 0);
	else if (what == FLIP_EARLY)
		fsck_flip(fd, st.st_size > 100 ? 100 : st.st_size / 3);
	else if (what == FLIP_MIDDLE)
		fsck_flip(fd, st.st_size / 2);
	else
		fsck_flip(fd, st.st_size - 1);
	close(fd);
}

/* Room without content: the end of a segment, a hole of an image, the unused part of a log. */
static bool may_be_unused(const char *file, enum damage what)
{
	return strncmp(file, "segments/", 9) == 0 ||
		(strncmp(file, "images/", 7) == 0 && what == FLIP_MIDDLE) ||
		(strstr(file, "journal/log.") != NULL && what >= CUT_HALF);
}

static void check_case(const char *pristine, const char *file, enum damage what)
{
	char *dir = tier_dir_make(fsck_parent());
	struct mc_fsck_result res;
	struct fsck_left left;
	uint32_t before;

	fsck_copy(pristine, dir);
	do_damage(dir, file, what);
	before = fsck_tree(dir);
	res = fsck_run(dir, false, &told);
	ck_assert_msg(fsck_tree(dir) == before, "%s %s: changed", file, damage_names[what]);
	ck_assert_msg(res.damaged > 0 || may_be_unused(file, what), "%s %s: not found", file,
		damage_names[what]);
	ck_assert_msg(res.damaged == 0 || strstr(told.all, file) != NULL, "%s %s: %s", file,
		damage_names[what], told.all);
	ck_assert_uint_eq(fsck_run(dir, true, &told).damaged, res.damaged);
	ck_assert_msg(fsck_run(dir, false, &told).damaged == 0, "%s %s: still %s", file,
		damage_names[what], told.all);
	ck_assert_uint_eq(told.n[MC_FSCK_LEFTOVER], 0);
	left = fsck_left(dir);
	if (strstr(file, "journal/") == NULL) {
		ck_assert_msg(left.all_blocks + res.bad_blocks == FSCK_BLOCKS,
			"%s %s: %u blocks left", file, damage_names[what],
			(unsigned)left.all_blocks);
		ck_assert_msg(left.objects + res.bad_objects == FSCK_OBJECTS,
			"%s %s: %u objects left", file, damage_names[what], (unsigned)left.objects);
	}
	/* A tier does not suffer from what befell the other one. */
	if (file[0] == 'k' || file[0] == 'K' || file[0] == 's')
		ck_assert_uint_eq(left.all_blocks, FSCK_BLOCKS);
	else
		ck_assert_uint_eq(left.objects, FSCK_OBJECTS);
	if (strstr(file, "SUPER") != NULL || strstr(file, "STORE") != NULL)
		ck_assert_uint_eq(left.all_blocks + left.objects, FSCK_BLOCKS + FSCK_OBJECTS);
	tier_dir_remove(dir);
}

/* only: in whose names this stands. */
static void check_all(bool killed, const char *only, enum damage from, enum damage to)
{
	char *dir = tier_dir_make(fsck_parent());

	fsck_world(dir, killed);
	fsck_run(dir, !killed, &told);
	list_files(dir);
	for (unsigned i = 0; i < n_files; i++) {
		for (enum damage d = from; d < to && strstr(files[i], only) != NULL; d++)
			if (!SUITE_SLOW || (i + (unsigned)d) % 3 == 0)
				check_case(dir, files[i], d);
		free(files[i]);
	}
	tier_dir_remove(dir);
}

START_TEST(a_flipped_byte_anywhere_is_found_and_repaired)
{
	check_all(false, "", FLIP_FIRST, CUT_HALF);
}
END_TEST

START_TEST(a_file_cut_or_missing_is_found_and_repaired)
{
	check_all(false, "", CUT_HALF, DAMAGES);
}
END_TEST

START_TEST(a_damaged_journal_of_a_killed_daemon_is_found_and_repaired)
{
	check_all(true, "journal/", FLIP_EARLY, FLIP_LAST);
	check_all(true, "journal/", MISSING, DAMAGES);
}
END_TEST

SUITE_MAIN("fsck-damage", a_flipped_byte_anywhere_is_found_and_repaired,
	a_file_cut_or_missing_is_found_and_repaired,
	a_damaged_journal_of_a_killed_daemon_is_found_and_repaired)
