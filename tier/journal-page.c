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
#define WRITE_PAGES 64                  /* 256 KiB at once */

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

static int make_room(struct mc_journal_buf *b, size_t len)
{
	size_t need = b->len + len, cap = b->cap * 2 > need ? b->cap * 2 : need + 4096;
	unsigned char *grown;

	if (need <= b->cap)
		return 0;
	grown = realloc(b->data, cap);
	if (grown == NULL)
		return -ENOMEM;
	b->data = grown;
	b->cap = cap;
	return 0;
}

int mc_journal_buf_add(struct mc_journal_buf *b, uint8_t type, const void *rec, size_t len)
{
	int r = make_room(b, 4 + len);

	assert(len <= MC_JOURNAL_RECORD_MAX);
	if (r != 0)
		return r;
	b->data[b->len] = type;
	b->data[b->len + 1] = (unsigned char)len;
	b->data[b->len + 2] = (unsigned char)(len >> 8);
	b->data[b->len + 3] = (unsigned char)(len >> 16);
	if (len > 0)
		memcpy(b->data + b->len + 4, rec, len);
	b->len += 4 + len;
	return 0;
}

int mc_journal_buf_join(struct mc_journal_buf *b, const struct mc_journal_buf *from)
{
	int r = from->len > 0 ? make_room(b, from->len) : 0;

	if (r != 0 || from->len == 0)
		return r;
	memcpy(b->data + b->len, from->data, from->len);
	b->len += from->len;
	return 0;
}

void mc_journal_buf_drop(struct mc_journal_buf *b, size_t len)
{
	b->len -= len;
	if (len > 0)
		memmove(b->data, b->data + len, b->len);
}

void mc_journal_buf_done(struct mc_journal_buf *b)
{
	free(b->data);
	*b = (struct mc_journal_buf){0};
}

int mc_journal_pages_write(const struct mc_journal_file *f, const struct mc_journal_buf *b,
	uint64_t generation, uint64_t *page, uint32_t flags)
{
	cleanup_free struct page *pages =
		aligned_alloc(MC_JOURNAL_PAGE, WRITE_PAGES * sizeof(*pages));
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
		if ((*page + n) * MC_JOURNAL_PAGE > f->limit)
			return -ENOSPC;
		r = mc_io_write_full(
			f->io, f->fd, pages, n * sizeof(*pages), f->at + *page * MC_JOURNAL_PAGE);
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
	mc_journal_buf_drop(b, at);
	return 0;
}

static bool all_zero(const void *p, size_t len)
{
	static const struct page zero;

	return memcmp(p, &zero, len) == 0;
}

/* Pages of a file through a buffer of several. */
struct window {
	struct page *pages; /* owned */
	uint64_t first, have;
	uint64_t end; /* bytes of the last one that the file holds in part, 0 = none */
};

/* Reads from the n-th page on. 0, -ENODATA the file ends there, -errno. */
static int fill(struct window *w, const struct mc_journal_file *f, uint64_t n)
{
	uint64_t at = n * MC_JOURNAL_PAGE, want = WRITE_PAGES * sizeof(*w->pages);
	int64_t got;

	if (w->pages == NULL)
		w->pages = aligned_alloc(MC_JOURNAL_PAGE, want);
	if (w->pages == NULL)
		return -ENOMEM;
	if (at >= f->limit)
		return -ENODATA;
	if (want > f->limit - at)
		want = f->limit - at;
	do
		got = f->io->pread(f->io, f->fd, w->pages, want, f->at + at);
	while (got == -EINTR);
	if (got < 0)
		return (int)got;
	w->first = n;
	w->have = (uint64_t)got / MC_JOURNAL_PAGE;
	w->end = (uint64_t)got % MC_JOURNAL_PAGE;
	return got > 0 ? 0 : -ENODATA;
}

/* The n-th page. */
static int look(struct window *w, const struct mc_journal_file *f, uint64_t n, struct page **ret)
{
	int r = n >= w->first && n < w->first + w->have ? 0 : fill(w, f, n);

	if (r == 0 && w->first + w->have <= n)
		r = -ENODATA;
	*ret = r == 0 ? &w->pages[n - w->first] : NULL;
	return r;
}

int mc_journal_pages_read(const struct mc_journal_opts *o, const struct mc_journal_file *f,
	uint64_t generation, struct mc_journal_end *ret, struct mc_err *err)
{
	struct mc_journal_buf b = {.cap = MC_JOURNAL_RECORD_MAX + 4 + MC_JOURNAL_PAGE};
	struct window w = {0};
	struct page *p;
	bool bad = false;
	int r = 0;

	*ret = (struct mc_journal_end){0};
	b.data = malloc(b.cap);
	if (b.data == NULL)
		r = -ENOMEM;
	for (uint64_t n = 0; r == 0 && !ret->last && !bad; n++) {
		r = look(&w, f, n, &p);
		if (r != 0)
			break;
		if (p->magic != PAGE_MAGIC || p->crc != page_crc(p) ||
			p->generation != generation || p->number != n ||
			p->used > MC_JOURNAL_PAYLOAD) {
			ret->torn = !all_zero(p, sizeof(*p));
			break;
		}
		ret->pages = n + 1;
		if (o->share != NULL)
			atomic_fetch_add(&o->share->seen, sizeof(*p));
		/* What apply_whole leaves is part of one record, so the page fits. */
		memcpy(b.data + b.len, p->bytes, p->used);
		b.len += p->used;
		ret->last = (p->flags & MC_JOURNAL_LAST) != 0;
		r = apply_whole(o, &b, &bad, err);
	}
	if (b.len > 0 || bad)
		ret->torn = true;
	mc_journal_buf_done(&b);
	free(w.pages);
	return r == -ENODATA ? 0 : r;
}

static bool of_generation(const struct page *p, uint64_t generation, uint64_t number)
{
	return p->magic == PAGE_MAGIC && p->crc == page_crc(p) && p->generation == generation &&
		p->number == number;
}

/* What an earlier life left in an area is no sign of anything. */
int64_t mc_journal_pages_stray(const struct mc_journal_file *f, uint64_t generation, uint64_t page)
{
	struct window w = {0};
	int64_t stray = 0;
	int r;

	while ((r = fill(&w, f, page)) == 0) {
		for (uint64_t i = 0; i < w.have; i++)
			stray += f->owned ? !all_zero(&w.pages[i], sizeof(w.pages[i]))
					  : of_generation(&w.pages[i], generation, page + i);
		if (w.end > 0)
			stray += f->owned && !all_zero(&w.pages[w.have], w.end);
		page += w.have + (w.end > 0);
	}
	free(w.pages);
	return r == -ENODATA ? stray : r;
}

int mc_journal_pages_generation(const struct mc_journal_file *f, uint64_t *ret)
{
	struct window w = {0};
	struct page *p;
	int r = look(&w, f, 0, &p);

	*ret = 0;
	if (r == 0 && p->magic == PAGE_MAGIC && p->crc == page_crc(p))
		*ret = p->generation;
	free(w.pages);
	return r == -ENODATA ? 0 : r;
}
