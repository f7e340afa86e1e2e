/* What a command over files of a mount says: progress, failures, a last line. */
#pragma once

#include "tools/mount-files.h"
#include "tools/progress.h"

struct mc_mount_report {
	const char *done; /* "evicted": what happened to the files, a literal */
	bool json;
	struct mc_progress_view view;
	uint64_t bytes_total, items_total; /* 0 = no progress is shown */
	uint64_t failures;
};

void mc_mount_report_open(struct mc_mount_report *r, const char *done, bool json);
/* Has the run report to r. */
void mc_mount_report_use(struct mc_mount_report *r, struct mc_mount_run *run);
/* m NULL: the command was broken off, there is no last line. */
void mc_mount_report_close(struct mc_mount_report *r, const struct mc_mount_files *m);

/* A whole command of that kind, with --tier where it was given: its exit code. */
int mc_mount_report_run(const struct mc_options *o, const char *command, const char *done);
