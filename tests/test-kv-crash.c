/*
 * Crash exploration of the whole KV store, DRAM, log and remote: sequences of at most three
 * operations on two keys, from an empty store and from one that holds both, with a crash at every
 * changing call of the last operation; then the store recovers and is held against what had been
 * acknowledged.
 *
 * Two kinds of crash. Power: what was not synced is lost in part, and DRAM is. Kill: the process
 * ends right after the call, what it wrote stays; DRAM stays as well, or not.
 *
 * I1 an object that is there is whole. I2 what was acknowledged durable is there, with DRAM all
 * that was acknowledged. I3 what was removed, replaced or renamed away is not. I4 used is what the
 * files take, and the store works.
 *
 * A sample of the sequences of two is explored, with MC_LONG=1 all of three
 * (tests/crash-explore.sh); MC_SEED=n chooses others.
 */
#include "tests/io-fault.h"
#include "tests/kv-fixture.h"
#include "tests/kv-judge.h"
#include "tests/suite.h"
#include "tests/tier-dir.h"
#include "tier/kv-impl.h"
#include "tier/kv-log.h"

#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define LENGTH_MAX 3
#define SAMPLE 12 /* sequences, of each kind of crash */
#define MIB (UINT64_C(1) << 20)

enum step {
	PUT_A,
	PUT_B,
	RENAME_AB,
	RENAME_BA,
	REMOVE_A,
	REMOVE_B,
	FSYNC_A,
	FSYNC_B,
	FLUSH,
	EVICT_A,
	EVICT_B,
	SEAL,
	RECLAIM,
	RESTART,
	STEPS
};

static const char *const step_names[STEPS] = {"put a", "put b", "rename a b", "rename b a",
	"remove a", "remove b", "fsync a", "fsync b", "flush", "evict a", "evict b", "seal",
	"reclaim", "restart"};
static const char *const keys[2] = {"a", "b"};

enum crash { POWER, KILL, KILL_REBOOT, CRASHES };

static const char *const crash_names[CRASHES] = {"power", "kill", "kill and reboot"};

struct sequence {
	enum step steps[LENGTH_MAX];
	unsigned n;
	bool full;   /* starts with both keys durable, in a sealed segment */
	bool remote; /* objects are on the remote before a put is acknowledged */
	enum crash crash;
};

/* What the store's user was told. Shared with the process that is killed. */
struct told {
	struct kv_held held[2];
	struct kv_deed open; /* not answered */
	bool has_open;
	uint32_t next;          /* content of the next put */
	uint64_t before, calls; /* changing calls before the last step, and in all */
	_Atomic uint64_t call;
	uint64_t at; /* the process ends after this call; 0 = never */
	bool idle;   /* the last step changed nothing */
};

struct run {
	struct kv_fixture x;
	char *dir;
	struct io_fault *fault; /* POWER */
	struct mc_io io;        /* otherwise */
	struct told *told;
	bool over;
};

/* Every other object is an image. */
static size_t size_of(uint32_t content)
{
	return content % 2 != 0 ? 5000 + content : 300000 + content;
}

static unsigned first_seed(void)
{
	const char *text = getenv("MC_SEED");

	return text != NULL ? (unsigned)atoi(text) : 1;
}

/* ---- a table that ends the process after a call */

static struct told *killed; /* by the table of this process */

static int64_t after(int64_t r)
{
	if (atomic_fetch_add(&killed->call, 1) + 1 == killed->at)
		raise(SIGKILL);
	return r;
}

static int kill_open(const struct mc_io *io, const char *path, int flags, mode_t mode)
{
	int fd = mc_io_real()->open(mc_io_real(), path, flags, mode);

	(void)io;
	return (flags & O_CREAT) != 0 ? (int)after(fd) : fd;
}

static int64_t kill_pwrite(
	const struct mc_io *io, int fd, const void *buf, size_t len, uint64_t off)
{
	(void)io;
	return after(mc_io_real()->pwrite(mc_io_real(), fd, buf, len, off));
}

static int kill_fdatasync(const struct mc_io *io, int fd)
{
	(void)io;
	return (int)after(mc_io_real()->fdatasync(mc_io_real(), fd));
}

static int kill_ftruncate(const struct mc_io *io, int fd, uint64_t size)
{
	(void)io;
	return (int)after(mc_io_real()->ftruncate(mc_io_real(), fd, size));
}

static int kill_rename(const struct mc_io *io, const char *from, const char *to)
{
	(void)io;
	return (int)after(mc_io_real()->rename(mc_io_real(), from, to));
}

static int kill_unlink(const struct mc_io *io, const char *path)
{
	(void)io;
	return (int)after(mc_io_real()->unlink(mc_io_real(), path));
}

static struct mc_io kill_table(void)
{
	struct mc_io io = *mc_io_real();

	io.open = kill_open;
	io.pwrite = kill_pwrite;
	io.fdatasync = kill_fdatasync;
	io.fsync = kill_fdatasync;
	io.ftruncate = kill_ftruncate;
	io.rename = kill_rename;
	io.unlink = kill_unlink;
	return io;
}

/* ---- playing a sequence */

static uint64_t calls(const struct run *r)
{
	return r->fault != NULL ? io_fault_calls(r->fault) : atomic_load(&r->told->call);
}

static bool crashed(const struct run *r)
{
	return r->fault != NULL && r->told->at != 0 && calls(r) >= r->told->at;
}

static int open_run(struct run *r)
{
	struct mc_err err = {0};
	struct mc_kv_stats s;
	int res = mc_kv_open(&r->x.opts, &r->x.kv, &err);

	if (res != 0) {
		r->x.kv = NULL;
		return res;
	}
	do {
		sched_yield();
		mc_kv_stats(r->x.kv, &s);
	} while (s.recovering);
	return s.degraded != NULL ? -EIO : 0;
}

static int do_reclaim(struct run *r)
{
	int res = mc_kv_log_reclaim(r->x.kv->log);

	return res == -ENOENT ? 0 : res;
}

static int sync_key(struct run *r, unsigned k)
{
	return r->told->held[k].content != 0 ? mc_kv_sync(r->x.kv, keys[k]) : 0;
}

static int do_flush(struct run *r)
{
	int res = sync_key(r, 0);

	return res == 0 ? sync_key(r, 1) : res;
}

static int do_restart(struct run *r)
{
	int res = do_flush(r); /* close would wait for a disk that is gone */
	int64_t left;

	if (res != 0)
		return res;
	left = mc_kv_close(r->x.kv, 20000);
	r->x.kv = NULL;
	return left != 0 ? -EIO : open_run(r);
}

/* The deed that a step is, or KV_OTHER; false: it would do nothing. */
static bool deed_of(const struct told *t, enum step s, struct kv_deed *ret)
{
	unsigned k = s == PUT_B || s == RENAME_BA || s == REMOVE_B || s == FSYNC_B || s == EVICT_B;

	*ret = (struct kv_deed){.kind = KV_OTHER, .key = k, .to = !k, .content = t->next};
	if (s == PUT_A || s == PUT_B)
		ret->kind = KV_PUT;
	else if (s == RENAME_AB || s == RENAME_BA)
		ret->kind = KV_RENAME;
	else if (s == REMOVE_A || s == REMOVE_B)
		ret->kind = KV_UNLINK;
	else if (s == FSYNC_A || s == FSYNC_B)
		ret->kind = KV_SYNC;
	return s == PUT_A || s == PUT_B || s >= FLUSH || t->held[k].content != 0;
}

static int do_step(struct run *r, enum step s, const struct kv_deed *d)
{
	struct mc_kv *kv = r->x.kv;
	int res;

	switch (s) {
	case PUT_A:
	case PUT_B:
		return kv_put(kv, keys[d->key], size_of(d->content), d->content, 0);
	case RENAME_AB:
	case RENAME_BA:
		return mc_kv_rename(kv, keys[d->key], keys[d->to], 0);
	case REMOVE_A:
	case REMOVE_B:
		return mc_kv_unlink(kv, keys[d->key]);
	case FSYNC_A:
	case FSYNC_B:
		return sync_key(r, d->key);
	case FLUSH:
		return do_flush(r);
	case EVICT_A:
	case EVICT_B:
		res = mc_kv_evict(kv, keys[d->key]);
		return res == -ENOENT || res == -EBUSY ? 0 : res;
	case SEAL:
		return mc_kv_log_seal(kv->log);
	case RECLAIM:
		return do_reclaim(r);
	case RESTART:
	case STEPS:
		break;
	}
	return do_restart(r);
}

static void acknowledge(struct run *r, enum step s, const struct kv_deed *d)
{
	struct told *t = r->told;

	kv_acknowledge(t->held, d);
	t->next += d->kind == KV_PUT;
	for (unsigned k = 0; k < 2; k++)
		if (s == FLUSH || s == RESTART ||
			(d->kind == KV_PUT && d->key == k && r->x.opts.ack != MC_KV_ACK_DRAM))
			kv_make_sure(&t->held[k], t->held[k].content);
}

static void play_step(struct run *r, enum step s)
{
	struct told *t = r->told;
	uint64_t before = calls(r);
	struct kv_deed d;
	int res;

	t->before = before;
	t->idle = !deed_of(t, s, &d);
	if (r->over || t->idle)
		return;
	t->open = d;
	t->has_open = true;
	res = do_step(r, s, &d);
	/* What came after the crash was not answered; some calls wait for a disk that is gone. */
	r->over = crashed(r) || res == -ETIMEDOUT;
	if (r->over)
		return;
	ck_assert_msg(res == 0, "%s: %d", step_names[s], res);
	acknowledge(r, s, &d);
	t->has_open = false;
}

static void play(struct run *r, const struct sequence *s)
{
	struct told *t = r->told;

	kv_make_sure(&t->held[0], 0);
	kv_make_sure(&t->held[1], 0);
	t->next = 1;
	if (s->remote)
		kv_fixture_remote(&r->x);
	if (open_run(r) != 0)
		r->over = true;
	ck_assert(!r->over || crashed(r));
	if (s->full) {
		play_step(r, PUT_A);
		play_step(r, PUT_B);
		play_step(r, FLUSH);
		play_step(r, SEAL);
	}
	for (unsigned i = 0; i < s->n; i++)
		play_step(r, s->steps[i]);
	t->calls = calls(r);
}

/* ---- crashing */

static void play_power(struct run *r, const struct sequence *s, unsigned seed)
{
	r->fault = io_fault_open(r->dir);
	r->x.opts.io = io_fault_table(r->fault);
	io_fault_arm(r->fault, r->told->at != 0 ? IO_FAULT_TEAR : IO_FAULT_NONE, r->told->at, seed);
	play(r, s);
	if (!crashed(r))
		io_fault_arm(r->fault, IO_FAULT_CRASH, 1, seed);
	if (r->x.kv != NULL)
		mc_kv_close(r->x.kv, 0);
	r->x.kv = NULL;
	io_fault_restart(r->fault);
	kv_fixture_forget_dram(&r->x);
}

static void play_kill(struct run *r, const struct sequence *s)
{
	pid_t pid;
	int status;

	r->io = kill_table();
	fflush(stdout);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		killed = r->told;
		r->x.opts.io = &r->io;
		play(r, s);
		raise(SIGKILL);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "status %x", status);
	if (s->crash == KILL_REBOOT)
		kv_fixture_forget_dram(&r->x);
}

/* ---- checking */

static uint32_t content_of(struct run *r, unsigned k, const char *where)
{
	struct mc_kv_object *obj;
	struct mc_kv_attr attr;
	bool same = false;
	uint32_t content;
	int res = kv_ask(r->x.kv, keys[k], &attr);

	if (res == -ENOENT)
		return 0;
	res = res == 0 ? kv_open_object(r->x.kv, keys[k], &obj) : res;
	ck_assert_msg(res == 0, "%s: %s opens %d", where, keys[k], res);
	mc_kv_object_attr(obj, &attr);
	content = (uint32_t)attr.size % (attr.size < 300000 ? 5000 : 300000);
	res = kv_check_object(obj, attr.size, content, &same);
	ck_assert_msg(res == 0 && same, "%s: %s reads %d", where, keys[k], res);
	mc_kv_object_put(obj);
	return content;
}

static uint64_t disk_bytes(const char *dir, const char *name)
{
	char path[4096];
	uint64_t bytes = 0;
	struct dirent *e;
	DIR *d;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	d = opendir(path);
	while (d != NULL && (e = readdir(d)) != NULL) {
		struct stat st;

		if (e->d_name[0] == '.' || fstatat(dirfd(d), e->d_name, &st, 0) != 0)
			continue;
		bytes += S_ISDIR(st.st_mode) ? disk_bytes(path, e->d_name) : (uint64_t)st.st_size;
	}
	if (d != NULL)
		closedir(d);
	return bytes;
}

static void check(struct run *r, const struct sequence *s, const char *where)
{
	struct told *t = r->told;
	struct mc_kv_log_stats log;
	uint32_t found[2];
	char text[512];

	t->at = 0;
	if (s->remote && r->x.remote == NULL)
		kv_fixture_remote(&r->x);
	ck_assert_msg(open_run(r) == 0, "%s: no recovery", where);
	mc_kv_log_stats(r->x.kv->log, &log);
	ck_assert_msg(log.used == disk_bytes(r->dir, "segments") + disk_bytes(r->dir, "kvimages"),
		"%s: used", where);
	for (unsigned k = 0; k < 2; k++)
		found[k] = content_of(r, k, where);
	ck_assert_msg(
		kv_judge(t->held, 2, t->has_open ? &t->open : NULL, found, s->crash == KILL, text),
		"%s: %s", where, text);
	/* It works, and stays as it is. */
	ck_assert_msg(kv_put(r->x.kv, "c", 3000, 77, 0) == 0, "%s: put", where);
	ck_assert_msg(mc_kv_sync(r->x.kv, "c") == 0, "%s: sync", where);
	ck_assert_msg(mc_kv_close(r->x.kv, 20000) == 0, "%s: close", where);
	r->x.kv = NULL;
	kv_fixture_forget_dram(&r->x);
	ck_assert_msg(open_run(r) == 0, "%s: second start", where);
	kv_expect(r->x.kv, "c", 3000, 77);
	for (unsigned k = 0; k < 2; k++) {
		uint32_t again = content_of(r, k, where);

		ck_assert_msg(again == found[k], "%s: %s held %x, then %x", where, keys[k],
			found[k], again);
	}
}

static void describe(const struct sequence *s, uint64_t at, char *ret, size_t cap)
{
	size_t len = (size_t)snprintf(ret, cap, "MC_SEED=%u %s%s, call %u of %s", first_seed(),
		crash_names[s->crash], s->remote ? ", remote" : "", (unsigned)at,
		s->full ? "full" : "empty");

	for (unsigned i = 0; i < s->n; i++)
		len += (size_t)snprintf(ret + len, cap - len, ", %s", step_names[s->steps[i]]);
}

/* Runs the sequence with a crash at call at, 0 = at its end. */
static void explore(const struct sequence *s, uint64_t at, struct told *t)
{
	struct run r = {.dir = tier_dir_make("/dev/shm"), .told = t};
	char where[256];

	describe(s, at, where, sizeof(where));
	*t = (struct told){.at = at};
	kv_fixture_paths(&r.x, 16 * MIB);
	r.x.opts.ack = s->remote ? MC_KV_ACK_REMOTE : MC_KV_ACK_DRAM;
	r.x.opts.deadline_ms = s->crash == POWER ? 300 : 0;
	r.x.opts.nvme_dir = r.dir;
	r.x.opts.nvme_capacity = 8 * MIB;
	if (s->crash == POWER)
		play_power(&r, s, first_seed() + (unsigned)at);
	else
		play_kill(&r, s);
	if (s->crash != POWER)
		r.x.opts.io = NULL;
	check(&r, s, where);
	kv_fixture_close(&r.x);
	if (r.fault != NULL)
		io_fault_close(r.fault);
	tier_dir_remove(r.dir);
}

/* ---- all sequences, or some */

/* A crash at each call of the last step. False: it does nothing, nor what would follow it. */
static bool explore_last(const struct sequence *s, struct told *t, unsigned *states)
{
	uint64_t end;

	explore(s, 0, t);
	++*states;
	if (t->idle)
		return false;
	end = t->calls + 1;
	for (uint64_t at = t->before + 1; at <= end; at++, ++*states)
		explore(s, at, t);
	return true;
}

static void extend(struct sequence *s, struct told *t, unsigned *states)
{
	if (s->n > 0 && !explore_last(s, t, states))
		return;
	for (unsigned step = 0; step < STEPS && s->n < LENGTH_MAX; step++) {
		s->steps[s->n++] = step;
		extend(s, t, states);
		s->n--;
	}
}

/* One more sequence, with a crash at some of the calls of its last step. */
static void pick(struct sequence *s, struct told *t, unsigned *states, unsigned *seed)
{
	uint64_t first, end;

	s->n = LENGTH_MAX;
	for (unsigned i = 0; i < s->n; i++)
		s->steps[i] = (enum step)((unsigned)rand_r(seed) % STEPS);
	explore(s, 0, t);
	first = t->before + 1;
	end = t->calls + 1;
	++*states;
	for (unsigned i = 0; i < 3 && !t->idle; i++, ++*states)
		explore(s, first + (unsigned)rand_r(seed) % (end - first + 1), t);
}

static struct told *make_told(void)
{
	struct told *t =
		mmap(NULL, sizeof(*t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(t, MAP_FAILED);
	return t;
}

static void explore_all(enum crash crash)
{
	struct told *t = make_told();
	unsigned states = 0, seed = first_seed() * CRASHES + crash;
	struct sequence s = {.crash = crash};
	uint64_t start = mc_now_ns();

	for (unsigned i = 0; i < (getenv("MC_LONG") != NULL ? 4 : SAMPLE); i++) {
		s.full = i % 2 != 0;
		s.remote = i % 4 >= 2;
		if (getenv("MC_LONG") != NULL)
			extend(&s, t, &states);
		else
			pick(&s, t, &states, &seed);
	}
	munmap(t, sizeof(*t));
	printf("%s: %u states in %.1f s, MC_SEED=%u\n", crash_names[crash], states,
		(double)(mc_now_ns() - start) / 1e9, first_seed());
}

START_TEST(recovers_from_a_power_failure_at_every_call)
{
	explore_all(POWER);
}
END_TEST

START_TEST(goes_on_after_a_kill_at_every_call)
{
	explore_all(KILL);
}
END_TEST

START_TEST(recovers_from_a_kill_at_every_call_and_a_reboot)
{
	explore_all(KILL_REBOOT);
}
END_TEST

START_TEST(a_rename_is_seen_once_after_a_kill_between_journal_and_memory)
{
	struct sequence s = {.steps = {EVICT_A, RENAME_BA}, .n = 2, .full = true, .crash = KILL};
	struct told *t = make_told();
	unsigned states = 0;

	ck_assert(explore_last(&s, t, &states));
	munmap(t, sizeof(*t));
}
END_TEST

START_TEST(a_remote_copy_is_not_counted_on_after_a_kill_while_it_was_removed)
{
	struct sequence s = {
		.steps = {REMOVE_A}, .n = 1, .full = true, .remote = true, .crash = KILL};
	struct told *t = make_told();
	unsigned states = 0;

	ck_assert(explore_last(&s, t, &states));
	s.steps[0] = RENAME_BA;
	ck_assert(explore_last(&s, t, &states));
	munmap(t, sizeof(*t));
}
END_TEST

/* Without the right to mount the DRAM tier is a directory: unmounting is most of the time else. */
static void drop_mounts(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	if (syscall(SYS_capget, &head, data) != 0)
		return;
	data[0].effective &= ~(1u << CAP_SYS_ADMIN);
	syscall(SYS_capset, &head, data);
}

int main(void)
{
	const TTest *const tests[] = {recovers_from_a_power_failure_at_every_call,
		goes_on_after_a_kill_at_every_call, recovers_from_a_kill_at_every_call_and_a_reboot,
		a_rename_is_seen_once_after_a_kill_between_journal_and_memory,
		a_remote_copy_is_not_counted_on_after_a_kill_while_it_was_removed};

	drop_mounts();
	return suite_run("kv-crash", tests, sizeof(tests) / sizeof(*tests));
}
