/* How far a long operation has come. The operation reports, whoever shows it decides when and how.
 */
#pragma once

#include <stdint.h>

struct mc_progress {
	const char *stage; /* "scan", "read", "check", "publish", … constant text */
	uint64_t bytes_done, bytes_total;
	uint64_t items_done, items_total; /* chunks or files; 0 = not counted */
};

/* Called from the thread that started the operation, a few times a second and at a change of stage.
 */
typedef void mc_progress_fn(void *ctx, const struct mc_progress *now);
