/* A source for store tests: patterned bytes in objects of odd length. */
#include "tests/pattern-source.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OBJECT 3145739u /* bytes: 3 MiB and a prime bit, so blocks straddle objects */

struct source {
	struct mc_source base;
	const struct pattern *p;
};

_Atomic int pattern_live;

static bool in_hole(const struct pattern *p, uint64_t off)
{
	return off >= p->hole_off && off < p->hole_off + p->hole_len;
}

static uint64_t word(const struct pattern *p, uint64_t off)
{
	uint64_t x = (off >> 3) + (uint64_t)(unsigned char)p->name[0] * 77777;

	return x * UINT64_C(0x9e3779b97f4a7c15);
}

uint8_t pattern_byte(const struct pattern *p, uint64_t off)
{
	return in_hole(p, off) ? 0 : (uint8_t)(word(p, off) >> (8 * (off & 7)));
}

/* By words where it can: the sanitizer builds run this over gigabytes. */
static void fill(const struct pattern *p, uint64_t off, uint8_t *buf, size_t len)
{
	for (size_t i = 0; i < len;) {
		uint64_t at = off + i;

		if (at % 8 == 0 && len - i >= 8 && !in_hole(p, at) && !in_hole(p, at + 7)) {
			uint64_t w = word(p, at);

			memcpy(buf + i, &w, 8);
			i += 8;
		} else {
			buf[i++] = pattern_byte(p, at);
		}
	}
}

bool pattern_equal(const struct pattern *p, uint64_t off, const void *buf, size_t len)
{
	uint8_t want[4096];

	for (size_t i = 0; i < len; i += sizeof(want)) {
		size_t n = len - i < sizeof(want) ? len - i : sizeof(want);

		fill(p, off + i, want, n);
		if (memcmp(want, (const uint8_t *)buf + i, n) != 0)
			return false;
	}
	return true;
}

void pattern_write(const struct pattern *p)
{
	uint8_t *buf = malloc(OBJECT);

	ck_assert_ptr_nonnull(buf);
	for (uint64_t off = 0; off < p->size; off += OBJECT) {
		size_t n = p->size - off < OBJECT ? p->size - off : OBJECT;
		char path[4096];
		FILE *f;

		snprintf(path, sizeof(path), "%s/%s.%llu", p->dir, p->name,
			(unsigned long long)(off / OBJECT));
		fill(p, off, buf, n);
		f = fopen(path, "w");
		ck_assert_ptr_nonnull(f);
		ck_assert_uint_eq(fwrite(buf, 1, n, f), n);
		ck_assert_int_eq(fclose(f), 0);
	}
	free(buf);
}

/* Bytes from off that are all hole or all data, at most len and within one object. */
static uint32_t stretch(const struct pattern *p, uint64_t off, uint64_t len)
{
	uint64_t n = OBJECT - off % OBJECT;

	if (in_hole(p, off))
		n = p->hole_off + p->hole_len - off;
	else if (off < p->hole_off && p->hole_off - off < n)
		n = p->hole_off - off;
	return (uint32_t)(n < len ? n : len);
}

static int plan(const struct mc_source *base, uint64_t off, uint32_t len, struct mc_plan *out)
{
	const struct pattern *p = ((const struct source *)base)->p;
	int r = 0;

	while (len > 0 && r == 0) {
		uint32_t n = stretch(p, off, len);
		char path[256];

		snprintf(
			path, sizeof(path), "%s.%llu", p->name, (unsigned long long)(off / OBJECT));
		if (in_hole(p, off))
			r = mc_plan_add_hole(out, n);
		else
			r = mc_plan_add_object(out, path, off % OBJECT, n, NULL);
		off += n;
		len -= n;
	}
	return r;
}

static uint32_t block_crc(const struct mc_source *base, uint64_t block)
{
	const struct pattern *p = ((const struct source *)base)->p;
	uint32_t len = mc_block_len(p->size, block), crc;
	uint8_t *buf = malloc(len);

	ck_assert_ptr_nonnull(buf);
	fill(p, block << MC_BLOCK_SHIFT, buf, len);
	crc = mc_crc32c(0, buf, len);
	free(buf);
	return block == p->bad_block ? ~crc : crc;
}

static int next_data(
	const struct mc_source *base, uint64_t off, uint64_t *ret_start, uint64_t *ret_end)
{
	const struct pattern *p = ((const struct source *)base)->p;
	uint64_t start = in_hole(p, off) ? p->hole_off + p->hole_len : off;

	if (start >= p->size)
		return -ENXIO;
	*ret_start = start;
	*ret_end = p->hole_len > 0 && start < p->hole_off ? p->hole_off : p->size;
	return 0;
}

static void release(struct mc_source *base)
{
	pattern_live--;
	free(base);
}

struct mc_source *pattern_source(const struct pattern *p)
{
	static const struct mc_source_ops ops = {plan, block_crc, next_data, release};
	struct source *s = calloc(1, sizeof(*s));

	ck_assert_ptr_nonnull(s);
	s->base.ops = &ops;
	ck_assert_int_eq(mc_sha256(p->name, strlen(p->name), s->base.id.digest), 0);
	s->base.id.size = p->size;
	s->p = p;
	pattern_live++;
	return &s->base;
}
