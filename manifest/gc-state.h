/* What the parts of a garbage collection share (manifest/ only; the door is gc.h). */
#pragma once

#include "manifest/gc.h"
#include "manifest/manifest.h"
#include "tier/lock.h"

#include <stdatomic.h>

enum { MC_MARK_REVISION = 1, MC_MARK_SEEN = 2 };

/* A chunk that is in use. 33 bytes each, sorted by content once marking has ended. */
struct mc_mark {
	uint8_t sha256[MC_SHA256_SIZE];
	uint8_t flags; /* MC_MARK_…; SEEN is set by the one worker that has the chunk's directory */
};

struct mc_marks {
	struct mc_mark *v; /* owned */
	size_t n, cap;
};

struct mc_gc {
	struct mc_remote *remote;
	const struct mc_gc_opts *opts;
	struct mc_marks marks;
	int64_t limit_s;           /* server's time: what was touched since then is young */
	struct mc_mutex note_lock; /* held during opts->note, so that texts do not mix */
	const char *stage;
	_Atomic uint64_t done, total;
	uint64_t revisions;
	_Atomic uint64_t missing, chunks, bytes, garbage, garbage_bytes, young, young_bytes,
		restored, leftovers, leftover_bytes, strangers;
};

void mc_gc_note(struct mc_gc *g, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void mc_gc_tick(void *gc); /* reports the progress */
/* 0, or -ENOTCONN while one of the remotes is away: it may hold revisions that nobody here sees. */
int mc_gc_whole(struct mc_gc *g, struct mc_err *err);

/* Names that a listing gave. */
struct mc_gc_names {
	char **v; /* owned */
	size_t n;
};
int mc_gc_keep_name(void *names, const char *name); /* a mc_catalogue_each; -ENOMEM */
void mc_gc_names_done(struct mc_gc_names *l);

/* Fills and sorts the marks. */
int mc_gc_mark(struct mc_gc *g, struct mc_err *err);
struct mc_mark *mc_marks_find(const struct mc_marks *m, const uint8_t sha256[MC_SHA256_SIZE]);

/* Looks at every chunk, then at what was left unpublished. */
int mc_gc_sweep(struct mc_gc *g, struct mc_err *err);
