/* SUPER: which generation of a journal is in force. */
#include "tier/journal-super.h"

#include "tier/cleanup.h"
#include "tier/digest.h"
#include "tier/io.h"
#include "tier/journal.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
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

static int open_file(const struct mc_journal_super *s, int flags)
{
	cleanup_free char *path = NULL;

	if (asprintf(&path, "%s/SUPER", s->dir) < 0)
		return -ENOMEM;
	return s->io->open(s->io, path, flags, 0600);
}

static bool read_page(const struct mc_io *io, int fd, unsigned i, struct page *ret)
{
	memset(ret, 0, sizeof(*ret));
	return mc_io_read_full(io, fd, ret, sizeof(*ret), i * sizeof(*ret)) == 0 &&
		memcmp(ret->magic, MAGIC, sizeof(ret->magic)) == 0 && ret->crc == page_crc(ret);
}

/* A page that does not count: page 0 is not written before page 1 was. */
static bool never_written(const struct page *p, unsigned i)
{
	static const struct page zero;

	return i == 0 && memcmp(p, &zero, sizeof(zero)) == 0;
}

static int take_page(struct mc_journal_super *s, const struct page *p, struct mc_err *err)
{
	if (p->format != FORMAT)
		return mc_err_set(err, -EPROTONOSUPPORT,
			"%s: journal format %" PRIu32 ", this program knows %d", s->dir, p->format,
			FORMAT);
	if (memcmp(p->uuid, s->uuid, sizeof(p->uuid)) != 0)
		return mc_err_set(err, -ESTALE, "%s: the journal belongs to another store", s->dir);
	if (p->sequence > s->sequence) {
		s->sequence = p->sequence;
		s->generation = p->generation;
	}
	return 0;
}

int mc_journal_super_read(struct mc_journal_super *s, struct mc_err *err)
{
	int fd = open_file(s, O_RDONLY), r = 0;
	bool fresh = false;

	if (fd == -ENOENT)
		return 0;
	if (fd < 0)
		return fd;
	for (unsigned i = 0; i < 2 && r == 0; i++) {
		struct page p;

		if (read_page(s->io, fd, i, &p)) {
			s->whole++;
			r = take_page(s, &p, err);
		} else if (never_written(&p, i)) {
			fresh = true;
		} else {
			s->bad++;
		}
	}
	s->io->close(s->io, fd);
	if (fresh && s->sequence != 1)
		s->bad++;
	return r;
}

int mc_journal_super_uuid(const struct mc_io *io, const char *dir, uint8_t ret_uuid[16])
{
	const struct mc_journal_super s = {.io = io, .dir = dir};
	int fd = open_file(&s, O_RDONLY), r = -ENOENT;

	if (fd < 0)
		return fd;
	for (unsigned i = 0; i < 2 && r != 0; i++) {
		struct page p;

		if (!read_page(io, fd, i, &p))
			continue;
		memcpy(ret_uuid, p.uuid, sizeof(p.uuid));
		r = 0;
	}
	io->close(io, fd);
	return r;
}

int mc_journal_super_write(struct mc_journal_super *s, uint64_t generation)
{
	struct page p = {.magic = MAGIC, .format = FORMAT, .generation = generation};
	int fd = open_file(s, O_RDWR | O_CREAT), r;

	if (fd < 0)
		return fd;
	p.sequence = s->sequence + 1;
	memcpy(p.uuid, s->uuid, sizeof(p.uuid));
	p.crc = page_crc(&p);
	r = mc_io_write_full(s->io, fd, &p, sizeof(p), (p.sequence & 1) * sizeof(p));
	if (r == 0)
		r = s->io->fsync(s->io, fd);
	s->io->close(s->io, fd);
	if (r == 0)
		r = mc_io_sync_dir(s->io, s->dir);
	/* Written or not: the other page is the one known good, so the number is spent only if it
	 * is. */
	if (r == 0)
		s->sequence++;
	return r;
}
