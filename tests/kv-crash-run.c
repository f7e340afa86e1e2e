/* A sequence that ends in a crash: see kv-crash-run.h. */
#include "tests/kv-crash-run.h"

#include "tests/io-fault.h"
#include "tests/io-kill.h"
#include "tests/kv-fixture.h"
#include "tests/seed.h"
#include "tests/tier-dir.h"
#include "tier/kv-impl.h"
#include "tier/kv-log.h"
#include "tier/remote-fault.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)

static const char *const step_names[STEPS] = {"put a", "put b", "rename a b", "rename b a",
	"remove a", "remove b", "fsync a", "fsync b", "flush", "evict a", "evict b", "drop a",
	"drop b", "seal", "reclaim", "restart"};
static const char *const keys[2] = {"a", "b"};

static const char *const remotes[KV_REMOTES] = {"", ", remote first", ", remote last"};

const char *const kv_crash_names[CRASHES] = {"power", "kill", "kill and reboot"};

struct run {
	struct kv_fixture x;
	char *dir;
	struct io_fault *fault; /* POWER */
	struct mc_fault *cable; /* POWER with a remote: it does not hear of us after the crash */
	struct io_kill io;      /* otherwise */
	struct kv_told *told;
	bool over;
};

/* Every other object lies in parts. */
static size_t size_of(uint32_t content)
{
	return content % 2 != 0 ? 5000 + content : 300000 + content;
}

unsigned kv_crash_seed(void)
{
	return env_number("MC_SEED", 1);
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
		usleep(200);
		mc_kv_stats(r->x.kv, &s);
	} while (s.recovering && s.degraded == NULL);
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
static bool deed_of(const struct kv_told *t, enum kv_step s, struct kv_deed *ret)
{
	unsigned k = s == PUT_B || s == RENAME_BA || s == REMOVE_B || s == FSYNC_B ||
		s == EVICT_B || s == DROP_B;

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

static int do_step(struct run *r, enum kv_step s, const struct kv_deed *d)
{
	struct mc_kv *kv = r->x.kv;
	const char *why;
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
	case DROP_A:
	case DROP_B:
		res = mc_kv_evict_from(kv, keys[d->key], MC_TIER_NVME, &why);
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

static void acknowledge(struct run *r, enum kv_step s, const struct kv_deed *d)
{
	struct kv_told *t = r->told;

	kv_acknowledge(t->held, d);
	t->next += d->kind == KV_PUT;
	for (unsigned k = 0; k < 2; k++)
		if (s == FLUSH || s == RESTART ||
			(d->kind == KV_PUT && d->key == k && r->x.opts.ack != MC_KV_ACK_DRAM))
			kv_make_sure(&t->held[k], t->held[k].content);
}

static void play_step(struct run *r, enum kv_step s)
{
	struct kv_told *t = r->told;
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

static void pull_cable(void *ctx)
{
	static const struct mc_fault_rule rule = {
		.op = MC_FAULT_OPS, .kind = MC_FAULT_FAIL, .error = -EIO};

	mc_fault_add(ctx, &rule);
}

static void open_remote(struct run *r)
{
	kv_fixture_remote(&r->x);
	if (r->fault == NULL)
		return;
	ck_assert_int_eq(mc_remote_fault_open(r->x.remote, &r->cable, &r->x.remote), 0);
	r->x.opts.remote = r->x.remote;
	io_fault_tell(r->fault, pull_cable, r->cable);
}

static void play(struct run *r, const struct kv_sequence *s)
{
	struct kv_told *t = r->told;

	kv_make_sure(&t->held[0], 0);
	kv_make_sure(&t->held[1], 0);
	t->next = 1;
	if (s->remote != KV_REMOTE_NEVER)
		open_remote(r);
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

static void play_power(struct run *r, const struct kv_sequence *s, unsigned seed)
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
	if (r->cable != NULL)
		mc_fault_clear(r->cable);
	kv_fixture_forget_dram(&r->x);
}

static void play_kill(struct run *r, const struct kv_sequence *s)
{
	pid_t pid;
	int status;

	io_kill_init(&r->io, &r->told->call, r->told->at);
	fflush(stdout);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		r->x.opts.io = &r->io.io;
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

/* The flusher may be at work: files and figures do not change at the same moment. */
static void check_space(struct run *r, const char *where)
{
	uint64_t deadline = mc_now_ns() + UINT64_C(120000000000), bytes;
	struct mc_kv_log_stats log;

	do {
		mc_kv_log_stats(r->x.kv->log, &log);
		bytes = disk_bytes(r->dir, "segments");
	} while (log.used != bytes && mc_now_ns() < deadline);
	ck_assert_msg(log.used == bytes, "%s: used", where);
}

/* It works: what is put now is there after another start, what is removed, or replaced and removed,
 * is not, the rest stays. */
static void check_works(
	struct run *r, const struct kv_sequence *s, uint32_t found[2], const char *where)
{
	ck_assert_msg(kv_put(r->x.kv, "c", 3000, 77, 0) == 0, "%s: put", where);
	ck_assert_msg(mc_kv_sync(r->x.kv, "c") == 0, "%s: sync", where);
	if (found[0] != 0)
		ck_assert_msg(mc_kv_unlink(r->x.kv, keys[0]) == 0, "%s: remove", where);
	found[0] = 0;
	if (found[1] != 0 && s->remote == KV_REMOTE_LAST) {
		ck_assert_msg(kv_put(r->x.kv, keys[1], 3000, 78, 0) == 0, "%s: replace", where);
		ck_assert_msg(mc_kv_sync(r->x.kv, keys[1]) == 0, "%s: sync", where);
		ck_assert_msg(mc_kv_unlink(r->x.kv, keys[1]) == 0, "%s: remove", where);
		found[1] = 0;
	}
	ck_assert_msg(mc_kv_close(r->x.kv, 20000) == 0, "%s: close", where);
	r->x.kv = NULL;
	kv_fixture_forget_dram(&r->x);
	ck_assert_msg(open_run(r) == 0, "%s: second start", where);
	kv_expect(r->x.kv, "c", 3000, 77);
	for (unsigned k = 0; k < 2; k++) {
		uint32_t again = content_of(r, k, where);

		ck_assert_msg(again == found[k], "%s: %s holds %x later, not %x", where, keys[k],
			again, found[k]);
	}
}

static void check(struct run *r, const struct kv_sequence *s, const char *where)
{
	struct kv_told *t = r->told;
	uint32_t found[2];
	char text[512];

	t->at = 0;
	r->x.opts.deadline_ms = 0; /* the disk is there again, however busy the machine is */
	if (s->remote != KV_REMOTE_NEVER && r->x.remote == NULL)
		open_remote(r);
	ck_assert_msg(open_run(r) == 0, "%s: no recovery", where);
	check_space(r, where);
	for (unsigned k = 0; k < 2; k++)
		found[k] = content_of(r, k, where);
	ck_assert_msg(
		kv_judge(t->held, 2, t->has_open ? &t->open : NULL, found, s->crash == KILL, text),
		"%s: %s", where, text);
	check_works(r, s, found, where);
}

static void describe(const struct kv_sequence *s, uint64_t at, char *ret, size_t cap)
{
	size_t len = (size_t)snprintf(ret, cap, "MC_SEED=%u %s%s, call %u of %s", kv_crash_seed(),
		kv_crash_names[s->crash], remotes[s->remote], (unsigned)at,
		s->full ? "full" : "empty");

	for (unsigned i = 0; i < s->n; i++)
		len += (size_t)snprintf(ret + len, cap - len, ", %s", step_names[s->steps[i]]);
}

/* Runs the sequence with a crash at call at, 0 = at its end. */
void kv_crash_explore(const struct kv_sequence *s, uint64_t at, struct kv_told *t)
{
	struct run r = {.dir = tier_dir_make("/dev/shm"), .told = t};
	char where[256];

	describe(s, at, where, sizeof(where));
	*t = (struct kv_told){.at = at};
	kv_fixture_paths(&r.x, 16 * MIB);
	r.x.opts.ack = s->remote == KV_REMOTE_FIRST ? MC_KV_ACK_REMOTE : MC_KV_ACK_DRAM;
	r.x.opts.deadline_ms = s->crash == POWER ? 300 : 0;
	r.x.opts.nvme_dir = r.dir;
	r.x.opts.nvme_capacity = 8 * MIB;
	if (s->crash == POWER)
		play_power(&r, s, kv_crash_seed() + (unsigned)at);
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
