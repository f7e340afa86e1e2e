/*
 * The control socket: commands of an administrator to the daemon of a mount, and its answers.
 *
 * A request is one line, a JSON object {"command": …} of at most 64 KiB; answers are lines too: any
 * number of {"progress": …}, then one {"ok": true, "result": …} or {"ok": false, "error": "EBUSY",
 * "text": …}. A connection takes requests one after another. docs/FORMAT.md lists the commands.
 */
#pragma once

#include <stdint.h>

struct mc_fs;
struct mc_control;

/* Listens at path, where nothing of worth lies. Root and the user of the daemon may connect. */
int mc_control_open(struct mc_fs *fs, const char *path, struct mc_control **ret);
/* Ends connections and commands under way, and removes the socket. -ETIMEDOUT: one still runs at
 * deadline_ns (CLOCK_MONOTONIC), and the process has to end. NULL allowed. */
int mc_control_close(struct mc_control *c, uint64_t deadline_ns);
