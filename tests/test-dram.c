/* The DRAM tier: memory in pairs, the cap, leases, adoption after the daemon was killed. */
#include "tests/suite.h"
#include "tests/tier-dir.h"
#include "tier/dram.h"
#include "tier/image-name.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#define MIB (UINT64_C(1) << 20)

static struct mc_dram *open_tier(const char *dir, uint64_t capacity)
{
	struct mc_dram_opts o = {.dir = dir, .capacity = capacity};
	struct mc_err err = {0};
	struct mc_dram *d;
	int r = mc_dram_open(&o, &d, &err);

	ck_assert_msg(r == 0, "%d %s", r, err.text);
	return d;
}

static struct mc_dram_stats stats(struct mc_dram *d)
{
	struct mc_dram_stats s;

	mc_dram_stats(d, &s);
	return s;
}

static struct mc_dram_image *get(struct mc_dram *d, unsigned file, uint64_t size, bool create)
{
	struct mc_file_id id = tier_file_id(file, size);
	struct mc_dram_image *img;

	ck_assert_int_eq(mc_dram_image_get(d, &id, create, &img), 0);
	return img;
}

static void fill_block(struct mc_dram_image *img, unsigned file, uint64_t size, uint64_t block)
{
	ck_assert_int_eq(mc_dram_reserve(img, block), 0);
	tier_fill(mc_dram_ptr(img, block), mc_block_len(size, block), file, block * MIB);
	mc_dram_commit(img, block);
}

static struct mc_dram_image *fill_file(struct mc_dram *d, unsigned file, uint64_t size)
{
	struct mc_dram_image *img = get(d, file, size, true);

	for (uint64_t b = 0; b < mc_block_count(size); b++)
		fill_block(img, file, size, b);
	return img;
}

/* As the kernel does for a passthrough client: an open file description of its own. */
static int client_open(const char *dir, unsigned file, uint64_t size)
{
	struct mc_file_id id = tier_file_id(file, size);
	char name[MC_IMAGE_NAME_MAX], *path;
	int fd;

	mc_image_name(&id, name);
	ck_assert_int_gt(asprintf(&path, "%s/images/%s", dir, name), 0);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	free(path);
	return fd;
}

static const char *client_map(const char *dir, unsigned file, uint64_t size)
{
	int fd = client_open(dir, file, size);
	void *m = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);

	ck_assert_ptr_ne(m, MAP_FAILED);
	close(fd);
	return m;
}

static void close_and_remove(struct mc_dram *d, char *dir)
{
	mc_dram_close(d, false);
	tier_dir_remove(dir);
}

START_TEST(pairs_are_reserved_and_blocks_valid_only_once_committed)
{
	const uint64_t size = 5 * MIB + 4097;
	char *dir = tier_dir_make("/dev/shm");
	struct mc_dram *d = open_tier(dir, 64 * MIB);
	struct mc_dram_image *img = get(d, 1, size, true);
	struct stat st;

	ck_assert_int_eq(mc_dram_reserve(img, 1), 0);
	ck_assert_int_eq(mc_dram_reserve(img, 0), 0);
	ck_assert_uint_eq(stats(d).used, 2 * MIB);
	ck_assert(!mc_dram_present(img, 1));
	ck_assert_uint_eq(mc_dram_resident_bytes(img), 0);
	fill_block(img, 1, size, 1);
	ck_assert(mc_dram_present(img, 1));
	ck_assert(!mc_dram_present(img, 0));
	fill_block(img, 1, size, 5);
	ck_assert_uint_eq(mc_dram_present_blocks(img), 2);
	ck_assert_uint_eq(mc_dram_resident_bytes(img), MIB + 4097);
	/* Blocks 4 and 5: 1 MiB and two pages. */
	ck_assert_uint_eq(stats(d).used, 2 * MIB + MIB + 8192);
	ck_assert_int_eq(fstat(mc_dram_fd(img), &st), 0);
	ck_assert_uint_eq((uint64_t)st.st_blocks * 512, stats(d).used);
	ck_assert_uint_eq((uint64_t)st.st_size, size);
	ck_assert_int_eq(mc_dram_punch(img, 2), (int64_t)MIB + 8192);
	ck_assert_int_eq(mc_dram_punch(img, 2), 0);
	ck_assert(!mc_dram_present(img, 5));
	ck_assert(tier_matches(mc_dram_ptr(img, 1), MIB, 1, MIB));
	mc_dram_image_put(img);
	ck_assert_uint_eq(stats(d).used, 2 * MIB);
	close_and_remove(d, dir);
}
END_TEST

START_TEST(an_image_is_closed_with_its_last_reference_and_found_again)
{
	char *dir = tier_dir_make("/dev/shm");
	struct mc_dram *d = open_tier(dir, 64 * MIB);
	struct mc_file_id absent = tier_file_id(9, 3 * MIB);
	struct mc_dram_image *img = get(d, 1, 3 * MIB, true), *again;

	ck_assert_int_eq(mc_dram_image_get(d, &absent, false, &again), -ENOENT);
	fill_block(img, 1, 3 * MIB, 0);
	ck_assert_int_eq(mc_dram_reserve(img, 2), 0);
	ck_assert_uint_eq(stats(d).used, 3 * MIB);
	again = get(d, 1, 3 * MIB, false);
	ck_assert_ptr_eq(again, img);
	mc_dram_image_put(again);
	mc_dram_image_put(img);
	/* The pair that was reserved and never filled is returned. */
	ck_assert_uint_eq(stats(d).used, 2 * MIB);
	img = get(d, 1, 3 * MIB, false);
	ck_assert_uint_eq(mc_dram_present_blocks(img), 1);
	ck_assert(tier_matches(mc_dram_ptr(img, 0), MIB, 1, 0));
	ck_assert_int_eq(mc_dram_punch(img, 0), 2 * (int64_t)MIB);
	mc_dram_image_put(img);
	/* Without a block nothing is left of it. */
	absent = tier_file_id(1, 3 * MIB);
	ck_assert_int_eq(mc_dram_image_get(d, &absent, false, &img), -ENOENT);
	close_and_remove(d, dir);
}
END_TEST

START_TEST(full_tier_is_enospc_and_changes_nothing)
{
	char *dir = tier_dir_make("/dev/shm");
	struct mc_dram *d = open_tier(dir, 4 * MIB);
	struct mc_dram_image *img = get(d, 1, 16 * MIB, true);

	fill_block(img, 1, 16 * MIB, 0);
	fill_block(img, 1, 16 * MIB, 2);
	ck_assert_int_eq(mc_dram_reserve(img, 4), -ENOSPC);
	ck_assert_uint_eq(stats(d).used, 4 * MIB);
	ck_assert_uint_eq(mc_dram_present_blocks(img), 2);
	ck_assert(tier_matches(mc_dram_ptr(img, 2), MIB, 1, 2 * MIB));
	ck_assert_int_eq(mc_dram_punch(img, 0), 2 * (int64_t)MIB);
	ck_assert_int_eq(mc_dram_reserve(img, 4), 0);
	mc_dram_image_put(img);
	close_and_remove(d, dir);
}
END_TEST

START_TEST(tmpfs_filled_by_others_is_enospc_and_changes_nothing)
{
	char *dir = tier_dir_make("/dev/shm"), *path;
	struct mc_dram *d = open_tier(dir, 8 * MIB);
	struct mc_dram_image *img = get(d, 1, 8 * MIB, true);
	struct statfs sf;
	int fd;

	if (!stats(d).mounted) {
		mc_dram_image_put(img);
		close_and_remove(d, dir);
		return;
	}
	fill_block(img, 1, 8 * MIB, 0);
	ck_assert_int_gt(asprintf(&path, "%s/foreign", dir), 0);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_eq(statfs(dir, &sf), 0);
	ck_assert_int_eq(posix_fallocate(fd, 0, (off_t)(sf.f_bavail * (uint64_t)sf.f_bsize)), 0);
	ck_assert_int_eq(mc_dram_reserve(img, 2), -ENOSPC);
	ck_assert_uint_eq(stats(d).used, 2 * MIB);
	ck_assert(tier_matches(mc_dram_ptr(img, 0), MIB, 1, 0));
	close(fd);
	unlink(path);
	free(path);
	ck_assert_int_eq(mc_dram_reserve(img, 2), 0);
	mc_dram_image_put(img);
	close_and_remove(d, dir);
}
END_TEST

START_TEST(a_mapping_that_outlives_its_descriptor_keeps_its_bytes_under_pressure)
{
	const uint64_t size = 4 * MIB;
	char *dir = tier_dir_make("/dev/shm");
	struct mc_dram *d = open_tier(dir, 8 * MIB);
	struct mc_dram_image *img = fill_file(d, 1, size), *fresh;
	const char *map = client_map(dir, 1, size);

	ck_assert_int_eq(mc_dram_punch(img, 0), -EAGAIN);
	ck_assert_int_eq(mc_dram_punch(img, 1), -EAGAIN);
	ck_assert(mc_dram_present(img, 0));
	ck_assert_int_eq(mc_dram_drop(img), 0);
	ck_assert_uint_eq(stats(d).held, size);
	ck_assert_uint_eq(stats(d).used, size);
	mc_dram_image_put(img);
	fresh = fill_file(d, 1, size);
	ck_assert_uint_eq(stats(d).used, 2 * size);
	ck_assert_uint_eq(mc_dram_reap(d), 0);
	ck_assert(tier_matches(map, size, 1, 0));
	munmap((void *)(uintptr_t)map, size);
	ck_assert_uint_eq(mc_dram_reap(d), size);
	ck_assert_uint_eq(stats(d).held, 0);
	ck_assert_uint_eq(stats(d).used, size);
	ck_assert_int_eq(mc_dram_drop(fresh), (int64_t)size);
	ck_assert_uint_eq(stats(d).used, 0);
	mc_dram_image_put(fresh);
	close_and_remove(d, dir);
}
END_TEST

START_TEST(our_own_duplicate_and_mapping_do_not_stop_eviction)
{
	char *dir = tier_dir_make("/dev/shm");
	struct mc_dram *d = open_tier(dir, 8 * MIB);
	struct mc_dram_image *img = fill_file(d, 1, 4 * MIB);
	int copy = dup(mc_dram_fd(img));

	ck_assert_int_ge(copy, 0);
	ck_assert_int_eq(mc_dram_punch(img, 0), 2 * (int64_t)MIB);
	close(copy);
	mc_dram_image_put(img);
	close_and_remove(d, dir);
}
END_TEST

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

START_TEST(a_second_daemon_on_the_directory_is_refused)
{
	char *dir = tier_dir_make("/dev/shm");
	struct mc_dram_opts o = {.dir = dir, .capacity = 8 * MIB};
	struct mc_dram *d = open_tier(dir, 8 * MIB), *second;
	struct mc_err err = {0};

	ck_assert_int_eq(mc_dram_open(&o, &second, &err), -EBUSY);
	ck_assert_ptr_nonnull(strstr(err.text, dir));
	close_and_remove(d, dir);
}
END_TEST

START_TEST(clean_close_unmounts_and_keep_does_not)
{
	char *dir = tier_dir_make("/dev/shm");
	struct mc_dram *d = open_tier(dir, 8 * MIB);
	bool mounted = stats(d).mounted;
	struct stat before, after;

	ck_assert_int_eq(stat(dir, &before), 0);
	mc_dram_close(d, true);
	ck_assert_int_eq(stat(dir, &after), 0);
	ck_assert_uint_eq(before.st_dev, after.st_dev);
	mc_dram_close(open_tier(dir, 8 * MIB), false);
	ck_assert_int_eq(stat(dir, &after), 0);
	ck_assert_int_eq(before.st_dev != after.st_dev, mounted);
	tier_dir_remove(dir);
}
END_TEST

struct racer {
	struct mc_dram *d;
	unsigned seed;
};

/* Fills and punches random blocks of four shared files; a block seen valid has its bytes. */
static void *race(void *arg)
{
	struct racer *r = arg;

	for (int i = 0; i < 400; i++) {
		unsigned file = (unsigned)rand_r(&r->seed) % 4;
		struct mc_file_id id = tier_file_id(file, 8 * MIB);
		uint64_t block = (uint64_t)rand_r(&r->seed) % 8;
		struct mc_dram_image *img;
		int64_t n;

		if (mc_dram_image_get(r->d, &id, true, &img) != 0)
			continue;
		if (rand_r(&r->seed) % 2 == 0) {
			if (mc_dram_reserve(img, block) == 0)
				(void)mc_dram_present(img, block);
		} else {
			n = mc_dram_punch(img, block / 2);
			ck_assert_msg(n >= 0, "punch %d", (int)n);
		}
		ck_assert_uint_le(stats(r->d).used, 16 * MIB);
		mc_dram_image_put(img);
	}
	return NULL;
}

START_TEST(accounting_is_exact_after_concurrent_reserve_and_punch)
{
	char *dir = tier_dir_make("/dev/shm");
	struct mc_dram *d = open_tier(dir, 16 * MIB);
	struct racer r[4];
	pthread_t t[4];

	for (unsigned i = 0; i < 4; i++) {
		r[i] = (struct racer){.d = d, .seed = i + 1};
		ck_assert_int_eq(pthread_create(&t[i], NULL, race, &r[i]), 0);
	}
	for (unsigned i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	ck_assert_uint_eq(stats(d).used, 0);
	close_and_remove(d, dir);
}
END_TEST

SUITE_MAIN("dram", pairs_are_reserved_and_blocks_valid_only_once_committed,
	an_image_is_closed_with_its_last_reference_and_found_again,
	full_tier_is_enospc_and_changes_nothing,
	tmpfs_filled_by_others_is_enospc_and_changes_nothing,
	a_mapping_that_outlives_its_descriptor_keeps_its_bytes_under_pressure,
	our_own_duplicate_and_mapping_do_not_stop_eviction,
	a_killed_daemons_blocks_are_adopted_and_its_unfinished_ones_are_not,
	a_clients_mapping_is_respected_across_two_killed_daemons,
	an_image_with_a_damaged_map_is_not_adopted_and_strays_are_removed,
	a_smaller_capacity_is_respected_at_adoption, a_second_daemon_on_the_directory_is_refused,
	clean_close_unmounts_and_keep_does_not,
	accounting_is_exact_after_concurrent_reserve_and_punch)
