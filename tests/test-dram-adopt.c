/* The DRAM tier after the daemon was killed: what is adopted, what is not, what clients still map.
 */
#include "tests/dram-fixture.h"
#include "tests/suite.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

static void count_adopted(void *ctx, const struct mc_file_id *id)
{
	(void)id;
	++*(unsigned *)ctx;
}

/* Runs body as a daemon that gets SIGKILL once it returned. */
static void killed_daemon(const char *dir, void (*body)(struct mc_dram *d, const char *dir))
{
	pid_t pid = fork();
	int status;

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		body(open_tier(dir, 32 * MIB), dir);
		raise(SIGKILL);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void body_partial(struct mc_dram *d, const char *dir)
{
	struct mc_dram_image *img = get(d, 1, 9 * MIB, true);

	(void)dir;
	fill_block(img, 1, 9 * MIB, 0);
	fill_block(img, 1, 9 * MIB, 3);
	ck_assert_int_eq(mc_dram_reserve(img, 4), 0);
	tier_fill(mc_dram_ptr(img, 4), MIB, 1, 4 * MIB);
	fill_file(d, 2, 100);
	get(d, 3, 5 * MIB, true); /* never filled */
}

START_TEST(a_killed_daemons_blocks_are_adopted_and_its_unfinished_ones_are_not)
{
	char *dir = tier_dir_make("/dev/shm");
	struct mc_dram_image *img;
	struct mc_file_id empty = tier_file_id(3, 5 * MIB);
	struct mc_dram *d;
	struct stat st;
	unsigned adopted = 0;

	killed_daemon(dir, body_partial);
	d = open_tier(dir, 32 * MIB);
	mc_dram_adopted(d, count_adopted, &adopted);
	ck_assert_uint_eq(adopted, 2);
	ck_assert_uint_eq(stats(d).used, 4 * MIB + 4096);
	ck_assert_int_eq(mc_dram_image_get(d, &empty, false, &img), -ENOENT);
	img = get(d, 1, 9 * MIB, false);
	ck_assert_uint_eq(mc_dram_present_blocks(img), 2);
	ck_assert(tier_matches(mc_dram_ptr(img, 0), MIB, 1, 0));
	ck_assert(tier_matches(mc_dram_ptr(img, 3), MIB, 1, 3 * MIB));
	ck_assert(!mc_dram_present(img, 4));
	ck_assert_int_eq(fstat(mc_dram_fd(img), &st), 0);
	ck_assert_uint_eq((uint64_t)st.st_blocks * 512, 4 * MIB);
	mc_dram_image_put(img);
	img = get(d, 2, 100, false);
	ck_assert(tier_matches(mc_dram_ptr(img, 0), 100, 2, 0));
	mc_dram_image_put(img);
	close_and_remove(d, dir);
}
END_TEST

static const char *mapped_before_kill;

static void body_full(struct mc_dram *d, const char *dir)
{
	(void)dir;
	fill_file(d, 1, 4 * MIB);
}

static void body_drop(struct mc_dram *d, const char *dir)
{
	struct mc_dram_image *img = get(d, 1, 4 * MIB, false);

	(void)dir;
	ck_assert_int_eq(mc_dram_drop(img), 0);
}

START_TEST(a_clients_mapping_is_respected_across_two_killed_daemons)
{
	char *dir = tier_dir_make("/dev/shm");
	struct mc_dram_image *img;
	struct mc_dram *d;

	killed_daemon(dir, body_full);
	mapped_before_kill = client_map(dir, 1, 4 * MIB);
	d = open_tier(dir, 32 * MIB);
	img = get(d, 1, 4 * MIB, false);
	ck_assert_int_eq(mc_dram_punch(img, 0), -EAGAIN);
	mc_dram_image_put(img);
	mc_dram_close(d, true);
	killed_daemon(dir, body_drop);
	d = open_tier(dir, 32 * MIB);
	ck_assert_uint_eq(stats(d).held, 4 * MIB);
	ck_assert_uint_eq(stats(d).used, 4 * MIB);
	ck_assert_uint_eq(mc_dram_reap(d), 0);
	ck_assert(tier_matches(mapped_before_kill, 4 * MIB, 1, 0));
	munmap((void *)(uintptr_t)mapped_before_kill, 4 * MIB);
	ck_assert_uint_eq(mc_dram_reap(d), 4 * MIB);
	ck_assert_uint_eq(stats(d).used, 0);
	close_and_remove(d, dir);
}
END_TEST

static void body_damage(struct mc_dram *d, const char *dir)
{
	char name[MC_IMAGE_NAME_MAX], path[4096];
	struct mc_file_id id = tier_file_id(1, 4 * MIB);
	int fd;

	fill_file(d, 1, 4 * MIB);
	fill_file(d, 2, 4 * MIB);
	mc_image_name(&id, name);
	snprintf(path, sizeof(path), "%s/images/%s.map", dir, name);
	fd = open(path, O_RDWR | O_CLOEXEC);
	ck_assert_int_eq(pwrite(fd, "x", 1, 20), 1);
	close(fd);
	snprintf(path, sizeof(path), "%s/images/left-over", dir);
	close(open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
}

START_TEST(an_image_with_a_damaged_map_is_not_adopted_and_strays_are_removed)
{
	char *dir = tier_dir_make("/dev/shm"), path[4096];
	struct mc_file_id id = tier_file_id(1, 4 * MIB);
	struct mc_dram_image *img;
	struct mc_dram *d;
	unsigned adopted = 0;

	killed_daemon(dir, body_damage);
	d = open_tier(dir, 32 * MIB);
	mc_dram_adopted(d, count_adopted, &adopted);
	ck_assert_uint_eq(adopted, 1);
	ck_assert_int_eq(mc_dram_image_get(d, &id, false, &img), -ENOENT);
	ck_assert_uint_eq(stats(d).used, 4 * MIB);
	snprintf(path, sizeof(path), "%s/images/left-over", dir);
	ck_assert_int_eq(access(path, F_OK), -1);
	close_and_remove(d, dir);
}
END_TEST

START_TEST(a_smaller_capacity_is_respected_at_adoption)
{
	char *dir = tier_dir_make("/dev/shm");
	struct mc_dram *d;

	killed_daemon(dir, body_full);
	d = open_tier(dir, 2 * MIB);
	ck_assert_uint_eq(stats(d).used, 0);
	close_and_remove(d, dir);
}
END_TEST

SUITE_MAIN("dram-adopt", a_killed_daemons_blocks_are_adopted_and_its_unfinished_ones_are_not,
	a_clients_mapping_is_respected_across_two_killed_daemons,
	an_image_with_a_damaged_map_is_not_adopted_and_strays_are_removed,
	a_smaller_capacity_is_respected_at_adoption)
