/* What one mounted tree holds; the state behind every request. For fs/ only. */
#pragma once

#include "fs/call.h"
#include "fs/fs.h"
#include "fs/handle.h"
#include "fs/names.h"
#include "fs/node.h"
#include "fs/notify.h"
#include "tier/remote.h"

#include <stdatomic.h>
#include <sys/types.h>

#define MC_STRIPES 64

/* What is in effect and why, for status. Written before ready, except passthrough (mode.c). */
struct mc_features {
	atomic_bool passthrough;
	_Atomic(const char *) passthrough_reason; /* why not; static text; NULL when it is on */
	unsigned max_request;                     /* bytes of one read request */
	int readahead_kb; /* in effect; -errno when it could not be raised */
	unsigned max_background;
	unsigned threads;
};

struct mc_fs_counters {
	_Atomic uint64_t opens_passthrough, opens_cached;
	_Atomic uint64_t reads, read_bytes, read_errors; /* served by the daemon */
	/* Opens for writing that are not to be served in passthrough, as the client has a limit to
	 * its memory, or is unknown; puts that were not published, as a write failed. */
	_Atomic uint64_t puts_limited, puts_unknown, puts_failed;
};

/* statfs answers from here; refreshed by the work pool. */
struct mc_space {
	struct mc_mutex lock;
	struct mc_remote_space remote; /* bytes */
	uint64_t next_ns;              /* ask again from then on */
	bool known;
};

struct mc_fs {
	const struct mc_fs_opts *opts; /* borrowed */
	char *mountpoint;              /* owned, canonical */
	struct fuse_session *se;
	struct mc_nodes *nodes;
	struct mc_handles *handles;
	struct mc_reasons *reasons;
	struct mc_work *work;
	struct mc_work *warm;  /* what is brought in on order, for as long as it takes */
	struct mc_work *admin; /* evictions, and what of tiers/ waits for the catalogue */
	struct mc_names *names;
	struct mc_views *views;
	struct mc_drafts *drafts;
	struct mc_kvfs *kvfs; /* NULL = no kv/ */
	struct mc_notify *notify;
	struct mc_control *control;      /* NULL = none */
	struct mc_metrics_http *metrics; /* likewise */
	struct mc_calls calls;
	struct mc_mutex stripes[MC_STRIPES]; /* guard node->last_mode and changes of node->opened */
	struct mc_features features;
	struct mc_fs_counters counters;
	struct mc_space space;
	int64_t start_s; /* seconds since the epoch: mtime of directories that are made up */
	uid_t uid;
	gid_t gid;
	atomic_bool inited;    /* INIT was negotiated */
	atomic_bool announced; /* ready was called */
	atomic_bool stopping;  /* reads get EIO */
};
