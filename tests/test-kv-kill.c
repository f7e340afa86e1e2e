/*
 * A process killed in the middle of its work, again and again: what was acknowledged as durable is
 * there afterwards, what was removed or replaced is not, with DRAM and without.
 *
 * MC_SEED and KV_ROUNDS set it; the seed is printed.
 */
#include "tests/kv-fixture.h"
#include "tests/seed.h"
#include "tests/suite.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEYS 6
#define MIB (1u << 20)

struct state {
	uint32_t seed; /* 0 = absent */
	uint32_t size;
};

/* What the child is about to do, or has done. */
struct report {
	uint32_t from, to; /* keys; equal but for a rename */
	struct state after_from, after_to;
	uint32_t publish; /* put under another name, and renamed at once */
	uint32_t ended;
};

static uint64_t next(uint64_t *rng)
{
	*rng ^= *rng << 13;
	*rng ^= *rng >> 7;
	*rng ^= *rng << 17;
	return *rng;
}

static void key_name(unsigned k, char out[16])
{
	snprintf(out, 16, "k%u", k);
}

static struct report choose(uint64_t *rng, const struct state *s, uint32_t seed)
{
	struct report r = {.from = (uint32_t)(next(rng) % KEYS)};
	unsigned op = (unsigned)(next(rng) % 10);

	r.to = r.from;
	if (s[r.from].seed != 0 && op < 2) {
		return r; /* removed: absent afterwards */
	}
	if (s[r.from].seed != 0 && op < 5) {
		r.to = (r.from + 1 + (uint32_t)(next(rng) % (KEYS - 1))) % KEYS;
		r.after_to = s[r.from];
		return r;
	}
	r.after_from.seed = seed;
	r.after_from.size = (uint32_t)(next(rng) % (op == 9 ? 9 * MIB : op > 6 ? 300000 : 9000));
	r.after_to = r.after_from;
	r.publish = next(rng) % 3 == 0;
	return r;
}

static void do_it(struct mc_kv *kv, const struct report *r)
{
	char from[16], to[16];
	int res;

	key_name(r->from, from);
	key_name(r->to, to);
	if (r->from != r->to)
		res = mc_kv_rename(kv, from, to, 0);
	else if (r->after_from.seed == 0)
		res = mc_kv_unlink(kv, from);
	else
		res = kv_put_wait(
			kv, r->publish ? "tmp" : from, r->after_from.size, r->after_from.seed);
	if (res == 0 && r->publish)
		res = mc_kv_rename(kv, "tmp", from, 0);
	if (res == 0 && r->after_to.seed != 0)
		res = mc_kv_sync(kv, to);
	if (res != 0)
		_exit(2);
}

static void child(struct kv_fixture *x, int out, struct state *s, uint64_t rng, uint32_t seed)
{
	kv_fixture_start(x);
	for (;;) {
		struct report r = choose(&rng, s, ++seed);

		if (write(out, &r, sizeof(r)) != (ssize_t)sizeof(r))
			_exit(3);
		do_it(x->kv, &r);
		s[r.from] = r.after_from;
		s[r.to] = r.after_to;
		r.ended = 1;
		if (write(out, &r, sizeof(r)) != (ssize_t)sizeof(r))
			_exit(3);
	}
}

/* Lets the child live for so many reports; *ret_open: what it had begun and not ended. */
static void run_child(struct kv_fixture *x, struct state *s, uint64_t rng, uint32_t seed,
	unsigned reports, struct report *ret_open)
{
	struct report r;
	int p[2], status;
	pid_t pid;

	ck_assert_int_eq(pipe(p), 0);
	pid = fork();
	if (pid == 0) {
		close(p[0]);
		child(x, p[1], s, rng, seed);
	}
	close(p[1]);
	memset(ret_open, 0, sizeof(*ret_open));
	ret_open->ended = 1;
	for (unsigned i = 0; read(p[0], &r, sizeof(r)) == (ssize_t)sizeof(r); i++) {
		*ret_open = r;
		if (r.ended) {
			s[r.from] = r.after_from;
			s[r.to] = r.after_to;
		}
		if (i == reports)
			kill(pid, SIGKILL); /* the pipe still gives what was reported before */
	}
	close(p[0]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(WIFSIGNALED(status), true);
}

static bool holds(struct mc_kv *kv, unsigned k, struct state want)
{
	struct mc_kv_object *obj;
	struct mc_kv_attr a;
	char key[16];
	bool same;
	int r;

	key_name(k, key);
	r = kv_open_object(kv, key, &obj);
	if (r == -ENOENT)
		return want.seed == 0;
	ck_assert_msg(r == 0, "%s: %d", key, r);
	mc_kv_object_attr(obj, &a);
	same = a.size == want.size;
	if (same)
		ck_assert_int_eq(kv_check_object(obj, want.size, want.seed, &same), 0);
	mc_kv_object_put(obj);
	return same && want.seed != 0;
}

START_TEST(what_was_acknowledged_survives_every_kill)
{
	unsigned seed = seed_choose(), rounds = env_number("KV_ROUNDS", 12);
	uint64_t rng = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15);
	struct state s[KEYS] = {0};
	struct kv_fixture x;

	kv_fixture_paths(&x, 64 * MIB);
	x.opts.nvme_dir = x.nvme;
	x.opts.nvme_capacity = UINT64_C(512) << 20;
	for (unsigned round = 0; round < rounds; round++) {
		struct report open;

		run_child(&x, s, next(&rng), round << 16, (unsigned)(next(&rng) % 60), &open);
		if (next(&rng) % 2 == 0)
			kv_fixture_forget_dram(&x);
		kv_fixture_start(&x);
		for (unsigned k = 0; k < KEYS; k++) {
			struct state alt = s[k];

			if (!open.ended && k == open.from)
				alt = open.after_from;
			else if (!open.ended && k == open.to)
				alt = open.after_to;
			if (!holds(x.kv, k, s[k])) {
				ck_assert_msg(holds(x.kv, k, alt), "round %u key %u", round, k);
				s[k] = alt;
			}
		}
		ck_assert_int_ge(mc_kv_close(x.kv, 20000), 0);
		x.kv = NULL;
	}
	kv_fixture_close(&x);
}
END_TEST

SUITE_MAIN("kv-kill", what_was_acknowledged_survives_every_kill)
