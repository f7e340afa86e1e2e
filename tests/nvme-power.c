/*
 * Power failures under the NVMe tier on a real file system: a child works on the tier, the parent
 * shuts the file system down without a flush (FS_IOC_SHUTDOWN) at a random step, mounts it again,
 * recovers, and compares with what the child had acknowledged. Arguments: DEVICE MOUNTPOINT FSTYPE
 * CYCLES SEED.
 */
#include "tests/nvme-fixture.h"
#include "tests/suite.h"

#include <linux/ioctl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#define FS_IOC_SHUTDOWN_FLAGS _IOR('X', 125, uint32_t)
#define NO_LOG_FLUSH 2

#define FILES 6
#define FILE_SIZE (4 * MIB + 12345)
#define BLOCKS 5

enum knowledge { NOTHING, DURABLE, GONE };

/* Shared between parent and child; written by the child around each operation. */
struct model {
	uint64_t steps;
	enum knowledge known[FILES][BLOCKS];
	bool written[FILES][BLOCKS]; /* acknowledged since the last sync */
};

static struct mc_nvme *must_open(const char *dir)
{
	struct mc_nvme_opts o = {
		.dir = dir, .capacity = 24 * MIB, .commit_ms = 20, .journal_bytes = 65536};

	return nvme_open_with(&o);
}

static void put(struct mc_nvme *n, struct model *m, unsigned f, unsigned b)
{
	struct mc_file_id id = tier_file_id(f, FILE_SIZE);
	struct mc_nvme_image *img;

	if (mc_nvme_image_get(n, &id, true, &img) != 0)
		return;
	if (m->known[f][b] == GONE)
		m->known[f][b] = NOTHING;
	if (nvme_put(img, f, FILE_SIZE, b) == 0)
		m->written[f][b] = true;
	mc_nvme_image_put(img);
}

static void sync_all(struct mc_nvme *n, struct model *m)
{
	bool before[FILES][BLOCKS];

	memcpy(before, m->written, sizeof(before));
	memset(m->written, 0, sizeof(before));
	if (mc_nvme_sync(n) != 0)
		return;
	for (unsigned f = 0; f < FILES; f++)
		for (unsigned b = 0; b < BLOCKS; b++)
			if (before[f][b])
				m->known[f][b] = DURABLE;
}

static void evict(struct mc_nvme *n, struct model *m, unsigned f, unsigned b, bool whole)
{
	struct mc_file_id id = tier_file_id(f, FILE_SIZE);
	unsigned first = whole ? 0 : b, end = whole ? BLOCKS : b + 1;
	struct mc_nvme_image *img;
	bool done;

	if (mc_nvme_image_get(n, &id, false, &img) != 0)
		return;
	for (unsigned i = first; i < end; i++) {
		m->known[f][i] = NOTHING;
		m->written[f][i] = false;
	}
	if (whole)
		done = mc_nvme_drop(img) >= 0 && nvme_stats(n).errors == 0;
	else
		done = mc_nvme_evict(img, b, 1) > 0 && !mc_nvme_present(img, b);
	for (unsigned i = first; i < end && done; i++)
		m->known[f][i] = GONE;
	mc_nvme_image_put(img);
}

static void work(const char *dir, struct model *m, unsigned seed)
{
	struct mc_nvme *n = must_open(dir);

	for (;;) {
		unsigned f = (unsigned)rand_r(&seed) % FILES, b = (unsigned)rand_r(&seed) % BLOCKS;

		switch (rand_r(&seed) % 8) {
		case 0:
			evict(n, m, f, b, false);
			break;
		case 1:
			evict(n, m, f, b, rand_r(&seed) % 4 == 0);
			break;
		case 2:
		case 3:
			sync_all(n, m);
			break;
		default:
			put(n, m, f, b);
		}
		__atomic_fetch_add(&m->steps, 1, __ATOMIC_RELEASE);
	}
}

static void check(const char *dir, struct model *m, unsigned cycle)
{
	struct mc_nvme *n = must_open(dir);

	/* Tails count whole pages; a file system with smaller blocks gives less. */
	ck_assert_msg(nvme_stats(n).used >= nvme_disk_bytes(dir) &&
			nvme_stats(n).used - nvme_disk_bytes(dir) < FILES * 4096,
		"cycle %u: used %llu, disk %llu", cycle, (unsigned long long)nvme_stats(n).used,
		(unsigned long long)nvme_disk_bytes(dir));
	for (unsigned f = 0; f < FILES; f++) {
		struct mc_file_id id = tier_file_id(f, FILE_SIZE);
		struct mc_nvme_image *img = NULL;
		bool got = mc_nvme_image_get(n, &id, false, &img) == 0;

		for (unsigned b = 0; b < BLOCKS; b++) {
			bool present = got && mc_nvme_present(img, b);
			int r = present ? nvme_get(img, f, FILE_SIZE, b) : 0;

			ck_assert_msg(
				r == 0, "cycle %u: file %u block %u reads %d", cycle, f, b, r);
			ck_assert_msg(present || m->known[f][b] != DURABLE,
				"cycle %u: file %u block %u was synced and is lost", cycle, f, b);
			ck_assert_msg(!present || m->known[f][b] != GONE,
				"cycle %u: file %u block %u was evicted and is back", cycle, f, b);
			m->known[f][b] = present ? DURABLE : GONE;
			m->written[f][b] = false;
		}
		if (got)
			mc_nvme_image_put(img);
	}
	mc_nvme_close(n);
}

static void cut(const char *mountpoint)
{
	uint32_t how = NO_LOG_FLUSH;
	int fd = open(mountpoint, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ioctl(fd, FS_IOC_SHUTDOWN_FLAGS, &how), 0);
	close(fd);
}

static void remount(const char *device, const char *mountpoint, const char *type)
{
	uint64_t deadline = mc_now_ns() + UINT64_C(120000000000);

	/* The kernel takes a killed process's io_uring apart later than the process. */
	while (umount(mountpoint) != 0) {
		ck_assert_msg(errno == EBUSY && mc_now_ns() < deadline, "umount %s: %s", mountpoint,
			strerror(errno));
		usleep(1000);
	}
	ck_assert_msg(mount(device, mountpoint, type, 0, NULL) == 0, "mount %s: %s", device,
		strerror(errno));
}

static char **args;

START_TEST(recovers_from_each_power_failure)
{
	struct model *m =
		mmap(NULL, sizeof(*m), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	unsigned cycles = (unsigned)atoi(args[4]), seed = (unsigned)atoi(args[5]);
	char dir[4096];

	ck_assert_ptr_ne(m, MAP_FAILED);
	snprintf(dir, sizeof(dir), "%s/tier", args[2]);
	ck_assert_int_eq(mount(args[1], args[2], args[3], 0, NULL), 0);
	for (unsigned c = 0; c < cycles; c++) {
		uint64_t until = m->steps + 1 + (uint64_t)rand_r(&seed) % 60;
		unsigned child_seed = (unsigned)rand_r(&seed);
		pid_t pid = fork();
		int status;

		ck_assert_int_ge(pid, 0);
		if (pid == 0)
			work(dir, m, child_seed);
		while (__atomic_load_n(&m->steps, __ATOMIC_ACQUIRE) < until) {
			ck_assert_int_eq(waitpid(pid, &status, WNOHANG), 0);
			usleep(200);
		}
		cut(args[2]);
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
		remount(args[1], args[2], args[3]);
		check(dir, m, c);
	}
	ck_assert_int_eq(umount(args[2]), 0);
}
END_TEST

int main(int argc, char **argv)
{
	const TTest *const tests[] = {recovers_from_each_power_failure};

	if (argc != 6)
		return 2;
	args = argv;
	printf("%s: %s cycles, MC_SEED=%s\n", argv[3], argv[4], argv[5]);
	return suite_run("nvme-power", tests, 1);
}
