/*
 * The copies of one chunk: each is looked up, read and hashed; bad ones are overwritten with the
 * bytes of a good one, or of what else may have them.
 */
#include "manifest/verify-state.h"

#include "tier/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A chunk in work. */
struct item {
	struct verify *v;
	const struct verify_part *part;
	struct mc_chunk c;
	struct mc_plan plan; /* where it lies on each remote */
	bool read;           /* its content is looked at */
	struct mc_set_copies copies;
	unsigned n_bad;
	uint8_t bad[MC_SET_MAX]; /* of copies.at */
	char what[MC_SET_MAX][VERIFY_TEXT];
	uint8_t *good;    /* borrowed: right bytes, once `found` */
	uint8_t *scratch; /* borrowed */
	bool found;
};

/* Looks at the object of a copy. 0, 1 = damaged, text in what, or -errno. */
static int look_up(
	const struct item *it, struct mc_remote *remote, char what[VERIFY_TEXT], struct mc_err *err)
{
	const struct mc_piece *piece = &it->plan.pieces[0];
	struct mc_remote_attr attr;
	struct mc_err why = {0};
	int r = mc_remote_stat(remote, piece->path, &attr, &why);

	if (r == -ENOENT) {
		snprintf(what, VERIFY_TEXT, "%s",
			it->c.stored ? "missing on the remote" : "the file is gone");
		return 1;
	}
	if (r < 0)
		return mc_err_set(err, r, "%s", why.text);
	if (it->c.stored && attr.size != it->c.len) {
		snprintf(what, VERIFY_TEXT, "%llu bytes on the remote instead of %u",
			(unsigned long long)attr.size, it->c.len);
		return 1;
	}
	if (piece->guard.set &&
		(attr.size != piece->guard.size || attr.mtime_s != piece->guard.mtime_s ||
			attr.mtime_ns != piece->guard.mtime_ns)) {
		snprintf(what, VERIFY_TEXT, "the file was changed since it was imported");
		return 1;
	}
	return 0;
}

/* Whether these are the chunk's bytes: 1, 0, or -ENOMEM. */
static int is_right(const struct mc_chunk *c, const uint8_t *buf)
{
	uint8_t digest[MC_SHA256_SIZE];
	int r = mc_sha256(buf, c->len, digest);

	return r < 0 ? r : memcmp(digest, c->sha256, sizeof(digest)) == 0;
}

/* The same for its bytes, which stand in buf afterwards. */
static int read_and_hash(const struct item *it, struct mc_remote *remote, uint8_t *buf,
	char what[VERIFY_TEXT], struct mc_err *err)
{
	uint32_t at = 0;
	int r;

	for (size_t i = 0; i < it->plan.n; i++) {
		const struct mc_piece *piece = &it->plan.pieces[i];
		struct mc_err why = {0};

		r = mc_piece_read(remote, piece, buf + at, &why);
		if (r == -ETIMEDOUT || r == -ESHUTDOWN || r == -ENOMEM)
			return mc_err_set(err, r, "%s", why.text);
		if (r < 0) {
			snprintf(what, VERIFY_TEXT, "%s", why.text);
			return 1;
		}
		at += piece->len;
	}
	r = is_right(&it->c, buf);
	if (r < 0)
		return mc_err_set(err, r, "out of memory");
	if (r == 0)
		snprintf(what, VERIFY_TEXT, "wrong bytes on the remote");
	return r == 0;
}

/* Looks at one copy and remembers what is wrong with it, or the bytes of a good one. */
static int check_copy(struct item *it, unsigned i, struct mc_err *err)
{
	struct mc_remote *remote = it->copies.at[i].remote;
	uint8_t *buf = it->found ? it->scratch : it->good;
	char *what = it->what[it->n_bad];
	int r;

	if (remote == NULL)
		return verify_away(&it->copies.at[i], err);
	it->v->copies++;
	r = look_up(it, remote, what, err);
	if (r == 0 && it->read) {
		r = read_and_hash(it, remote, buf, what, err);
		if (r >= 0) {
			it->v->checked++;
			it->v->done_bytes += it->c.len;
		}
		it->found |= r == 0;
	}
	if (r == 1)
		it->bad[it->n_bad++] = (uint8_t)i;
	return r < 0 ? r : 0;
}

/* ---- repair */

/* The chunk from a remote that need not have it. */
static void fetch(struct item *it, struct mc_remote *remote)
{
	char path[MC_CHUNK_PATH];
	const struct mc_piece chunk = {.kind = MC_PIECE_OBJECT, .path = path, .len = it->c.len};

	if (it->found || remote == NULL)
		return;
	mc_chunk_path(it->c.sha256, path);
	if (mc_piece_read(remote, &chunk, it->good, NULL) < 0)
		return;
	it->v->fetched_bytes += it->c.len;
	it->found = is_right(&it->c, it->good) == 1;
}

/* The chunk from the file that it was made of. */
static void fetch_from_source(struct item *it)
{
	char path[MC_PATH_MAX + 1];
	cleanup_close int dir = -1, fd = -1;
	uint32_t at = 0;

	if (it->found || it->v->opts->source == NULL ||
		mc_manifest_path(it->v->m, it->part->entry, path, sizeof(path)) < 0)
		return;
	dir = open(it->v->opts->source, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir >= 0)
		fd = openat(dir, path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	while (fd >= 0 && at < it->c.len) {
		ssize_t n = pread(fd, it->good + at, it->c.len - at, (off_t)(it->part->off + at));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return;
		at += (uint32_t)n;
	}
	it->v->fetched_bytes += at;
	it->found = at == it->c.len && is_right(&it->c, it->good) == 1;
}

/* Puts the good bytes over a bad copy and reads them again. 0, 1 = it did not help, or -errno. */
static int put_back(
	struct item *it, struct mc_remote *remote, char what[VERIFY_TEXT], struct mc_err *err)
{
	struct mc_err why = {0};
	char path[MC_CHUNK_PATH];
	int r;

	mc_chunk_path(it->c.sha256, path);
	r = mc_remote_put(remote, path, it->good, it->c.len, 0, &why);
	if (r == -ETIMEDOUT || r == -ESHUTDOWN || r == -ENOMEM)
		return mc_err_set(err, r, "%s", why.text);
	if (r < 0) {
		snprintf(what, VERIFY_TEXT, "cannot be put back: %s", why.text);
		return 1;
	}
	r = look_up(it, remote, what, err);
	return r == 0 ? read_and_hash(it, remote, it->scratch, what, err) : r;
}

/* Tells of the k-th bad copy. */
static void tell(struct item *it, unsigned k, bool repaired, const char *then)
{
	char path[MC_PATH_MAX + 1] = "", hex[MC_SHA256_HEX + 1], where[VERIFY_TEXT];

	if (mc_manifest_path(it->v->m, it->part->entry, path, sizeof(path)) < 0)
		path[0] = '\0';
	mc_hex_encode(it->c.sha256, MC_SHA256_SIZE, hex);
	verify_where(&it->copies, it->bad[k], where, sizeof(where));
	verify_report(it->v, repaired, "%s: bytes %llu to %llu: chunk %s: %s%s%s%s", path,
		(unsigned long long)it->part->off, (unsigned long long)it->part->off + it->c.len,
		hex, where, it->what[k], then[0] != '\0' ? ": " : "", then);
}

static int repair(struct item *it, struct mc_err *err)
{
	struct verify *v = it->v;

	for (unsigned i = it->copies.homes; i < it->copies.n; i++)
		fetch(it, it->copies.at[i].remote);
	for (unsigned i = 0; i < v->opts->n_from; i++)
		fetch(it, v->opts->from[i]);
	fetch_from_source(it);
	for (unsigned k = 0; k < it->n_bad; k++) {
		char then[VERIFY_TEXT] = "no good copy was found";
		int r = 1;

		if (it->found)
			r = put_back(it, it->copies.at[it->bad[k]].remote, then, err);
		if (r < 0)
			return r;
		v->repaired_bytes += r == 0 ? it->c.len : 0;
		tell(it, k, r == 0, r == 0 ? "repaired" : then);
	}
	return 0;
}

static int check_all(struct item *it, struct mc_err *err)
{
	int r = 0;

	for (unsigned i = 0; i < it->copies.homes && r == 0; i++)
		if (!it->c.stored || verify_is_wanted(it->v, &it->copies.at[i]))
			r = check_copy(it, i, err);
	if (r < 0)
		return r;
	if (it->n_bad > 0 && it->v->opts->repair && it->c.stored)
		return repair(it, err);
	for (unsigned k = 0; k < it->n_bad; k++)
		tell(it, k, false,
			it->v->opts->repair ? "a file taken by reference cannot be repaired" : "");
	return 0;
}

/* Where the chunk lies: in copies of its own, or inside a file that users put on the remote. */
static int locate(struct item *it)
{
	char path[MC_CHUNK_PATH];
	struct mc_source *src;
	int r = mc_manifest_source(it->v->m, it->part->entry, &src);

	if (r < 0)
		return r;
	r = src->ops->plan(src, it->part->off, it->c.len, &it->plan);
	src->ops->release(src);
	if (r == 0 && it->c.stored) {
		mc_chunk_path(it->c.sha256, path);
		r = mc_remote_set_copies(it->v->remote, path, &it->copies);
	} else if (r == 0) {
		it->copies = (struct mc_set_copies){.n = 1, .homes = 1};
		it->copies.at[0] = (struct mc_set_copy){
			.remote = it->v->remote, .url = mc_remote_url(it->v->remote)};
	}
	return r;
}

int verify_item(void *ctx, unsigned worker, uint64_t number, struct mc_err *err)
{
	struct verify *v = ctx;
	struct item it = {.v = v,
		.part = &v->parts[number],
		.read = verify_in_sample(v, number),
		.good = v->buffers[2 * worker],
		.scratch = v->buffers[2 * worker + 1]};
	int r;

	/* To look only, one buffer is enough. */
	if (it.scratch == NULL)
		it.scratch = it.good;
	mc_manifest_chunk(v->m, it.part->chunk, &it.c);
	mc_plan_init(&it.plan);
	r = locate(&it);
	r = r < 0 ? mc_err_set(err, r, "manifest: %s", strerror(-r)) : check_all(&it, err);
	mc_plan_done(&it.plan);
	v->done++;
	return r;
}
