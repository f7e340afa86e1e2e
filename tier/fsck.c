/* The offline check of a directory: its locks, then its parts, and what is told of them. */
#include "tier/fsck-impl.h"

#include "tier/cleanup.h"
#include "tier/dir-id.h"
#include "tier/dir-lock.h"
#include "tier/io.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

void mc_fsck_tell(struct mc_fsck *f, enum mc_fsck_kind kind, const char *fmt, ...)
{
	cleanup_free char *text = NULL;
	va_list ap;
	int n;

	if (kind == MC_FSCK_LEFTOVER)
		f->res.leftovers++;
	else
		f->res.damaged++;
	if (f->opts->find == NULL)
		return;
	va_start(ap, fmt);
	n = vasprintf(&text, fmt, ap);
	va_end(ap);
	f->opts->find(f->opts->ctx, kind, n < 0 ? fmt : text);
}

void mc_fsck_leftover(struct mc_fsck *f, const char *path, uint64_t bytes)
{
	size_t len = strlen(f->dir);

	f->res.leftover_bytes += bytes;
	if (strncmp(path, f->dir, len) == 0 && path[len] == '/')
		path += len + 1;
	mc_fsck_tell(f, MC_FSCK_LEFTOVER, "%s: nobody owns it, %" PRIu64 " bytes", path, bytes);
}

void mc_fsck_advance(struct mc_fsck *f, uint64_t bytes)
{
	f->res.bytes += bytes;
	if (f->opts->progress != NULL)
		f->opts->progress(f->opts->ctx, f->res.bytes, f->bytes_total);
}

void mc_fsck_give_up(struct mc_fsck *f, const char *what, int code, const char *text)
{
	f->res.unfinished = true;
	mc_fsck_tell(f, MC_FSCK_DAMAGE, "%s: %s", what,
		text != NULL && text[0] != '\0' ? text : strerror(-code));
}

int mc_fsck_id(struct mc_fsck *f, const struct mc_dir_id *id, const uint8_t *journals,
	uint8_t ret_uuid[16], bool *ret_bad, struct mc_err *err)
{
	struct mc_err why = {0};
	int r = mc_dir_id_read(f->io, id, ret_uuid, &why);

	*ret_bad = r != 0 || (journals != NULL && memcmp(journals, ret_uuid, 16) != 0);
	if (r != 0 && r != -ENOENT && r != -EBADMSG)
		return mc_err_set(err, r, "%s", why.text[0] != '\0' ? why.text : strerror(-r));
	if (*ret_bad)
		mc_fsck_tell(f, MC_FSCK_DAMAGE, "%s %s", id->name,
			r == -ENOENT            ? "is missing"
				: r == -EBADMSG ? "is not whole"
						: "names another store than the journal");
	if (journals != NULL)
		memcpy(ret_uuid, journals, 16);
	else if (r != 0 && getrandom(ret_uuid, 16, 0) != 16)
		return -EIO;
	return 0;
}

static bool exists(const struct mc_fsck *f, const char *name)
{
	cleanup_free char *path = NULL;

	return asprintf(&path, "%s/%s", f->dir, name) >= 0 && access(path, F_OK) == 0;
}

/* A tier of the directory. */
struct part {
	const char *what;
	const char *lock;
	const char *signs[3]; /* one of them is there when the tier is */
	int (*check)(struct mc_fsck *f, struct mc_err *err);
};

static const struct part parts[] = {
	{"NVMe tier", "LOCK", {"STORE", "images", "journal"}, mc_nvme_fsck},
	{"KV log", "KVLOCK", {"KVSTORE", "segments", "kvjournal"}, mc_kv_fsck},
};
#define PARTS (sizeof(parts) / sizeof(*parts))

static bool present(const struct mc_fsck *f, const struct part *p)
{
	for (size_t i = 0; i < sizeof(p->signs) / sizeof(*p->signs); i++)
		if (exists(f, p->signs[i]))
			return true;
	return false;
}

/* All locks before anything is looked at. A lock file that is not there is not made for a look. */
static int lock_all(struct mc_fsck *f, int fds[PARTS], struct mc_err *err)
{
	bool any = false;
	int r = 0;

	for (size_t i = 0; i < PARTS && r == 0; i++) {
		if (!present(f, &parts[i]))
			continue;
		any = true;
		r = mc_dir_lock(
			f->dir, parts[i].lock, f->opts->repair, parts[i].what, &fds[i], err);
		if (r == -ENOENT)
			r = 0;
	}
	if (r == 0 && !any)
		r = mc_err_set(err, -ENOENT,
			"%s holds no tier of mooncakefs: give the directory of --nvme", f->dir);
	return r;
}

int mc_fsck(const struct mc_fsck_opts *opts, struct mc_fsck_result *ret, struct mc_err *err)
{
	struct mc_fsck f = {.opts = opts, .io = opts->io != NULL ? opts->io : mc_io_real()};
	int fds[PARTS], r;

	for (size_t i = 0; i < PARTS; i++)
		fds[i] = -1;
	f.dir = realpath(opts->dir, NULL);
	if (f.dir == NULL) {
		r = -errno;
		return mc_err_set(err, r, "%s: %s", opts->dir, strerror(-r));
	}
	r = lock_all(&f, fds, err);
	for (size_t i = 0; i < PARTS && r == 0; i++) {
		struct mc_err why = {0};
		int part = present(&f, &parts[i]) ? parts[i].check(&f, &why) : 0;

		if (part != 0)
			mc_fsck_give_up(&f, parts[i].what, part, why.text);
	}
	for (size_t i = 0; i < PARTS; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	if (r == 0)
		*ret = f.res;
	else
		mc_err_set(err, r, "%s: %s", f.dir, strerror(-r));
	free(f.dir);
	return r;
}
