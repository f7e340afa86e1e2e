/*
 * Writing a revision back: directories first, then the data by ranges of up to 8 MiB on several
 * threads, then links, then the modes and times of directories, children before parents.
 *
 * Invariants: 1. a file has its final name only when every range of it was written from blocks
 * whose CRC32C matched; 2. bytes that the manifest calls a hole are never written; 3. left of a
 * file falls to 0 exactly once, in the job that then finishes it.
 */
#include "manifest/export.h"

#include "manifest/export-state.h"
#include "manifest/piece-read.h"
#include "manifest/crew.h"
#include "tier/cleanup.h"

#include <errno.h>
#include <string.h>

/* Fills buf with the range's bytes, zeros where it has holes. */
static int fetch(struct mc_export *x, const struct mc_plan *plan, uint8_t *buf, struct mc_err *err)
{
	uint32_t at = 0;
	int r = 0;

	for (size_t i = 0; i < plan->n && r == 0; i++) {
		r = mc_piece_read(x->remote, &plan->pieces[i], buf + at, err);
		at += plan->pieces[i].len;
	}
	return r;
}

static int check_blocks(const struct mc_export_file *f, const struct mc_export_range *g,
	const uint8_t *buf, struct mc_err *err)
{
	for (uint32_t at = 0; at < g->len; at += (uint32_t)MC_BLOCK_SIZE) {
		uint64_t block = (g->off + at) >> MC_BLOCK_SHIFT;
		uint32_t len = g->len - at < MC_BLOCK_SIZE ? g->len - at : (uint32_t)MC_BLOCK_SIZE;

		if (mc_crc32c(0, buf + at, len) != f->src->ops->block_crc(f->src, block))
			return mc_err_set(err, -EBADMSG,
				"%s: the remote gave wrong bytes for block %llu (of 1 MiB); "
				"'mooncakefs verify' names the chunk",
				f->path, (unsigned long long)block);
	}
	return 0;
}

static int write_all(const struct mc_export_file *f, int fd, const uint8_t *buf, uint32_t len,
	uint64_t off, struct mc_err *err)
{
	while (len > 0) {
		ssize_t n = pwrite(fd, buf, len, (off_t)off);
		int r;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			r = -errno;
			return mc_export_failed(f->path, r, err);
		}
		buf += n;
		off += (uint64_t)n;
		len -= (uint32_t)n;
	}
	return 0;
}

static int write_data(const struct mc_export_file *f, int fd, const struct mc_export_range *g,
	const struct mc_plan *plan, const uint8_t *buf, struct mc_err *err)
{
	uint32_t at = 0;
	int r = 0;

	for (size_t i = 0; i < plan->n && r == 0; i++) {
		const struct mc_piece *p = &plan->pieces[i];

		if (p->kind != MC_PIECE_HOLE)
			r = write_all(f, fd, buf + at, p->len, g->off + at, err);
		at += p->len;
	}
	return r;
}

static int borrow_fd(struct mc_export *x, struct mc_export_file *f, int *ret, struct mc_err *err)
{
	int r = 0;

	mc_mutex_lock(&x->lock);
	if (f->fd < 0)
		r = mc_export_create(x, f, &f->fd, err);
	*ret = f->fd;
	mc_mutex_unlock(&x->lock);
	return r;
}

/* One range of f is written; whoever writes the last finishes the file. */
static int range_written(struct mc_export *x, struct mc_export_file *f, struct mc_err *err)
{
	int fd = -1;

	mc_mutex_lock(&x->lock);
	f->left--;
	if (f->left == 0)
		fd = steal_fd(f->fd);
	mc_mutex_unlock(&x->lock);
	return fd < 0 ? 0 : mc_export_finish_file(x, f, fd, err);
}

static int run(void *ctx, unsigned worker, uint64_t item, struct mc_err *err)
{
	struct mc_export *x = ctx;
	const struct mc_export_range *g = &x->ranges[item];
	struct mc_export_file *f = &x->files[g->file];
	struct mc_plan plan;
	int fd, r = borrow_fd(x, f, &fd, err);

	mc_plan_init(&plan);
	if (r == 0) {
		r = f->src->ops->plan(f->src, g->off, g->len, &plan);
		if (r < 0)
			mc_err_set(err, r, "manifest: %s: %s", f->path, strerror(-r));
	}
	if (r == 0) {
		r = fetch(x, &plan, x->buffers[worker], err);
		if (r < 0)
			mc_err_prefix(err, r, "export of %s", f->path);
	}
	if (r == 0)
		r = check_blocks(f, g, x->buffers[worker], err);
	if (r == 0)
		r = write_data(f, fd, g, &plan, x->buffers[worker], err);
	if (r == 0)
		r = range_written(x, f, err);
	mc_plan_done(&plan);
	x->done += g->len;
	x->done_items++;
	return r;
}

static void tick(void *ctx)
{
	struct mc_export *x = ctx;
	const struct mc_progress now = {.stage = "export",
		.bytes_done = x->done,
		.bytes_total = x->total,
		.items_done = x->done_items,
		.items_total = x->n_ranges};

	if (x->opts->progress != NULL)
		x->opts->progress(x->opts->ctx, &now);
}

static int write_files(struct mc_export *x, struct mc_err *err)
{
	const struct mc_crew crew = {
		.items = x->n_ranges, .workers = x->opts->jobs, .run = run, .tick = tick, .ctx = x};

	x->buffers = calloc(x->opts->jobs, sizeof(*x->buffers));
	if (x->buffers == NULL)
		return mc_err_set(err, -ENOMEM, "out of memory");
	for (unsigned i = 0; i < x->opts->jobs && i < x->n_ranges; i++) {
		x->buffers[i] = aligned_alloc(4096, MC_PIECE_MAX);
		if (x->buffers[i] == NULL)
			return mc_err_set(err, -ENOMEM, "out of memory; try a smaller --jobs");
	}
	return mc_crew_run(&crew, err);
}

static void done(struct mc_export *x)
{
	for (size_t i = 0; i < x->n_files; i++) {
		struct mc_export_file *f = &x->files[i];

		if (f->fd >= 0)
			close(f->fd);
		if (!f->finished && f->tmp != NULL)
			unlink(f->tmp);
		if (f->src != NULL)
			f->src->ops->release(f->src);
		free(f->path);
		free(f->tmp);
	}
	for (unsigned i = 0; x->buffers != NULL && i < x->opts->jobs; i++)
		free(x->buffers[i]);
	free(x->buffers);
	free(x->files);
	free(x->ranges);
	mc_mutex_done(&x->lock);
}

int mc_export(struct mc_remote *r, struct mc_manifest *m, const char *dest,
	const struct mc_export_opts *opts, struct mc_export_result *ret, struct mc_err *err)
{
	struct mc_export x = {.remote = r, .m = m, .opts = opts, .dest = dest};
	int res;

	mc_mutex_init(&x.lock);
	res = mc_export_make_tree(&x, err);
	if (res == 0)
		res = write_files(&x, err);
	if (res == 0)
		res = mc_export_finish_tree(&x, err);
	if (res == 0)
		res = mc_export_sync(&x, err);
	if (res == 0)
		*ret = (struct mc_export_result){
			.files = x.n_files, .bytes = x.bytes, .data_bytes = x.total};
	done(&x);
	return res;
}
