/*
 * NFS under trouble: connections cut in the middle of answers, servers that die, hang or come back.
 * What a busy machine does to the clock decides nothing: calls have deadlines of minutes where they
 * have to succeed, and what has to be given up is seen by its result.
 */
#include "tests/lib/proxy.h"
#include "tests/nfs-fixture.h"
#include "tests/seed.h"
#include "tests/suite.h"
#include "tier/lock.h"
#include "tier/remote.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB (1u << 20)
#define READS 8

static const struct mc_remote_opts patient = {.deadline_ms = 120000};

static struct proxy *proxy;

/* Every poll of this program: the threads of connections sleep in it. */
static _Atomic unsigned polls;

int poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	struct timespec t = {
		.tv_sec = timeout_ms / 1000, .tv_nsec = (long)(timeout_ms % 1000) * 1000000};

	polls++;
	return ppoll(fds, n, timeout_ms < 0 ? NULL : &t, NULL);
}

static uint8_t byte_at(uint64_t off)
{
	return (uint8_t)((off * UINT64_C(0x9e3779b97f4a7c15)) >> 40 ^ off >> 12);
}

/* A busy machine may pass the deadline of opts. */
static struct mc_remote *open_url(const char *url, const struct mc_remote_opts *opts)
{
	struct mc_err err = {0};
	struct mc_remote *r = NULL;
	int res;

	do
		res = mc_remote_open(url, opts, &r, &err);
	while (res == -ETIMEDOUT);
	ck_assert_msg(res == 0, "%s", err.text);
	return r;
}

static struct mc_remote *open_proxied(const struct mc_remote_opts *opts)
{
	char url[200];

	if (proxy == NULL)
		ck_assert_int_eq(proxy_open((uint16_t)nfs_fixture_port(), &proxy), 0);
	snprintf(url, sizeof(url), "nfs://127.0.0.1/export?nfsport=%u&mountport=%d",
		proxy_port(proxy), nfs_fixture_mount_port());
	return open_url(url, opts);
}

static struct mc_remote *open_direct(const struct mc_remote_opts *opts)
{
	return open_url(nfs_fixture_url(), opts);
}

struct crowd {
	struct mc_mutex lock;
	struct mc_cond cond;
	struct mc_remote_read reqs[64];
	int res[64];
	unsigned started, ended;
	uint8_t *buf; /* 1 MiB each */
};

static void crowd_done(struct mc_remote_read *req, int res)
{
	struct crowd *c = req->ctx;

	mc_mutex_lock(&c->lock);
	c->res[req - c->reqs] = res;
	c->ended++;
	mc_cond_signal(&c->cond);
	mc_mutex_unlock(&c->lock);
}

static void crowd_start(struct crowd *c, struct mc_remote *r, unsigned n, const char *path)
{
	*c = (struct crowd){.lock = MC_MUTEX_INIT, .started = n};
	mc_cond_init(&c->cond);
	c->buf = calloc(n, MIB);
	ck_assert_ptr_nonnull(c->buf);
	for (unsigned i = 0; i < n; i++) {
		c->reqs[i] = (struct mc_remote_read){.path = path,
			.off = (uint64_t)(i % READS) * MIB,
			.len = MIB,
			.buf = c->buf + (size_t)i * MIB,
			.done = crowd_done,
			.ctx = c};
		mc_remote_read(r, &c->reqs[i]);
	}
}

static unsigned crowd_ended(struct crowd *c)
{
	unsigned n;

	mc_mutex_lock(&c->lock);
	n = c->ended;
	mc_mutex_unlock(&c->lock);
	return n;
}

static void crowd_wait(struct crowd *c)
{
	mc_mutex_lock(&c->lock);
	while (c->ended < c->started)
		mc_cond_wait(&c->cond, &c->lock);
	mc_mutex_unlock(&c->lock);
}

/* Waits for all, expects each to end with want, and checks the bytes of what succeeded. */
static void crowd_expect(struct crowd *c, int want)
{
	crowd_wait(c);
	for (unsigned i = 0; i < c->started; i++) {
		ck_assert_int_eq(c->res[i], want);
		for (size_t k = 0; want == 0 && k < MIB; k++)
			if (c->buf[(size_t)i * MIB + k] != byte_at(c->reqs[i].off + k))
				ck_abort_msg("read %u, byte %zu is wrong", i, k);
	}
	free(c->buf);
}

/* Reads path through r until no read is given up for its deadline any more. */
static void read_until_right(struct mc_remote *r, const char *path)
{
	struct crowd c;

	for (;;) {
		bool late = false;

		crowd_start(&c, r, READS, path);
		crowd_wait(&c);
		for (unsigned i = 0; i < c.started; i++)
			late = late || c.res[i] == -ETIMEDOUT;
		if (!late)
			break;
		free(c.buf);
	}
	crowd_expect(&c, 0);
}

static void put_file(struct mc_remote *r, const char *path)
{
	uint8_t *b = malloc(READS * MIB);

	ck_assert_ptr_nonnull(b);
	for (size_t i = 0; i < READS * MIB; i++)
		b[i] = byte_at(i);
	ck_assert_int_eq(mc_remote_put(r, path, b, READS * MIB, 0, NULL), 0);
	free(b);
}

START_TEST(reads_are_right_when_answers_are_cut_in_the_middle)
{
	unsigned seed = seed_choose();
	struct mc_remote *r = open_proxied(&patient);
	struct mc_remote_stats st;
	struct crowd c;

	put_file(r, "cut");
	for (int round = 0; round < 20; round++) {
		proxy_set(proxy, PROXY_CUT, (uint64_t)rand_r(&seed) % (READS * MIB));
		crowd_start(&c, r, READS, "cut");
		crowd_expect(&c, 0);
	}
	mc_remote_stats(r, &st);
	ck_assert_uint_ge(st.reconnects, 20);
	ck_assert_uint_eq(st.errors, 0);
	mc_remote_close(r);
}
END_TEST

START_TEST(puts_and_removes_survive_lost_answers)
{
	unsigned seed = seed_choose();
	struct mc_remote *r = open_proxied(&patient);
	struct mc_remote_attr attr;

	for (int round = 0; round < 40; round++) {
		char path[50], text[50];
		void *got;
		size_t len;

		/* An answer is some 100 to 250 bytes long: the cut hits any of the calls below. */
		proxy_set(proxy, PROXY_CUT, (uint64_t)rand_r(&seed) % 2500);
		snprintf(path, sizeof(path), "lost/d%d/f%d", round / 3, round);
		snprintf(text, sizeof(text), "content of %d", round);
		ck_assert_int_eq(mc_remote_put(r, path, text, strlen(text),
					 round % 2 ? MC_PUT_EXCL : 0, NULL),
			0);
		ck_assert_int_eq(mc_remote_get(r, path, 100, &got, &len, NULL), 0);
		ck_assert_uint_eq(len, strlen(text));
		ck_assert_mem_eq(got, text, len);
		free(got);
		ck_assert_int_eq(mc_remote_touch(r, path, NULL), 0);
		ck_assert_int_eq(mc_remote_sync(r, NULL), 0);
		if (round % 4 == 0) {
			ck_assert_int_eq(mc_remote_unlink(r, path, NULL), 0);
			ck_assert_int_eq(mc_remote_stat(r, path, &attr, NULL), -ENOENT);
		}
	}
	mc_remote_close(r);
}
END_TEST

START_TEST(a_hung_server_is_etimedout_by_the_deadline_and_then_works_again)
{
	static const struct mc_remote_opts opts = {.deadline_ms = 700, .inactivity_ms = 200};
	struct mc_remote *r = open_proxied(&opts), *direct = open_direct(&patient);
	struct mc_remote_attr attr;
	struct mc_err err = {0};
	struct crowd c;
	uint64_t begin;

	put_file(direct, "hung");
	for (int round = 0; round < 2; round++) {
		read_until_right(r, "hung");
		proxy_set(proxy, PROXY_HANG, 0);
		begin = mc_now_ns();
		crowd_start(&c, r, 64, "hung");
		ck_assert_int_eq(mc_remote_stat(r, "hung", &attr, &err), -ETIMEDOUT);
		ck_assert_ptr_nonnull(strstr(err.text, "hung"));
		ck_assert_int_eq(mc_remote_put(r, "hung2", "x", 1, 0, NULL), -ETIMEDOUT);
		crowd_expect(&c, -ETIMEDOUT);
		/* By this deadline, not by the default one of 30 s. */
		ck_assert_uint_lt(mc_now_ns() - begin, UINT64_C(25000000000));
		proxy_set(proxy, PROXY_PASS, 0);
	}
	read_until_right(r, "hung");
	mc_remote_close(direct);
	mc_remote_close(r);
}
END_TEST

START_TEST(a_server_that_was_killed_and_came_back_answers_what_waited)
{
	struct mc_remote *r = open_direct(&patient);
	struct mc_remote_attr attr;
	struct mc_remote_stats st;
	struct crowd c;

	put_file(r, "killed");
	ck_assert_int_eq(nfs_fixture_order("kill"), 0);
	crowd_start(&c, r, READS, "killed");
	ck_assert_int_eq(nfs_fixture_order("restart"), 0);
	crowd_expect(&c, 0);
	ck_assert_int_eq(mc_remote_stat(r, "killed", &attr, NULL), 0);
	ck_assert_uint_eq(attr.size, READS * MIB);
	mc_remote_stats(r, &st);
	ck_assert_int_eq(st.connected, true);
	mc_remote_close(r);
}
END_TEST

static void *put_loop(void *arg)
{
	uint8_t *b = malloc(READS * MIB);
	intptr_t bad = b == NULL;

	for (int i = 0; i < 6 && !bad; i++) {
		char path[20];
		void *got = NULL;
		size_t len;

		memset(b, 'a' + i, READS * MIB);
		snprintf(path, sizeof(path), "during%d", i);
		bad = mc_remote_put(arg, path, b, READS * MIB, 0, NULL) != 0 ||
			mc_remote_sync(arg, NULL) != 0 ||
			mc_remote_get(arg, path, READS * MIB, &got, &len, NULL) != 0 ||
			len != READS * MIB || memcmp(got, b, len) != 0;
		free(got);
	}
	free(b);
	return (void *)bad;
}

START_TEST(puts_during_a_restart_of_the_server_are_whole)
{
	struct mc_remote *r = open_direct(&patient);
	pthread_t t;
	void *bad;

	ck_assert_int_eq(pthread_create(&t, NULL, put_loop, r), 0);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(nfs_fixture_order("kill"), 0);
		ck_assert_int_eq(nfs_fixture_order("restart"), 0);
	}
	pthread_join(t, &bad);
	ck_assert_ptr_null(bad);
	mc_remote_close(r);
}
END_TEST

START_TEST(a_dead_server_is_asked_and_waited_for_a_few_times_a_second)
{
	static const struct mc_remote_opts opts = {.deadline_ms = 2000};
	struct mc_remote *r = open_direct(&patient), *hasty;
	struct mc_remote_stats st;
	struct crowd c;
	uint64_t begin, seconds;
	unsigned before;

	put_file(r, "dead");
	mc_remote_close(r);
	hasty = open_direct(&opts);
	ck_assert_int_eq(nfs_fixture_order("kill"), 0);
	begin = mc_now_ns();
	before = polls;
	crowd_start(&c, hasty, 32, "dead");
	crowd_expect(&c, -ETIMEDOUT);
	before = polls - before;
	seconds = (mc_now_ns() - begin) / 1000000000;
	printf("%u polls in %llu s\n", before, (unsigned long long)seconds);
	/* A thread that does not sleep polls ten thousands of times a second. */
	ck_assert_uint_le(before, 200 * (seconds + 1));
	mc_remote_stats(hasty, &st);
	ck_assert_int_eq(st.connected, false);
	mc_remote_close(hasty);
}
END_TEST

START_TEST(close_does_not_wait_for_a_hung_server)
{
	struct mc_remote *r = open_proxied(&patient);
	struct crowd c;

	put_file(r, "close");
	proxy_set(proxy, PROXY_HANG, 0);
	crowd_start(&c, r, 64, "close");
	mc_remote_close(r);
	ck_assert_uint_eq(crowd_ended(&c), 64);
	crowd_expect(&c, -ESHUTDOWN); /* who waits for the server ends with -ETIMEDOUT */
}
END_TEST

START_TEST(metadata_does_not_queue_behind_bulk_reads)
{
	struct mc_remote *r = open_proxied(&patient);
	struct mc_remote_attr attr;
	struct crowd c;

	put_file(r, "bulk");
	proxy_set(proxy, PROXY_RATE, 4 * MIB); /* the reads need 16 s */
	crowd_start(&c, r, 64, "bulk");
	ck_assert_int_eq(mc_remote_stat(r, "bulk", &attr, NULL), 0);
	ck_assert_uint_le(crowd_ended(&c), 48);
	proxy_set(proxy, PROXY_PASS, 0);
	crowd_expect(&c, 0);
	mc_remote_close(r);
}
END_TEST

/* A machine that stops the proxy for 300 ms makes the connection silent: then it is tried again. */
START_TEST(a_slow_connection_is_not_taken_for_a_dead_one)
{
	static const struct mc_remote_opts opts = {.deadline_ms = 120000, .inactivity_ms = 300};
	struct mc_remote *r = open_proxied(&opts);
	struct mc_remote_stats before, after;
	struct crowd c;
	int tries = 0;

	put_file(r, "slow");
	do {
		ck_assert_int_lt(tries++, 10);
		proxy_set(proxy, PROXY_PASS, 0);
		crowd_start(&c, r, 1, "slow");
		crowd_expect(&c, 0);
		mc_remote_stats(r, &before);
		proxy_set(proxy, PROXY_RATE, MIB / 2); /* 1 MiB takes 2 s */
		crowd_start(&c, r, 1, "slow");
		crowd_expect(&c, 0);
		mc_remote_stats(r, &after);
	} while (after.reconnects != before.reconnects);
	mc_remote_close(r);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		reads_are_right_when_answers_are_cut_in_the_middle,
		puts_and_removes_survive_lost_answers,
		a_hung_server_is_etimedout_by_the_deadline_and_then_works_again,
		a_server_that_was_killed_and_came_back_answers_what_waited,
		puts_during_a_restart_of_the_server_are_whole,
		a_dead_server_is_asked_and_waited_for_a_few_times_a_second,
		close_does_not_wait_for_a_hung_server,
		metadata_does_not_queue_behind_bulk_reads,
		a_slow_connection_is_not_taken_for_a_dead_one,
	};
	int res;

	if (!nfs_fixture_start())
		return 77;
	res = suite_run_after(
		nfs_fixture_revive, "remote under trouble", tests, sizeof(tests) / sizeof(*tests));
	nfs_fixture_end();
	return res;
}
