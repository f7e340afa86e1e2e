/* The plain SHA-256 of each file, for --file-sha256: a second reading of every byte, holes as
 * zeros. */
#include "manifest/import-state.h"
#include "manifest/crew.h"
#include "tier/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

/* Hashes n zero bytes. */
static int hash_zeros(struct mc_sha256 *h, uint64_t n)
{
	static const uint8_t zeros[65536];
	int r = 0;

	while (n > 0 && r == 0) {
		size_t part = n < sizeof(zeros) ? (size_t)n : sizeof(zeros);

		r = mc_sha256_update(h, zeros, part);
		n -= part;
	}
	return r;
}

static int hash_file(struct mc_import *im, struct mc_import_file *f, struct mc_sha256 *h, void *buf,
	struct mc_err *err)
{
	struct mc_import_source s;
	uint64_t at = 0;
	int r = mc_import_source_open(im, f, &s, err);

	for (size_t i = 0; i < f->n_chunks && r == 0; i++) {
		const struct mc_import_chunk *c = &im->chunks[f->first_chunk + i];

		r = hash_zeros(h, c->off - at);
		if (r == 0)
			r = mc_import_read(&s, c->off, c->len, buf, err);
		if (r == 0)
			r = mc_sha256_update(h, buf, c->len);
		at = c->off + c->len;
		im->done_bytes += c->len;
	}
	mc_import_source_close(&s);
	if (r == 0)
		r = hash_zeros(h, f->entry->size - at);
	return r < 0 ? r : mc_sha256_final(h, f->sha256);
}

static int run(void *ctx, unsigned worker, uint64_t item, struct mc_err *err)
{
	struct mc_import *im = ctx;
	struct mc_import_file *f = &im->files[item];
	struct mc_sha256 *h;
	int r = mc_sha256_open(&h);

	if (r < 0)
		return mc_err_set(err, r, "out of memory");
	r = hash_file(im, f, h, im->buffers[worker], err);
	mc_sha256_close(h);
	f->hashed = r == 0;
	im->done_items++;
	return r;
}

int mc_import_hash_files(struct mc_import *im, struct mc_err *err)
{
	struct mc_crew crew = {.items = im->n_files, .run = run, .tick = mc_import_tick, .ctx = im};

	/* A job without a buffer had no chunk to copy: there are fewer chunks than jobs. */
	crew.workers = im->jobs;
	if (im->n_chunks < crew.workers)
		crew.workers = im->n_chunks > 0 ? (unsigned)im->n_chunks : 1;
	mc_import_stage(im, "hash files", im->scan.data_bytes, im->n_files);
	return mc_crew_run(&crew, err);
}
