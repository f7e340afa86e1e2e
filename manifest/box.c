/* N-dimensional boxes: overlap, byte space, cutting. */
#include "manifest/box.h"

#include <errno.h>
#include <string.h>

uint64_t mc_box_volume(const struct mc_box *b)
{
	uint64_t v = 1;

	for (unsigned d = 0; d < b->rank; d++)
		if (b->len[d] == 0)
			return 0;
	for (unsigned d = 0; d < b->rank; d++)
		if (__builtin_mul_overflow(v, b->len[d], &v))
			return UINT64_MAX;
	return v;
}

int mc_box_compare(const struct mc_box *a, const struct mc_box *b)
{
	if (a->rank != b->rank)
		return a->rank < b->rank ? -1 : 1;
	for (unsigned d = 0; d < a->rank; d++) {
		if (a->off[d] != b->off[d])
			return a->off[d] < b->off[d] ? -1 : 1;
		if (a->len[d] != b->len[d])
			return a->len[d] < b->len[d] ? -1 : 1;
	}
	return 0;
}

bool mc_box_overlap(const struct mc_box *a, const struct mc_box *b, struct mc_box *ret)
{
	struct mc_box o = {.rank = a->rank};

	if (a->rank != b->rank)
		return false;
	for (unsigned d = 0; d < a->rank; d++) {
		uint64_t lo = a->off[d] > b->off[d] ? a->off[d] : b->off[d];
		uint64_t ae = a->off[d] + a->len[d], be = b->off[d] + b->len[d];
		uint64_t hi = ae < be ? ae : be;

		if (lo >= hi)
			return false;
		o.off[d] = lo;
		o.len[d] = hi - lo;
	}
	*ret = o;
	return true;
}

bool mc_box_inside(const struct mc_box *inner, const struct mc_box *outer)
{
	if (inner->rank != outer->rank)
		return false;
	for (unsigned d = 0; d < inner->rank; d++)
		if (inner->off[d] < outer->off[d] || inner->len[d] > outer->len[d] ||
			inner->off[d] - outer->off[d] > outer->len[d] - inner->len[d])
			return false;
	return true;
}

int mc_box_to_bytes(const struct mc_box *elements, unsigned bits, struct mc_box *ret)
{
	struct mc_box b = *elements;
	uint64_t off, len;
	unsigned d;

	if (b.rank == 0) {
		b.rank = 1;
		b.off[0] = 0;
		b.len[0] = 1;
	}
	d = b.rank - 1u;
	if (__builtin_mul_overflow(b.off[d], bits, &off) ||
		__builtin_mul_overflow(b.len[d], bits, &len))
		return -EOVERFLOW;
	if (off % 8 != 0 || len % 8 != 0)
		return -EINVAL;
	b.off[d] = off / 8;
	b.len[d] = len / 8;
	*ret = b;
	return 0;
}

/* Rounds up to the grain, but never beyond all. */
static uint64_t round_up(uint64_t v, uint64_t grain, uint64_t all)
{
	uint64_t r = v % grain;

	if (r == 0)
		return v < all ? v : all;
	return all - v > grain - r ? v + grain - r : all;
}

uint64_t mc_box_cut(const struct mc_box *box, uint64_t want, uint64_t grain, struct mc_box_cut *ret)
{
	struct mc_box left = *box, tail[MC_BOX_RANK];
	uint64_t taken = 0;
	size_t nf = 0, nt = 0;

	for (unsigned d = 0; d < box->rank; d++) {
		uint64_t row = 1, rows;
		bool last = d + 1u == box->rank;

		for (unsigned k = d + 1u; k < box->rank; k++)
			row *= box->len[k];
		rows = (want - taken) / row;
		if (last || (want - taken) % row == 0 || row <= grain)
			rows = round_up(
				(want - taken + row - 1) / row, last ? grain : 1, left.len[d]);
		if (rows > left.len[d])
			rows = left.len[d];
		if (rows > 0) {
			ret->first[nf] = left;
			ret->first[nf++].len[d] = rows;
			taken += rows * row;
		}
		left.off[d] += rows;
		left.len[d] -= rows;
		if (left.len[d] == 0)
			break;
		if (taken >= want) {
			tail[nt++] = left;
			break;
		}
		if (left.len[d] > 1) {
			tail[nt] = left;
			tail[nt].off[d]++;
			tail[nt++].len[d]--;
		}
		left.len[d] = 1;
	}
	for (size_t i = 0; i < nt; i++)
		ret->rest[i] = tail[nt - 1 - i];
	ret->n_first = nf;
	ret->n_rest = nt;
	return taken;
}
