/*
 * A request about a spot that waits for fs->admin, the pool for what waits for the catalogue, a
 * disk or the remote on an administrator's behalf.
 */
#pragma once

#include "fs/node.h"
#include "fs/state.h"
#include "tier/tier.h"

struct mc_spot_job {
	struct mc_call call;
	struct mc_fs *fs;
	struct mc_spot spot;                  /* place and key owned */
	void (*run)(struct mc_spot_job *job); /* on the pool; answers and ends the job */
	struct fuse_file_info fi;
	size_t size; /* readdir, getxattr */
	off_t off;
	bool plus;
	bool on; /* pin */
	enum mc_tier tier;
	char name[256];
};

/* name may be NULL. NULL: answered already. */
struct mc_spot_job *mc_spot_job_new(fuse_req_t req, const struct mc_spot *s, const char *name,
	void (*run)(struct mc_spot_job *job));
/* pool: fs->admin, or fs->warm. */
void mc_spot_job_start(struct mc_spot_job *job, struct mc_work *pool);
/* Answers at once, 0 once it is queued; run only ends the job. */
void mc_spot_job_start_answered(struct mc_spot_job *job, struct mc_work *pool);
/* The request, for the caller to answer, or NULL; mc_spot_job_end follows. */
fuse_req_t mc_spot_job_take(struct mc_spot_job *job);
/* Answers with 0 or -errno, and ends. */
void mc_spot_job_err(struct mc_spot_job *job, int r);
void mc_spot_job_end(struct mc_spot_job *job);
