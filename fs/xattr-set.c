/*
 * Attributes that do something when they are set:
 *   pin, pinned  "1" or "0" ("" is "1" for pin): answered when it is recorded
 *   evict        "dram" ("" too), "nvme", "block" or "remote": answered when it has left
 *   warm         "dram" ("" too), "nvme" or "block": answered at once, goes on in the background,
 *                one after the other; resident.* tell how far it has come, error why it ended early
 * On a directory: all files below it; the first failure is the answer, the others are tried all the
 * same.
 */
#include "fs/xattr.h"

#include <errno.h>
#include <string.h>

#include "fs/admin.h"
#include "fs/spot-job.h"
#include "fs/walk.h"
#include "tier/store-warm.h"

struct doing {
	struct mc_spot_job *job;
	int (*one)(struct mc_spot_job *job, const struct mc_admin_file *f);
	int first; /* failure */
};

static int pin(struct mc_spot_job *job, const struct mc_admin_file *f)
{
	return mc_admin_pin(job->fs, f, job->on);
}

static int evict(struct mc_spot_job *job, const struct mc_admin_file *f)
{
	const char *why;

	return mc_admin_evict(job->fs, f, job->tier, &why);
}

static bool keep_on(void *ctx, uint64_t bytes_done)
{
	const struct mc_spot_job *job = ctx;

	(void)bytes_done;
	return !atomic_load(&job->fs->stopping);
}

static int warm(struct mc_spot_job *job, const struct mc_admin_file *f)
{
	const struct mc_warm_opts opts = {.tier = job->tier, .keep_on = keep_on, .ctx = job};

	return mc_admin_warm(job->fs, f, &opts);
}

static int each(void *ctx, const struct mc_spot *file)
{
	struct doing *d = ctx;
	struct mc_admin_file f;
	int r;

	mc_admin_file_of(d->job->fs, file, &f);
	r = d->one(d->job, &f);
	if (r < 0 && d->first == 0)
		d->first = r;
	return atomic_load(&d->job->fs->stopping) ? -ESHUTDOWN : 0;
}

static void run(
	struct mc_spot_job *job, int (*one)(struct mc_spot_job *job, const struct mc_admin_file *f))
{
	struct doing d = {.job = job, .one = one};
	int r = mc_walk_files(job->fs, &job->spot, each, &d);

	mc_spot_job_err(job, r < 0 ? r : d.first);
}

static void pin_now(struct mc_spot_job *job)
{
	run(job, pin);
}

static void evict_now(struct mc_spot_job *job)
{
	run(job, evict);
}

static void warm_now(struct mc_spot_job *job)
{
	run(job, warm);
}

static bool is(const char *value, size_t size, const char *word)
{
	return size == strlen(word) && memcmp(value, word, size) == 0;
}

/* "dram", also for "" and "1", "nvme", "block", "remote". */
static bool parse_tier(const char *value, size_t size, enum mc_tier *ret)
{
	for (int t = MC_TIER_DRAM; t < MC_TIERS; t++) {
		if (is(value, size, mc_tier_name((enum mc_tier)t))) {
			*ret = (enum mc_tier)t;
			return true;
		}
	}
	*ret = MC_TIER_DRAM;
	return size == 0 || is(value, size, "1");
}

void mc_xattr_set(
	fuse_req_t req, const struct mc_spot *s, const char *name, const char *value, size_t size)
{
	bool on = is(value, size, "1") || (size == 0 && strcmp(name, "pin") == 0);
	void (*now)(struct mc_spot_job * job) = NULL;
	enum mc_tier tier = MC_TIER_DRAM;
	struct mc_spot_job *job;

	if ((strcmp(name, "pin") == 0 || strcmp(name, "pinned") == 0) &&
		(on || is(value, size, "0")))
		now = pin_now;
	else if (strcmp(name, "evict") == 0 && parse_tier(value, size, &tier))
		now = evict_now;
	else if (strcmp(name, "warm") == 0 && parse_tier(value, size, &tier) &&
		tier != MC_TIER_REMOTE)
		now = warm_now;
	if (now == NULL) {
		fuse_reply_err(req, ENOTSUP);
		return;
	}
	job = mc_spot_job_new(req, s, NULL, now);
	if (job == NULL)
		return;
	job->on = on;
	job->tier = tier;
	if (now == warm_now)
		mc_spot_job_start_answered(job, job->fs->warm);
	else
		mc_spot_job_start(job, job->fs->admin);
}
