/* Journal pages. Everything here is little endian; the build checks that the host is, too. */
#include "tier/journal-page.h"

#include "tier/cleanup.h"
#include "tier/digest.h"
#include "tier/io.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "formats are little endian");

#define PAGE_MAGIC UINT32_C(0x4c4a434d) /* "MCJL" */
#define WRITE_PAGES 64                  /* a write of 256 KiB at most */

struct page {
	uint32_t magic;
	uint32_t crc; /* CRC32C of what follows */
	uint64_t generation;
	uint64_t number;
	uint32_t used;
	uint32_t flags;
	unsigned char bytes[MC_JOURNAL_PAYLOAD];
};
_Static_assert(sizeof(struct page) == MC_JOURNAL_PAGE, "a page is a page");

static uint32_t page_crc(const struct page *p)
{
	return mc_crc32c(0, &p->generation, sizeof(*p) - offsetof(struct page, generation));
}

int mc_journal_buf_add(struct mc_journal_buf *b, uint8_t type, const void *rec, size_t len)
{
	size_t need = b->len + 4 + len;

	assert(len <= MC_JOURNAL_RECORD_MAX);
	if (need > b->cap) {
		size_t cap = b->cap * 2 > need ? b->cap * 2 : need + 4096;
		unsigned char *grown = realloc(b->data, cap);

		if (grown == NULL)
			return -ENOMEM;
		b->data = grown;
		b->cap = cap;
	}
	b->data[b->len] = type;
	b->data[b->len + 1] = (unsigned char)len;
	b->data[b->len + 2] = (unsigned char)(len >> 8);
	b->data[b->len + 3] = (unsigned char)(len >> 16);
	if (len > 0)
		memcpy(b->data + b->len + 4, rec, len);
	b->len = need;
	return 0;
}

void mc_journal_buf_done(struct mc_journal_buf *b)
{
	free(b->data);
	*b = (struct mc_journal_buf){0};
}

int mc_journal_pages_write(const struct mc_io *io, int fd, const struct mc_journal_buf *b,
	uint64_t generation, uint64_t *page, uint32_t flags)
{
	cleanup_free struct page *pages = calloc(WRITE_PAGES, sizeof(*pages));
	size_t at = 0;
	bool more = b->len > 0 || flags != 0;

	if (pages == NULL)
		return -ENOMEM;
	while (more) {
		size_t n = 0;
		int r;

		for (; n < WRITE_PAGES && more; n++) {
			size_t left = b->len - at;
			struct page *p = &pages[n];

			memset(p, 0, sizeof(*p));
			p->magic = PAGE_MAGIC;
			p->generation = generation;
			p->number = *page + n;
			p->used = (uint32_t)(left < MC_JOURNAL_PAYLOAD ? left : MC_JOURNAL_PAYLOAD);
			if (p->used > 0)
				memcpy(p->bytes, b->data + at, p->used);
			at += p->used;
			more = at < b->len;
			p->flags = more ? 0 : flags;
			p->crc = page_crc(p);
		}
		r = mc_io_write_full(io, fd, pages, n * sizeof(*pages), *page * MC_JOURNAL_PAGE);
		if (r != 0)
			return r;
		*page += n;
	}
	return 0;
}

/* Hands over the whole records at the front of b, keeps the rest. */
static int apply_whole(const struct mc_journal_opts *o, struct mc_journal_buf *b, bool *ret_bad,
	struct mc_err *err)
{
	size_t at = 0;

	while (b->len - at >= 4) {
		const unsigned char *p = b->data + at;
		size_t len = p[1] | (size_t)p[2] << 8 | (size_t)p[3] << 16;
		int r;

		if (len > MC_JOURNAL_RECORD_MAX) {
			*ret_bad = true;
			return 0;
		}
		if (b->len - at - 4 < len)
			break;
		r = o->apply(o->ctx, p[0], p + 4, len, err);
		if (r != 0)
			return r;
		at += 4 + len;
	}
	memmove(b->data, b->data + at, b->len - at);
	b->len -= at;
	return 0;
}

static bool all_zero(const void *p, size_t len)
{
	static const struct page zero;

	return memcmp(p, &zero, len) == 0;
}

int mc_journal_pages_read(const struct mc_journal_opts *o, int fd, uint64_t generation,
	struct mc_journal_end *ret, struct mc_err *err)
{
	struct mc_journal_buf b = {.cap = MC_JOURNAL_RECORD_MAX + 4 + MC_JOURNAL_PAGE};
	cleanup_free struct page *p = malloc(sizeof(*p));
	bool bad = false;
	int r = 0;

	*ret = (struct mc_journal_end){0};
	b.data = malloc(b.cap);
	if (b.data == NULL || p == NULL)
		r = -ENOMEM;
	for (uint64_t n = 0; r == 0 && !ret->last && !bad; n++) {
		r = mc_io_read_full(o->io, fd, p, sizeof(*p), n * MC_JOURNAL_PAGE);
		if (r != 0)
			break;
		if (p->magic != PAGE_MAGIC || p->crc != page_crc(p) ||
			p->generation != generation || p->number != n ||
			p->used > MC_JOURNAL_PAYLOAD) {
			ret->torn = !all_zero(p, sizeof(*p));
			break;
		}
		ret->pages = n + 1;
		/* What apply_whole leaves is part of one record, so the page fits. */
		memcpy(b.data + b.len, p->bytes, p->used);
		b.len += p->used;
		ret->last = (p->flags & MC_JOURNAL_LAST) != 0;
		r = apply_whole(o, &b, &bad, err);
	}
	if (b.len > 0 || bad)
		ret->torn = true;
	mc_journal_buf_done(&b);
	return r == -ENODATA ? 0 : r;
}

int64_t mc_journal_pages_stray(const struct mc_io *io, int fd, uint64_t page)
{
	cleanup_free unsigned char *buf = malloc(WRITE_PAGES * sizeof(struct page));
	int64_t stray = 0, got = 1;

	if (buf == NULL)
		return -ENOMEM;
	for (uint64_t off = page * MC_JOURNAL_PAGE; got > 0; off += (uint64_t)got) {
		got = io->pread(io, fd, buf, WRITE_PAGES * sizeof(struct page), off);
		for (int64_t at = 0; at < got; at += MC_JOURNAL_PAGE) {
			int64_t left = got - at < MC_JOURNAL_PAGE ? got - at : MC_JOURNAL_PAGE;

			stray += !all_zero(buf + at, (size_t)left);
		}
	}
	return got < 0 ? got : stray;
}
