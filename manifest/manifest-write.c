/*
 * Collecting what goes into a manifest.
 *
 * Invariants: 1. every string is UTF-8 and every path good; 2. a file's spans sum up to its size
 * and adjacent holes are one span; 3. the file's digest stands in its item.
 */
#include "manifest/manifest-writer.h"

#include <string.h>

#include "manifest/dtype.h"
#include "manifest/file-digest.h"
#include "manifest/json.h"
#include "manifest/path.h"
#include "manifest/utf8.h"
#include "tier/array.h"
#include "tier/cleanup.h"

int mc_writer_open(struct mc_writer **ret)
{
	struct mc_writer *w = calloc(1, sizeof(*w));

	if (w == NULL)
		return -ENOMEM;
	w->root.mode = 0755;
	*ret = w;
	return 0;
}

static void item_done(struct mc_new_item *item)
{
	free(item->path);
	free(item->target);
	free(item->parse_error);
	free(item->ext_path);
	free(item->spans);
	free(item->crcs);
}

void mc_writer_close(struct mc_writer *w)
{
	if (w == NULL)
		return;
	for (size_t i = 0; i < w->n_items; i++)
		item_done(&w->items[i]);
	for (size_t i = 0; i < w->n_tensors; i++) {
		free(w->tensors[i].name);
		free(w->tensors[i].file);
	}
	free(w->items);
	free(w->tensors);
	free(w->config_path);
	free(w->architecture);
	free(w->quantisation);
	free(w);
}

void mc_writer_root(struct mc_writer *w, const struct mc_new_meta *meta)
{
	w->root = *meta;
}

static int check_meta(const char *path, const struct mc_new_meta *meta, struct mc_err *err)
{
	int64_t limit = (int64_t)MC_JSON_INT_MAX;

	if (meta->mode > 07777 || meta->mtime_ns > 999999999 || meta->mtime_s > limit ||
		meta->mtime_s < -limit)
		return mc_err_set(err, -EINVAL, "%s: mode or mtime out of range", path);
	return 0;
}

/* Appends an item with path and meta checked and copied; *ret is valid until the next append. */
static int add_item(struct mc_writer *w, const char *path, const struct mc_new_meta *meta,
	struct mc_err *err, struct mc_new_item **ret)
{
	const char *fault = mc_path_fault(path);
	struct mc_new_item *item;
	int r = check_meta(path, meta, err);

	if (fault != NULL)
		return mc_err_set(err, -EINVAL, "%s: the path %s", path, fault);
	if (r < 0)
		return r;
	r = mc_array_room(&w->items, &w->cap_items, w->n_items + 1);
	if (r < 0)
		return r;
	item = &w->items[w->n_items];
	*item = (struct mc_new_item){.meta = *meta, .path = strdup(path)};
	if (item->path == NULL)
		return -ENOMEM;
	w->n_items++;
	*ret = item;
	return 0;
}

/* Takes the item added last away again. */
static int undo(struct mc_writer *w, int r)
{
	item_done(&w->items[--w->n_items]);
	return r;
}

int mc_writer_dir(
	struct mc_writer *w, const char *path, const struct mc_new_meta *meta, struct mc_err *err)
{
	struct mc_new_item *item;
	int r = add_item(w, path, meta, err, &item);

	if (r == 0)
		item->type = MC_ENTRY_DIR;
	return r;
}

int mc_writer_symlink(struct mc_writer *w, const char *path, const struct mc_new_meta *meta,
	const char *target, struct mc_err *err)
{
	struct mc_new_item *item;
	const char *fault;
	int r = add_item(w, path, meta, err, &item);

	if (r < 0)
		return r;
	item->type = MC_ENTRY_SYMLINK;
	fault = mc_link_fault(path, target);
	if (fault != NULL)
		return undo(w, mc_err_set(err, -EINVAL, "%s: its target %s", path, fault));
	item->target = strdup(target);
	return item->target != NULL ? 0 : undo(w, -ENOMEM);
}

/* Copies the spans, joining adjacent holes, and computes the digest on the way. */
static int copy_spans(struct mc_new_item *item, const struct mc_new_file *f,
	struct mc_file_digest *d, struct mc_err *err)
{
	uint64_t sum = 0;
	int r = 0;

	item->spans = calloc(f->n_spans + 1, sizeof(*item->spans));
	if (item->spans == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < f->n_spans; i++) {
		const struct mc_new_span *s = &f->spans[i];
		struct mc_new_span *last =
			item->n_spans > 0 ? &item->spans[item->n_spans - 1] : NULL;

		if (s->len == 0 || (!s->hole && s->len > MC_CHUNK_MAX) ||
			__builtin_add_overflow(sum, s->len, &sum) || sum > f->size)
			return mc_err_set(
				err, -EINVAL, "%s: span %zu has a bad length", item->path, i);
		if (last != NULL && last->hole && s->hole)
			last->len += s->len;
		else
			item->spans[item->n_spans++] = *s;
	}
	if (sum != f->size)
		return mc_err_set(err, -EINVAL, "%s: spans do not sum up to its size", item->path);
	for (size_t i = 0; r == 0 && i < item->n_spans; i++)
		r = item->spans[i].hole
			? mc_file_digest_hole(d, item->spans[i].len)
			: mc_file_digest_chunk(d, item->spans[i].len, item->spans[i].sha256);
	return r < 0 ? r : mc_file_digest_final(d, item->digest);
}

static int copy_external(struct mc_new_item *item, const struct mc_new_file *f, struct mc_err *err)
{
	const char *fault;

	if (f->ext_path == NULL)
		return 0;
	fault = mc_path_fault(f->ext_path);
	if (fault != NULL)
		return mc_err_set(err, -EINVAL, "%s: external path %s", item->path, fault);
	if (!f->ext_guard.set || f->ext_off > f->ext_guard.size ||
		f->size > f->ext_guard.size - f->ext_off)
		return mc_err_set(err, -EINVAL, "%s: its range is not inside the external file %s",
			item->path, f->ext_path);
	item->ext_off = f->ext_off;
	item->ext_guard = f->ext_guard;
	item->ext_path = strdup(f->ext_path);
	return item->ext_path != NULL ? 0 : -ENOMEM;
}

static int copy_file(struct mc_new_item *item, const struct mc_new_file *f, struct mc_err *err)
{
	size_t n = mc_block_count(f->size);
	struct mc_file_digest d;
	int r;

	item->type = MC_ENTRY_FILE;
	item->size = f->size;
	if (f->size > MC_JSON_INT_MAX)
		return mc_err_set(err, -EINVAL, "%s: larger than 2^53 bytes", item->path);
	r = mc_file_digest_init(&d);
	if (r == 0)
		r = copy_spans(item, f, &d, err);
	mc_file_digest_done(&d);
	if (r == 0)
		r = copy_external(item, f, err);
	if (r < 0)
		return r;
	item->crcs = calloc(n + 1, sizeof(*item->crcs));
	if (item->crcs == NULL)
		return -ENOMEM;
	if (n > 0)
		memcpy(item->crcs, f->crc32c, n * sizeof(*item->crcs));
	if (f->sha256 != NULL) {
		item->has_sha256 = true;
		memcpy(item->sha256, f->sha256, MC_SHA256_SIZE);
	}
	if (f->parse_error == NULL || f->parse_error[0] == '\0')
		return 0;
	if (!mc_utf8_valid(f->parse_error, strlen(f->parse_error), NULL))
		return mc_err_set(err, -EINVAL, "%s: parse_error is not UTF-8", item->path);
	item->parse_error = strdup(f->parse_error);
	return item->parse_error != NULL ? 0 : -ENOMEM;
}

int mc_writer_file(struct mc_writer *w, const char *path, const struct mc_new_meta *meta,
	const struct mc_new_file *file, struct mc_err *err)
{
	struct mc_new_item *item;
	int r = add_item(w, path, meta, err, &item);

	if (r < 0)
		return r;
	r = copy_file(item, file, err);
	return r < 0 ? undo(w, r) : 0;
}

int mc_writer_tensor(struct mc_writer *w, const struct mc_new_tensor *t, struct mc_err *err)
{
	struct mc_writer_tensor *n;
	int r;

	if (!mc_utf8_valid(t->name, strlen(t->name), NULL))
		return mc_err_set(err, -EINVAL, "%s: a tensor name is not UTF-8", t->file);
	if (t->rank > MC_MAX_RANK || t->dtype >= MC_DTYPE_COUNT)
		return mc_err_set(err, -EINVAL,
			"tensor %s: more than %d dimensions, or a bad dtype", t->name, MC_MAX_RANK);
	r = mc_array_room(&w->tensors, &w->cap_tensors, w->n_tensors + 1);
	if (r < 0)
		return r;
	n = &w->tensors[w->n_tensors];
	*n = (struct mc_writer_tensor){.dtype = t->dtype,
		.rank = t->rank,
		.off = t->off,
		.len = t->len,
		.boxed = t->box_off != NULL,
		.name = strdup(t->name),
		.file = strdup(t->file)};
	if (n->name == NULL || n->file == NULL) {
		free(n->name);
		free(n->file);
		return -ENOMEM;
	}
	for (unsigned i = 0; i < t->rank; i++) {
		n->shape[i] = t->shape[i];
		n->box[i] = n->boxed ? t->box_off[i] : 0;
		n->box[t->rank + i] = n->boxed ? t->global[i] : 0;
	}
	w->n_tensors++;
	return 0;
}

static int set_text(char **at, const char *text)
{
	char *copy = NULL;

	if (text != NULL && text[0] != '\0') {
		if (!mc_utf8_valid(text, strlen(text), NULL))
			return -EINVAL;
		copy = strdup(text);
		if (copy == NULL)
			return -ENOMEM;
	}
	free(*at);
	*at = copy;
	return 0;
}

int mc_writer_model(struct mc_writer *w, const struct mc_model *model)
{
	int r = set_text(&w->config_path, model->config_path);

	if (r == 0)
		r = set_text(&w->architecture, model->architecture);
	return r < 0 ? r : set_text(&w->quantisation, model->quantisation);
}
