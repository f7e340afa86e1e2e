/*
 * Where the bytes of a rank's tensors come from: each piece of a layout against the parts in which
 * the checkpoint holds the source tensor, as regions in file bytes on both sides.
 */
#include "manifest/view-build.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/dtype.h"
#include "tier/cleanup.h"

/* A region while its tensor is put together. */
struct made {
	struct mc_region region;
	uint32_t file;
	uint64_t end; /* bytes in the view's file */
};

struct maker {
	const struct mc_view_layout *l;
	struct mc_view_file *file;
	struct mc_buffer segments, words, entries; /* records of file */
	struct mc_buffer made;                     /* struct made, of one tensor */
	uint32_t *slot; /* by entry of the checkpoint: number in entries + 1; owned */
	struct mc_err *err;
};

static int file_number(struct maker *m, uint32_t entry, uint32_t *ret)
{
	if (m->slot[entry] == 0) {
		int r = mc_buffer_append(&m->entries, &entry, sizeof(entry));

		if (r < 0)
			return r;
		m->slot[entry] = (uint32_t)(m->entries.len / sizeof(entry));
	}
	*ret = m->slot[entry] - 1;
	return 0;
}

/* Elements from one step on each dimension of the rank's tensor to the next. */
static void element_strides(const struct mc_local *local, uint64_t *ret)
{
	uint64_t stride = 1;

	for (unsigned d = local->rank; d-- > 0;) {
		ret[d] = stride;
		stride *= local->shape[d];
	}
}

/* How the piece's box (bytes) is addressed in the view's file. */
static int dst_place(const struct mc_local *local, const struct mc_local_piece *p,
	const struct mc_box *box, uint64_t base, struct mc_address *ret)
{
	uint64_t strides[MC_BOX_RANK], at = 0;
	unsigned bits = mc_dtype_bits(local->dtype), shift = p->stacked ? 1 : 0;

	element_strides(local, strides);
	for (unsigned d = 0; d < local->rank; d++)
		at += p->at[d] * strides[d];
	if (at * bits % 8 != 0)
		return -EINVAL;
	ret->base = base + at * bits / 8;
	ret->stride[box->rank - 1u] = 1;
	for (unsigned d = 0; d + 1u < box->rank; d++) {
		if (strides[d + shift] * bits % 8 != 0)
			return -EINVAL;
		ret->stride[d] = strides[d + shift] * bits / 8;
	}
	return 0;
}

static void part_box(const struct mc_tensor *t, struct mc_box *ret)
{
	ret->rank = t->rank;
	for (unsigned d = 0; d < t->rank; d++) {
		ret->off[d] = t->boxed ? t->box_off[d] : 0;
		ret->len[d] = t->shape[d];
	}
}

/* The same box may lie in several files; the first serves. */
static bool is_replica(const struct maker *m, uint32_t first, uint32_t part)
{
	struct mc_tensor a, b;

	if (part == first)
		return false;
	mc_manifest_tensor(m->l->manifest, part, &b);
	for (uint32_t i = first; i < part; i++) {
		mc_manifest_tensor(m->l->manifest, i, &a);
		if (memcmp(a.box_off, b.box_off, b.rank * sizeof(*b.box_off)) == 0 &&
			memcmp(a.shape, b.shape, b.rank * sizeof(*b.shape)) == 0)
			return true;
	}
	return false;
}

static uint64_t region_end(const struct mc_region *r)
{
	uint64_t end = r->dst + r->inner;

	for (unsigned d = 0; d < r->rank; d++)
		end += (r->count[d] - 1) * r->dst_stride[d];
	return end;
}

/* What one part of the source tensor gives to a piece; adds the bytes to *got. */
static int add_part(struct maker *m, const struct mc_local *local, uint64_t base,
	const struct mc_local_piece *p, uint32_t part, uint64_t *got)
{
	unsigned bits = mc_dtype_bits(local->dtype);
	struct mc_box whole, common, src_box, dst_box;
	struct mc_address src, dst;
	struct mc_tensor t;
	struct made made;
	int r;

	mc_manifest_tensor(m->l->manifest, part, &t);
	part_box(&t, &whole);
	if (!mc_box_overlap(&p->box, &whole, &common))
		return 0;
	r = mc_box_to_bytes(&common, bits, &common);
	if (r == 0)
		r = mc_box_to_bytes(&whole, bits, &src_box);
	if (r == 0)
		r = mc_box_to_bytes(&p->box, bits, &dst_box);
	if (r == 0)
		r = dst_place(local, p, &dst_box, base, &dst);
	if (r < 0)
		return mc_err_set(m->err, -EINVAL, "tensor %s is cut inside a byte", local->name);
	mc_address_dense(&src_box, t.off, &src);
	mc_region_make(&common, &src_box, &src, &dst_box, &dst, &made.region);
	made.end = region_end(&made.region);
	*got += mc_region_bytes(&made.region);
	r = file_number(m, t.entry, &made.file);
	return r < 0 ? r : mc_buffer_append(&m->made, &made, sizeof(made));
}

static int add_piece(struct maker *m, const struct mc_local *local, uint64_t base,
	const struct mc_local_piece *p)
{
	uint32_t first = m->l->first_part[p->tensor], end = m->l->first_part[p->tensor + 1];
	uint64_t got = 0, want = mc_box_volume(&p->box) * mc_dtype_bits(local->dtype) / 8;
	int r = 0;

	for (uint32_t i = first; i < end && r == 0 && got < want; i++)
		if (!is_replica(m, first, i))
			r = add_part(m, local, base, p, i, &got);
	if (r == 0 && got != want)
		r = mc_err_set(m->err, -EINVAL,
			"tensor %s: the checkpoint holds %llu of %llu bytes of %s", local->name,
			(unsigned long long)got, (unsigned long long)want,
			m->l->tensor[p->tensor].name);
	return r;
}

static int made_compare(const void *a, const void *b)
{
	const struct made *x = a, *y = b;

	return (x->region.dst > y->region.dst) - (x->region.dst < y->region.dst);
}

static int put_region(struct maker *m, const struct made *x)
{
	const struct mc_region *r = &x->region;
	const uint64_t head[] = {r->src, r->dst, r->inner, (uint64_t)x->file << 8 | r->rank};
	size_t loops = r->rank * sizeof(uint64_t);
	int res = mc_buffer_append(&m->words, head, sizeof(head));

	if (res == 0)
		res = mc_buffer_append(&m->words, r->count, loops);
	if (res == 0)
		res = mc_buffer_append(&m->words, r->src_stride, loops);
	return res < 0 ? res : mc_buffer_append(&m->words, r->dst_stride, loops);
}

/* Regions of one tensor to segments: those whose extents overlap share one. */
static int put_segments(struct maker *m)
{
	struct made *v = (struct made *)m->made.p;
	size_t n = m->made.len / sizeof(*v);

	if (n > 1)
		qsort(v, n, sizeof(*v), made_compare);
	for (size_t i = 0; i < n;) {
		struct mc_view_segment s = {.off = v[i].region.dst};
		uint64_t end = v[i].end;
		int r = 0;

		if (m->words.len / sizeof(uint64_t) > UINT32_MAX)
			return -EFBIG;
		s.words = (uint32_t)(m->words.len / sizeof(uint64_t));
		for (; i < n && (s.n == 0 || v[i].region.dst < end) && r == 0; i++, s.n++) {
			end = v[i].end > end ? v[i].end : end;
			r = put_region(m, &v[i]);
		}
		s.len = end - s.off;
		if (r == 0)
			r = mc_buffer_append(&m->segments, &s, sizeof(s));
		if (r < 0)
			return r;
	}
	return 0;
}

static int put_constant(struct maker *m, const struct mc_view_tensor *t)
{
	struct mc_view_segment s = {
		.off = t->off, .len = t->len, .words = (uint32_t)(m->words.len / sizeof(uint64_t))};
	uint64_t v[2] = {0, mc_dtype_bits(t->local->dtype) / 8};
	int r;

	memcpy(&v[0], t->local->value, sizeof(t->local->value));
	if (v[0] == 0)
		return 0;
	if (v[1] == 0)
		return mc_err_set(m->err, -EINVAL,
			"constant %s: elements of less than a byte can only be 0", t->local->name);
	r = mc_buffer_append(&m->words, v, sizeof(v));
	return r < 0 ? r : mc_buffer_append(&m->segments, &s, sizeof(s));
}

static int add_tensor(
	struct maker *m, const struct mc_rank_tensors *rank, const struct mc_view_tensor *t)
{
	int r = 0;

	if (t->len == 0)
		return 0;
	if (t->local->constant)
		return put_constant(m, t);
	m->made.len = 0;
	for (uint32_t i = 0; i < t->local->n && r == 0; i++) {
		const struct mc_local_piece *p = &rank->piece[t->local->first + i];

		if (mc_box_volume(&p->box) > 0)
			r = add_piece(m, t->local, t->off, p);
	}
	return r < 0 ? r : put_segments(m);
}

int mc_view_regions(const struct mc_view_layout *l, const struct mc_rank_tensors *rank,
	const struct mc_view_tensor *tensors, uint32_t n, struct mc_view_file *file,
	struct mc_err *err)
{
	cleanup_free uint32_t *slot = calloc(mc_manifest_entries(l->manifest), sizeof(*slot));
	struct maker m = {.l = l, .file = file, .slot = slot, .err = err};
	int r = slot != NULL ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < n && r == 0; i++)
		r = add_tensor(&m, rank, &tensors[i]);
	mc_buffer_done(&m.made);
	/* Owned by file from here on, also after a failure. */
	file->segment = (struct mc_view_segment *)m.segments.p;
	file->n_segments = (uint32_t)(m.segments.len / sizeof(*file->segment));
	file->words = (uint64_t *)m.words.p;
	file->n_words = m.words.len / sizeof(*file->words);
	file->entry = (uint32_t *)m.entries.p;
	file->n_entries = (uint32_t)(m.entries.len / sizeof(*file->entry));
	return r;
}

void mc_view_file_done(struct mc_view_file *f)
{
	free(f->header);
	free(f->segment);
	free(f->words);
	free(f->entry);
	*f = (struct mc_view_file){0};
}

uint32_t mc_view_segment_find(const struct mc_view_file *f, uint64_t off)
{
	uint32_t lo = 0, hi = f->n_segments;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (f->segment[mid].off + f->segment[mid].len <= off)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

unsigned mc_view_region_get(const uint64_t *words, struct mc_region *ret, uint32_t *ret_file)
{
	unsigned rank = words[3] & 0xff;

	ret->src = words[0];
	ret->dst = words[1];
	ret->inner = words[2];
	ret->rank = (uint8_t)rank;
	*ret_file = (uint32_t)(words[3] >> 8);
	memcpy(ret->count, words + 4, rank * sizeof(*words));
	memcpy(ret->src_stride, words + 4 + rank, rank * sizeof(*words));
	memcpy(ret->dst_stride, words + 4 + 2 * (size_t)rank, rank * sizeof(*words));
	return 4 + 3 * rank;
}
