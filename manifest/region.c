/* Strided regions: making them from boxes, merging contiguous dimensions, walking runs. */
#include "manifest/region.h"

void mc_address_dense(const struct mc_box *box, uint64_t base, struct mc_address *ret)
{
	uint64_t stride = 1;

	ret->base = base;
	for (unsigned d = box->rank; d-- > 0;) {
		ret->stride[d] = stride;
		stride *= box->len[d];
	}
}

void mc_region_make(const struct mc_box *part, const struct mc_box *src_box,
	const struct mc_address *src, const struct mc_box *dst_box, const struct mc_address *dst,
	struct mc_region *ret)
{
	struct mc_region r = {.src = src->base, .dst = dst->base};
	uint64_t n[MC_BOX_RANK], s[MC_BOX_RANK], t[MC_BOX_RANK];
	unsigned k = 0; /* loops kept, innermost first */

	r.inner = part->len[part->rank - 1u];
	for (unsigned d = part->rank; d-- > 0;) {
		r.src += (part->off[d] - src_box->off[d]) * src->stride[d];
		r.dst += (part->off[d] - dst_box->off[d]) * dst->stride[d];
		if (d + 1u == part->rank || part->len[d] == 1)
			continue;
		if (k == 0 && src->stride[d] == r.inner && dst->stride[d] == r.inner) {
			r.inner *= part->len[d];
		} else if (k > 0 && src->stride[d] == s[k - 1] * n[k - 1] &&
			dst->stride[d] == t[k - 1] * n[k - 1]) {
			n[k - 1] *= part->len[d];
		} else {
			n[k] = part->len[d];
			s[k] = src->stride[d];
			t[k++] = dst->stride[d];
		}
	}
	r.rank = (uint8_t)k;
	for (unsigned d = 0; d < k; d++) {
		r.count[d] = n[k - 1 - d];
		r.src_stride[d] = s[k - 1 - d];
		r.dst_stride[d] = t[k - 1 - d];
	}
	*ret = r;
}

uint64_t mc_region_runs(const struct mc_region *r)
{
	uint64_t n = 1;

	for (unsigned d = 0; d < r->rank; d++)
		n *= r->count[d];
	return n;
}

uint64_t mc_region_bytes(const struct mc_region *r)
{
	return mc_region_runs(r) * r->inner;
}

void mc_region_run(const struct mc_region *r, uint64_t i, uint64_t *ret_src, uint64_t *ret_dst)
{
	uint64_t src = r->src, dst = r->dst;

	for (unsigned d = r->rank; d-- > 0;) {
		uint64_t at = i % r->count[d];

		i /= r->count[d];
		src += at * r->src_stride[d];
		dst += at * r->dst_stride[d];
	}
	*ret_src = src;
	*ret_dst = dst;
}
