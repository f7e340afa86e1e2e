/* Puts that a process had under way when it was killed, and those that goes on with them. */
#include "tests/kv-fixture.h"
#include "tests/suite.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1u << 20)
#define SIZE 200000u

/* What a process tells before it is killed: the numbers of two puts' files. */
struct told {
	uint64_t open;      /* SIZE bytes of it are written */
	uint64_t published; /* as "there" */
};

static void killed_child(struct kv_fixture *x, int fd)
{
	struct timespec mtime = {.tv_sec = 1};
	struct mc_kv_writer *a, *b;
	struct told t;

	kv_fixture_start(x);
	if (mc_kv_create(x->kv, 0, &a) < 0 || mc_kv_create(x->kv, 0, &b) < 0)
		_exit(1);
	kv_fill_fd(mc_kv_writer_fd(a), SIZE, 1);
	kv_fill_fd(mc_kv_writer_fd(b), SIZE, 2);
	t.open = mc_kv_writer_file(a);
	t.published = mc_kv_writer_file(b);
	if (mc_kv_publish(b, "there", &mtime, 0, false, NULL) < 0 ||
		write(fd, &t, sizeof(t)) != (ssize_t)sizeof(t))
		_exit(1);
	raise(SIGKILL);
}

/* A store that goes on after a kill; x->kv is it. */
static struct told killed(struct kv_fixture *x, uint64_t puts[2])
{
	struct told t;
	int fds[2], status;
	pid_t child;

	kv_fixture_paths(x, 64 * MIB);
	ck_assert_int_eq(pipe(fds), 0);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0)
		killed_child(x, fds[1]);
	ck_assert_int_eq(read(fds[0], &t, sizeof(t)), (ssize_t)sizeof(t));
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	close(fds[0]);
	close(fds[1]);
	puts[0] = t.open;
	puts[1] = t.published;
	x->opts.puts = puts;
	x->opts.n_puts = 2;
	kv_fixture_start(x);
	return t;
}

static uint64_t used(struct mc_kv *kv)
{
	struct mc_kv_stats s;

	mc_kv_stats(kv, &s);
	return s.dram_used;
}

static bool is_there(const struct kv_fixture *x, uint64_t file)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/f/%016llx", x->dram, (unsigned long long)file);
	return access(path, F_OK) == 0;
}

START_TEST(a_put_goes_on_in_the_next_process)
{
	struct timespec mtime = {.tv_sec = 2};
	struct mc_kv_writer *w;
	struct kv_fixture x;
	uint64_t puts[2], before;
	struct told t = killed(&x, puts);

	before = used(x.kv);
	ck_assert_int_eq(mc_kv_writer_adopt(x.kv, t.open, NULL, &w), 0);
	ck_assert_uint_ge(used(x.kv), before + SIZE);
	mc_kv_adopted(x.kv);
	kv_fill_fd(mc_kv_writer_fd(w), 2 * SIZE, 1);
	ck_assert_int_eq(mc_kv_publish(w, "late", &mtime, 0, false, NULL), 0);
	kv_expect(x.kv, "late", 2 * SIZE, 1);
	kv_expect(x.kv, "there", SIZE, 2);
	kv_fixture_close(&x);
}
END_TEST

START_TEST(a_file_is_adopted_once_and_an_objects_never)
{
	const struct stat any_time = {.st_size = SIZE, .st_mtim = {.tv_nsec = UTIME_OMIT}};
	struct mc_kv_writer *w, *again;
	struct kv_fixture x;
	uint64_t puts[2];
	struct told t = killed(&x, puts);

	ck_assert_int_eq(mc_kv_writer_adopt(x.kv, t.published, NULL, &w), -ENOENT);
	ck_assert_int_eq(mc_kv_writer_adopt(x.kv, 0, NULL, &w), -ENOENT);
	ck_assert_int_eq(mc_kv_writer_adopt(x.kv, t.open, &any_time, &w), 0);
	ck_assert_int_eq(mc_kv_writer_adopt(x.kv, t.open, NULL, &again), -ENOENT);
	mc_kv_discard(w);
	kv_expect(x.kv, "there", SIZE, 2);
	kv_fixture_close(&x);
}
END_TEST

START_TEST(a_file_that_is_not_as_a_close_saw_it_is_not_adopted_and_goes)
{
	struct stat want = {.st_size = SIZE - 1};
	struct mc_kv_writer *w;
	struct kv_fixture x;
	uint64_t puts[2], before;
	struct told t = killed(&x, puts);

	before = used(x.kv);
	ck_assert_int_eq(mc_kv_writer_adopt(x.kv, t.open, &want, &w), -ENOENT);
	ck_assert_uint_eq(used(x.kv), before);
	ck_assert(is_there(&x, t.open));
	want = (struct stat){.st_size = SIZE, .st_mtim = {.tv_sec = 1}};
	ck_assert_int_eq(mc_kv_writer_adopt(x.kv, t.open, &want, &w), -ENOENT);
	mc_kv_adopted(x.kv);
	ck_assert(!is_there(&x, t.open));
	ck_assert(is_there(&x, t.published));
	ck_assert_int_eq(mc_kv_writer_adopt(x.kv, t.open, NULL, &w), -ENOENT);
	kv_fixture_close(&x);
}
END_TEST

START_TEST(a_file_that_a_client_still_has_is_held_by_the_next_process)
{
	struct kv_fixture x;
	struct mc_kv_stats s;
	uint64_t puts[2];
	struct told t = killed(&x, puts);
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/f/%016llx", x.dram, (unsigned long long)t.open);
	fd = open(path, O_RDONLY);
	ck_assert_int_ge(fd, 0);
	mc_kv_adopted(x.kv);
	mc_kv_stats(x.kv, &s);
	ck_assert_uint_ge(s.held_bytes, SIZE);
	ck_assert(is_there(&x, t.open));
	close(fd);
	while (is_there(&x, t.open)) /* the limit of the test is for what never ends */
		usleep(10000);
	mc_kv_stats(x.kv, &s);
	ck_assert_uint_eq(s.held_bytes, 0);
	kv_expect(x.kv, "there", SIZE, 2);
	kv_fixture_close(&x);
}
END_TEST

SUITE_MAIN("kv-adopt", a_put_goes_on_in_the_next_process,
	a_file_that_a_client_still_has_is_held_by_the_next_process,
	a_file_is_adopted_once_and_an_objects_never,
	a_file_that_is_not_as_a_close_saw_it_is_not_adopted_and_goes)
