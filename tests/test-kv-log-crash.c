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
 * unsynced writes. The sanitizer builds, ten times slower, explore sequences of two.
 */
#include "tests/io-fault.h"
#include "tests/kv-log-fixture.h"
#include "tests/suite.h"
#include "tier/block-super.h"

#define SEGMENT 65536u
#define CAPACITY (8 * SEGMENT)
#define LENGTH_MAX 3

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SLOW 1
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOW 1
#endif
#ifndef SLOW
#define SLOW 0
#endif

enum step {
	PUT_A,
	PUT_B,
	RENAME_AB,
	RENAME_BA,
	REMOVE_A,
	REMOVE_B,
	SYNC,
	EVICT_A,
	EVICT_B,
	SEAL,
	RECLAIM,
	RESTART,
	STEPS
};

static const char *const step_names[STEPS] = {"put a", "put b", "rename a b", "rename b a",
	"remove a", "remove b", "sync", "evict a", "evict b", "seal", "reclaim", "restart"};
static const char *const keys[2] = {"a", "b"};

/* 0: absent. Even contents lie in parts. */
static uint64_t size_of(unsigned content)
{
	return content % 2 != 0 ? 5000 + content : 20000 + content;
}

static uint64_t space_of(unsigned content)
{
	uint64_t size = size_of(content);

	return content % 2 != 0 ? (128 + size + 4 + 63) / 64 * 64 : (size + 4095) / 4096 * 4096;
}

/* What the keys may hold after a crash: allowed[a][b]. */
#define CONTENTS 8
struct model {
	unsigned held[2];    /* durable, and in the log's table */
	unsigned evicted[2]; /* by reclaim, perhaps not durably yet: may come back; 0 none */
	unsigned queued[2];  /* put and not yet synced; 0 none */
	unsigned next;       /* content of the next put */
	bool allowed[CONTENTS][CONTENTS];
};

static void allow(struct model *m)
{
	for (unsigned i = 0; i < 9; i++) {
		unsigned a[3] = {m->held[0], m->queued[0], m->evicted[0]};
		unsigned b[3] = {m->held[1], m->queued[1], m->evicted[1]};
		unsigned x = i % 3, y = i / 3;

		if ((x == 0 || a[x] != 0) && (y == 0 || b[y] != 0))
			m->allowed[a[x]][b[y]] = true;
	}
}

static void allow_only(struct model *m)
{
	memset(m->allowed, 0, sizeof(m->allowed));
	allow(m);
}

struct run {
	char *dir;
	char *device; /* NULL: the log lies in dir */
	struct io_fault *fault;
	struct kv_owner owner;
	struct mc_kv_log *log;
	struct model m;
	struct kv_put *puts[CONTENTS];
	unsigned n_puts;
	bool failed;
	uint64_t before; /* calls before the last step */
	bool idle;       /* the last step changed nothing in the model */
};

static int open_run(struct run *r)
{
	struct mc_kv_log_opts o = {.dir = r->dir,
		.device = r->device,
		.capacity = CAPACITY,
		.segment_bytes = SEGMENT,
		.journal_bytes = 12288, /* a snapshot every few commits */
		.io = io_fault_table(r->fault),
		.commit_ms = 1000000,
		.probe_ms = 1000000};
	int res = kv_try_open(&o, &r->owner, &r->log);

	if (res == 0)
		return 0;
	if (r->log != NULL)
		mc_kv_log_close(r->log);
	kv_forget(&r->owner);
	r->log = NULL;
	return res;
}

/* All items are done: nothing is queued. */
static void end_puts(struct run *r)
{
	for (unsigned i = 0; i < r->n_puts; i++) {
		ck_assert_int_ne(r->puts[i]->res, 1);
		kv_put_free(r->puts[i]);
	}
	r->n_puts = 0;
}

static void close_run(struct run *r)
{
	if (r->log == NULL)
		return;
	mc_kv_log_close(r->log);
	r->log = NULL;
	end_puts(r);
	kv_forget(&r->owner);
}

/* What a successful sync makes of the model. */
static void settle(struct model *m)
{
	for (unsigned k = 0; k < 2; k++) {
		if (m->queued[k] != 0)
			m->held[k] = m->queued[k];
		m->queued[k] = 0;
	}
}

static void do_put(struct run *r, unsigned k)
{
	struct kv_put *p = kv_put_make(NULL, keys[k], r->m.next, size_of(r->m.next));
	struct mc_kv_item *item = &p->item;

	r->m.queued[k] = r->m.next++;
	allow(&r->m);
	r->puts[r->n_puts++] = p;
	mc_kv_log_put(r->log, &item, 1);
}

static int do_sync(struct run *r)
{
	int res;

	settle(&r->m);
	allow(&r->m);
	res = mc_kv_log_sync(r->log);
	end_puts(r);
	return res;
}

/* Every call that waits for the journal makes evictions durable, too. */
static void forget_evicted(struct model *m)
{
	m->evicted[0] = m->evicted[1] = 0;
}

static int do_remove(struct run *r, unsigned k)
{
	r->m.held[k] = r->m.queued[k] = 0;
	allow(&r->m);
	forget_evicted(&r->m);
	return mc_kv_log_remove(r->log, keys[k], (uint8_t[16]){0}, NULL);
}

static int do_rename(struct run *r, unsigned k)
{
	struct model *m = &r->m;

	if (m->held[k] != 0)
		m->held[!k] = m->held[k];
	m->queued[!k] = m->queued[k];
	m->held[k] = m->queued[k] = 0;
	allow(m);
	forget_evicted(m);
	return mc_kv_log_rename(r->log, keys[k], keys[!k]);
}

static int do_evict(struct run *r, unsigned k)
{
	unsigned content = r->m.held[k];
	uint8_t version[16];
	int res;

	kv_version(content, version);
	if (content != 0)
		r->m.held[k] = 0;
	allow(&r->m);
	res = mc_kv_log_evict(r->log, keys[k], version, NULL);
	if (content == 0) {
		ck_assert_int_eq(res, -ENOENT);
		return 0;
	}
	forget_evicted(&r->m);
	return res;
}

/* The owner keeps a and gives up b. */
static bool keep_a(const char *key)
{
	return key[0] == 'a';
}

static int do_reclaim(struct run *r)
{
	int res;

	settle(&r->m);
	allow(&r->m);
	r->m.evicted[1] = r->m.held[1];
	r->m.held[1] = 0;
	allow(&r->m);
	r->m.held[1] = r->m.evicted[1];
	r->m.evicted[1] = 0;
	res = mc_kv_log_reclaim(r->log);
	end_puts(r);
	if (r->owner.evicted > 0) {
		r->m.evicted[1] = r->m.held[1];
		r->m.held[1] = 0;
		r->owner.evicted = 0;
	}
	return res == -ENOENT ? 0 : res;
}

/* What the log told its owner at the start. */
static unsigned told(struct run *r, unsigned k)
{
	const struct kv_known *known = kv_find_locked(&r->owner, keys[k]);
	unsigned content = 0;

	if (known == NULL)
		return 0;
	memcpy(&content, known->version, sizeof(content));
	ck_assert_uint_lt(content, CONTENTS);
	ck_assert_uint_eq(known->size, size_of(content));
	return content;
}

static int do_restart(struct run *r)
{
	int res;

	settle(&r->m);
	allow(&r->m);
	close_run(r);
	res = open_run(r);
	if (res != 0)
		return res;
	/* Faults may have left the older state: the model goes on with what is there. */
	ck_assert(r->m.allowed[told(r, 0)][told(r, 1)]);
	r->m.held[0] = told(r, 0);
	r->m.held[1] = told(r, 1);
	forget_evicted(&r->m);
	return 0;
}

static int do_step(struct run *r, enum step s)
{
	switch (s) {
	case PUT_A:
	case PUT_B:
		do_put(r, s - PUT_A);
		return 0;
	case RENAME_AB:
	case RENAME_BA:
		return do_rename(r, s - RENAME_AB);
	case REMOVE_A:
	case REMOVE_B:
		return do_remove(r, s - REMOVE_A);
	case SYNC:
		return do_sync(r);
	case EVICT_A:
	case EVICT_B:
		return do_evict(r, s - EVICT_A);
	case SEAL:
		settle(&r->m);
		allow(&r->m);
		return mc_kv_log_seal(r->log);
	case RECLAIM:
		return do_reclaim(r);
	case RESTART:
	case STEPS:
		break;
	}
	return do_restart(r);
}

static void play_step(struct run *r, enum step s)
{
	int res;

	if (r->failed)
		return;
	res = do_step(r, s);
	/* After a failure either state is right, and the sequence is over. */
	if (res != 0)
		r->failed = true;
	else
		allow_only(&r->m);
}

/* ---- checking */

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

static void check_state(struct run *r, const char *where)
{
	unsigned a = told(r, 0), b = told(r, 1);
	char segments[4096];
	uint64_t live = 0;

	ck_assert_msg(r->m.allowed[a][b], "%s: a holds %u, b holds %u", where, a, b);
	for (unsigned k = 0; k < 2; k++) {
		unsigned content = told(r, k);
		int res = content != 0 ? kv_check(r->log, &r->owner, keys[k], content) : 0;

		ck_assert_msg(res == 0, "%s: %s reads %d", where, keys[k], res);
		live += content != 0 ? space_of(content) : 0;
	}
	snprintf(segments, sizeof(segments), "%s/segments", r->dir);
	ck_assert_msg(kv_stats(r->log).live == live, "%s: live %llu, not %llu (a %u, b %u)", where,
		(unsigned long long)kv_stats(r->log).live, (unsigned long long)live, a, b);
	ck_assert_msg(r->device != NULL || kv_stats(r->log).used == disk_bytes(segments),
		"%s: used", where);
	ck_assert_uint_le(kv_stats(r->log).used, CAPACITY);
}

/* The log works: a put, a restart, everything as before. */
static void check_usable(struct run *r, const char *where)
{
	unsigned a = told(r, 0), b = told(r, 1);

	ck_assert_msg(kv_put(r->log, &r->owner, "c", 7, 3000) == 0, "%s: put", where);
	ck_assert_msg(kv_check(r->log, &r->owner, "c", 7) == 0, "%s: read", where);
	close_run(r);
	ck_assert_msg(open_run(r) == 0, "%s: second start", where);
	ck_assert_msg(told(r, 0) == a && told(r, 1) == b, "%s: second start", where);
	ck_assert_msg(kv_check(r->log, &r->owner, "c", 7) == 0, "%s: second start", where);
}

struct sequence {
	enum step steps[LENGTH_MAX];
	unsigned n;
	bool full;   /* starts with both keys, in a sealed segment */
	bool device; /* the log lies on one */
};

static void describe(const struct sequence *s, char *ret, size_t cap, unsigned seed, uint64_t at)
{
	size_t len = (size_t)snprintf(ret, cap, "MC_SEED=%u call %u of %s %s", seed, (unsigned)at,
		s->full ? "full" : "empty", s->device ? "device" : "directory");

	for (unsigned i = 0; i < s->n; i++)
		len += (size_t)snprintf(ret + len, cap - len, ", %s", step_names[s->steps[i]]);
}

/* A file, through the same faults. */
static void make_device(struct run *r)
{
	const struct mc_block_format f = {.io = io_fault_table(r->fault),
		.bytes = 3 * MIB,
		.segment_bytes = SEGMENT,
		.path = r->device};
	struct mc_err err = {0};

	ck_assert_msg(mc_block_format(&f, &err) == 0, "%s", err.text);
	ck_assert_int_eq(mc_io_sync_dir(f.io, r->dir), 0);
}

static void prepare(struct run *r, const struct sequence *s)
{
	r->m = (struct model){.next = 1};
	allow_only(&r->m);
	if (open_run(r) != 0)
		r->failed = true;
	if (!s->full)
		return;
	play_step(r, PUT_A);
	play_step(r, PUT_B);
	play_step(r, SEAL);
}

static unsigned first_seed(void)
{
	const char *text = getenv("MC_SEED");

	return text != NULL ? (unsigned)atoi(text) : 1;
}

static void play(struct run *r, const struct sequence *s)
{
	for (unsigned i = 0; i < s->n; i++) {
		struct model old = r->m;

		r->before = io_fault_calls(r->fault);
		play_step(r, s->steps[i]);
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
	struct run r = {.dir = tier_dir_make("/dev/shm"), .owner = {.keep = keep_a, .blind = true}};
	char where[256];
	uint64_t calls;

	describe(s, where, sizeof(where), seed, at);
	r.fault = io_fault_open(r.dir);
	if (s->device) {
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
	close_run(&r);
	io_fault_restart(r.fault);
	ck_assert_msg(open_run(&r) == 0, "%s: no recovery", where);
	check_state(&r, where);
	check_usable(&r, where);
	close_run(&r);
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

/* One sequence of two in four, and of its continuations one in sixteen, by its steps and the seed.
 */
static bool chosen(const struct sequence *s)
{
	unsigned h = first_seed();

	if (getenv("MC_LONG") != NULL || s->n < 2)
		return true;
	for (unsigned i = 0; i < s->n; i++)
		h = (h ^ (unsigned)s->steps[i]) * 16777619u;
	return (h >> 16) % (s->n == 2 ? 4 : 16) == 0;
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

static void explore_all(enum io_fault_kind kind, unsigned max, bool device)
{
	struct counts counts = {0};
	struct sequence s = {.device = device};
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
	explore_all(IO_FAULT_TEAR, SLOW ? 2 : 3, false);
}
END_TEST

START_TEST(recovers_after_one_failure_at_every_call)
{
	explore_all(IO_FAULT_FAIL, SLOW ? 1 : 2, false);
}
END_TEST

START_TEST(a_device_recovers_from_a_crash_at_every_call_of_every_sequence)
{
	explore_all(IO_FAULT_TEAR, getenv("MC_LONG") != NULL ? 3 : SLOW ? 1 : 2, true);
}
END_TEST

START_TEST(a_device_recovers_after_one_failure_at_every_call)
{
	explore_all(IO_FAULT_FAIL, SLOW || getenv("MC_LONG") == NULL ? 1 : 2, true);
}
END_TEST

SUITE_MAIN("kv-log-crash", recovers_from_a_crash_at_every_call_of_every_sequence,
	recovers_after_one_failure_at_every_call,
	a_device_recovers_from_a_crash_at_every_call_of_every_sequence,
	a_device_recovers_after_one_failure_at_every_call)
