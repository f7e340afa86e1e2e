/* What F_SETLEASE counts: other open file descriptions and their mappings, in any process; not our
 * own. */
#include "tests/suite.h"
#include "tests/tier-dir.h"
#include "tier/lease.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const parents[] = {"/dev/shm", "/var/tmp"};

struct file {
	char *dir, path[4096];
	int fd;
};

static struct file make_file(const char *parent)
{
	struct file f = {.dir = tier_dir_make(parent)};

	snprintf(f.path, sizeof(f.path), "%s/image", f.dir);
	f.fd = open(f.path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_ge(f.fd, 0);
	ck_assert_int_eq(ftruncate(f.fd, 1 << 20), 0);
	return f;
}

static int asked(int fd)
{
	int r = mc_lease_take(fd);

	if (r == 0)
		mc_lease_drop(fd);
	return r;
}

START_TEST(our_duplicate_and_mapping_do_not_count)
{
	for (size_t i = 0; i < 2; i++) {
		struct file f = make_file(parents[i]);
		int copy = dup(f.fd);
		void *m = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, f.fd, 0);

		ck_assert_ptr_ne(m, MAP_FAILED);
		ck_assert(mc_lease_supported(f.fd));
		ck_assert_int_eq(asked(f.fd), 0);
		munmap(m, 1 << 20);
		close(copy);
		close(f.fd);
		tier_dir_remove(f.dir);
	}
}
END_TEST

START_TEST(another_description_and_its_mapping_count_also_unlinked)
{
	for (size_t i = 0; i < 2; i++) {
		struct file f = make_file(parents[i]);
		int other = open(f.path, O_RDONLY | O_CLOEXEC);
		void *m = mmap(NULL, 1 << 20, PROT_READ, MAP_SHARED, other, 0);

		ck_assert_ptr_ne(m, MAP_FAILED);
		ck_assert_int_eq(asked(f.fd), -EAGAIN);
		close(other);
		ck_assert_int_eq(asked(f.fd), -EAGAIN);
		unlink(f.path);
		ck_assert_int_eq(asked(f.fd), -EAGAIN);
		munmap(m, 1 << 20);
		ck_assert_int_eq(asked(f.fd), 0);
		close(f.fd);
		tier_dir_remove(f.dir);
	}
}
END_TEST

START_TEST(a_mapping_in_another_process_counts_until_that_process_ends)
{
	struct file f = make_file(parents[0]);
	int ready[2], status;
	pid_t pid;
	char c;

	ck_assert_int_eq(pipe(ready), 0);
	pid = fork();
	if (pid == 0) {
		int fd = open(f.path, O_RDONLY);
		void *m = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);

		close(fd);
		if (m == MAP_FAILED || write(ready[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	ck_assert_int_eq(read(ready[0], &c, 1), 1);
	ck_assert_int_eq(asked(f.fd), -EAGAIN);
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(asked(f.fd), 0);
	close(ready[0]);
	close(ready[1]);
	close(f.fd);
	tier_dir_remove(f.dir);
}
END_TEST

static void *open_other(void *arg)
{
	struct file *f = arg;
	int fd = open(f->path, O_RDONLY | O_CLOEXEC);

	return (void *)(intptr_t)fd;
}

/* The signal that the kernel sends for an open under a lease must not end the daemon. */
START_TEST(an_open_during_the_lease_waits_for_its_end_and_kills_nobody)
{
	struct file f = make_file(parents[0]);
	struct stat st;
	pthread_t t;
	void *fd;

	ck_assert_int_eq(mc_lease_take(f.fd), 0);
	ck_assert_int_eq(pthread_create(&t, NULL, open_other, &f), 0);
	/* F_GETLEASE tells of the break as soon as the opener has arrived. */
	while (fcntl(f.fd, F_GETLEASE) == F_WRLCK)
		usleep(200);
	ck_assert_int_eq(fstat(f.fd, &st), 0);
	ck_assert_int_eq(pthread_tryjoin_np(t, &fd), EBUSY);
	mc_lease_drop(f.fd);
	ck_assert_int_eq(pthread_join(t, &fd), 0);
	ck_assert_int_ge((int)(intptr_t)fd, 0);
	ck_assert_int_eq(asked(f.fd), -EAGAIN);
	close((int)(intptr_t)fd);
	close(f.fd);
	tier_dir_remove(f.dir);
}
END_TEST

SUITE_MAIN("lease", our_duplicate_and_mapping_do_not_count,
	another_description_and_its_mapping_count_also_unlinked,
	a_mapping_in_another_process_counts_until_that_process_ends,
	an_open_during_the_lease_waits_for_its_end_and_kills_nobody)
