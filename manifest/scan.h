/*
 * What lies in a source directory before an import: every directory, file and symbolic link, and
 * which ranges of a file hold data. A scan only looks; comparing two scans tells whether the source
 * changed.
 *
 * A symbolic link that stays inside the source stays a link (one written as an absolute path or
 * with dots in the middle becomes the relative link to the same place); one that leaves the source
 * stands for the file or directory it leads to, as in a Hugging Face cache snapshot.
 */
#pragma once

#include "manifest/chunker.h"

struct mc_remote;

struct mc_scan_entry {
	enum mc_entry_type type;
	char *path;    /* relative to the source, "" = the source itself; owned */
	char *target;  /* SYMLINK: as the manifest holds it; owned */
	char *outside; /* FILE behind a link that leaves the source: its real path, else NULL; owned
			*/
	uint32_t mode; /* permission bits */
	int64_t mtime_s;
	uint32_t mtime_ns;
	uint64_t size; /* FILE: bytes */
	uint64_t dev, ino;
	struct mc_extent *data; /* FILE: in order, not touching; all else is hole; owned */
	size_t n_data;
};

struct mc_scan {
	char *root; /* real path of the source, or its path on the remote; owned */
	bool on_remote;
	struct mc_scan_entry
		*entries; /* sorted by the bytes of path; entry 0 is the source; owned */
	size_t n, cap;
	uint64_t files;
	uint64_t bytes;      /* sizes of all files */
	uint64_t data_bytes; /* the part of it that is not hole */
};

/*
 * Walks src. Refuses, naming the offender: what is neither file, directory nor link; a name that
 * the manifest cannot hold; a link that leads out of the source to nothing, or back to a directory
 * that is being walked. The caller calls done in every case.
 */
int mc_scan_local(const char *src, struct mc_scan *ret, struct mc_err *err);
/* The same for a directory of the remote, read through it; files count as wholly data, and links
 * are refused because the remote does not say where they lead. */
int mc_scan_remote(struct mc_remote *r, const char *src, struct mc_scan *ret, struct mc_err *err);
void mc_scan_done(struct mc_scan *s);

/* 0 when now is what before was; -ESTALE with the first path that differs. */
int mc_scan_compare(const struct mc_scan *before, const struct mc_scan *now, struct mc_err *err);

/* Where a FILE is opened: an absolute path (owned by the caller, free()), or a path on the remote.
 */
int mc_scan_open_path(const struct mc_scan *s, const struct mc_scan_entry *e, char **ret);

/* Parts of the module. Appends an entry with a copy of path; NULL without memory. */
struct mc_scan_entry *mc_scan_add(struct mc_scan *s, enum mc_entry_type type, const char *path);
int mc_scan_add_data(struct mc_scan_entry *e, uint64_t off, uint64_t len);
/* Sorts and counts once all entries are there. */
void mc_scan_finish(struct mc_scan *s);
/* "a/b" from "a" and "b", "b" from "" and "b". 0 or -ENOMEM. */
int mc_scan_join(const char *dir, const char *name, char **ret);
/* Why name in dir cannot be imported, or 0. */
int mc_scan_check_name(const char *path, struct mc_err *err);
