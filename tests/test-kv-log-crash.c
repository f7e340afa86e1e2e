/*
 * Crash exploration of the KV log: all sequences of at most three operations on two keys, from an
 * empty log and from one that holds both, with the power going at every changing call of the last
 * operation; then the log recovers and is held against a model of what was acknowledged.
 *
 * I1 an object that is there has its bytes. I2 what was acknowledged durable is there. I3 what was
 * removed, replaced or renamed away is not. I4 live and used equal what is there and what the files
 * take. A rename is seen whole or not at all: the model allows pairs, not keys.
 *
 * A crash during an earlier step is a shorter sequence's; one whose last step does nothing is not
 * extended. Of the sequences of two every fourth is explored, of those of three every 64th, with
 * MC_LONG=1 all of them (tests/crash-explore.sh); MC_SEED=n chooses others, and other pieces of
 * unsynced writes. The sanitizer builds, ten times slower, explore every 16th sequence of two.
 */
#include "tests/kv-log-crash-model.h"
#include "tests/seed.h"
#include "tests/suite.h"
#include "tier/block-super.h"

#define LENGTH_MAX 3

static uint64_t disk_bytes(const char *path)
{
	uint64_t bytes = 0;
	DIR *d = opendir(path);
	struct dirent *e;

	if (d == NULL)
		return 0;
	while ((e = readdir(d)) != NULL) {
		char sub[4096];
		struct stat st;

		if (e->d_name[0] == '.')
			continue;
		snprintf(sub, sizeof(sub), "%s/%s", path, e->d_name);
		ck_assert_int_eq(stat(sub, &st), 0);
		bytes += S_ISDIR(st.st_mode) ? disk_bytes(sub) : (uint64_t)st.st_size;
	}
	closedir(d);
	return bytes;
}

static void check_state(struct crash_log *r, const char *where)
{
	unsigned a = crash_log_told(r, 0), b = crash_log_told(r, 1);
	char segments[4096];
	uint64_t live = 0;

	ck_assert_msg(r->m.allowed[a][b], "%s: a holds %u, b holds %u", where, a, b);
	for (unsigned k = 0; k < 2; k++) {
		unsigned content = crash_log_told(r, k);
		int res = content != 0 ? kv_check(r->log, &r->owner, crash_keys[k], content) : 0;

		ck_assert_msg(res == 0, "%s: %s reads %d", where, crash_keys[k], res);
		live += content != 0 ? crash_space(content) : 0;
	}
	snprintf(segments, sizeof(segments), "%s/segments", r->dir);
	ck_assert_msg(kv_stats(r->log).live == live, "%s: live %llu, not %llu (a %u, b %u)", where,
		(unsigned long long)kv_stats(r->log).live, (unsigned long long)live, a, b);
	ck_assert_msg(
		(r->device != NULL && !r->below) || kv_stats(r->log).used == disk_bytes(segments),
		"%s: used", where);
	ck_assert_uint_le(kv_stats(r->log).used, CRASH_CAPACITY);
}

/* The log works: a put, a restart, everything as before. */
static void check_usable(struct crash_log *r, const char *where)
{
	unsigned a = crash_log_told(r, 0), b = crash_log_told(r, 1);

	ck_assert_msg(kv_put(r->log, &r->owner, "c", 7, 3000) == 0, "%s: put", where);
	ck_assert_msg(kv_check(r->log, &r->owner, "c", 7) == 0, "%s: read", where);
	crash_log_close(r);
	ck_assert_msg(crash_log_open(r) == 0, "%s: second start", where);
	ck_assert_msg(
		crash_log_told(r, 0) == a && crash_log_told(r, 1) == b, "%s: second start", where);
	ck_assert_msg(kv_check(r->log, &r->owner, "c", 7) == 0, "%s: second start", where);
}

/* The owner keeps a and gives up b. */
static bool keep_a(const char *key)
{
	return key[0] == 'a';
}

enum place { DIRECTORY, DEVICE, DEVICE_BELOW };
static const char *const place_names[] = {"directory", "device", "directory over a device"};

struct sequence {
	enum crash_step steps[LENGTH_MAX];
	unsigned n;
	bool full; /* starts with both keys, in a sealed segment */
	enum place place;
};

static void describe(const struct sequence *s, char *ret, size_t cap, unsigned seed, uint64_t at)
{
	size_t len = (size_t)snprintf(ret, cap, "MC_SEED=%u call %u of %s %s", seed, (unsigned)at,
		s->full ? "full" : "empty", place_names[s->place]);

	for (unsigned i = 0; i < s->n; i++)
		len += (size_t)snprintf(
			ret + len, cap - len, ", %s", crash_step_names[s->steps[i]]);
}

/* A file, through the same faults. */
static void make_device(struct crash_log *r)
{
	const struct mc_block_format f = {.io = io_fault_table(r->fault),
		.bytes = 3 * MIB,
		.segment_bytes = CRASH_SEGMENT,
		.path = r->device};
	struct mc_err err = {0};

	ck_assert_msg(mc_block_format(&f, &err) == 0, "%s", err.text);
	ck_assert_int_eq(mc_io_sync_dir(f.io, r->dir), 0);
}

static void prepare(struct crash_log *r, const struct sequence *s)
{
	r->m = (struct crash_model){.next = 1};
	crash_model_allow_only(&r->m);
	if (crash_log_open(r) != 0)
		r->failed = true;
	if (!s->full)
		return;
	crash_log_step(r, PUT_A);
	crash_log_step(r, PUT_B);
	crash_log_step(r, SEAL);
}

static unsigned first_seed(void)
{
	return env_number("MC_SEED", 1);
}

static void play(struct crash_log *r, const struct sequence *s)
{
	for (unsigned i = 0; i < s->n; i++) {
		struct crash_model old = r->m;

		r->before = io_fault_calls(r->fault);
		crash_log_step(r, s->steps[i]);
		r->idle = memcmp(&old, &r->m, sizeof(old)) == 0;
	}
}

/*
 * Runs the sequence with a fault at the at-th call, 0 = none. Returns the calls in all;
 * *ret_before: those before the last step; *ret_idle: it did nothing.
 */
static uint64_t explore(const struct sequence *s, enum io_fault_kind kind, uint64_t at,
	uint64_t *ret_before, bool *ret_idle)
{
	unsigned seed = first_seed();
	struct crash_log r = {
		.dir = tier_dir_make("/dev/shm"), .owner = {.keep = keep_a, .blind = true}};
	char where[256];
	uint64_t calls;

	describe(s, where, sizeof(where), seed, at);
	r.fault = io_fault_open(r.dir);
	if (s->place != DIRECTORY) {
		r.below = s->place == DEVICE_BELOW;
		ck_assert_int_gt(asprintf(&r.device, "%s/device", r.dir), 0);
		make_device(&r);
	}
	io_fault_arm(r.fault, at != 0 ? kind : IO_FAULT_NONE, at, seed + (unsigned)at);
	prepare(&r, s);
	play(&r, s);
	calls = io_fault_calls(r.fault);
	*ret_before = r.before;
	*ret_idle = r.idle && calls == r.before;
	/* The power goes before close can do anything. */
	if (at == 0 || calls < at || kind == IO_FAULT_FAIL)
		io_fault_arm(r.fault, IO_FAULT_CRASH, 1, seed);
	crash_log_close(&r);
	io_fault_restart(r.fault);
	ck_assert_msg(crash_log_open(&r) == 0, "%s: no recovery", where);
	check_state(&r, where);
	check_usable(&r, where);
	crash_log_close(&r);
	io_fault_close(r.fault);
	tier_dir_remove(r.dir);
	free(r.device);
	return calls;
}

struct counts {
	unsigned sequences, states;
};

/* False: its last step did nothing, so that what follows it is another sequence's business. */
static bool explore_sequence(
	const struct sequence *s, enum io_fault_kind kind, struct counts *counts)
{
	uint64_t before = 0, ignored, calls;
	bool idle, also_ignored;

	calls = explore(s, kind, 0, &before, &idle);
	counts->sequences++;
	counts->states++;
	if (idle)
		return false;
	/* One more: what the committer does after the last step has been answered. */
	for (uint64_t at = before + 1; at <= calls + 1; at++) {
		explore(s, kind, at, &ignored, &also_ignored);
		counts->states++;
	}
	return true;
}

/* One sequence of two in four (a sanitizer build: in sixteen), and of its continuations one in
 * sixteen, by its steps and the seed. */
static bool chosen(const struct sequence *s)
{
	unsigned h = first_seed();

	if (getenv("MC_LONG") != NULL || s->n < 2)
		return true;
	for (unsigned i = 0; i < s->n; i++)
		h = (h ^ (unsigned)s->steps[i]) * 16777619u;
	return (h >> 16) % (s->n == 2 && !SUITE_SLOW ? 4 : 16) == 0;
}

static void extend(struct sequence *s, unsigned max, enum io_fault_kind kind, struct counts *counts)
{
	if (!chosen(s))
		return;
	if (s->n > 0 && !explore_sequence(s, kind, counts))
		return;
	if (s->n == max)
		return;
	for (unsigned step = 0; step < STEPS; step++) {
		s->steps[s->n++] = step;
		extend(s, max, kind, counts);
		s->n--;
	}
}

static void explore_all(enum io_fault_kind kind, unsigned max, enum place place)
{
	struct counts counts = {0};
	struct sequence s = {.place = place};
	uint64_t start = mc_now_ns();

	for (int full = 0; full < 2; full++) {
		s.full = full;
		extend(&s, max, kind, &counts);
	}
	printf("kind %d: %u sequences, %u states in %.1f s, MC_SEED=%u\n", kind, counts.sequences,
		counts.states, (double)(mc_now_ns() - start) / 1e9, first_seed());
}

START_TEST(recovers_from_a_crash_at_every_call_of_every_sequence)
{
	explore_all(IO_FAULT_TEAR, SUITE_SLOW ? 2 : 3, DIRECTORY);
}
END_TEST

START_TEST(recovers_after_one_failure_at_every_call)
{
	explore_all(IO_FAULT_FAIL, SUITE_SLOW ? 1 : 2, DIRECTORY);
}
END_TEST

START_TEST(a_device_recovers_from_a_crash_at_every_call_of_every_sequence)
{
	explore_all(IO_FAULT_TEAR, getenv("MC_LONG") != NULL ? 3 : SUITE_SLOW ? 1 : 2, DEVICE);
}
END_TEST

START_TEST(a_device_recovers_after_one_failure_at_every_call)
{
	explore_all(IO_FAULT_FAIL, SUITE_SLOW || getenv("MC_LONG") == NULL ? 1 : 2, DEVICE);
}
END_TEST

START_TEST(a_device_below_recovers_from_a_crash_at_every_call_of_every_sequence)
{
	explore_all(IO_FAULT_TEAR,
		getenv("MC_LONG") != NULL ? 3
			: SUITE_SLOW      ? 1
					  : 2,
		DEVICE_BELOW);
}
END_TEST

START_TEST(a_device_below_recovers_after_one_failure_at_every_call)
{
	explore_all(IO_FAULT_FAIL, SUITE_SLOW || getenv("MC_LONG") == NULL ? 1 : 2, DEVICE_BELOW);
}
END_TEST

/* False: the first start has not so many calls. */
static bool crash_the_binding(uint64_t at)
{
	struct crash_log r = {.dir = tier_dir_make("/dev/shm"), .below = true};
	char where[32];
	uint64_t calls;
	int res;

	snprintf(where, sizeof(where), "call %u", (unsigned)at);
	r.fault = io_fault_open(r.dir);
	ck_assert_int_gt(asprintf(&r.device, "%s/device", r.dir), 0);
	make_device(&r);
	io_fault_arm(r.fault, IO_FAULT_TEAR, at, first_seed() + (unsigned)at);
	res = crash_log_open(&r);
	calls = io_fault_calls(r.fault);
	if (res == 0)
		crash_log_close(&r);
	io_fault_restart(r.fault);
	ck_assert_msg(crash_log_open(&r) == 0, "%s: no second start", where);
	check_usable(&r, where);
	crash_log_close(&r);
	io_fault_close(r.fault);
	tier_dir_remove(r.dir);
	free(r.device);
	return calls >= at;
}

START_TEST(a_crash_while_a_device_is_bound_to_a_directory_leaves_both_usable)
{
	uint64_t at = 1;

	while (crash_the_binding(at))
		at++;
	ck_assert_uint_gt(at, 10);
}
END_TEST

SUITE_MAIN("kv-log-crash", recovers_from_a_crash_at_every_call_of_every_sequence,
	recovers_after_one_failure_at_every_call,
	a_device_recovers_from_a_crash_at_every_call_of_every_sequence,
	a_device_recovers_after_one_failure_at_every_call,
	a_device_below_recovers_from_a_crash_at_every_call_of_every_sequence,
	a_device_below_recovers_after_one_failure_at_every_call,
	a_crash_while_a_device_is_bound_to_a_directory_leaves_both_usable)
