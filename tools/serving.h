/* A mount as the command makes it. For tools/cmd-mount.c and tools/mount-reload.c. */
#pragma once

#include "fs/fs.h"
#include "tools/daemon.h"
#include "tools/keeper.h"
#include "tools/mount-kv.h"
#include "tools/mount-settings.h"
#include "tools/service.h"

/* What a mount consists of; paths are absolute, since a daemon changes its directory. */
struct mc_serving {
	const struct mc_options *o;
	char mountpoint[PATH_MAX];
	char run_dir[64]; /* of this user's mounts: DRAM tiers and control sockets */
	char dram_dir[PATH_MAX];
	char nvme_dir[PATH_MAX]; /* "" = no NVMe tier */
	uint64_t dram_bytes, nvme_bytes;
	struct mc_remote *remote;       /* owned */
	struct mc_store *store;         /* owned */
	struct mc_catalogue *catalogue; /* owned */
	struct mc_mount_kv kv;
	struct mc_scrub *scrub; /* owned; NULL = nothing lies on NVMe */
	struct mc_mount_settings settings;
	struct mc_daemon daemon;
	struct mc_keeper keeper;
	struct mc_watchdog watchdog;
	struct mc_fs_opts fs_opts; /* these two are changed by the thread of mc_fs_run alone */
	unsigned stop_s;
	bool foreground;
	bool stopping; /* the mount is about to end, or has ended */
};

/* Reads the configuration again, and tells the service manager. The thread of mc_fs_run. */
void mc_mount_reload(struct mc_serving *m);
