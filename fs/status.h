/*
 * What the daemon says about itself, as text: `.mooncake/` in the mount and the control socket show
 * the same. Everything is answered from memory: nothing here waits for a remote, a disk or a
 * request. Thread-safe.
 *
 * Each function writes to out and returns 0, or -ENOMEM; write errors of out are the caller's to
 * look for (ferror). A growable buffer is made by open_memstream.
 */
#pragma once

#include <stdio.h>

struct mc_fs;

/* One JSON object, indented: build, modes in effect and why, tiers, remote, KV, recovery, what is
 * not as it should be. */
int mc_status_json(struct mc_fs *fs, FILE *out);
/* Metrics in Prometheus' text format 0.0.4; no label is a path or a key. */
int mc_status_metrics(struct mc_fs *fs, FILE *out);
/* One JSON object: for every option its value in effect, as one would write it, and where it is
 * from. */
int mc_status_config(struct mc_fs *fs, FILE *out);
/* The last lines of the log as JSON lines, oldest first; see log.h. */
int mc_status_events(struct mc_fs *fs, FILE *out);
/* Writes what mc_status_json says to the log, a line for each of its keys. 0 or -ENOMEM. */
int mc_status_log(struct mc_fs *fs);
