/*
 * The mount: shows the checkpoints of a catalogue as a read-only tree. The one door of fs/ for
 * tools/.
 */
#pragma once

#include "tier/error.h"

#include <stdbool.h>
#include <stdint.h>

struct mc_catalogue;
struct mc_kv;
struct mc_remote;
struct mc_scrub;
struct mc_store;
struct mc_takeover;

/* One option of the program as it is in effect. */
struct mc_fs_setting {
	const char *name;   /* literals */
	const char *origin; /* "default", "configuration file", "-o", "command line" */
	char value[4352];   /* as one would write it; "" = unset */
};

/* What the caller is told, and by which thread. */
enum mc_fs_news {
	MC_FS_READY,    /* once: the tree answers; a loop thread */
	MC_FS_TICK,     /* at least every 250 ms: the main loop turns, no loop thread hangs; that of
			   mc_fs_run */
	MC_FS_RELOAD,   /* SIGHUP; likewise */
	MC_FS_STOPPING, /* once, at the end of serving, before the device is closed; likewise */
	MC_FS_DRAINED,  /* instead: SIGUSR2, another process may go on; likewise */
};

struct mc_fs_opts {
	const char *mountpoint; /* an existing directory */
	struct mc_store *store; /* these three are borrowed until mc_fs_run returned */
	struct mc_catalogue *catalogue;
	struct mc_remote *remote;
	struct mc_kv *kv;             /* borrowed likewise; NULL = no kv/ */
	struct mc_scrub *scrub;       /* borrowed likewise; NULL = nothing lies on NVMe */
	const char *fuse_options;     /* what follows -o, comma-separated; NULL = none */
	bool hide_xattrs;             /* user.mooncake.* is in no list of attributes */
	bool no_passthrough;          /* serve everything through the daemon */
	unsigned loop_threads;        /* 0 = online CPUs, at most 4 */
	unsigned readahead_kb;        /* of the mount, KiB; 0 = 1,024 */
	unsigned request_deadline_ms; /* a request without an answer gets EIO; 0 = 60,000 */
	unsigned stop_deadline_ms;    /* from the stop to the return of mc_fs_run; 0 = 10,000 */
	const char *metrics;          /* ADDRESS:PORT of metrics over HTTP; NULL = none */
	const char *control_dir;      /* where the control socket lies; NULL = none is made */
	int stop_fd;                  /* readable = stop, for instance an eventfd; -1 = none */
	/* What another process needs to go on when this one dies; borrowed; NULL = nobody does, and
	 * why (static text). */
	struct mc_takeover *takeover;
	const char *takeover_why;
	int device;          /* of a mount that is taken over, borrowed; -1 = mount */
	const char *version; /* of the program, for status; NULL = unknown */
	/* May be NULL. Must not wait for the mount. */
	void (*news)(void *ctx, enum mc_fs_news news);
	/* Once, after mounting: the device, borrowed during the call. The thread of mc_fs_run; may
	 * be NULL. */
	void (*mounted)(void *ctx, int device);
	/* The i-th option, for .mooncake/config; false: there is none. Any thread; may be NULL. */
	bool (*setting)(void *ctx, unsigned i, struct mc_fs_setting *ret);
	void *ctx;
};

/*
 * Mounts, serves until SIGTERM, SIGINT, stop_fd or an unmount from outside, unmounts and returns.
 * Installs handlers for those signals, SIGHUP and SIGUSR1 (writes the state to the log) meanwhile.
 * Does not daemonise: the caller has forked before it started threads, and MC_FS_READY is when it
 * tells the parent.
 *
 * 0 after an orderly end. Before ready: -EBUSY a mooncakefs is mounted there already, -ENOTDIR,
 * -EPERM …, described in err. -ETIMEDOUT: unmounted and every request answered, but a backend still
 * holds one of our threads or reads; the caller logs, leaves store and remote as they are, and
 * calls _exit().
 */
int mc_fs_run(const struct mc_fs_opts *opts, struct mc_err *err);

/*
 * What mc_fs_run does first; also to be called before the tiers are opened, so that the refusal to
 * stack names the mount and not a lock: unmounts a mooncakefs whose daemon died, -EBUSY where a
 * living one is mounted, -ENOTDIR, -ENOENT …, described in err.
 */
int mc_fs_check_mountpoint(const char *mountpoint, struct mc_err *err);

/* The name of a mount's control socket in its directory, from the minor number of its device. */
#define MC_CONTROL_NAME "control-%u"
