/* Plans as JSON, keys in sorted order. */
#include "manifest/plan-json.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void put_key(struct mc_json_out *o, const char *key, bool *first)
{
	mc_json_put_comma(o, first);
	mc_json_put_string(o, key);
	mc_json_put(o, ":");
}

static void put_number(struct mc_json_out *o, const char *key, uint64_t v, bool *first)
{
	put_key(o, key, first);
	mc_json_put_uint(o, v);
}

static void put_list(
	struct mc_json_out *o, const char *key, const uint64_t *v, unsigned n, bool *first)
{
	bool inner = true;

	put_key(o, key, first);
	mc_json_put(o, "[");
	for (unsigned i = 0; i < n; i++) {
		mc_json_put_comma(o, &inner);
		mc_json_put_uint(o, v[i]);
	}
	mc_json_put(o, "]");
}

/* The geometry between two fragments. */
static void put_region(struct mc_json_out *o, const struct mc_region *g, bool *first)
{
	put_list(o, "counts", g->count, g->rank, first);
	put_number(o, "dst_offset", g->dst, first);
	put_list(o, "dst_strides", g->dst_stride, g->rank, first);
	put_number(o, "inner_bytes", g->inner, first);
	put_number(o, "src_offset", g->src, first);
	put_list(o, "src_strides", g->src_stride, g->rank, first);
}

static void put_link(
	const struct mc_plan_json_in *in, const struct mc_link *l, struct mc_json_out *o)
{
	static const char *const kinds[] = {"move", "local", "copy"};
	const struct mc_reshard *p = in->plan;
	const struct mc_side *src = l->kind == MC_LINK_COPY ? p->wanted : p->held;
	bool first = true;
	struct mc_region g;

	mc_reshard_link_region(p, l, &g);
	mc_json_put(o, "{");
	put_number(o, "dst", p->wanted->shard[l->dst].participant, &first);
	put_number(o, "dst_output", p->wanted->shard[l->dst].output, &first);
	put_key(o, "kind", &first);
	mc_json_put_string(o, kinds[l->kind]);
	put_key(o, "region", &first);
	mc_json_put(o, "{");
	first = true;
	put_region(o, &g, &first);
	mc_json_put(o, "}");
	put_number(o, "src", src->shard[l->src].participant, &first);
	put_number(o, "src_output", src->shard[l->src].output, &first);
	put_list(o, "tensors", (const uint64_t[]){l->from, l->to}, 2, &first);
	mc_json_put(o, "}");
}

static void put_class(
	const struct mc_plan_json_in *in, uint32_t n, uint32_t *link, struct mc_json_out *o)
{
	const struct mc_reshard *p = in->plan;
	const struct mc_class *c = &p->cls[n];
	bool first = true, inner = true;

	mc_json_put(o, "{");
	put_key(o, "links", &first);
	mc_json_put(o, "[");
	for (; *link < p->n_links && p->link[*link].cls == n; ++*link) {
		mc_json_put_comma(o, &inner);
		put_link(in, &p->link[*link], o);
	}
	mc_json_put(o, "]");
	put_key(o, "tensors", &first);
	mc_json_put(o, "[");
	inner = true;
	for (uint32_t i = 0; i < c->n; i++) {
		mc_json_put_comma(o, &inner);
		mc_json_put_string(o, in->names[p->instance[c->first + i]]);
	}
	mc_json_put(o, "]}");
}

static void put_box(struct mc_json_out *o, const struct mc_box *b)
{
	bool first = true;

	mc_json_put(o, "{");
	put_list(o, "length", b->len, b->rank, &first);
	put_list(o, "offset", b->off, b->rank, &first);
	mc_json_put(o, "}");
}

/* A span: link number (from 0 in the order of the document), instances, and its box if cut. */
static void put_span(
	const struct mc_binding *b, const struct mc_bound_span *s, struct mc_json_out *o)
{
	bool first = true;

	mc_json_put(o, "{");
	if (s->box > 0) {
		put_key(o, "box", &first);
		put_box(o, &b->box[s->box - 1]);
	}
	put_number(o, "link", s->link, &first);
	put_list(o, "tensors", (const uint64_t[]){s->from, s->to}, 2, &first);
	mc_json_put(o, "}");
}

static void put_piece(
	const struct mc_binding *b, const struct mc_bound_piece *p, struct mc_json_out *o)
{
	bool first = true, inner = true;

	mc_json_put(o, "{");
	put_number(o, "bytes", p->bytes, &first);
	put_number(o, "dst", p->dst, &first);
	put_number(o, "round", p->round, &first);
	put_key(o, "spans", &first);
	mc_json_put(o, "[");
	for (uint32_t i = p->first; i < p->first + p->n; i++) {
		mc_json_put_comma(o, &inner);
		put_span(b, &b->span[i], o);
	}
	mc_json_put(o, "]");
	put_number(o, "src", p->src, &first);
	mc_json_put(o, "}");
}

static void put_binding(const struct mc_plan_json_in *in, struct mc_json_out *o)
{
	const struct mc_binding *b = in->binding;
	bool first = true, inner = true;

	mc_json_put(o, "{");
	put_number(o, "makespan_bytes", b->makespan, &first);
	put_number(o, "max_egress", b->max_egress, &first);
	put_number(o, "max_ingress", b->max_ingress, &first);
	put_number(o, "n_pieces", b->n_pieces, &first);
	if (in->with_links) {
		put_key(o, "pieces", &first);
		mc_json_put(o, "[");
		for (uint32_t i = 0; i < b->n_pieces; i++) {
			mc_json_put_comma(o, &inner);
			put_piece(b, &b->piece[i], o);
		}
		mc_json_put(o, "]");
	}
	put_number(o, "rounds", b->n_rounds, &first);
	mc_json_put(o, "}");
}

static void put_participants(const struct mc_plan_json_in *in, struct mc_json_out *o)
{
	const struct mc_reshard *p = in->plan;
	bool inner = true;

	mc_json_put(o, "[");
	for (uint32_t i = 0; i < p->n_participants; i++) {
		bool first = true;

		mc_json_put_comma(o, &inner);
		mc_json_put(o, "{");
		put_number(o, "egress", p->egress[i], &first);
		put_number(o, "ingress", p->ingress[i], &first);
		if (in->participants != NULL) {
			put_key(o, "name", &first);
			mc_json_put_string(o, in->participants[i]);
		}
		mc_json_put(o, "}");
	}
	mc_json_put(o, "]");
}

static void put_totals(const struct mc_reshard *p, struct mc_json_out *o, bool *first)
{
	put_number(o, "local_bytes", p->local_bytes, first);
	put_number(o, "moved_bytes", p->moved_bytes, first);
	put_number(o, "n_classes", p->n_classes, first);
	put_number(o, "n_links", p->n_links, first);
}

int mc_plan_json(const struct mc_plan_json_in *in, struct mc_json_out *o)
{
	const struct mc_reshard *p = in->plan;
	bool first = true, inner = true;
	uint32_t link = 0;

	mc_json_put(o, "{");
	if (in->binding != NULL) {
		put_key(o, "binding", &first);
		put_binding(in, o);
	}
	put_list(o, "bound_egress", (const uint64_t[]){p->bound_num, p->bound_den}, 2, &first);
	if (in->with_links) {
		put_key(o, "classes", &first);
		mc_json_put(o, "[");
		for (uint32_t i = 0; i < p->n_classes; i++) {
			mc_json_put_comma(o, &inner);
			put_class(in, i, &link, o);
		}
		mc_json_put(o, "]");
	}
	put_key(o, "format", &first);
	mc_json_put_string(o, "reshard-plan");
	put_totals(p, o, &first);
	put_key(o, "participants", &first);
	put_participants(in, o);
	put_number(o, "regions", p->overlaps, &first);
	put_number(o, "version", 1, &first);
	put_number(o, "wanted_bytes", p->wanted_bytes, &first);
	mc_json_put(o, "}");
	return o->failed ? -ENOMEM : 0;
}

static void put_fragment_region(const struct mc_reshard *p, const struct mc_link *l,
	uint32_t tensor, const struct mc_weight_manifest *source,
	const struct mc_weight_manifest *target, struct mc_json_out *o)
{
	const struct mc_weight_manifest *from = l->kind == MC_LINK_COPY ? target : source;
	const struct mc_side *side = l->kind == MC_LINK_COPY ? p->wanted : p->held;
	struct mc_weight_fragment s, d;
	struct mc_weight_tensor t;
	struct mc_region g;
	bool first = true;

	mc_weight_manifest_fragment(from, (uint32_t)mc_side_tag(side, tensor, l->src), &s);
	mc_weight_manifest_fragment(target, (uint32_t)mc_side_tag(p->wanted, tensor, l->dst), &d);
	mc_weight_manifest_tensor(target, d.tensor, &t);
	mc_reshard_link_region(p, l, &g);
	mc_json_put(o, "{");
	put_list(o, "counts", g.count, g.rank, &first);
	put_number(o, "inner_bytes", g.inner, &first);
	put_key(o, "source_fragment_id", &first);
	mc_json_put_string(o, s.id);
	put_number(o, "source_offset", g.src, &first);
	put_list(o, "source_strides", g.src_stride, g.rank, &first);
	put_key(o, "target_fragment_id", &first);
	mc_json_put_string(o, d.id);
	put_number(o, "target_offset", g.dst, &first);
	put_key(o, "target_participant_id", &first);
	mc_json_put_string(o, mc_weight_manifest_participant(target, d.participant));
	put_list(o, "target_strides", g.dst_stride, g.rank, &first);
	put_key(o, "tensor_id", &first);
	mc_json_put_string(o, t.id);
	mc_json_put(o, "}");
}

int mc_plan_regions_json(const struct mc_reshard *p, const struct mc_weight_manifest *source,
	const struct mc_weight_manifest *target, struct mc_json_out *o)
{
	bool first = true;

	mc_json_put(o, "[");
	for (uint32_t i = 0; i < p->n_links; i++) {
		const struct mc_link *l = &p->link[i];

		for (uint32_t k = l->from; k < l->to; k++) {
			mc_json_put_comma(o, &first);
			put_fragment_region(
				p, l, p->instance[p->cls[l->cls].first + k], source, target, o);
		}
	}
	mc_json_put(o, "]");
	return o->failed ? -ENOMEM : 0;
}
