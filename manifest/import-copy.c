/*
 * The copying part of an import: each job takes the next chunk, reads it into its buffer, hashes
 * and checksums that buffer, and writes it to the remote unless the content is there.
 *
 * Invariants: 1. a byte of the source is read and hashed once, unless the journal knows it already:
 * then not at all; 2. a chunk's note goes to the journal only after its content is on the remote
 * (reference: after it was hashed); 3. of chunks with the same content only one, marked first, is
 * looked up and written.
 */
#include "manifest/import-state.h"

#include "manifest/piece-read.h"
#include "manifest/crew.h"
#include "tier/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define SLICE (UINT64_C(256) << 10) /* bytes, divides a block; fits a core's own cache */

static int changed(const struct mc_import_file *f, struct mc_err *err)
{
	return mc_err_set(err, -ESTALE,
		"source: %s changed during the import; nothing was published, run the import again "
		"once "
		"it is at rest",
		f->open_path);
}

static int read_failed(const struct mc_import_file *f, int code, struct mc_err *err)
{
	return mc_err_set(
		err, code, "source: %s cannot be read: %s", f->open_path, strerror(-code));
}

static int open_file(const struct mc_import_file *f, int *ret, struct mc_err *err)
{
	int fd = open(f->open_path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	const struct mc_scan_entry *e = f->entry;
	struct stat st;
	int r = 0;

	if (fd < 0)
		return read_failed(f, -errno, err);
	if (fstat(fd, &st) < 0)
		r = read_failed(f, -errno, err);
	else if ((uint64_t)st.st_size != e->size || st.st_ino != e->ino ||
		st.st_mtim.tv_sec != e->mtime_s || (uint32_t)st.st_mtim.tv_nsec != e->mtime_ns)
		r = changed(f, err);
	if (r < 0) {
		close(fd);
		return r;
	}
	posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	*ret = fd;
	return 0;
}

/* The file's descriptor, shared by the jobs that work on it; opened by the first. */
static int borrow_fd(struct mc_import *im, struct mc_import_file *f, int *ret, struct mc_err *err)
{
	int r = 0;

	*ret = -1;
	if (im->scan.on_remote)
		return 0;
	mc_mutex_lock(&im->lock);
	if (f->fd < 0)
		r = open_file(f, &f->fd, err);
	*ret = f->fd;
	mc_mutex_unlock(&im->lock);
	return r;
}

/* One chunk of the file is done with. */
static void chunk_ended(struct mc_import *im, struct mc_import_file *f)
{
	int fd = -1;

	mc_mutex_lock(&im->lock);
	f->left--;
	if (f->left == 0)
		fd = steal_fd(f->fd);
	mc_mutex_unlock(&im->lock);
	if (fd >= 0)
		close(fd);
}

int mc_import_source_open(struct mc_import *im, const struct mc_import_file *f,
	struct mc_import_source *ret, struct mc_err *err)
{
	*ret = (struct mc_import_source){.im = im, .f = f, .fd = -1};
	if (im->scan.on_remote)
		return 0;
	ret->fd = open(f->open_path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	return ret->fd < 0 ? read_failed(f, -errno, err) : 0;
}

void mc_import_source_close(struct mc_import_source *s)
{
	if (s->fd >= 0)
		close(s->fd);
}

int mc_import_read(
	const struct mc_import_source *s, uint64_t off, uint32_t len, void *buf, struct mc_err *err)
{
	const struct mc_scan_entry *e = s->f->entry;
	uint32_t done = 0;

	if (s->im->scan.on_remote) {
		const struct mc_piece p = {.kind = MC_PIECE_OBJECT,
			.path = s->f->ext_path,
			.off = off,
			.len = len,
			.guard = {.set = true,
				.size = e->size,
				.mtime_s = e->mtime_s,
				.mtime_ns = e->mtime_ns}};

		return mc_piece_read(s->im->remote, &p, buf, err);
	}
	while (done < len) {
		ssize_t n = pread(s->fd, (char *)buf + done, len - done, (off_t)(off + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return read_failed(s->f, -errno, err);
		if (n == 0)
			return changed(s->f, err);
		done += (uint32_t)n;
	}
	return 0;
}

/* Takes [at, next), inside one block of the file, into the checksums of the chunk. */
static int digest_slice(struct mc_import_chunk *c, struct mc_sha256 *h, const uint8_t *p,
	uint64_t at, uint64_t next)
{
	uint32_t *crc = &c->crc[(at >> MC_BLOCK_SHIFT) - (c->off >> MC_BLOCK_SHIFT)];

	*crc = mc_crc32c(*crc, p, (size_t)(next - at));
	return mc_sha256_update(h, p, (size_t)(next - at));
}

/*
 * The chunk into buf, its SHA-256, and the CRC32C of its part of each block of the file. Slice by
 * slice, so that the bytes are still in the processor's cache when they are hashed. Where nobody
 * wants the bytes afterwards (reference) all slices take the same place: memory touched for the
 * first time would cost as much as the reading.
 */
static int read_and_digest(
	struct mc_import *im, struct mc_import_chunk *c, int fd, uint8_t *buf, struct mc_err *err)
{
	const struct mc_import_source s = {.im = im, .f = &im->files[c->file], .fd = fd};
	uint64_t at = c->off, end = c->off + c->len;
	bool in_place = im->opts->reference && !im->scan.on_remote;
	struct mc_sha256 *h;
	int r = mc_sha256_open(&h);

	if (r < 0)
		return mc_err_set(err, r, "out of memory");
	memset(c->crc, 0, sizeof(c->crc));
	if (im->scan.on_remote)
		r = mc_import_read(&s, at, c->len, buf, err);
	else
		posix_fadvise(fd, (off_t)at, c->len, POSIX_FADV_WILLNEED);
	while (r == 0 && at < end) {
		uint64_t next = (at | (SLICE - 1)) + 1;
		uint8_t *p = buf + (in_place ? 0 : at - c->off);

		if (next > end)
			next = end;
		if (!im->scan.on_remote)
			r = mc_import_read(&s, at, (uint32_t)(next - at), p, err);
		if (r == 0)
			r = digest_slice(c, h, p, at, next);
		at = next;
	}
	if (r == 0)
		r = mc_sha256_final(h, c->sha256);
	mc_sha256_close(h);
	return r;
}

/* The chunk that stands for the content of c: c itself when the content was not seen before. */
static struct mc_import_chunk *claim(struct mc_import *im, struct mc_import_chunk *c)
{
	struct mc_import_chunk *owner = c;
	uint64_t hash;
	size_t i;

	memcpy(&hash, c->sha256, sizeof(hash));
	mc_mutex_lock(&im->lock);
	for (i = hash & im->seen_mask; im->seen[i] != 0; i = (i + 1) & im->seen_mask) {
		owner = &im->chunks[im->seen[i] - 1];
		if (memcmp(owner->sha256, c->sha256, MC_SHA256_SIZE) == 0)
			break;
	}
	if (im->seen[i] == 0) {
		im->seen[i] = (uint32_t)(c - im->chunks) + 1;
		owner = c;
		c->first = true;
	}
	mc_mutex_unlock(&im->lock);
	return owner;
}

static void settle(struct mc_import *im, struct mc_import_chunk *c, int res)
{
	mc_mutex_lock(&im->lock);
	c->state = res < 0 ? MC_CHUNK_FAILED : MC_CHUNK_STORED;
	mc_cond_broadcast(&im->stored);
	mc_mutex_unlock(&im->lock);
}

/* A job that found the same content in work elsewhere waits, so that it, too, never holds more than
 * one chunk that a kill would cost. */
static int wait_for(struct mc_import *im, const struct mc_import_chunk *owner)
{
	int r;

	mc_mutex_lock(&im->lock);
	while (owner->state == MC_CHUNK_NEW)
		mc_cond_wait(&im->stored, &im->lock);
	r = owner->state == MC_CHUNK_FAILED ? -ECANCELED : 0;
	mc_mutex_unlock(&im->lock);
	return r;
}

/* 1: the remote holds the chunk, and its time is now, 0: it does not. */
static int on_remote(struct mc_import *im, const struct mc_import_chunk *c, struct mc_err *err)
{
	char path[MC_CHUNK_PATH];
	struct mc_remote_attr attr;
	struct mc_err ignored = {0};
	int r;

	mc_chunk_path(c->sha256, path);
	r = mc_remote_stat(im->remote, path, &attr, &ignored);
	if (r == -ENOENT || (r == 0 && (attr.type != MC_REMOTE_FILE || attr.size != c->len)))
		return 0;
	if (r < 0)
		return mc_err_set(err, r, "%s", ignored.text);
	r = mc_remote_touch(im->remote, path, &ignored);
	if (r == -ENOENT)
		return 0;
	return r < 0 ? mc_err_set(err, r, "%s", ignored.text) : 1;
}

static int put(
	struct mc_import *im, const struct mc_import_chunk *c, const void *buf, struct mc_err *err)
{
	char path[MC_CHUNK_PATH];
	int r = on_remote(im, c, err);

	if (r != 0)
		return r < 0 ? r : 0;
	mc_chunk_path(c->sha256, path);
	r = mc_remote_put(im->remote, path, buf, c->len, 0, err);
	if (r < 0)
		return r;
	im->new_chunks++;
	im->written_bytes += c->len;
	return 0;
}

/* The content of c, which stands in buf, is on the remote afterwards. */
static int store(
	struct mc_import *im, struct mc_import_chunk *c, const void *buf, struct mc_err *err)
{
	struct mc_import_chunk *owner = claim(im, c);
	int r = 0;

	if (owner != c)
		return wait_for(im, owner);
	if (!im->opts->reference)
		r = put(im, c, buf, err);
	settle(im, c, r);
	return r;
}

/* What an interrupted run knows about the chunk; true when nothing is left to do for it. */
static int take_note(
	struct mc_import *im, struct mc_import_chunk *c, bool *ret_done, struct mc_err *err)
{
	const struct mc_import_note *note =
		mc_import_journal_find(im->journal, im->files[c->file].key, c->off, c->len);
	int r = 1;

	*ret_done = false;
	if (note == NULL)
		return 0;
	memcpy(c->sha256, note->sha256, sizeof(c->sha256));
	memcpy(c->crc, note->crc, sizeof(c->crc));
	if (!im->opts->reference)
		r = on_remote(im, c, err);
	if (r <= 0)
		return r;
	if (claim(im, c) == c)
		settle(im, c, 0);
	im->resumed_bytes += c->len;
	*ret_done = true;
	return 0;
}

static void leave_note(struct mc_import *im, const struct mc_import_chunk *c)
{
	struct mc_import_note note = {.off = c->off, .len = c->len};

	memcpy(note.file, im->files[c->file].key, sizeof(note.file));
	memcpy(note.sha256, c->sha256, sizeof(note.sha256));
	memcpy(note.crc, c->crc, sizeof(note.crc));
	mc_import_journal_add(im->journal, &note);
}

static int put_failed(const struct mc_import_file *f, int code, struct mc_err *err)
{
	struct mc_err why = *err;

	if (code != -ENOSPC && code != -EDQUOT)
		return mc_err_prefix(err, code, "import of %s", f->open_path);
	err->text[0] = '\0';
	return mc_err_set(err, code,
		"import of %s: the remote is full (%s); nothing was published; make room and give "
		"the "
		"same command again: what is there is not read again",
		f->open_path, why.text);
}

static int copy_chunk(
	struct mc_import *im, unsigned worker, struct mc_import_chunk *c, struct mc_err *err)
{
	struct mc_import_file *f = &im->files[c->file];
	void *buf = im->buffers[worker];
	int fd, r = borrow_fd(im, f, &fd, err);

	if (r == 0)
		r = read_and_digest(im, c, fd, buf, err);
	if (r < 0)
		return mc_err_set(err, r, "import of %s: %s", f->open_path, strerror(-r));
	im->read_bytes += c->len;
	r = store(im, c, buf, err);
	if (r < 0)
		return put_failed(f, r, err);
	leave_note(im, c);
	return 0;
}

static int run(void *ctx, unsigned worker, uint64_t item, struct mc_err *err)
{
	struct mc_import *im = ctx;
	struct mc_import_chunk *c = &im->chunks[item];
	bool done;
	int r = take_note(im, c, &done, err);

	if (r == 0 && !done)
		r = copy_chunk(im, worker, c, err);
	chunk_ended(im, &im->files[c->file]);
	im->done_bytes += c->len;
	im->done_items++;
	return r;
}

static int make_buffers(struct mc_import *im, struct mc_err *err)
{
	size_t slots = 64;

	while (slots < 2 * im->n_chunks)
		slots *= 2;
	im->seen = calloc(slots, sizeof(*im->seen));
	im->seen_mask = slots - 1;
	im->buffers = calloc(im->jobs, sizeof(*im->buffers));
	if (im->seen == NULL || im->buffers == NULL)
		return mc_err_set(err, -ENOMEM, "out of memory");
	for (unsigned i = 0; i < im->jobs && i < im->n_chunks; i++) {
		im->buffers[i] = aligned_alloc(4096, MC_CHUNK_MAX);
		if (im->buffers[i] == NULL)
			return mc_err_set(err, -ENOMEM,
				"out of memory for %u buffers of 8 MiB; try a "
				"smaller --jobs",
				im->jobs);
	}
	return 0;
}

int mc_import_copy(struct mc_import *im, struct mc_err *err)
{
	const struct mc_crew crew = {.items = im->n_chunks,
		.workers = im->jobs,
		.run = run,
		.tick = mc_import_tick,
		.ctx = im};
	int r = make_buffers(im, err);

	if (r < 0)
		return r;
	mc_import_stage(im, "read", im->scan.data_bytes, im->n_chunks);
	mc_import_tick(im);
	r = mc_crew_run(&crew, err);
	mc_import_tick(im);
	return r;
}
