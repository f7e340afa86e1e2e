/* Whether a tmpfs was full: what others meet who write to it, and what the watch says of it. */
#include "tests/seed.h"
#include "tests/suite.h"
#include "tier/full-watch.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define ROOM (16 * MIB)

static char dir[] = "/tmp/mc-full-XXXXXX", state[64];

/* A tmpfs of ROOM and a watch of it. */
static struct mc_full_watch *fixture(void)
{
	struct mc_full_watch *w;

	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_int_eq(mount("test", dir, "tmpfs", 0, "size=16m"), 0);
	snprintf(state, sizeof(state), "%s/full", dir);
	ck_assert_int_eq(mc_full_watch_open(state, &w), 0);
	return w;
}

static void end(struct mc_full_watch *w)
{
	mc_full_watch_close(w);
	ck_assert_int_eq(umount2(dir, MNT_DETACH), 0);
	ck_assert_int_eq(rmdir(dir), 0);
}

static char *path_of(unsigned n)
{
	static _Thread_local char path[64];

	snprintf(path, sizeof(path), "%s/%u", dir, n);
	return path;
}

static int file(unsigned n)
{
	int fd = open(path_of(n), O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	return fd;
}

/* What a client does: adds up to so many bytes. 0, or -errno of the first write that failed. */
static int add(int fd, uint64_t bytes)
{
	static const char zeros[65536];

	for (uint64_t at = 0; at < bytes;) {
		ssize_t n =
			write(fd, zeros, bytes - at < sizeof(zeros) ? bytes - at : sizeof(zeros));

		if (n < 0)
			return -errno;
		at += (uint64_t)n;
	}
	return 0;
}

START_TEST(what_comes_and_goes_while_some_is_left_does_not_count)
{
	struct mc_full_watch *w = fixture();
	uint64_t count = mc_full_watch_count(w);
	int fd = file(1);

	for (unsigned i = 0; i < 20; i++) {
		ck_assert_int_eq(add(fd, 8 * MIB), 0);
		ck_assert_int_eq(mc_full_watch_truncate(w, fd, i * 4096), 0);
		ck_assert_int_eq(lseek(fd, 0, SEEK_END), i * 4096);
		ck_assert_int_eq(mc_full_watch_allocate(w, fd, FALLOC_FL_KEEP_SIZE, 0, 8 * MIB), 0);
		ck_assert_int_eq(mc_full_watch_allocate(w, fd,
					 FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 8 * MIB),
			0);
	}
	mc_full_watch_remove(w, fd, path_of(1));
	ck_assert_int_ne(access(path_of(1), F_OK), 0);
	ck_assert_uint_eq(mc_full_watch_count(w), count);
	end(w);
}
END_TEST

START_TEST(a_client_that_was_refused_memory_is_seen_after_it_is_there_again)
{
	struct mc_full_watch *w = fixture();
	uint64_t count = mc_full_watch_count(w);
	int fd = file(1), other = file(2);

	for (unsigned i = 0; i < 4; i++) {
		ck_assert_int_eq(add(other, 4 * MIB), 0);
		ck_assert_int_eq(add(fd, ROOM), -ENOSPC);
		if (i == 0)
			ck_assert_int_eq(mc_full_watch_truncate(w, other, 0), 0);
		else if (i == 1)
			ck_assert_int_eq(
				mc_full_watch_allocate(w, other,
					FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4 * MIB),
				0);
		else if (i == 2)
			mc_full_watch_remove(w, other, path_of(2));
		else
			break; /* it still is */
		ck_assert_int_eq(mc_full_watch_truncate(w, fd, 0), 0);
		if (i == 2)
			other = file(2);
		ck_assert_int_eq(lseek(other, 0, SEEK_SET), 0);
		ck_assert_int_eq(lseek(fd, 0, SEEK_SET), 0);
		ck_assert_uint_ne(mc_full_watch_count(w), count);
		count = mc_full_watch_count(w);
	}
	ck_assert_uint_ne(mc_full_watch_count(w), count);
	close(fd);
	close(other);
	end(w);
}
END_TEST

START_TEST(an_allocation_that_fails_counts_unless_it_was_not_tried)
{
	struct mc_full_watch *w = fixture();
	uint64_t count = mc_full_watch_count(w);
	int fd = file(1);

	ck_assert_int_eq(add(fd, 4 * MIB), 0);
	ck_assert_int_eq(mc_full_watch_allocate(w, fd, 0, 0, 2 * ROOM), -ENOSPC);
	ck_assert_int_eq(mc_full_watch_allocate(w, fd, 0x4000, 0, MIB), -EOPNOTSUPP);
	ck_assert_uint_eq(mc_full_watch_count(w), count);
	/* The check takes these for what is to be allocated again. */
	ck_assert_int_eq(mc_full_watch_allocate(w, fd, 0, 4 * MIB, ROOM - MIB), -ENOSPC);
	ck_assert_int_eq(mc_full_watch_truncate(w, fd, 0), 0);
	ck_assert_uint_ne(mc_full_watch_count(w), count);
	close(fd);
	end(w);
}
END_TEST

START_TEST(an_allocation_has_the_size_and_memory_that_were_asked_for)
{
	struct mc_full_watch *w = fixture();
	struct stat st;
	int fd = file(1);

	ck_assert_int_eq(mc_full_watch_allocate(w, fd, FALLOC_FL_KEEP_SIZE, 4096, 5 * MIB), 0);
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_int_eq(st.st_size, 0);
	ck_assert_uint_eq((uint64_t)st.st_blocks * 512, 5 * MIB);
	ck_assert_int_eq(mc_full_watch_allocate(w, fd, 0, 0, 5 * MIB + 1), 0);
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_uint_eq((uint64_t)st.st_size, 5 * MIB + 1);
	ck_assert_uint_eq((uint64_t)st.st_blocks * 512, 5 * MIB + 4096);
	close(fd);
	end(w);
}
END_TEST

/* A process of its own; how: 0 = it frees and is killed before it looks, 1 = it only ends. */
static void another(int how)
{
	pid_t child = fork();
	int status;

	ck_assert_int_ge(child, 0);
	if (child == 0) {
		struct mc_full_watch *w;

		if (mc_full_watch_open(state, &w) < 0)
			_exit(1);
		if (how == 0) {
			mc_full_watch_begin(w, ROOM);
			if (truncate(path_of(1), 0) != 0)
				_exit(1);
		}
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}

START_TEST(the_next_process_goes_on_with_the_count_of_one_that_was_killed)
{
	struct mc_full_watch *w = fixture();
	uint64_t count = mc_full_watch_count(w);
	int fd = file(1);

	mc_full_watch_close(w);
	another(1);
	ck_assert_int_eq(mc_full_watch_open(state, &w), 0);
	ck_assert_uint_eq(mc_full_watch_count(w), count);
	mc_full_watch_close(w);
	ck_assert_int_eq(add(fd, ROOM), -ENOSPC);
	another(0);
	ck_assert_int_eq(mc_full_watch_open(state, &w), 0);
	ck_assert_uint_ne(mc_full_watch_count(w), count);
	/* And that is over. */
	count = mc_full_watch_count(w);
	ck_assert_uint_eq(mc_full_watch_count(w), count);
	close(fd);
	end(w);
}
END_TEST

START_TEST(a_file_system_made_larger_hides_nothing)
{
	struct mc_full_watch *w = fixture();
	uint64_t count = mc_full_watch_count(w);
	int fd = file(1);

	ck_assert_int_eq(mount(NULL, dir, NULL, MS_REMOUNT, "size=32m"), 0);
	ck_assert_uint_eq(mc_full_watch_count(w), count);
	ck_assert_int_eq(add(fd, 3 * ROOM), -ENOSPC);
	ck_assert_int_eq(mount(NULL, dir, NULL, MS_REMOUNT, "size=64m"), 0);
	ck_assert_uint_ne(mc_full_watch_count(w), count);
	close(fd);
	end(w);
}
END_TEST

/* ---- at random: clients that write past the watch, and the owner who frees */

struct play {
	struct mc_full_watch *w;
	unsigned seed;
	atomic_uint n, missed, refused, quiet;
};

#define PUTS (SUITE_SLOW ? 40u : 150u)
#define CLIENTS 3u

static uint64_t below(unsigned *seed, int n)
{
	return (uint64_t)(rand_r(seed) / 7 % n);
}

/* Puts of random size, each in a file that this thread alone has; what it was refused must count.
 */
static void *client(void *arg)
{
	struct play *p = arg;
	unsigned n = atomic_fetch_add(&p->n, 1);
	unsigned seed = p->seed + n;

	for (unsigned i = 0; i < PUTS; i++) {
		int fd = file(100 + n);
		uint64_t count = mc_full_watch_count(p->w);
		int res = add(fd, below(&seed, 10) * MIB);
		const struct timespec others = {.tv_nsec = (long)below(&seed, 3) * 500000};
		bool same;

		nanosleep(&others, NULL); /* who free meanwhile */
		same = mc_full_watch_count(p->w) == count;
		atomic_fetch_add(&p->refused, res == -ENOSPC);
		atomic_fetch_add(&p->missed, res == -ENOSPC && same);
		atomic_fetch_add(&p->quiet, res == 0 && same);
		if (below(&seed, 2) == 0)
			mc_full_watch_truncate(p->w, fd, below(&seed, 3) * MIB);
		else if (below(&seed, 2) == 0)
			mc_full_watch_allocate(p->w, fd, 0, 0, below(&seed, 9) * MIB + 1);
		mc_full_watch_remove(p->w, fd, path_of(100 + n));
	}
	return NULL;
}

START_TEST(no_refusal_is_missed_whoever_frees_meanwhile)
{
	struct play p = {.w = fixture(), .seed = seed_choose()};
	pthread_t threads[CLIENTS];

	for (unsigned i = 0; i < CLIENTS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, client, &p), 0);
	for (unsigned i = 0; i < CLIENTS; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	printf("%u refused, %u quiet of %u\n", p.refused, p.quiet, CLIENTS * PUTS);
	ck_assert_uint_eq(p.missed, 0);
	end(p.w);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {what_comes_and_goes_while_some_is_left_does_not_count,
		a_client_that_was_refused_memory_is_seen_after_it_is_there_again,
		an_allocation_that_fails_counts_unless_it_was_not_tried,
		an_allocation_has_the_size_and_memory_that_were_asked_for,
		the_next_process_goes_on_with_the_count_of_one_that_was_killed,
		a_file_system_made_larger_hides_nothing,
		no_refusal_is_missed_whoever_frees_meanwhile};

	if (getuid() != 0) {
		puts("needs root, to mount a tmpfs");
		return 77;
	}
	return suite_run("full-watch", tests, sizeof(tests) / sizeof(*tests));
}
