/* Shows progress: one line that is rewritten on a terminal, JSON lines for programs, else nothing.
 */
#pragma once

#include "manifest/progress.h"

#include <stdbool.h>
#include <stddef.h>

struct mc_progress_view {
	bool json;
	bool terminal;
	bool line_open; /* the terminal's cursor stands on our line */
	const char *stage;
	uint64_t shown_ns;  /* CLOCK_MONOTONIC; 0 = this stage was not shown yet */
	uint64_t sample_ns; /* when sample_bytes were done */
	uint64_t sample_bytes;
	double rate; /* bytes a second, smoothed over about five seconds */
};

/* json: lines on standard output. Otherwise standard error, if it is a terminal. */
void mc_progress_open(struct mc_progress_view *v, bool json);
/* A mc_progress_fn whose ctx is the view. */
void mc_progress_show(void *view, const struct mc_progress *now);
/* A line about one thing beside the progress: standard error, and with json an object with the
 * event. */
void mc_progress_say(struct mc_progress_view *v, const char *event, const char *text);
/* Clears the line, so that what follows starts on an empty one. */
void mc_progress_close(struct mc_progress_view *v);

/* Takes a sample at now_ns into the smoothed rate. */
void mc_progress_sample(struct mc_progress_view *v, const struct mc_progress *now, uint64_t now_ns);
#define MC_PROGRESS_TEXT 160
/* "read 1.5 GiB of 4 GiB (37 %), 812 MiB/s, 3 s left" */
void mc_progress_text(const struct mc_progress_view *v, const struct mc_progress *now,
	char out[MC_PROGRESS_TEXT]);
