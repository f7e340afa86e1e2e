/* The NVMe tier across restarts: what a clean stop, a kill and damage leave, and clients that map
 * images. */
#include "tests/nvme-fixture.h"
#include "tests/suite.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define PARENT "/var/tmp"

static void count_id(void *ctx, const struct mc_file_id *id)
{
	(void)id;
	++*(unsigned *)ctx;
}

START_TEST(restart_keeps_blocks_and_verifies_them_once)
{
	const uint64_t size = 4 * MIB + 1;
	char *dir = tier_dir_make(PARENT);
	struct mc_nvme *n = nvme_open(dir, 64 * MIB);
	struct mc_nvme_image *img = nvme_file(n, 1, size);
	unsigned recovered = 0;

	mc_nvme_image_put(img);
	mc_nvme_close(n);
	n = nvme_open(dir, 64 * MIB);
	mc_nvme_recovered(n, count_id, &recovered);
	ck_assert_uint_eq(recovered, 1);
	ck_assert_uint_eq(nvme_stats(n).used, nvme_disk_bytes(dir));
	img = nvme_image(n, 1, size, false);
	ck_assert_uint_eq(mc_nvme_resident_bytes(img), size);
	ck_assert(!mc_nvme_verified(img));
	ck_assert_int_eq(nvme_get(img, 1, size, 4), 0);
	mc_nvme_verify_stop(n);
	ck_assert_int_eq(mc_nvme_verify(img, NULL, NULL), -ECANCELED);
	ck_assert(!mc_nvme_verified(img));
	mc_nvme_image_put(img);
	mc_nvme_close(n);
	n = nvme_open(dir, 64 * MIB);
	img = nvme_image(n, 1, size, false);
	ck_assert_int_eq(mc_nvme_verify(img, NULL, NULL), 0);
	ck_assert_uint_eq(nvme_stats(n).looked, 5);
	ck_assert(mc_nvme_verified(img));
	mc_nvme_image_put(img);
	mc_nvme_close(n);
	n = nvme_open(dir, 64 * MIB);
	img = nvme_image(n, 1, size, false);
	ck_assert(mc_nvme_verified(img));
	mc_nvme_image_put(img);
	mc_nvme_close(n);
	tier_dir_remove(dir);
}
END_TEST

static void flip_bit(const char *dir, unsigned file, uint64_t size, off_t at)
{
	char path[4096];
	unsigned char c;
	int fd;

	nvme_path(dir, file, size, path, sizeof(path));
	fd = open(path, O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pread(fd, &c, 1, at), 1);
	c ^= 0x04;
	ck_assert_int_eq(pwrite(fd, &c, 1, at), 1);
	ck_assert_int_eq(fsync(fd), 0);
	close(fd);
}

START_TEST(a_flipped_bit_is_ebadmsg_once_and_the_block_is_quarantined)
{
	const uint64_t size = 3 * MIB;
	char *dir = tier_dir_make(PARENT);
	struct mc_nvme *n = nvme_open(dir, 64 * MIB);
	struct mc_nvme_image *img = nvme_file(n, 1, size);

	ck_assert_int_eq(mc_nvme_sync(n), 0);
	flip_bit(dir, 1, size, 1500000);
	ck_assert_int_eq(nvme_get(img, 1, size, 1), -EBADMSG);
	ck_assert_int_eq(nvme_get(img, 1, size, 1), -ENOENT);
	ck_assert_int_eq(nvme_get(img, 1, size, 0), 0);
	ck_assert_uint_eq(nvme_stats(n).bad_blocks, 1);
	ck_assert(!mc_nvme_verified(img));
	mc_nvme_image_put(img);
	mc_nvme_close(n);
	/* The quarantine outlives a restart, and the space is given back. */
	n = nvme_open(dir, 64 * MIB);
	img = nvme_image(n, 1, size, false);
	ck_assert_uint_eq(mc_nvme_present_blocks(img), 2);
	ck_assert_uint_eq(nvme_stats(n).used, nvme_disk_bytes(dir));
	ck_assert_int_eq(nvme_put(img, 1, size, 1), 0);
	ck_assert_int_eq(mc_nvme_sync(n), 0);
	ck_assert_int_eq(nvme_get(img, 1, size, 1), 0);
	flip_bit(dir, 1, size, 10);
	ck_assert_int_eq(mc_nvme_verify(img, NULL, NULL), 0);
	ck_assert(!mc_nvme_present(img, 0));
	ck_assert_uint_eq(mc_nvme_present_blocks(img), 2);
	mc_nvme_image_put(img);
	mc_nvme_close(n);
	tier_dir_remove(dir);
}
END_TEST

/* Runs body as a daemon that gets SIGKILL once it returned. */
static void killed_daemon(const char *dir, void (*body)(struct mc_nvme *n))
{
	pid_t pid = fork();
	int status;

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		body(nvme_open(dir, 64 * MIB));
		raise(SIGKILL);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void body_partial(struct mc_nvme *n)
{
	struct mc_nvme_image *img = nvme_image(n, 1, 8 * MIB, true);

	ck_assert_int_eq(nvme_put(img, 1, 8 * MIB, 0), 0);
	ck_assert_int_eq(nvme_put(img, 1, 8 * MIB, 7), 0);
	ck_assert_int_eq(mc_nvme_sync(n), 0);
	ck_assert_int_eq(nvme_put(img, 1, 8 * MIB, 3), 0);
	nvme_file(n, 2, 100); /* written, never committed */
}

START_TEST(a_killed_daemons_synced_blocks_survive_and_the_rest_leaves_no_space)
{
	char *dir = tier_dir_make(PARENT);
	struct mc_file_id gone = tier_file_id(2, 100);
	struct mc_nvme_image *img;
	struct mc_nvme *n;

	killed_daemon(dir, body_partial);
	n = nvme_open(dir, 64 * MIB);
	ck_assert_uint_eq(nvme_stats(n).used, 2 * MIB);
	ck_assert_uint_eq(nvme_disk_bytes(dir), 2 * MIB);
	ck_assert_int_eq(mc_nvme_image_get(n, &gone, false, &img), -ENOENT);
	img = nvme_image(n, 1, 8 * MIB, false);
	ck_assert_int_eq(nvme_get(img, 1, 8 * MIB, 0), 0);
	ck_assert_int_eq(nvme_get(img, 1, 8 * MIB, 7), 0);
	ck_assert_int_eq(nvme_get(img, 1, 8 * MIB, 3), -ENOENT);
	mc_nvme_image_put(img);
	mc_nvme_close(n);
	tier_dir_remove(dir);
}
END_TEST

static const char *client_map(const char *dir, unsigned file, uint64_t size)
{
	char path[4096];
	void *m;
	int fd;

	nvme_path(dir, file, size, path, sizeof(path));
	fd = open(path, O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	m = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(m, MAP_FAILED);
	close(fd);
	return m;
}

START_TEST(a_mapping_that_outlives_its_descriptor_keeps_its_bytes_under_pressure)
{
	const uint64_t size = 3 * MIB;
	char *dir = tier_dir_make(PARENT);
	struct mc_nvme *n = nvme_open(dir, 64 * MIB);
	struct mc_nvme_image *img = nvme_file(n, 1, size), *fresh;
	const char *map;

	ck_assert_int_eq(mc_nvme_sync(n), 0);
	map = client_map(dir, 1, size);
	ck_assert_int_eq(mc_nvme_evict(img, 0, 3), -EAGAIN);
	ck_assert(mc_nvme_present(img, 0));
	ck_assert_int_eq(mc_nvme_drop(img), 0);
	ck_assert_uint_eq(nvme_stats(n).held, size);
	ck_assert_uint_eq(nvme_stats(n).used, size);
	mc_nvme_image_put(img);
	fresh = nvme_file(n, 1, size);
	ck_assert_int_eq(mc_nvme_sync(n), 0);
	ck_assert_uint_eq(nvme_stats(n).used, 2 * size);
	ck_assert_uint_eq(mc_nvme_reap(n), 0);
	ck_assert(tier_matches(map, size, 1, 0));
	munmap((void *)(uintptr_t)map, size);
	ck_assert_uint_eq(mc_nvme_reap(n), size);
	ck_assert_uint_eq(nvme_stats(n).held, 0);
	ck_assert_uint_eq(nvme_disk_bytes(dir), size);
	ck_assert_int_eq(mc_nvme_drop(fresh), (int64_t)size);
	ck_assert_uint_eq(nvme_disk_bytes(dir), 0);
	mc_nvme_image_put(fresh);
	mc_nvme_close(n);
	tier_dir_remove(dir);
}
END_TEST

static void body_full(struct mc_nvme *n)
{
	nvme_file(n, 1, 3 * MIB);
	ck_assert_int_eq(mc_nvme_sync(n), 0);
}

static void body_drop(struct mc_nvme *n)
{
	ck_assert_int_eq(mc_nvme_drop(nvme_image(n, 1, 3 * MIB, false)), 0);
}

START_TEST(a_clients_mapping_is_respected_across_two_killed_daemons)
{
	const uint64_t size = 3 * MIB;
	char *dir = tier_dir_make(PARENT);
	struct mc_file_id id = tier_file_id(1, size);
	struct mc_nvme_image *img;
	struct mc_nvme *n;
	const char *map;

	killed_daemon(dir, body_full);
	map = client_map(dir, 1, size);
	n = nvme_open(dir, 64 * MIB);
	img = nvme_image(n, 1, size, false);
	ck_assert_int_eq(mc_nvme_evict(img, 0, 1), -EAGAIN);
	mc_nvme_image_put(img);
	mc_nvme_close(n);
	killed_daemon(dir, body_drop);
	n = nvme_open(dir, 64 * MIB);
	ck_assert_int_eq(mc_nvme_image_get(n, &id, false, &img), -ENOENT);
	ck_assert_uint_eq(nvme_stats(n).held, size);
	ck_assert_uint_eq(nvme_stats(n).used, size);
	ck_assert_uint_eq(mc_nvme_reap(n), 0);
	ck_assert(tier_matches(map, size, 1, 0));
	munmap((void *)(uintptr_t)map, size);
	ck_assert_uint_eq(mc_nvme_reap(n), size);
	ck_assert_uint_eq(nvme_disk_bytes(dir), 0);
	mc_nvme_close(n);
	tier_dir_remove(dir);
}
END_TEST

static void touch(const char *dir, const char *name)
{
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	close(fd);
}

static bool exists(const char *dir, const char *name)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return access(path, F_OK) == 0;
}

START_TEST(a_held_file_does_not_take_its_younger_namesake_with_it)
{
	const uint64_t size = 2 * MIB;
	char *dir = tier_dir_make(PARENT), path[4096], held[128];
	struct mc_nvme *n = nvme_open(dir, 64 * MIB);
	struct mc_nvme_image *img = nvme_file(n, 1, size);

	mc_nvme_image_put(img);
	mc_nvme_close(n);
	/* As after a crash that undid the removal of an older file. */
	nvme_path(dir, 1, size, path, sizeof(path));
	snprintf(held, sizeof(held), "held/%.90s.7", strrchr(path, '/') + 1);
	touch(dir, held);
	n = nvme_open(dir, 64 * MIB);
	ck_assert(!exists(dir, held));
	img = nvme_image(n, 1, size, false);
	ck_assert_uint_eq(mc_nvme_resident_bytes(img), size);
	mc_nvme_image_put(img);
	mc_nvme_close(n);
	tier_dir_remove(dir);
}
END_TEST

START_TEST(a_second_daemon_is_refused_with_the_holders_pid)
{
	char *dir = tier_dir_make(PARENT), pid[32];
	struct mc_nvme_opts o = {.dir = dir, .capacity = 8 * MIB};
	struct mc_nvme *n = nvme_open(dir, 8 * MIB), *second;
	struct mc_err err = {0};

	snprintf(pid, sizeof(pid), "process %d;", (int)getpid());
	ck_assert_int_eq(mc_nvme_open(&o, &second, &err), -EBUSY);
	ck_assert_ptr_nonnull(strstr(err.text, pid));
	mc_nvme_close(n);
	tier_dir_remove(dir);
}
END_TEST

START_TEST(strays_in_our_folders_are_removed_and_nothing_else)
{
	char *dir = tier_dir_make(PARENT), path[4096];
	const char *stray;

	mc_nvme_close(nvme_open(dir, 8 * MIB));
	touch(dir, "manifests");
	touch(dir, "images/0a/x");
	touch(dir, "held/x.1");
	touch(dir, "journal/log.99");
	nvme_path(dir, 5, MIB, path, sizeof(path));
	stray = path + strlen(dir) + 1;
	touch(dir, stray);
	mc_nvme_close(nvme_open(dir, 8 * MIB));
	ck_assert(exists(dir, "manifests"));
	ck_assert(!exists(dir, "images/0a/x"));
	ck_assert(!exists(dir, "held/x.1"));
	ck_assert(!exists(dir, "journal/log.99"));
	ck_assert(!exists(dir, stray));
	tier_dir_remove(dir);
}
END_TEST

START_TEST(a_lowered_capacity_is_respected_at_restart)
{
	char *dir = tier_dir_make(PARENT);
	struct mc_nvme *n = nvme_open(dir, 64 * MIB);
	unsigned left = 0;

	for (unsigned f = 0; f < 4; f++)
		mc_nvme_image_put(nvme_file(n, f, 2 * MIB));
	mc_nvme_close(n);
	n = nvme_open(dir, 5 * MIB);
	mc_nvme_recovered(n, count_id, &left);
	ck_assert_uint_eq(left, 2);
	ck_assert_uint_eq(nvme_stats(n).used, 4 * MIB);
	ck_assert_uint_eq(nvme_disk_bytes(dir), 4 * MIB);
	mc_nvme_close(n);
	tier_dir_remove(dir);
}
END_TEST

SUITE_MAIN("NVMe restart", restart_keeps_blocks_and_verifies_them_once,
	a_flipped_bit_is_ebadmsg_once_and_the_block_is_quarantined,
	a_killed_daemons_synced_blocks_survive_and_the_rest_leaves_no_space,
	a_mapping_that_outlives_its_descriptor_keeps_its_bytes_under_pressure,
	a_clients_mapping_is_respected_across_two_killed_daemons,
	a_held_file_does_not_take_its_younger_namesake_with_it,
	a_second_daemon_is_refused_with_the_holders_pid,
	strays_in_our_folders_are_removed_and_nothing_else,
	a_lowered_capacity_is_respected_at_restart)
