/* The two looks before an import publishes: at the source once more, and at every chunk on the
 * remote. */
#include "manifest/import-state.h"
#include "manifest/crew.h"

#include <errno.h>

int mc_import_recheck_source(struct mc_import *im, struct mc_err *err)
{
	struct mc_scan now;
	struct mc_err why = {0};
	int r;

	mc_import_stage(im, "look at the source again", 0, 0);
	mc_import_tick(im);
	if (im->scan.on_remote)
		r = mc_scan_remote(im->remote, im->scan.root, &now, &why);
	else
		r = mc_scan_local(im->scan.root, &now, &why);
	if (r == 0)
		r = mc_scan_compare(&im->scan, &now, err);
	else
		mc_err_set(err, r, "the source changed during the import: %s", why.text);
	mc_scan_done(&now);
	return r;
}

static int check(void *ctx, unsigned worker, uint64_t item, struct mc_err *err)
{
	struct mc_import *im = ctx;
	const struct mc_import_chunk *c = &im->chunks[item];
	char path[MC_CHUNK_PATH];
	struct mc_remote_attr attr;
	int r;

	(void)worker;
	im->done_items++;
	if (!c->first)
		return 0;
	mc_chunk_path(c->sha256, path);
	r = mc_remote_stat(im->remote, path, &attr, err);
	if (r < 0)
		return mc_err_prefix(err, r, "chunk of %s, looked up before publishing",
			im->files[c->file].open_path);
	if (attr.size != c->len)
		return mc_err_set(err, -EBADMSG,
			"remote %s: %s has %llu bytes instead of %u; nothing was published, run "
			"the "
			"import again",
			mc_remote_url(im->remote), path, (unsigned long long)attr.size, c->len);
	return 0;
}

int mc_import_recheck_chunks(struct mc_import *im, struct mc_err *err)
{
	const struct mc_crew crew = {.items = im->n_chunks,
		.workers = im->jobs,
		.run = check,
		.tick = mc_import_tick,
		.ctx = im};
	int r;

	if (im->opts->reference)
		return 0;
	mc_import_stage(im, "check", 0, im->n_chunks);
	r = mc_crew_run(&crew, err);
	if (r < 0)
		return r;
	mc_import_stage(im, "sync", 0, 0);
	mc_import_tick(im);
	return mc_remote_sync(im->remote, err);
}
