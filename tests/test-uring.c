/* The asynchronous engine: io_uring and the pool behave alike. */
#include "tests/suite.h"
#include "tier/io.h"
#include "tier/lock.h"
#include "tier/uring.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct mc_uring_opts kinds[] = {
	{.depth = 4},
	{.depth = 4, .pool = true, .threads = 3},
};

static int temp_file(void)
{
	char path[] = "/var/tmp/mc-uring-XXXXXX";
	int fd = mkstemp(path);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(unlink(path), 0);
	return fd;
}

struct counter {
	struct mc_mutex lock;
	struct mc_cond changed;
	unsigned done, bad;
};

static void count_done(struct mc_uring_req *r, int64_t res)
{
	struct counter *c = r->ctx;

	mc_mutex_lock(&c->lock);
	c->done++;
	c->bad += res != r->len;
	mc_cond_signal(&c->changed);
	mc_mutex_unlock(&c->lock);
}

static void wait_for(struct counter *c, unsigned n)
{
	mc_mutex_lock(&c->lock);
	while (c->done < n)
		mc_cond_wait(&c->changed, &c->lock);
	mc_mutex_unlock(&c->lock);
}

/* 64 requests at depth 4: the FIFO holds the rest. */
static void write_then_read_back(const struct mc_uring_opts *o)
{
	enum { N = 64, LEN = 8192 };
	static char out[N][LEN], in[N][LEN];
	static struct mc_uring_req reqs[N];
	struct counter c = {.lock = MC_MUTEX_INIT};
	struct mc_uring *u;
	int fd = temp_file();

	mc_cond_init(&c.changed);
	ck_assert_int_eq(mc_uring_open(o, &u), 0);
	for (unsigned pass = 0; pass < 2; pass++) {
		for (unsigned i = 0; i < N; i++) {
			memset(out[i], (int)i + 1, LEN);
			reqs[i] = (struct mc_uring_req){
				.kind = pass == 0 ? MC_URING_WRITE : MC_URING_READ,
				.fd = fd,
				.off = (uint64_t)i * LEN,
				.len = LEN,
				.buf = pass == 0 ? out[i] : in[i],
				.done = count_done,
				.ctx = &c,
			};
			mc_uring_submit(u, &reqs[i]);
		}
		wait_for(&c, N * (pass + 1));
	}
	mc_uring_close(u);
	ck_assert_uint_eq(c.bad, 0);
	ck_assert_int_eq(memcmp(out, in, sizeof(out)), 0);
	close(fd);
}

START_TEST(requests_beyond_the_depth_wait_and_all_complete)
{
	for (size_t i = 0; i < 2; i++)
		write_then_read_back(&kinds[i]);
}
END_TEST

START_TEST(read_at_end_of_file_is_short_and_beyond_it_is_zero)
{
	for (size_t i = 0; i < 2; i++) {
		char buf[4096];
		struct mc_uring *u;
		int fd = temp_file();
		struct mc_uring_req r = {.kind = MC_URING_READ, .fd = fd, .len = 4096, .buf = buf};

		ck_assert_int_eq(pwrite(fd, "abcde", 5, 0), 5);
		ck_assert_int_eq(mc_uring_open(&kinds[i], &u), 0);
		ck_assert_int_eq(mc_uring_run(u, &r), 5);
		ck_assert_int_eq(memcmp(buf, "abcde", 5), 0);
		r.off = 8192;
		ck_assert_int_eq(mc_uring_run(u, &r), 0);
		mc_uring_close(u);
		close(fd);
	}
}
END_TEST

START_TEST(an_odd_tail_is_read_through_an_o_direct_descriptor)
{
	static char buf[8192] __attribute__((aligned(4096)));

	for (size_t i = 0; i < 2; i++) {
		struct mc_uring *u;
		int fd = temp_file();
		struct mc_uring_req r = {.kind = MC_URING_READ, .fd = fd, .len = 8192, .buf = buf};

		memset(buf, 7, sizeof(buf));
		ck_assert_int_eq(pwrite(fd, buf, 4196, 0), 4196);
		ck_assert_int_eq(fsync(fd), 0);
		if (fcntl(fd, F_SETFL, O_DIRECT) != 0) {
			close(fd);
			continue;
		}
		memset(buf, 0, sizeof(buf));
		ck_assert_int_eq(mc_uring_open(&kinds[i], &u), 0);
		ck_assert_int_eq(mc_uring_run(u, &r), 4196);
		ck_assert_int_eq(buf[4195], 7);
		r.need = 4196;
		ck_assert_int_eq(mc_uring_run(u, &r), 4196);
		mc_uring_close(u);
		close(fd);
	}
}
END_TEST

START_TEST(errors_arrive_through_done)
{
	for (size_t i = 0; i < 2; i++) {
		char buf[512];
		struct mc_uring *u;
		int fd = open("/var/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		struct mc_uring_req r = {.kind = MC_URING_READ, .fd = fd, .len = 512, .buf = buf};
		struct mc_uring_req w = {.kind = MC_URING_WRITE, .fd = -1, .len = 512, .buf = buf};
		struct mc_uring_req s = {.kind = MC_URING_DATASYNC, .fd = -1};

		ck_assert_int_eq(mc_uring_open(&kinds[i], &u), 0);
		ck_assert_int_eq(mc_uring_run(u, &r), -EISDIR);
		ck_assert_int_eq(mc_uring_run(u, &w), -EBADF);
		ck_assert_int_eq(mc_uring_run(u, &s), -EBADF);
		mc_uring_close(u);
		close(fd);
	}
}
END_TEST

/* A table whose transfers move at most 1000 bytes a call and are interrupted every third time. */
static unsigned calls;

static int64_t slow_pread(const struct mc_io *io, int fd, void *buf, size_t len, uint64_t off)
{
	(void)io;
	if (__atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED) % 3 == 0)
		return -EINTR;
	return mc_io_real()->pread(mc_io_real(), fd, buf, len < 1000 ? len : 1000, off);
}

static int64_t slow_pwrite(
	const struct mc_io *io, int fd, const void *buf, size_t len, uint64_t off)
{
	(void)io;
	return mc_io_real()->pwrite(mc_io_real(), fd, buf, len < 1000 ? len : 1000, off);
}

START_TEST(short_transfers_are_continued)
{
	static char out[10000], in[10000];
	struct mc_io io = *mc_io_real();
	struct mc_uring_opts o = {.io = &io};
	struct mc_uring *u;
	int fd = temp_file();
	struct mc_uring_req w = {.kind = MC_URING_WRITE, .fd = fd, .len = sizeof(out), .buf = out};
	struct mc_uring_req r = {.kind = MC_URING_READ, .fd = fd, .len = sizeof(in), .buf = in};
	struct mc_uring_req s = {.kind = MC_URING_DATASYNC, .fd = fd};

	io.pread = slow_pread;
	io.pwrite = slow_pwrite;
	for (size_t i = 0; i < sizeof(out); i++)
		out[i] = (char)(i * 7);
	ck_assert_int_eq(mc_uring_open(&o, &u), 0);
	ck_assert(!mc_uring_native(u));
	ck_assert_int_eq(mc_uring_run(u, &w), sizeof(out));
	ck_assert_int_eq(mc_uring_run(u, &s), 0);
	ck_assert_int_eq(mc_uring_run(u, &r), sizeof(in));
	ck_assert_int_eq(memcmp(out, in, sizeof(in)), 0);
	mc_uring_close(u);
	close(fd);
}
END_TEST

/* Pieces of these lengths, in memory in another order than in the file. */
static void gather_and_read_back(const struct mc_uring_opts *o)
{
	static const unsigned len[] = {4096, 1, 7000, 999, 12288};
	enum { N = sizeof(len) / sizeof(*len), ALL = 24384 };
	static char in[ALL], out[N][12288];
	struct mc_uring *u;
	int fd = temp_file();
	struct iovec iov[N];
	struct mc_uring_req w = {
		.kind = MC_URING_GATHER, .fd = fd, .off = 100, .len = ALL, .iov = iov, .n_iov = N};
	struct mc_uring_req r = {
		.kind = MC_URING_READ, .fd = fd, .off = 100, .len = ALL, .buf = in};
	unsigned at = 0;

	for (unsigned i = 0; i < N; i++) {
		memset(out[N - 1 - i], (int)i + 1, len[i]);
		iov[i] = (struct iovec){out[N - 1 - i], len[i]};
	}
	ck_assert_int_eq(mc_uring_open(o, &u), 0);
	ck_assert_int_eq(mc_uring_run(u, &w), ALL);
	ck_assert_int_eq(mc_uring_run(u, &r), ALL);
	for (unsigned i = 0; i < N; at += len[i++])
		ck_assert_int_eq(memcmp(in + at, out[N - 1 - i], len[i]), 0);
	ck_assert_uint_eq(at, ALL);
	mc_uring_close(u);
	close(fd);
}

START_TEST(pieces_of_memory_are_written_one_behind_the_other)
{
	struct mc_io io = *mc_io_real();
	const struct mc_uring_opts slow = {.io = &io};

	io.pwrite = slow_pwrite;
	for (size_t i = 0; i < 2; i++)
		gather_and_read_back(&kinds[i]);
	gather_and_read_back(&slow);
}
END_TEST

/* Each completion submits the next one, from many threads' submissions, until close. */
struct chain {
	struct mc_uring_req req;
	struct mc_uring *u;
	char buf[512];
	unsigned left;
	int64_t last;
};

static void chain_done(struct mc_uring_req *r, int64_t res)
{
	struct chain *c = r->ctx;

	c->last = res;
	if (c->left-- > 0)
		mc_uring_submit(c->u, r);
}

static void *chain_start(void *arg)
{
	struct chain *c = arg;

	mc_uring_submit(c->u, &c->req);
	return NULL;
}

START_TEST(close_waits_for_what_callbacks_submit_and_submitters_may_exit)
{
	for (size_t i = 0; i < 2; i++) {
		struct chain chains[8] = {0};
		pthread_t t[8];
		struct mc_uring *u;
		int fd = temp_file();

		ck_assert_int_eq(ftruncate(fd, 512), 0);
		ck_assert_int_eq(mc_uring_open(&kinds[i], &u), 0);
		for (unsigned k = 0; k < 8; k++) {
			struct chain *c = &chains[k];

			c->u = u;
			c->left = 100;
			c->req = (struct mc_uring_req){.kind = MC_URING_READ,
				.fd = fd,
				.len = 512,
				.buf = c->buf,
				.done = chain_done,
				.ctx = c};
			ck_assert_int_eq(pthread_create(&t[k], NULL, chain_start, c), 0);
		}
		for (unsigned k = 0; k < 8; k++)
			pthread_join(t[k], NULL);
		mc_uring_close(u);
		for (unsigned k = 0; k < 8; k++) {
			ck_assert_int_eq(chains[k].last, 512);
			ck_assert_uint_eq(chains[k].left, UINT32_MAX);
		}
		close(fd);
	}
}
END_TEST

SUITE_MAIN("uring", requests_beyond_the_depth_wait_and_all_complete,
	read_at_end_of_file_is_short_and_beyond_it_is_zero,
	an_odd_tail_is_read_through_an_o_direct_descriptor, errors_arrive_through_done,
	short_transfers_are_continued, pieces_of_memory_are_written_one_behind_the_other,
	close_waits_for_what_callbacks_submit_and_submitters_may_exit)
