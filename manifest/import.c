/* An import from the outside: the order of its steps, and what all of them share. */
#include "manifest/import.h"

#include "manifest/import-state.h"
#include "tier/cleanup.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

unsigned mc_import_default_jobs(void)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);

	return cores <= 2 ? 8 : cores >= 16 ? 64 : 4 * (unsigned)cores;
}

void mc_import_tick(void *ctx)
{
	struct mc_import *im = ctx;
	const struct mc_progress now = {.stage = im->stage,
		.bytes_done = im->done_bytes,
		.bytes_total = im->total_bytes,
		.items_done = im->done_items,
		.items_total = im->total_items};

	if (im->opts->progress != NULL)
		im->opts->progress(im->opts->ctx, &now);
}

void mc_import_warn(struct mc_import *im, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	im->warnings++;
	if (im->opts->warning == NULL)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	im->opts->warning(im->opts->ctx, text);
}

/* One mc_import_file for each FILE of the scan. */
static int list_files(struct mc_import *im, struct mc_err *err)
{
	im->files = calloc(im->scan.files + 1, sizeof(*im->files));
	if (im->files == NULL)
		return mc_err_set(err, -ENOMEM, "out of memory");
	for (size_t i = 0; i < im->scan.n; i++) {
		const struct mc_scan_entry *e = &im->scan.entries[i];
		struct mc_import_file *f = &im->files[im->n_files];
		int r;

		if (e->type != MC_ENTRY_FILE)
			continue;
		f->entry = e;
		f->fd = -1;
		im->n_files++;
		r = mc_scan_open_path(&im->scan, e, &f->open_path);
		if (r == 0)
			r = mc_import_journal_key(e, f->key);
		if (r < 0)
			return mc_err_set(err, r, "out of memory");
	}
	return im->opts->reference ? mc_import_ext_paths(im, err) : 0;
}

static int scan(struct mc_import *im, struct mc_err *err)
{
	int r;

	mc_import_stage(im, "scan", 0, 0);
	mc_import_tick(im);
	if (im->opts->reference)
		r = mc_import_scan_reference(im, err);
	else
		r = mc_scan_local(im->opts->src, &im->scan, err);
	return r < 0 ? r : list_files(im, err);
}

static void done(struct mc_import *im)
{
	for (size_t i = 0; i < im->n_files; i++) {
		if (im->files[i].fd >= 0)
			close(im->files[i].fd);
		free(im->files[i].open_path);
		free(im->files[i].ext_path);
		free(im->files[i].parse_error);
		mc_safetensors_close(im->files[i].st);
	}
	for (unsigned i = 0; im->buffers != NULL && i < im->jobs; i++)
		free(im->buffers[i]);
	free(im->buffers);
	free(im->seen);
	free(im->files);
	free(im->chunks);
	mc_writer_close(im->writer);
	free(im->ref_root);
	mc_scan_done(&im->scan);
	mc_cond_done(&im->stored);
	mc_mutex_done(&im->lock);
}

static int steps(struct mc_import *im, struct mc_import_result *ret, struct mc_err *err)
{
	int r = mc_writer_open(&im->writer);

	if (r < 0)
		return mc_err_set(err, r, "out of memory");
	r = scan(im, err);
	if (r == 0)
		r = mc_import_journal_open(
			"import", mc_remote_url(im->remote), im->scan.root, &im->journal, err);
	if (r == 0)
		r = mc_import_plan(im, err);
	if (r == 0)
		r = mc_import_copy(im, err);
	if (r == 0 && im->opts->file_sha256)
		r = mc_import_hash_files(im, err);
	if (r == 0)
		r = mc_import_recheck_source(im, err);
	if (r == 0)
		r = mc_import_recheck_chunks(im, err);
	if (r == 0)
		r = mc_import_publish(im, ret, err);
	return r;
}

int mc_import(struct mc_remote *r, const struct mc_import_opts *opts, struct mc_import_result *ret,
	struct mc_err *err)
{
	struct mc_import_result result = {0};
	struct mc_import im = {.remote = r,
		.opts = opts,
		.jobs = opts->jobs > 0 ? opts->jobs : mc_import_default_jobs(),
		.stage = "scan"};
	int res;

	mc_mutex_init(&im.lock);
	mc_cond_init(&im.stored);
	res = steps(&im, &result, err);
	if (res == 0) {
		result.files = im.scan.files;
		result.bytes = im.scan.bytes;
		result.hole_bytes = im.scan.bytes - im.scan.data_bytes;
		result.read_bytes = im.read_bytes;
		result.resumed_bytes = im.resumed_bytes;
		result.chunks = im.n_chunks;
		result.new_chunks = im.new_chunks;
		result.written_bytes = im.written_bytes;
		result.warnings = im.warnings;
		*ret = result;
	}
	mc_import_journal_close(im.journal, res == 0);
	done(&im);
	return res;
}
