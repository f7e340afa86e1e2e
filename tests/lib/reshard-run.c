/*
 * Plans a reshard of a small model and executes it in memory on data where each element says which
 * tensor and which element it is; prints a checksum of every tensor of every rank for another
 * program to compare.
 *
 *   reshard-run TABLE FROM TO [same] [nodes]
 *
 * TABLE: JSON {"config": …, "tensors": [[name, dtype, shape] …]}. FROM: "files", a mesh name, or a
 * layout document (*.json); TO: a mesh name or a document. same: both sides are the same
 * participants; nodes: two participants are a node, and each byte enters a node once. Output, a
 * line a tensor: rank, name, shape joined by 'x', CRC-32 of its elements: 64-bit little-endian
 * (tensor number + 1) << 40 | element number + 1, or 0 for padding.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/dtype.h"
#include "manifest/planner.h"
#include "manifest/preset.h"

struct side {
	struct mc_layout *layout;
	struct mc_sharding *sharding;
	struct mc_side side;
	struct mc_rank_tensors *rank; /* by rank */
	uint64_t ***data;             /* by rank, by local tensor; files: [0][tensor] */
	uint32_t world, base;
};

struct run {
	json_t *table;
	const json_t *config;
	struct mc_layout_tensor *tensor;
	const char **names;
	uint32_t n;
	struct side from, to;
	bool files;
};

static void *need(void *p)
{
	if (p == NULL)
		abort();
	return p;
}

static void check(int r, const struct mc_err *err)
{
	if (r >= 0)
		return;
	printf("error %s\n", err->text);
	exit(2);
}

static void read_table(struct run *r, const char *path)
{
	const json_t *list;

	r->table = need(json_load_file(path, 0, NULL));
	r->config = json_object_get(r->table, "config");
	list = json_object_get(r->table, "tensors");
	r->n = (uint32_t)json_array_size(list);
	r->tensor = need(calloc(r->n, sizeof(*r->tensor)));
	r->names = need(calloc(r->n, sizeof(*r->names)));
	for (uint32_t i = 0; i < r->n; i++) {
		const json_t *t = json_array_get(list, i), *shape = json_array_get(t, 2);

		r->names[i] = r->tensor[i].name = json_string_value(json_array_get(t, 0));
		/* Elements of 8 bytes have room for their number. */
		r->tensor[i].dtype = MC_DTYPE_F64;
		r->tensor[i].rank = (uint8_t)json_array_size(shape);
		for (size_t d = 0; d < json_array_size(shape); d++)
			r->tensor[i].shape[d] =
				(uint64_t)json_integer_value(json_array_get(shape, d));
	}
}

static uint64_t volume(const uint64_t *shape, unsigned rank)
{
	uint64_t v = 1;

	for (unsigned d = 0; d < rank; d++)
		v *= shape[d];
	return v;
}

static struct mc_layout *open_layout(const struct run *r, const char *name)
{
	struct mc_layout *l;
	struct mc_err err = {{0}};
	size_t len = strlen(name);

	if (len > 5 && strcmp(name + len - 5, ".json") == 0) {
		json_t *root = need(json_load_file(name, 0, NULL));
		char *text = need(json_dumps(root, 0));

		check(mc_layout_parse(text, strlen(text), &l, &err), &err);
		free(text);
		json_decref(root);
	} else {
		check(mc_preset_layout(r->config, name, &l, &err), &err);
	}
	return l;
}

static void open_side(struct run *r, struct side *s, const char *name, uint32_t base)
{
	struct mc_layout_in in = {.config = r->config, .tensors = r->tensor, .n_tensors = r->n};
	struct mc_err err = {{0}};

	s->base = base;
	s->layout = open_layout(r, name);
	s->world = mc_layout_world(s->layout);
	in.layout = s->layout;
	check(mc_layout_compile(&in, &s->sharding, &err), &err);
	check(mc_sharding_side(s->sharding, base, &s->side, &err), &err);
	s->rank = need(calloc(s->world, sizeof(*s->rank)));
	s->data = need(calloc(s->world, sizeof(*s->data)));
	for (uint32_t k = 0; k < s->world; k++) {
		check(mc_sharding_rank(s->sharding, k, &s->rank[k], &err), &err);
		s->data[k] = need(calloc(s->rank[k].n + 1, sizeof(uint64_t *)));
		for (uint32_t i = 0; i < s->rank[k].n; i++) {
			const struct mc_local *l = &s->rank[k].local[i];

			s->data[k][i] =
				need(calloc(volume(l->shape, l->rank) + 1, sizeof(uint64_t)));
		}
	}
}

static uint64_t code(uint32_t tensor, uint64_t element)
{
	return (uint64_t)(tensor + 1) << 40 | (element + 1);
}

/* Fills what a piece covers from the source tensor's numbering. */
static void fill_piece(const struct run *r, const struct mc_local *l,
	const struct mc_local_piece *p, uint64_t *data)
{
	const struct mc_layout_tensor *t = &r->tensor[p->tensor];

	for (uint64_t i = 0; i < mc_box_volume(&p->box); i++) {
		uint64_t rest = i, src = 0, dst = 0, a = 1, b = 1;
		unsigned shift = p->stacked;

		for (unsigned d = p->box.rank; d-- > 0;) {
			uint64_t x = rest % p->box.len[d];

			rest /= p->box.len[d];
			src += (p->box.off[d] + x) * a;
			dst += (p->at[d + shift] + x) * b;
			a *= t->shape[d];
			b *= l->shape[d + shift];
		}
		data[dst + (shift ? p->at[0] * b : 0)] = code(p->tensor, src);
	}
}

static void fill_held(struct run *r)
{
	struct side *s = &r->from;

	if (r->files) {
		s->data = need(calloc(1, sizeof(*s->data)));
		s->data[0] = need(calloc(r->n, sizeof(uint64_t *)));
		for (uint32_t i = 0; i < r->n; i++) {
			uint64_t v = volume(r->tensor[i].shape, r->tensor[i].rank);

			s->data[0][i] = need(calloc(v + 1, sizeof(uint64_t)));
			for (uint64_t k = 0; k < v; k++)
				s->data[0][i][k] = code(i, k);
		}
		return;
	}
	for (uint32_t k = 0; k < s->world; k++)
		for (uint32_t i = 0; i < s->rank[k].n; i++) {
			const struct mc_local *l = &s->rank[k].local[i];

			for (uint32_t p = l->first; p < l->first + l->n; p++)
				fill_piece(r, l, &s->rank[k].piece[p], s->data[k][i]);
		}
}

/* The memory of the output tensor that a shard lies in. */
static uint8_t *memory(
	const struct run *r, const struct side *s, uint32_t tensor, const struct mc_shard *h)
{
	uint32_t k = h->participant - s->base;
	const char *name;

	if (s == &r->from && r->files)
		return (uint8_t *)s->data[0][tensor];
	name = mc_sharding_output_name(s->sharding, tensor, h->output);
	for (uint32_t lo = 0, hi = s->rank[k].n; lo < hi;) {
		uint32_t mid = lo + (hi - lo) / 2;
		int c = strcmp(s->rank[k].local[mid].name, name);

		if (c == 0)
			return (uint8_t *)s->data[k][mid];
		if (c < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	abort();
}

static void execute(const struct run *r, const struct mc_reshard *p, bool copies)
{
	for (uint32_t i = 0; i < p->n_links; i++) {
		const struct mc_link *l = &p->link[i];
		const struct side *src = l->kind == MC_LINK_COPY ? &r->to : &r->from;
		struct mc_region g;

		if ((l->kind == MC_LINK_COPY) != copies)
			continue;
		mc_reshard_link_region(p, l, &g);
		for (uint32_t k = l->from; k < l->to; k++) {
			uint32_t tensor = p->instance[p->cls[l->cls].first + k];
			const uint8_t *from = memory(r, src, tensor, &src->side.shard[l->src]);
			uint8_t *to = memory(r, &r->to, tensor, &r->to.side.shard[l->dst]);

			for (uint64_t n = 0; n < mc_region_runs(&g); n++) {
				uint64_t s, d;

				mc_region_run(&g, n, &s, &d);
				memcpy(to + d, from + s, g.inner);
			}
		}
	}
}

static uint32_t crc32(const void *data, size_t len)
{
	static uint32_t table[256];
	const uint8_t *b = data;
	uint32_t c = 0xffffffff;

	for (uint32_t i = 0; table[255] == 0 && i < 256; i++) {
		uint32_t v = i;

		for (int k = 0; k < 8; k++)
			v = v >> 1 ^ (v & 1 ? 0xedb88320 : 0);
		table[i] = v;
	}
	while (len-- > 0)
		c = table[(c ^ *b++) & 0xff] ^ c >> 8;
	return ~c;
}

static void print(const struct run *r)
{
	const struct side *s = &r->to;

	for (uint32_t k = 0; k < s->world; k++)
		for (uint32_t i = 0; i < s->rank[k].n; i++) {
			const struct mc_local *l = &s->rank[k].local[i];

			printf("%u %s ", k, l->name);
			for (unsigned d = 0; d < l->rank; d++)
				printf("%s%llu", d > 0 ? "x" : "", (unsigned long long)l->shape[d]);
			printf(" %08x\n", crc32(s->data[k][i], volume(l->shape, l->rank) * 8));
		}
}

static void close_side(const struct run *r, struct side *s)
{
	uint32_t world = s->rank != NULL ? s->world : 1;

	for (uint32_t k = 0; k < world; k++) {
		uint32_t n = s->rank != NULL ? s->rank[k].n : r->n;

		for (uint32_t i = 0; i < n; i++)
			free(s->data[k][i]);
		free(s->data[k]);
		if (s->rank != NULL)
			mc_rank_tensors_done(&s->rank[k]);
	}
	free(s->data);
	free(s->rank);
	mc_side_done(&s->side);
	mc_sharding_free(s->sharding);
	mc_layout_free(s->layout);
}

int main(int argc, char **argv)
{
	struct run r = {0};
	struct mc_reshard_in in = {0};
	struct mc_reshard *p = NULL;
	struct mc_err err = {{0}};
	bool same = false;

	if (argc < 4)
		return 1;
	for (int i = 4; i < argc; i++) {
		same = same || strcmp(argv[i], "same") == 0;
		in.node_local = in.node_local || strcmp(argv[i], "nodes") == 0;
	}
	read_table(&r, argv[1]);
	r.files = strcmp(argv[2], "files") == 0;
	if (r.files) {
		r.from.world = 1;
		check(mc_side_of_files(r.tensor, r.n, 0, &r.from.side), &err);
	} else {
		open_side(&r, &r.from, argv[2], 0);
	}
	open_side(&r, &r.to, argv[3], same ? 0 : r.from.world);
	fill_held(&r);
	in.names = r.names;
	in.n_tensors = r.n;
	in.held = &r.from.side;
	in.wanted = &r.to.side;
	in.n_participants = r.from.world + r.to.world;
	if (in.node_local) {
		uint32_t *node = need(calloc(in.n_participants, sizeof(*node)));

		for (uint32_t i = 0; i < in.n_participants; i++)
			node[i] = i / 2;
		in.node = node;
	}
	check(mc_reshard_plan(&in, &p, &err), &err);
	execute(&r, p, false);
	execute(&r, p, true);
	print(&r);
	mc_reshard_free(p);
	close_side(&r, &r.from);
	close_side(&r, &r.to);
	free((void *)(uintptr_t)in.node);
	free(r.tensor);
	free(r.names);
	json_decref(r.table);
	return 0;
}
