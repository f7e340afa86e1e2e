/*
 * Superblocks of block tiers: reading, checking, formatting.
 *
 * Invariants:
 * 1. While a format is under way no copy is whole: it takes the old ones away first and writes the
 *    new ones last.
 * 2. Two copies that are whole say the same, or the first one counts.
 */
#include "tier/block-super.h"

#include "tier/cleanup.h"
#include "tier/digest.h"
#include "tier/io.h"
#include "tier/journal.h"
#include "tier/kv-store.h"

#include <blkid/blkid.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define MAGIC "MCBLOCK"
#define FORMAT 1       /* by itself; */
#define FORMAT_BELOW 2 /* below a directory: older programs would take it for empty */
#define PAGE 4096u
#define MIB (UINT64_C(1) << 20)
#define SECOND_AT (UINT64_C(512) << 10)
#define HEAD_BYTES MIB          /* superblocks and probe */
#define JOURNAL_SHARE 48        /* of the device: snapshots of about 1/144 of it */
#define JOURNAL_MAX (MIB << 14) /* 16 GiB */
#define SEGMENTS_LEAST 4

struct page {
	char magic[8];
	uint32_t format;
	uint32_t crc; /* CRC32C of the page with this field zero */
	struct mc_block_super super;
	uint8_t zero[PAGE - 16 - sizeof(struct mc_block_super)];
};
_Static_assert(sizeof(struct page) == PAGE, "a superblock is a page");
_Static_assert(sizeof(struct mc_block_super) == 80, "no padding");

static const uint64_t copies[2] = {0, SECOND_AT};

static uint32_t page_crc(const struct page *p)
{
	uint32_t zero = 0, crc = mc_crc32c(0, p, offsetof(struct page, crc));

	crc = mc_crc32c(crc, &zero, sizeof(zero));
	return mc_crc32c(crc, &p->super, PAGE - offsetof(struct page, super));
}

static bool is_whole(const struct page *p)
{
	return memcmp(p->magic, MAGIC, sizeof(p->magic)) == 0 && p->crc == page_crc(p);
}

static int write_page(const struct mc_block_dev *d, uint64_t at, const void *page)
{
	return mc_io_write_full(d->io, d->fd, page, PAGE, at);
}

/* ---- reading */

static int check(
	const struct mc_block_dev *d, const char *path, const struct page *p, struct mc_err *err)
{
	if (p->format != FORMAT && p->format != FORMAT_BELOW)
		return mc_err_set(err, -EPROTONOSUPPORT,
			"%s: block tier of format %" PRIu32 ", this program knows %d and %d", path,
			p->format, FORMAT, FORMAT_BELOW);
	if (d->bytes < p->super.bytes)
		return mc_err_set(err, -ENOSPC,
			"%s: has %" PRIu64 " bytes, and had %" PRIu64 " when it was formatted",
			path, d->bytes, p->super.bytes);
	return 0;
}

int mc_block_super_read(const struct mc_block_dev *d, const char *path, unsigned *ret_bad,
	struct mc_block_super *ret, struct mc_err *err)
{
	cleanup_free struct page *pages = aligned_alloc(PAGE, 2 * sizeof(*pages));
	bool whole[2] = {false, false};
	const struct page *good = NULL;
	int r = pages == NULL ? -ENOMEM : 0;

	for (unsigned i = 0; i < 2 && r == 0; i++) {
		r = mc_io_read_full(d->io, d->fd, &pages[i], PAGE, copies[i]);
		whole[i] = r == 0 && is_whole(&pages[i]);
		if (whole[i] && good == NULL)
			good = &pages[i];
		if (r == -ENODATA)
			r = 0;
	}
	if (r != 0)
		return mc_err_set(err, r, "%s: reading the superblock: %s", path, strerror(-r));
	if (good == NULL)
		return mc_err_set(err, -EMEDIUMTYPE,
			"%s: holds no block tier; --format makes one, and what lies there is lost",
			path);
	whole[1] = whole[1] && memcmp(good, &pages[1], PAGE) == 0;
	r = check(d, path, good, err);
	if (ret_bad != NULL)
		*ret_bad = !whole[0] + !whole[1];
	for (unsigned i = 0; i < 2 && r == 0 && ret_bad == NULL; i++)
		if (!whole[i])
			write_page(d, copies[i], good); /* else the next start tries again */
	if (r == 0)
		*ret = good->super;
	return r;
}

/* ---- binding */

/* One after the other: one of them is whole. */
static int write_copies(const struct mc_block_dev *d, const struct mc_block_super *s)
{
	static const uint8_t none[16];
	cleanup_free struct page *p = aligned_alloc(PAGE, sizeof(*p));
	int r = 0;

	if (p == NULL)
		return -ENOMEM;
	*p = (struct page){.magic = MAGIC, .format = FORMAT, .super = *s};
	if (memcmp(s->above, none, sizeof(none)) != 0)
		p->format = FORMAT_BELOW;
	p->crc = page_crc(p);
	for (unsigned i = 0; i < 2 && r == 0; i++) {
		r = write_page(d, copies[i], p);
		if (r == 0)
			r = d->io->fdatasync(d->io, d->fd);
	}
	return r;
}

int mc_block_super_bind(
	const struct mc_block_dev *d, struct mc_block_super *s, const uint8_t above[16])
{
	memcpy(s->above, above, sizeof(s->above));
	return write_copies(d, s);
}

int mc_block_super_used(const struct mc_block_dev *d, const struct mc_block_super *s)
{
	cleanup_free unsigned char *super = aligned_alloc(PAGE, 2 * (size_t)PAGE);
	int r = super == NULL
		? -ENOMEM
		: mc_io_read_full(d->io, d->fd, super, 2 * (size_t)PAGE, s->journal_at);

	for (unsigned i = 0; i < 2 * PAGE && r == 0; i++)
		r = super[i] != 0;
	return r;
}

/* ---- formatting */

/* What libblkid, which knows some 70 file systems, members of arrays and partition tables, finds
 * there; its name in ret. wipe: it is taken away, and the next looked for. Through a descriptor of
 * its own: it reads what is not aligned. */
static int look_for_others(const char *path, bool wipe, char *ret, size_t cap)
{
	cleanup_close int fd = open(path, (wipe ? O_RDWR : O_RDONLY) | O_CLOEXEC);
	blkid_probe probe = fd >= 0 ? blkid_new_probe() : NULL;
	const char *type = NULL;
	int r = probe == NULL || blkid_probe_set_device(probe, fd, 0, 0) != 0 ? -EIO : 0;

	ret[0] = '\0';
	if (r == 0) {
		blkid_probe_enable_superblocks(probe, 1);
		blkid_probe_set_superblocks_flags(
			probe, BLKID_SUBLKS_TYPE | BLKID_SUBLKS_MAGIC | BLKID_SUBLKS_BADCSUM);
		blkid_probe_enable_partitions(probe, 1);
		blkid_probe_set_partitions_flags(probe, BLKID_PARTS_MAGIC);
	}
	while (r == 0 && blkid_do_probe(probe) == 0) {
		if (blkid_probe_lookup_value(probe, "TYPE", &type, NULL) != 0 &&
			blkid_probe_lookup_value(probe, "PTTYPE", &type, NULL) != 0)
			type = "something";
		if (ret[0] == '\0')
			strncat(ret, type, cap - 1);
		if (!wipe || blkid_do_wipe(probe, 0) != 0)
			break;
	}
	blkid_free_probe(probe);
	return r == 0 && wipe && fsync(fd) < 0 ? -errno : r;
}

static int find_others(
	const struct mc_block_dev *d, const struct mc_block_format *f, struct mc_err *err)
{
	cleanup_free struct page *p = aligned_alloc(PAGE, sizeof(*p));
	char name[64];
	int r = p == NULL ? -ENOMEM : 0;

	for (unsigned i = 0; i < 2 && r == 0 && !f->force; i++) {
		r = mc_io_read_full(d->io, d->fd, p, PAGE, copies[i]);
		if (r == 0 && memcmp(p->magic, MAGIC, sizeof(p->magic)) == 0)
			return mc_err_set(err, -EEXIST,
				"%s: holds a block tier; --force formats it all the same", f->path);
	}
	if (r == 0)
		r = look_for_others(f->path, f->force, name, sizeof(name));
	if (r == 0 && !f->force && name[0] != '\0')
		return mc_err_set(err, -EEXIST, "%s: holds %s; --force formats it all the same",
			f->path, name);
	return r;
}

static int plan(const struct mc_block_dev *d, const struct mc_block_format *f,
	struct mc_block_super *ret, struct mc_err *err)
{
	struct mc_block_super s = {.bytes = f->bytes != 0 ? f->bytes : d->bytes};

	if (s.bytes > d->bytes)
		return mc_err_set(
			err, -ENOSPC, "%s: has only %" PRIu64 " bytes", f->path, d->bytes);
	s.segment_bytes =
		f->segment_bytes != 0 ? f->segment_bytes : mc_kv_store_segment_bytes(s.bytes);
	s.journal_at = HEAD_BYTES;
	s.journal_bytes = s.bytes / JOURNAL_SHARE / MIB * MIB;
	if (s.journal_bytes < MIB)
		s.journal_bytes = MIB;
	if (s.journal_bytes > JOURNAL_MAX)
		s.journal_bytes = JOURNAL_MAX;
	s.segments_at = s.journal_at + s.journal_bytes;
	if (s.bytes > s.segments_at)
		s.n_segments = (s.bytes - s.segments_at) / s.segment_bytes;
	if (s.n_segments < SEGMENTS_LEAST)
		return mc_err_set(err, -ENOSPC, "%s: too small for a block tier", f->path);
	if (getrandom(s.uuid, sizeof(s.uuid), 0) != (ssize_t)sizeof(s.uuid))
		return -EIO;
	*ret = s;
	return 0;
}

static int write_all(const struct mc_block_dev *d, const struct mc_block_super *s)
{
	cleanup_free struct page *p = aligned_alloc(PAGE, sizeof(*p));
	uint64_t snapshot = mc_journal_area_snapshot_bytes(s->journal_bytes);
	/* SUPER of the journal, and the first pages of both its snapshots. */
	const uint64_t blank[] = {copies[0], copies[1], s->journal_at, s->journal_at + PAGE,
		s->journal_at + 2 * PAGE, s->journal_at + 2 * PAGE + snapshot};
	int r = 0;

	if (p == NULL)
		return -ENOMEM;
	memset(p, 0, sizeof(*p));
	for (size_t i = 0; i < sizeof(blank) / sizeof(*blank) && r == 0; i++)
		r = write_page(d, blank[i], p);
	if (r == 0)
		r = d->io->fdatasync(d->io, d->fd);
	return r == 0 ? write_copies(d, s) : r;
}

int mc_block_format(const struct mc_block_format *f, struct mc_err *err)
{
	const struct mc_io *io = f->io != NULL ? f->io : mc_io_real();
	struct mc_block_super s;
	struct mc_block_dev d;
	int r = mc_block_dev_open(f->path, io, f->bytes, &d, err);

	if (r != 0)
		return r;
	r = find_others(&d, f, err);
	if (r == 0)
		r = plan(&d, f, &s, err);
	if (r == 0)
		r = write_all(&d, &s);
	if (r == 0)
		mc_block_dev_discard(&d, s.segments_at, s.n_segments * s.segment_bytes);
	mc_block_dev_close(&d);
	return r == 0 ? 0 : mc_err_set(err, r, "%s: %s", f->path, strerror(-r));
}
