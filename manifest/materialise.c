/*
 * The work of materialising: chunks of all files of all ranks, in the order of the source.
 *
 * Invariants: 1. a chunk's digest and checksums are of the bytes in the job's buffer, which are the
 * ones that are written; 2. a note in the journal is of a chunk that was written, and is believed
 * only when the remote has that chunk; 3. the manifest is published after every chunk is there and
 * synced.
 */
#include "manifest/materialise-state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/crew.h"
#include "tier/future.h"
#include "tier/store-gather.h"

static void read_done(struct mc_file_read *r, int res)
{
	mc_future_set(r->ctx, res);
}

static void gathered(void *ctx, int res)
{
	mc_future_set(ctx, res);
}

/* A file beside the weights, block by block. */
static int read_plain(struct mc_file *f, uint64_t off, uint32_t len, char *out)
{
	uint64_t end = off + len;
	int r = 0;

	while (off < end && r == 0) {
		uint64_t next = (off | (MC_BLOCK_SIZE - 1)) + 1;
		struct mc_future w;
		struct mc_file_read read = {.file = f, .off = off, .done = read_done, .ctx = &w};

		next = next < end ? next : end;
		read.len = (uint32_t)(next - off);
		mc_future_init(&w);
		mc_file_read(&read);
		r = (int)mc_future_wait(&w);
		for (unsigned i = 0; r == 0 && i < read.n_iov; i++) {
			memcpy(out, read.iov[i].iov_base, read.iov[i].iov_len);
			out += read.iov[i].iov_len;
		}
		if (r == 0)
			mc_file_read_end(&read);
		off = next;
	}
	return r;
}

/* Synthesised bytes straight into the buffer: only the source's blocks take memory of the store. */
static int synthesise(const struct mc_source *s, uint64_t off, uint32_t len, char *out)
{
	struct mc_plan plan;
	struct mc_future w;
	int r;

	mc_plan_init(&plan);
	r = s->ops->plan(s, off, len, &plan);
	for (size_t i = 0, at = 0; r == 0 && i < plan.n; at += plan.pieces[i++].len) {
		const struct mc_piece *p = &plan.pieces[i];

		if (p->kind == MC_PIECE_HOLE)
			memset(out + at, 0, p->len);
		else if (p->kind == MC_PIECE_INLINE)
			memcpy(out + at, p->data, p->len);
	}
	if (r == 0 && mc_gather_wanted(&plan)) {
		mc_future_init(&w);
		r = mc_gather_start(&plan, (uint8_t *)out, gathered, &w);
		if (r < 0)
			mc_future_set(&w, r);
		r = (int)mc_future_wait(&w);
	}
	mc_plan_done(&plan);
	return r;
}

/* Reads the chunk, and takes its digest and its checksum in each block. */
static int read_chunk(struct mc_mat *m, struct mc_mat_chunk *c, char *buf, struct mc_err *err)
{
	const struct mc_mat_file *f = &m->file[c->file];
	uint64_t at = c->off, end = c->off + c->len;
	int r = f->src != NULL ? synthesise(f->src, c->off, c->len, buf)
			       : read_plain(f->file, c->off, c->len, buf);

	if (r < 0)
		return mc_err_set(err, r, "%s at %llu: %s", f->path, (unsigned long long)c->off,
			strerror(-r));
	for (unsigned i = 0; at < end; i++) {
		uint64_t next = (at | (MC_BLOCK_SIZE - 1)) + 1;

		next = next < end ? next : end;
		c->crc[i] = mc_crc32c(0, buf + (at - c->off), next - at);
		at = next;
	}
	return mc_sha256(buf, c->len, c->sha256);
}

/* 1 when the remote has the chunk, which then is as good as new; 0 when not. */
static int find_chunk(
	struct mc_mat *m, const struct mc_mat_chunk *c, const char *path, struct mc_err *err)
{
	struct mc_remote_attr attr;
	int r = mc_remote_stat(m->in->remote, path, &attr, NULL);

	if (r == 0 && attr.type == MC_REMOTE_FILE && attr.size == c->len)
		r = mc_remote_touch(m->in->remote, path, err);
	else if (r == 0 || r == -ENOENT)
		return 0;
	return r < 0 ? mc_err_set(err, r, "remote: %s: %s", path, strerror(-r)) : 1;
}

/* Writes the chunk unless the remote has it. */
static int put_chunk(
	struct mc_mat *m, const struct mc_mat_chunk *c, const void *buf, struct mc_err *err)
{
	char path[MC_CHUNK_PATH];
	int r;

	mc_chunk_path(c->sha256, path);
	r = find_chunk(m, c, path, err);
	if (r != 0)
		return r < 0 ? r : 0;
	r = mc_remote_put(m->in->remote, path, buf, c->len, 0, err);
	if (r == 0) {
		m->new_chunks++;
		m->written_bytes += c->len;
	}
	return r;
}

/* 1 when an earlier run made the chunk and the remote still has it: nothing is read. */
static int resume_chunk(struct mc_mat *m, struct mc_mat_chunk *c, struct mc_err *err)
{
	const struct mc_import_note *note =
		mc_import_journal_find(m->journal, m->file[c->file].digest, c->off, c->len);
	char path[MC_CHUNK_PATH];
	int r;

	if (note == NULL)
		return 0;
	memcpy(c->sha256, note->sha256, sizeof(c->sha256));
	memcpy(c->crc, note->crc, sizeof(c->crc));
	mc_chunk_path(c->sha256, path);
	r = find_chunk(m, c, path, err);
	if (r > 0)
		m->resumed_bytes += c->len;
	return r;
}

static void note_chunk(struct mc_mat *m, const struct mc_mat_chunk *c)
{
	struct mc_import_note note = {.off = c->off, .len = c->len};

	memcpy(note.file, m->file[c->file].digest, sizeof(note.file));
	memcpy(note.crc, c->crc, sizeof(note.crc));
	memcpy(note.sha256, c->sha256, sizeof(note.sha256));
	mc_import_journal_add(m->journal, &note);
}

static int run(void *ctx, unsigned worker, uint64_t item, struct mc_err *err)
{
	struct mc_mat *m = ctx;
	struct mc_mat_chunk *c = &m->chunk[m->queue[item]];
	int r = resume_chunk(m, c, err);

	if (r == 0) {
		r = read_chunk(m, c, m->buffers[worker], err);
		if (r == 0)
			r = put_chunk(m, c, m->buffers[worker], err);
		if (r == 0)
			note_chunk(m, c);
	}
	m->done_bytes += c->len;
	m->done_items++;
	return r < 0 ? r : 0;
}

static void tick(void *ctx)
{
	struct mc_mat *m = ctx;
	const struct mc_progress now = {.stage = "reshard",
		.bytes_done = m->done_bytes,
		.bytes_total = m->total_bytes,
		.items_done = m->done_items,
		.items_total = m->n_chunks};

	if (m->in->progress != NULL)
		m->in->progress(m->in->ctx, &now);
}

static void done(struct mc_mat *m)
{
	for (unsigned i = 0; m->buffers != NULL && i < m->in->jobs; i++)
		free(m->buffers[i]);
	for (uint32_t i = 0; i < m->n_files; i++) {
		free(m->file[i].path);
		if (m->file[i].file != NULL)
			mc_file_put(m->file[i].file);
		if (m->file[i].src != NULL)
			m->file[i].src->ops->release(m->file[i].src);
	}
	for (uint32_t i = 0; i < m->n_views; i++)
		mc_view_unref(m->view[i]);
	free(m->buffers);
	free(m->queue);
	free(m->chunk);
	free(m->file);
	free(m->view);
}

static int open_journal(struct mc_mat *m, struct mc_err *err)
{
	char source[MC_SHA256_HEX + 1], layout[MC_SHA256_HEX + 1], from[2 * sizeof(source)];

	mc_hex_encode(mc_manifest_id(m->in->layout->manifest), MC_SHA256_SIZE, source);
	mc_hex_encode(m->in->layout->digest, MC_SHA256_SIZE, layout);
	snprintf(from, sizeof(from), "%s %s", source, layout);
	return mc_import_journal_open(
		"reshard", mc_remote_url(m->in->remote), from, &m->journal, err);
}

int mc_materialise(
	const struct mc_materialise_in *in, struct mc_materialise_result *ret, struct mc_err *err)
{
	struct mc_mat m = {.in = in};
	struct mc_crew crew = {.workers = in->jobs, .run = run, .tick = tick, .ctx = &m};
	int r = open_journal(&m, err);

	if (r == 0)
		r = mc_mat_plan(&m, err);
	crew.items = m.n_chunks;
	if (r == 0)
		r = mc_crew_run(&crew, err);
	if (r == 0)
		r = mc_remote_sync(in->remote, err);
	if (r == 0)
		r = mc_mat_publish(&m, ret, err);
	mc_import_journal_close(m.journal, r == 0);
	done(&m);
	return r;
}
