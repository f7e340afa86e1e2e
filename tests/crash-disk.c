/*
 * Power failures under the KV store and the NVMe tier, on a file system on the recording disk:
 * crash-disk IMAGE DIR STATES SEED [ROUND]. IMAGE holds an empty file system for sectors of 4 KiB,
 * DIR is empty.
 *
 * A round: a process works on both for a while, and what reaches the disk is recorded. Then 10
 * points of the record are chosen, and at each what the disk may hold there: the file system is
 * mounted, both recover and are held against what had been acknowledged by then. After every fourth
 * of them the power goes again at a point of that recovery. Everything follows from the seed but
 * the order in which threads run; a failure names round and state.
 */
#include "tests/crash-history.h"
#include "tests/crash-kv.h"
#include "tests/crash-nvme.h"
#include "tier/lock.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUND 10 /* states */
#define ACKS 256 /* acknowledgements of a round, at most */

struct run {
	struct disk *disk;
	const char *pristine; /* path of the empty file system */
	char image[256], mountpoint[256], dir[256], dram[256];
	const char *type;
	struct crash_kv *kv;
	struct crash_nvme *nvme;
	uint64_t seed;
	unsigned round, state;
};

static const char *const types[] = {"ext4", "xfs"};

static void copy_image(const struct run *r)
{
	char command[600];

	snprintf(command, sizeof(command), "cp --sparse=always '%s' '%s'", r->pristine, r->image);
	if (system(command) != 0) /* of names the caller chose */
		crash_die("%s", command);
}

static void mount_disk(struct run *r)
{
	const char *device = disk_device(r->disk);

	for (unsigned i = 0; i < 2; i++) {
		if (r->type == NULL || strcmp(r->type, types[i]) == 0) {
			if (mount(device, r->dir, types[i], 0, NULL) == 0) {
				r->type = types[i];
				return;
			}
		}
	}
	crash_die("round %u state %u: %s cannot be mounted: %s", r->round, r->state, device,
		strerror(errno));
}

/* A process's io_uring may be taken apart later than the process. A file system that is still alive
 * would be mounted again with what it remembers, over a disk that has another state. */
static void unmount(const struct run *r)
{
	uint64_t deadline = mc_now_ns() + UINT64_C(60000000000);

	while (umount(r->dir) != 0) {
		if (errno != EBUSY || mc_now_ns() > deadline)
			crash_die("umount %s: %s", r->dir, strerror(errno));
		usleep(1000);
	}
	while (disk_is_mounted(r->disk)) {
		if (mc_now_ns() > deadline)
			crash_die("%s is mounted elsewhere", disk_device(r->disk));
		usleep(1000);
	}
	/* What a power failure does to the DRAM tier. */
	while (umount2(r->dram, UMOUNT_NOFOLLOW) != 0 && errno == EBUSY) {
		if (mc_now_ns() > deadline)
			crash_die("umount %s: %s", r->dram, strerror(errno));
		usleep(1000);
	}
}

/* Whoever copies his mount namespace meanwhile, say with unshare, gets no copies of these mounts,
 * and they end with this process. */
static void make_mounts_private(void)
{
	if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
		printf("needs a mount namespace: %s\n", strerror(errno));
		exit(77);
	}
}

static struct run run;
static uint64_t cut_now; /* of the state that is checked */

static void *work_nvme(void *arg)
{
	crash_nvme_work(run.nvme, run.disk, run.dir, run.seed + run.round);
	return arg;
}

START_TEST(work)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, work_nvme, NULL), 0);
	crash_kv_work(run.kv, run.disk, run.dir, run.dram, run.seed + run.round);
	pthread_join(thread, NULL);
}
END_TEST

START_TEST(check)
{
	crash_kv_check(run.kv, run.dir, run.dram, cut_now);
	crash_nvme_check(run.nvme, run.dir, cut_now);
}
END_TEST

/* Check has to know of the test that the fixtures assert in. 0 = passed. */
static int run_test(const TTest *test)
{
	Suite *s = suite_create("crash-disk");
	TCase *t = tcase_create("all");
	SRunner *r = srunner_create(s);

	tcase_add_test(t, test);
	suite_add_tcase(s, t);
	srunner_set_fork_status(r, CK_NOFORK);
	srunner_run_all(r, CK_SILENT);
	if (srunner_ntests_failed(r) > 0)
		srunner_print(r, CK_NORMAL);
	fflush(stdout);
	return srunner_ntests_failed(r);
}

/* Runs the test in a process on the mounted disk; whether it passed. */
static bool on_disk(const TTest *test)
{
	int status;
	pid_t pid;

	mount_disk(&run);
	fflush(stdout);
	pid = fork();
	if (pid < 0)
		crash_die("fork: %s", strerror(errno));
	if (pid == 0) {
		disk_forget(run.disk);
		_exit(run_test(test));
	}
	if (waitpid(pid, &status, 0) != pid)
		crash_die("waitpid: %s", strerror(errno));
	disk_pause(run.disk);
	unmount(&run);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Where the power goes: after so many operations of the disk, with that choice of what is not
 * certain then. */
struct point {
	uint64_t at, seed;
};

static int ascending(const void *a, const void *b)
{
	const struct point *x = a, *y = b;

	return x->at < y->at ? -1 : x->at > y->at;
}

/* A state of the disk: seed; again: the power went a second time, in its recovery. */
static void show_state(uint64_t seed, bool again)
{
	if (again)
		disk_show_again(run.disk, seed);
	else
		disk_show(run.disk, cut_now, seed);
}

/* MC_KEEP=file: what the disk of a state that fails holds. */
static void keep_disk(void)
{
	const char *to = getenv("MC_KEEP");
	char command[600];

	if (to == NULL)
		return;
	snprintf(command, sizeof(command), "dd if='%s' of='%s' bs=1M conv=sparse status=none",
		disk_device(run.disk), to);
	if (system(command) != 0) /* of names the caller chose */
		printf("the disk is not kept\n");
}

static void expect_state(uint64_t seed, bool again)
{
	run.state++;
	show_state(seed, again);
	if (on_disk(check))
		return;
	printf("%s: MC_SEED=%llu round %u state %u, after %llu operations of the disk%s\n",
		run.type, (unsigned long long)run.seed, run.round, run.state - 1,
		(unsigned long long)cut_now, again ? ", and again in the recovery" : "");
	show_state(seed, again);
	keep_disk();
	printf("the same state once more %s\n",
		on_disk(check) ? "is as it has to be" : "fails, too");
	exit(1);
}

/* Every second one is the last moment at which something was acknowledged. */
static void choose_points(struct point *points, unsigned n, uint64_t *rng)
{
	uint64_t position = disk_position(run.disk), acks[ACKS];
	size_t n_acks = crash_kv_acks(run.kv, acks, ACKS);

	n_acks += crash_nvme_acks(run.nvme, acks + n_acks, ACKS - n_acks);
	for (unsigned i = 0; i < n; i++) {
		points[i].at = crash_random(rng) % (position + 1);
		points[i].seed = crash_random(rng) | 1;
		if (i % 2 == 1 && n_acks > 0)
			points[i] = (struct point){acks[crash_random(rng) % n_acks], DISK_CERTAIN};
	}
	qsort(points, n, sizeof(*points), ascending);
}

static unsigned explore(unsigned n, uint64_t rng)
{
	struct point points[ROUND];

	choose_points(points, n, &rng);
	run.state = 0;
	for (unsigned i = 0; i < n && run.state < n; i++) {
		cut_now = points[i].at;
		expect_state(points[i].seed, false);
		if (i % 4 == 3 && run.state < n)
			expect_state(crash_random(&rng), true);
	}
	return run.state;
}

/* The states explored. *ret_ops: operations recorded. */
static unsigned play_round(unsigned n, uint64_t *ret_ops)
{
	struct disk_opts o = {.image = run.image, .mountpoint = run.mountpoint};
	enum crash_below below;
	const char *why;
	unsigned states;

	copy_image(&run);
	below = (enum crash_below)((run.seed + run.round) % CRASH_BELOW);
	run.kv = crash_kv_new(below);
	run.nvme = crash_nvme_new();
	run.disk = disk_open(&o, &why);
	if (run.disk == NULL) {
		printf("%s\n", why);
		exit(77);
	}
	disk_record(run.disk);
	if (!on_disk(work))
		exit(1);
	*ret_ops = disk_position(run.disk);
	states = explore(n, crash_rng(run.seed * 1000 + run.round));
	disk_close(run.disk);
	run.disk = NULL;
	crash_kv_free(run.kv);
	crash_nvme_free(run.nvme);
	printf("%s round %u, KV over %s: ", run.type, run.round, crash_below_names[below]);
	return states;
}

int main(int argc, char **argv)
{
	unsigned states = 0, wanted;
	uint64_t start = mc_now_ns();

	if (argc < 5)
		return 2;
	run.pristine = argv[1];
	snprintf(run.image, sizeof(run.image), "%s/image", argv[2]);
	snprintf(run.mountpoint, sizeof(run.mountpoint), "%s/fuse", argv[2]);
	snprintf(run.dir, sizeof(run.dir), "%s/mnt", argv[2]);
	snprintf(run.dram, sizeof(run.dram), "%s/dram", argv[2]);
	make_mounts_private();
	wanted = (unsigned)atoi(argv[3]);
	run.seed = strtoull(argv[4], NULL, 10);
	run.round = argc > 5 ? (unsigned)atoi(argv[5]) : 0;
	if (mkdir(run.mountpoint, 0700) != 0 || mkdir(run.dir, 0700) != 0 ||
		mkdir(run.dram, 0700) != 0)
		return 2;
	for (; states < wanted; run.round++) {
		unsigned n = wanted - states < ROUND ? wanted - states : ROUND;
		uint64_t ops;

		states += play_round(n, &ops);
		printf("%llu operations of the disk, %u states in %.1f s\n",
			(unsigned long long)ops, states, (double)(mc_now_ns() - start) / 1e9);
	}
	return 0;
}
