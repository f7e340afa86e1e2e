/* Requests about spots on the administrator's pool. */
#include "fs/spot-job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/holds.h"
#include "fs/log.h"
#include "fs/work.h"
#include "tier/kv.h"

static void job_free(struct mc_spot_job *job)
{
	mc_place_unref(job->spot.place);
	free((void *)(uintptr_t)job->spot.key);
	free(job);
}

struct mc_spot_job *mc_spot_job_new(fuse_req_t req, const struct mc_spot *s, const char *name,
	void (*run)(struct mc_spot_job *job))
{
	struct mc_fs *fs = fuse_req_userdata(req);
	struct mc_spot_job *job = calloc(1, sizeof(*job));

	if (job == NULL || (name != NULL && strlen(name) >= sizeof(job->name))) {
		fuse_reply_err(req, job == NULL ? ENOMEM : ENAMETOOLONG);
		free(job);
		return NULL;
	}
	job->fs = fs;
	job->spot = *s;
	job->spot.place = mc_place_ref(s->place);
	job->spot.key = s->key != NULL ? strdup(s->key) : NULL;
	job->run = run;
	if (name != NULL)
		strcpy(job->name, name);
	if (s->key != NULL && job->spot.key == NULL) {
		fuse_reply_err(req, ENOMEM);
		job_free(job);
		return NULL;
	}
	mc_call_begin(&fs->calls, &job->call, req);
	return job;
}

static void run_job(void *arg)
{
	struct mc_spot_job *job = arg;

	job->run(job);
}

void mc_spot_job_start(struct mc_spot_job *job, struct mc_work *pool)
{
	int r = mc_work_submit(pool, run_job, job);

	if (r < 0)
		mc_spot_job_err(job, r == -EBUSY ? -EBUSY : -EIO);
}

void mc_spot_job_start_answered(struct mc_spot_job *job, struct mc_work *pool)
{
	fuse_req_t req = mc_spot_job_take(job);
	int r = mc_work_submit(pool, run_job, job); /* job may be gone now */

	if (req != NULL)
		fuse_reply_err(req, r == 0 ? 0 : r == -EBUSY ? EBUSY : EIO);
	if (r < 0)
		mc_spot_job_end(job);
}

fuse_req_t mc_spot_job_take(struct mc_spot_job *job)
{
	return mc_call_take(&job->call);
}

/* For the log: a client is told EIO. */
static void tell(const struct mc_spot_job *job, int r)
{
	static struct mc_log_limit limit;
	enum mc_at at = job->spot.at;
	uint64_t suppressed;

	if (mc_log_allowed(&limit, &suppressed))
		mc_log(MC_LOG_ERROR, "request-failed",
			"tier=%s dir=\"%s\" name=\"%s\" error=\"%s\" why=\"%s\" suppressed=%llu",
			at >= MC_AT_DRAM && at <= MC_AT_REMOTE ? mc_tier_name(mc_at_tier(at)) : "",
			job->spot.key != NULL ? job->spot.key : "", job->name, strerror(-r),
			job->spot.key != NULL ? mc_kv_why(job->fs->opts->kv, r) : "",
			(unsigned long long)suppressed);
}

void mc_spot_job_err(struct mc_spot_job *job, int r)
{
	fuse_req_t req = mc_spot_job_take(job);
	bool known = r == 0 || r == -EBUSY || r == -ENOENT || r == -EISDIR || r == -ENOTDIR ||
		r == -ENOTEMPTY || r == -ENAMETOOLONG || r == -ENOSPC || r == -EOPNOTSUPP ||
		r == -ENODATA || r == -ERANGE;

	if (!known && !atomic_load(&job->fs->stopping))
		tell(job, r);
	if (req != NULL)
		fuse_reply_err(req, known ? -r : EIO);
	mc_spot_job_end(job);
}

void mc_spot_job_end(struct mc_spot_job *job)
{
	mc_call_end(&job->call);
	job_free(job);
}
