/* SUPER: which generation of a journal is in force. */
#include "tier/journal-super.h"

#include "tier/cleanup.h"
#include "tier/digest.h"
#include "tier/io.h"
#include "tier/journal-place.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC "MCSUPER"
#define FORMAT 1

struct page {
	char magic[8];
	uint32_t format;
	uint32_t crc; /* CRC32C of the page with this field zero */
	uint8_t uuid[16];
	uint64_t sequence;   /* the higher one counts; its lowest bit is the page it stands in */
	uint64_t generation; /* snapshot.<n> and log.<n> */
	uint8_t zero[MC_JOURNAL_PAGE - 48];
};
_Static_assert(sizeof(struct page) == MC_JOURNAL_PAGE, "a superblock is a page");

static uint32_t page_crc(const struct page *p)
{
	uint32_t zero = 0, crc = mc_crc32c(0, p, offsetof(struct page, crc));

	crc = mc_crc32c(crc, &zero, sizeof(zero));
	return mc_crc32c(crc, p->uuid, sizeof(*p) - offsetof(struct page, uuid));
}

/* 0, -EBADMSG it is not whole, -errno. A page that cannot be read may be the one that counts: that
 * is an error, not damage. */
static int read_page(const struct mc_journal_file *f, unsigned i, struct page *ret)
{
	int r;

	memset(ret, 0, sizeof(*ret));
	r = mc_io_read_full(f->io, f->fd, ret, sizeof(*ret), f->at + i * sizeof(*ret));
	if (r != 0 && r != -ENODATA)
		return r;
	return r == 0 && memcmp(ret->magic, MAGIC, sizeof(ret->magic)) == 0 &&
			ret->crc == page_crc(ret)
		? 0
		: -EBADMSG;
}

/* A page that does not count: page 0 is not written before page 1 was, and in an area both are
 * there before they are written. */
static bool never_written(const struct mc_journal_super *s, const struct page *p, unsigned i)
{
	static const struct page zero;

	return (i == 0 || s->place->dir == NULL) && memcmp(p, &zero, sizeof(zero)) == 0;
}

static int take_page(struct mc_journal_super *s, const struct page *p, struct mc_err *err)
{
	const char *name = mc_journal_place_name(s->place);

	if (p->format != FORMAT)
		return mc_err_set(err, -EPROTONOSUPPORT,
			"%s: journal format %" PRIu32 ", this program knows %d", name, p->format,
			FORMAT);
	if (memcmp(p->uuid, s->uuid, sizeof(p->uuid)) != 0)
		return mc_err_set(err, -ESTALE, "%s: the journal belongs to another store", name);
	if (p->sequence > s->sequence) {
		s->sequence = p->sequence;
		s->generation = p->generation;
	}
	return 0;
}

int mc_journal_super_read(struct mc_journal_super *s, struct mc_err *err)
{
	cleanup_free struct page *p = aligned_alloc(MC_JOURNAL_PAGE, sizeof(*p));
	struct mc_journal_file f;
	unsigned fresh = 0;
	int r = p == NULL ? -ENOMEM : mc_journal_file_open(s->place, MC_JOURNAL_SUPER, 0, &f);

	if (r != 0)
		return r == -ENOENT ? 0 : r;
	for (unsigned i = 0; i < 2 && r == 0; i++) {
		r = read_page(&f, i, p);
		if (r == 0) {
			s->whole++;
			r = take_page(s, p, err);
		} else if (r == -EBADMSG) {
			r = 0;
			if (never_written(s, p, i))
				fresh++;
			else
				s->bad++;
		}
	}
	mc_journal_file_close(&f);
	if (fresh == 1 && s->sequence != 1)
		s->bad++;
	return r;
}

int mc_journal_super_uuid(const struct mc_io *io, const char *dir, uint8_t ret_uuid[16])
{
	const struct mc_journal_opts o = {.io = io, .dir = dir};
	cleanup_free struct page *p = aligned_alloc(MC_JOURNAL_PAGE, sizeof(*p));
	struct mc_journal_place place;
	struct mc_journal_file f = {.fd = -1};
	int r = p == NULL ? -ENOMEM : mc_journal_place_init(&place, &o);

	if (r != 0)
		return r;
	r = mc_journal_file_open(&place, MC_JOURNAL_SUPER, 0, &f);
	if (r == 0) {
		r = -EBADMSG;
		for (unsigned i = 0; i < 2 && r == -EBADMSG; i++)
			r = read_page(&f, i, p);
	}
	if (r == 0)
		memcpy(ret_uuid, p->uuid, sizeof(p->uuid));
	mc_journal_file_close(&f);
	mc_journal_place_done(&place);
	return r == -EBADMSG ? -ENOENT : r;
}

int mc_journal_super_write(struct mc_journal_super *s, uint64_t generation)
{
	cleanup_free struct page *p = aligned_alloc(MC_JOURNAL_PAGE, sizeof(*p));
	struct mc_journal_file f;
	int r = p == NULL ? -ENOMEM : mc_journal_file_make(s->place, MC_JOURNAL_SUPER, 0, 0, &f);

	if (r != 0)
		return r;
	*p = (struct page){.magic = MAGIC,
		.format = FORMAT,
		.sequence = s->sequence + 1,
		.generation = generation};
	memcpy(p->uuid, s->uuid, sizeof(p->uuid));
	p->crc = page_crc(p);
	r = mc_io_write_full(f.io, f.fd, p, sizeof(*p), f.at + (p->sequence & 1) * sizeof(*p));
	if (r == 0)
		r = mc_journal_file_keep(s->place, MC_JOURNAL_SUPER, 0, &f);
	mc_journal_file_close(&f);
	/* Written or not: the other page is the one known good, so the number is spent only if it
	 * is. */
	if (r == 0)
		s->sequence++;
	return r;
}
