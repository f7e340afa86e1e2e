/* Writing the tensor table of a manifest: columns, with dtypes and shapes held once. */
#include "manifest/manifest-writer.h"

#include <string.h>

#include "manifest/dtype.h"
#include "tier/cleanup.h"

/* A shape is named by a tensor that has it. */
struct shape {
	const struct mc_writer_tensor *of; /* borrowed */
};

/* What the columns refer to. */
struct tables {
	unsigned dtypes[MC_DTYPE_COUNT]; /* dtype → element of "dtypes" */
	bool used[MC_DTYPE_COUNT];
	struct shape *shapes; /* owned, distinct, in shape_order */
	size_t n_shapes;
};

static int shape_order(const void *va, const void *vb)
{
	const struct mc_writer_tensor *a = ((const struct shape *)va)->of;
	const struct mc_writer_tensor *b = ((const struct shape *)vb)->of;

	if (a->rank != b->rank)
		return a->rank < b->rank ? -1 : 1;
	for (unsigned i = 0; i < a->rank; i++)
		if (a->shape[i] != b->shape[i])
			return a->shape[i] < b->shape[i] ? -1 : 1;
	return 0;
}

static int make_tables(const struct mc_writer *w, struct tables *tables)
{
	unsigned n_dtypes = 0;
	size_t n = 0;

	for (size_t i = 0; i < w->n_tensors; i++)
		tables->used[w->tensors[i].dtype] = true;
	for (int d = 0; d < MC_DTYPE_COUNT; d++)
		if (tables->used[d])
			tables->dtypes[d] = n_dtypes++;
	tables->shapes = calloc(w->n_tensors + 1, sizeof(*tables->shapes));
	if (tables->shapes == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < w->n_tensors; i++)
		tables->shapes[i].of = &w->tensors[i];
	qsort(tables->shapes, w->n_tensors, sizeof(*tables->shapes), shape_order);
	for (size_t i = 0; i < w->n_tensors; i++)
		if (n == 0 || shape_order(&tables->shapes[n - 1], &tables->shapes[i]) != 0)
			tables->shapes[n++] = tables->shapes[i];
	tables->n_shapes = n;
	return 0;
}

static uint64_t dtype_of(const struct mc_writer_tensor *t, const struct tables *tables)
{
	return tables->dtypes[t->dtype];
}

static uint64_t file_of(const struct mc_writer_tensor *t, const struct tables *tables)
{
	(void)tables;
	return t->file_no;
}

static uint64_t len_of(const struct mc_writer_tensor *t, const struct tables *tables)
{
	(void)tables;
	return t->len;
}

static uint64_t off_of(const struct mc_writer_tensor *t, const struct tables *tables)
{
	(void)tables;
	return t->off;
}

static uint64_t shape_of(const struct mc_writer_tensor *t, const struct tables *tables)
{
	const struct shape key = {t};
	const struct shape *at = bsearch(
		&key, tables->shapes, tables->n_shapes, sizeof(*tables->shapes), shape_order);

	return (uint64_t)(at - tables->shapes);
}

static void put_column(struct mc_json_out *o, const struct mc_writer *w,
	const struct tables *tables,
	uint64_t (*value)(const struct mc_writer_tensor *t, const struct tables *tables))
{
	bool first = true;

	mc_json_put(o, "[");
	for (size_t i = 0; i < w->n_tensors; i++) {
		mc_json_put_comma(o, &first);
		mc_json_put_uint(o, value(&w->tensors[i], tables));
	}
	mc_json_put(o, "]");
}

static void put_boxes(struct mc_json_out *o, const struct mc_writer *w)
{
	bool first = true;

	for (size_t i = 0; i < w->n_tensors; i++) {
		const struct mc_writer_tensor *t = &w->tensors[i];

		if (!t->boxed)
			continue;
		mc_json_put(o, first ? "\"boxes\":[[" : ",[");
		first = false;
		mc_json_put_uint(o, i);
		for (unsigned k = 0; k < 2u * t->rank; k++) {
			mc_json_put(o, ",");
			mc_json_put_uint(o, t->box[k]);
		}
		mc_json_put(o, "]");
	}
	if (!first)
		mc_json_put(o, "],");
}

static void put_names(struct mc_json_out *o, const struct mc_writer *w)
{
	bool first = true;

	mc_json_put(o, "[");
	for (size_t i = 0; i < w->n_tensors; i++) {
		mc_json_put_comma(o, &first);
		mc_json_put_string(o, w->tensors[i].name);
	}
	mc_json_put(o, "]");
}

static void put_dtypes(struct mc_json_out *o, const struct tables *tables)
{
	bool first = true;

	mc_json_put(o, "[");
	for (int d = 0; d < MC_DTYPE_COUNT; d++) {
		if (!tables->used[d])
			continue;
		mc_json_put_comma(o, &first);
		mc_json_put_string(o, mc_dtype_name((uint8_t)d));
	}
	mc_json_put(o, "]");
}

static void put_shapes(struct mc_json_out *o, const struct tables *tables)
{
	mc_json_put(o, "[");
	for (size_t i = 0; i < tables->n_shapes; i++) {
		bool first = true;

		mc_json_put(o, i > 0 ? ",[" : "[");
		for (unsigned k = 0; k < tables->shapes[i].of->rank; k++) {
			mc_json_put_comma(o, &first);
			mc_json_put_uint(o, tables->shapes[i].of->shape[k]);
		}
		mc_json_put(o, "]");
	}
	mc_json_put(o, "]");
}

void mc_writer_put_tensors(struct mc_json_out *o, const struct mc_writer *w)
{
	struct tables tables = {0};

	if (make_tables(w, &tables) < 0) {
		o->failed = true;
		return;
	}
	mc_json_put(o, "{");
	put_boxes(o, w);
	mc_json_put(o, "\"dtype\":");
	put_column(o, w, &tables, dtype_of);
	mc_json_put(o, ",\"dtypes\":");
	put_dtypes(o, &tables);
	mc_json_put(o, ",\"file\":");
	put_column(o, w, &tables, file_of);
	mc_json_put(o, ",\"len\":");
	put_column(o, w, &tables, len_of);
	mc_json_put(o, ",\"name\":");
	put_names(o, w);
	mc_json_put(o, ",\"off\":");
	put_column(o, w, &tables, off_of);
	mc_json_put(o, ",\"shape\":");
	put_column(o, w, &tables, shape_of);
	mc_json_put(o, ",\"shapes\":");
	put_shapes(o, &tables);
	mc_json_put(o, "}");
	free(tables.shapes);
}
