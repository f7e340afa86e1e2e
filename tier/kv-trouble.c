/*
 * Trouble with a tier below DRAM: what is wrong, for status and log, and whether anything below can
 * be relied on.
 *
 * Invariants
 * 1. A tier is in trouble from a failure until something succeeds there, or until nothing waits for
 * it and nothing has failed for a while.
 * 2. Events tell levels, not edges, from the keeper's tick: at most one for a tier in EVENT_NS.
 */
#include "tier/kv-impl.h"

#include <stdio.h>

#define EVENT_NS UINT64_C(5000000000)
#define QUIET_NS UINT64_C(30000000000)

struct text {
	int error; /* 0 = any other */
	const char *nvme, *remote;
};

/* Of NVMe, where nothing fails now. */
#define KV_SLOW (-ETIME)
#define KV_HOLES (-EBADSLT) /* some of it could not be read at the start */

#define LIMITS                                                                                     \
	{-EMFILE, "kv: no file descriptor left: raise the limit (LimitNOFILE, ulimit -n)",         \
		"kv: no file descriptor left: raise the limit (LimitNOFILE, ulimit -n)"},          \
		{-ENFILE, "kv: no file descriptor left: raise fs.file-max",                        \
			"kv: no file descriptor left: raise fs.file-max"},                         \
	{                                                                                          \
		-ENOMEM, "kv: no memory left: give the daemon more, or lower --kv-dram",           \
			"kv: no memory left: give the daemon more, or lower --kv-dram"             \
	}

static const struct text texts[] = {
	LIMITS,
	{-ENOSPC,
		"kv: NVMe is full: data waits in memory; remove objects, free space on its file "
		"system, or give --nvme more",
		"kv: the remote is full: data waits in memory; free space there"},
	{-ETIMEDOUT,
		"kv: NVMe does not answer: data waits in memory or goes to the remote; look at the "
		"disk",
		"kv: the remote does not answer: data waits on this node; look at its server and "
		"the "
		"network"},
	{KV_SLOW,
		"kv: NVMe is slow, its flushes take seconds: what is put goes to the remote where "
		"that works; look at the disk, it is tried again",
		NULL},
	{KV_UNREAD,
		"kv: NVMe cannot be read, so what is there is not known: look at the disk, it is "
		"tried again; 'mooncakefs fsck' says what can be saved",
		NULL},
	{KV_HOLES,
		"kv: files of NVMe cannot be opened, and objects in them that the remote does not "
		"have are EIO: the log names them; mend them and mount again, or remove them to "
		"give their objects up",
		NULL},
	{-EPROTONOSUPPORT,
		"kv: the journal on NVMe could not be read, nothing can be kept there: look at the "
		"log, "
		"and at fsck",
		"kv: the remote has a format this program does not know: use a newer one, or "
		"another remote"},
	{0,
		"kv: NVMe fails: data waits in memory or goes to the remote; look at the disk, it "
		"is "
		"tried again",
		"kv: the remote fails: data waits on this node; look at its server"},
};

const char *kv_trouble_text(enum kv_tier tier, int error)
{
	const struct text *t = texts;

	if (error == 0)
		return NULL;
	if (tier == KV_BLOCK && error == KV_SLOW)
		return "kv: the block tier below NVMe does not answer: what lies there is read "
		       "from the remote, or not at all, and nothing goes there; look at the device "
		       "and its paths, it is tried again";
	if (tier == KV_BLOCK)
		return "kv: the block tier below NVMe fails: what lies there alone cannot be read, "
		       "and nothing goes there; look at the device and its paths, it is tried "
		       "again";
	while (t->error != 0 && t->error != error)
		t++;
	return tier == KV_NVME ? t->nvme : t->remote;
}

/* Why a call below DRAM ended with r, or NULL. */
static const char *below_locked(struct mc_kv *kv, int r) MC_REQUIRES(kv->lock)
{
	int nvme = kv->log != NULL ? kv->trouble[KV_NVME].error : 0;
	int remote = kv->opts.remote != NULL ? kv->trouble[KV_REMOTE].error : 0;

	if (nvme == KV_HOLES && (r != -EIO || remote != 0))
		nvme = 0;
	return nvme != 0 ? kv_trouble_text(KV_NVME, nvme) : kv_trouble_text(KV_REMOTE, remote);
}

static const char *why_locked(struct mc_kv *kv, int r) MC_REQUIRES(kv->lock)
{
	bool sinks = kv->log != NULL || kv->opts.remote != NULL;
	const char *below = below_locked(kv, r);

	if (r == -EMFILE || r == -ENFILE || r == -ENOMEM)
		return kv_trouble_text(KV_NVME, r);
	if (r == -EFBIG)
		return "kv: it is larger than an object may be: put smaller ones";
	if (r == -EISDIR || r == -ENOTDIR || r == -ENOENT || r == -EEXIST)
		return "kv: its directory was removed meanwhile, or its name is a directory's: put "
		       "it under another key";
	if (!sinks)
		return r == -ENOSPC
			? "kv: DRAM is full and no tier lies below: remove objects, raise "
			  "--kv-dram, or give --nvme or --remote"
			: "kv: no persistent tier: give --nvme or --remote";
	if (below != NULL)
		return below;
	if (r == -ENOSPC && kv->dirty + kv->typical > kv->opts.dirty_bound)
		return "kv: DRAM fills faster than the tier below takes it, or by files that are "
		       "still written: close them, put less at once, or raise --kv-dram";
	if (r == -ENOSPC)
		return "kv: DRAM is full of what is written, open, mapped or pinned: let go of "
		       "some, "
		       "or raise --kv-dram";
	return "kv: the tier below DRAM failed and works again: data is safe once fsync says so; "
	       "look at the log";
}

const char *mc_kv_why(struct mc_kv *kv, int r)
{
	const char *why;

	mc_mutex_lock(&kv->lock);
	why = why_locked(kv, r);
	mc_mutex_unlock(&kv->lock);
	return why;
}

/* What is said of NVMe while nothing fails. */
static int level_locked(struct mc_kv *kv) MC_REQUIRES(kv->lock)
{
	return kv->slow ? KV_SLOW : kv->unreadable ? KV_HOLES : 0;
}

void kv_trouble_locked(struct mc_kv *kv, enum kv_tier tier, int res)
{
	struct kv_trouble *t = &kv->trouble[tier];

	t->error = res == 0 && tier == KV_NVME ? level_locked(kv) : res;
	if (res == 0)
		return;
	t->at_ns = mc_now_ns();
	kv->failures++;
}

void kv_trouble_read(struct mc_kv *kv, int res)
{
	bool answered = res == 0 || res == -ENOENT || res == -ESTALE || res == -EBADMSG;

	mc_mutex_lock(&kv->lock);
	if (!answered)
		kv_trouble_locked(kv, KV_REMOTE, res);
	else if (kv->trouble[KV_REMOTE].error != -ENOSPC)
		kv->trouble[KV_REMOTE].error = 0;
	mc_mutex_unlock(&kv->lock);
}

int kv_persist_error_locked(struct mc_kv *kv)
{
	int nvme = kv->trouble[KV_NVME].error, remote = kv->trouble[KV_REMOTE].error;
	int r;

	if (nvme == KV_SLOW || nvme == KV_HOLES)
		nvme = 0;
	r = kv->log == NULL ? remote : kv->opts.remote == NULL || remote != 0 ? nvme : 0;

	if (kv->log == NULL && kv->opts.remote == NULL)
		return -EIO;
	return r == 0 ? 0 : kv_caller_error(r);
}

/* Log flights are under way and none has landed for long. */
static void find_stall_locked(struct mc_kv *kv) MC_REQUIRES(kv->lock)
{
	uint64_t now = mc_now_ns();

	if (kv->n_flights == kv->n_remote_flights || now - kv->landed_ns < KV_STALL * kv->retry_ns)
		return;
	kv_trouble_locked(kv, KV_NVME, -ETIMEDOUT);
	kv->stalled = true; /* until one lands */
	mc_cond_signal(&kv->flush);
}

/* The level is kept here: no flight that ends tells of it. */
static void find_level_locked(struct mc_kv *kv, bool slow, bool unreadable) MC_REQUIRES(kv->lock)
{
	struct kv_trouble *t = &kv->trouble[KV_NVME];
	int was = level_locked(kv), now;

	if (kv->slow != slow)
		mc_cond_signal(&kv->flush);
	kv->slow = slow;
	kv->unreadable = unreadable;
	now = level_locked(kv);
	if (t->error == 0 || t->error == was)
		t->error = now;
	if (now != 0 && t->error == now)
		t->at_ns = mc_now_ns();
}

static bool idle_locked(struct mc_kv *kv) MC_REQUIRES(kv->lock)
{
	return kv->dirty_list.next == &kv->dirty_list && kv->n_flights == 0 &&
		kv->replica_list.next == &kv->replica_list && kv->n_copies == 0;
}

/* What the log is to be told of a tier now: NULL = nothing. */
static const char *news_locked(struct mc_kv *kv, enum kv_tier tier) MC_REQUIRES(kv->lock)
{
	struct kv_trouble *t = &kv->trouble[tier];
	uint64_t now = mc_now_ns();

	if (t->error != 0 && now - t->at_ns > QUIET_NS && idle_locked(kv))
		t->error = 0;
	if (t->error == t->told || (t->told_ns != 0 && now - t->told_ns < EVENT_NS))
		return NULL;
	t->told = t->error;
	t->told_ns = now;
	if (t->error != 0)
		return kv_trouble_text(tier, t->error);
	return tier == KV_NVME     ? "kv: NVMe works again"
		: tier == KV_BLOCK ? "kv: the block tier works again"
				   : "kv: the remote works again";
}

void kv_trouble_tick(struct mc_kv *kv)
{
	struct mc_kv_log_stats log = {0};

	if (kv->log != NULL)
		mc_kv_log_stats(kv->log, &log);
	mc_mutex_lock(&kv->lock);
	if (log.bypassed && kv->trouble[KV_NVME].error == 0)
		kv_trouble_locked(kv, KV_NVME, -EIO);
	kv->trouble[KV_BLOCK].error = log.below.bypassed ? -EIO : log.below.slow ? KV_SLOW : 0;
	kv->trouble[KV_BLOCK].at_ns = mc_now_ns();
	find_stall_locked(kv);
	find_level_locked(kv, log.slow, log.unreadable > 0);
	mc_mutex_unlock(&kv->lock);
	for (unsigned i = 0; i < KV_TIERS; i++) {
		const char *text;
		bool well;

		mc_mutex_lock(&kv->lock);
		text = news_locked(kv, i);
		well = kv->trouble[i].told == 0;
		mc_mutex_unlock(&kv->lock);
		if (text != NULL)
			kv_event(kv, well ? "kv-restored" : "kv-degraded", text);
	}
}
