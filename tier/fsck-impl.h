/* What the parts of an offline check share. For fsck.c, nvme-fsck.c and kv-log-fsck*.c. */
#pragma once

#include "tier/fsck.h"

#include <string.h>

struct mc_fsck {
	const struct mc_fsck_opts *opts; /* borrowed */
	const struct mc_io *io;          /* borrowed */
	char *top;                       /* owned; real path */
	bool is_device;                  /* top is a device or file of a block tier */
	const char *dir;    /* borrowed: of the part that is checked, top or below it */
	const char *prefix; /* borrowed: of names below dir as they are told */
	struct mc_fsck_result res;
	uint64_t bytes_total; /* grows as the parts find out */
};

/* A path below f->dir as it is told: below top. */
static inline const char *mc_fsck_name(const struct mc_fsck *f, const char *path)
{
	return path + strlen(f->top) + 1;
}
/* Each counts what it tells; the text comes formatted. */
void mc_fsck_tell(struct mc_fsck *f, enum mc_fsck_kind kind, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void mc_fsck_leftover(struct mc_fsck *f, const char *path, uint64_t bytes);
/* So many more bytes were looked at. */
void mc_fsck_advance(struct mc_fsck *f, uint64_t bytes);
/*
 * The uuid that counts: the journal's where that is known, else the one in the file, else a new
 * one. *ret_bad: the file has another one, or none, and that is told. -errno: it cannot be read, or
 * is of another format, with a text in err.
 */
struct mc_dir_id;
int mc_fsck_id(struct mc_fsck *f, const struct mc_dir_id *id, const uint8_t *journals,
	uint8_t ret_uuid[16], bool *ret_bad, struct mc_err *err);
/* A part could not be looked at or not be repaired; code is a negative errno, text may be empty. */
void mc_fsck_give_up(struct mc_fsck *f, const char *what, int code, const char *text);

/* ---- the parts: 0 or why they did not come to an end */
int mc_nvme_fsck(struct mc_fsck *f, struct mc_err *err);
int mc_kv_fsck(struct mc_fsck *f, struct mc_err *err);
