/*
 * The keeper of a mount: a small process, the one the user started, that holds the mount's device
 * and the table of what the kernel knows (fs/takeover.h) while its child, the worker, does the
 * work. A worker that dies or hangs is followed by another one; so is one that a new program
 * replaces (SIGUSR2): then workers are children that execute it, and should it not work, the
 * keeper's own image is there to go on.
 */
#pragma once

#include "tools/daemon.h"
#include "tools/service.h"

#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct mc_takeover;

/* Watching whether the worker works: tools/keeper-watch.c. */
struct mc_watch {
	struct mc_watchdog manager; /* is told what the keeper sees */
	uint64_t turn_ns, next_ns;  /* between two looks; CLOCK_MONOTONIC */
	uint32_t beats;             /* what the worker had counted at the last look */
	unsigned silent;            /* looks since it counted; since it was started */
	bool killed;                /* it hung, and its death is to come */
	unsigned hangs;             /* such deaths, one soon after the other */
	uint64_t last_hang_ns;
};

/* So many workers may die within a minute. */
#define MC_KEEPER_DEATHS 10
/* Exit code of a worker that is to take over and cannot, as no remote answers: it is tried again,
 * without an end. */
#define MC_WORKER_AWAY 75

struct mc_keeper {
	/* For the worker. NULL: there is no keeper, and why (static text). */
	struct mc_takeover *takeover;
	const char *why_not;
	int device;  /* of the mount, -1 = it is to be mounted */
	int line;    /* to the keeper, -1 = there is none */
	bool is_try; /* the program has been started to see whether it could take over */
	/* The keeper's. */
	const char *mountpoint;   /* borrowed */
	struct mc_daemon *daemon; /* borrowed */
	bool background;
	char cwd[PATH_MAX], program[PATH_MAX];
	char *line_words; /* owned: our arguments, each with its NUL */
	size_t line_len;
	pid_t worker, trial; /* 0 = none */
	uint64_t trial_until_ns;
	int signals;      /* signalfd */
	sigset_t before;  /* signals blocked in the worker */
	unsigned pending; /* signals for a worker that is not ready: bits 1 << number */
	bool ready, stopping, drained, upgrading;
	uint64_t ready_ns;
	bool away;     /* workers wait for a remote, and that was told */
	bool replaced; /* workers execute the program that lies where ours lay */
	bool on_trial; /* it has not worked for a while yet */
	bool undone;   /* the last upgrade was: what its worker asked for is not tried again */
	struct mc_watch watch;
	bool reloaded; /* a worker read the configuration anew: those after it are to do so, too */
	uint64_t deaths[MC_KEEPER_DEATHS]; /* ns, a ring */
	unsigned n_deaths;
};

/* Before any thread, and before anything looks at the mount point: an empty table, or what the
 * program that this one replaces left. -errno: what it left is of no use. */
int mc_keeper_open(struct mc_keeper *k);
/* Without a keeper, and why (static text). */
void mc_keeper_none(struct mc_keeper *k, const char *why);
/* In the keeper: returns when the mount has ended, the exit code to leave with. In a worker, and
 * without a keeper: returns -1. k's fields mountpoint, daemon
 * and background are set. */
int mc_keeper_run(struct mc_keeper *k);
void mc_keeper_close(struct mc_keeper *k);

/* So that a process in the background keeps no directory busy. */
void mc_keeper_leave_directory(const struct mc_keeper *k);

/* The worker tells. Nothing is done without a keeper. */
void mc_keeper_mounted(const struct mc_keeper *k, int device);
void mc_keeper_ready(const struct mc_keeper *k);
/* The mount is about to end: returns when the keeper has closed the device. */
void mc_keeper_stopping(const struct mc_keeper *k);
void mc_keeper_drained(const struct mc_keeper *k);
/* The worker works: to be called at every turn of its main loop. */
void mc_keeper_beat(struct mc_keeper *k);
