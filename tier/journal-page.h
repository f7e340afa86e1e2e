/*
 * Pages of a journal file: writing a stream of records as pages, reading it back.
 *
 * Page (little endian): u32 magic, u32 CRC32C of the rest, u64 generation, u64 number in the file
 * from 0, u32 bytes used, u32 flags, then the bytes. Record: u8 type, u24 length, payload; it may
 * cross pages.
 */
#pragma once

#include "tier/journal-place.h"

#define MC_JOURNAL_PAYLOAD (MC_JOURNAL_PAGE - 32)
enum { MC_JOURNAL_LAST = 1 }; /* flag: the file ends here by intent (snapshots) */

/* A growing byte stream of framed records. */
struct mc_journal_buf {
	unsigned char *data; /* owned */
	size_t len, cap;     /* bytes */
};
/* 0 or -ENOMEM. */
int mc_journal_buf_add(struct mc_journal_buf *b, uint8_t type, const void *rec, size_t len);
/* The records of from behind those of b. 0 or -ENOMEM. */
int mc_journal_buf_join(struct mc_journal_buf *b, const struct mc_journal_buf *from);
/* Takes the first len bytes out. */
void mc_journal_buf_drop(struct mc_journal_buf *b, size_t len);
void mc_journal_buf_done(struct mc_journal_buf *b);

/*
 * Writes the stream as pages from *page on, which is advanced past them. The last one carries
 * flags. An empty stream writes one empty page when flags are set, else none. -ENOSPC: the file has
 * no more room; -errno.
 */
int mc_journal_pages_write(const struct mc_journal_file *f, const struct mc_journal_buf *b,
	uint64_t generation, uint64_t *page, uint32_t flags);

/* How far a file was read. */
struct mc_journal_end {
	uint64_t pages; /* whole ones before the end */
	bool last;      /* the page flagged last was seen */
	bool torn;      /* reading stopped at a page that is not zero, or inside a record */
};
/* Reads pages from 0 on and hands each whole record to apply. 0, apply's error, -errno of reading.
 */
int mc_journal_pages_read(const struct mc_journal_opts *o, const struct mc_journal_file *f,
	uint64_t generation, struct mc_journal_end *ret, struct mc_err *err);
/* How many pages from this one on hold something: are not zero, in an area belong to this
 * generation. Or -errno of reading. */
int64_t mc_journal_pages_stray(const struct mc_journal_file *f, uint64_t generation, uint64_t page);
/* The generation of the file's first page; 0: it is not whole. -errno of reading. */
int mc_journal_pages_generation(const struct mc_journal_file *f, uint64_t *ret);
