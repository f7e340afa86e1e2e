/* What the two halves of an export share: -tree lays out names, export.c moves bytes. */
#pragma once

#include "manifest/export.h"
#include "tier/lock.h"
#include "tier/remote.h"

#include <stdatomic.h>

struct mc_export_file {
	struct mc_source *src; /* owned; NULL for a file without bytes */
	uint32_t entry;
	char *path, *tmp; /* absolute or relative to the working directory; owned */
	bool finished;    /* has its final name */
	/* Under mc_export.lock. */
	int fd;      /* -1 = not open */
	size_t left; /* ranges not written */
};

struct mc_export_range {
	uint64_t off;  /* bytes in the file, at a block */
	uint32_t len;  /* bytes */
	uint32_t file; /* number in mc_export.files */
};

struct mc_export {
	struct mc_remote *remote;
	struct mc_manifest *m;
	const struct mc_export_opts *opts;
	const char *dest;
	struct mc_export_file *files; /* owned */
	size_t n_files;
	struct mc_export_range *ranges; /* owned */
	size_t n_ranges, cap_ranges;
	void **buffers; /* MC_PIECE_MAX for each job, owned */
	struct mc_mutex lock;
	uint64_t bytes, total;
	_Atomic uint64_t done, done_items;
};

/* Describes a failed system call on path. Returns code. */
int mc_export_failed(const char *path, int code, struct mc_err *err);
/* dest, its directories, the files without data; lists files and ranges. */
int mc_export_make_tree(struct mc_export *x, struct mc_err *err);
/* Opens the temporary file at its full size. */
int mc_export_create(
	struct mc_export *x, struct mc_export_file *f, int *ret_fd, struct mc_err *err);
/* Mode, time, closed, final name. Closes fd in every case. */
int mc_export_finish_file(
	struct mc_export *x, struct mc_export_file *f, int fd, struct mc_err *err);
/* Links, then modes and times of directories. */
int mc_export_finish_tree(struct mc_export *x, struct mc_err *err);
int mc_export_sync(const struct mc_export *x, struct mc_err *err);
