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
#include <sys/stat.h>

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
	f->res.leftover_bytes += bytes;
	mc_fsck_tell(f, MC_FSCK_LEFTOVER, "%s: nobody owns it, %" PRIu64 " bytes",
		mc_fsck_name(f, path), bytes);
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
		mc_fsck_tell(f, MC_FSCK_DAMAGE, "%s%s %s", f->prefix, id->name,
			r == -ENOENT            ? "is missing"
				: r == -EBADMSG ? "is not whole"
						: "names another store than the journal");
	if (journals != NULL)
		memcpy(ret_uuid, journals, 16);
	else if (r != 0 && getrandom(ret_uuid, 16, 0) != 16)
		return -EIO;
	return 0;
}

/* A tier of the directory. */
struct part {
	const char *what;
	const char *prefix; /* of what it is made of, below the directory */
	const char *below;  /* the same as the end of a path */
	const char *lock;
	const char *signs[3]; /* one of them is there when the tier is */
	int (*check)(struct mc_fsck *f, struct mc_err *err);
};

static const struct part parts[] = {
	{"NVMe tier", "", "", "LOCK", {"STORE", "images", "journal"}, mc_nvme_fsck},
	{"KV log", "kv/", "/kv", "KVLOCK", {"KVSTORE", "segments", "kvjournal"}, mc_kv_fsck},
	{"KV log", "", "", "KVLOCK", {"KVSTORE", "segments", "kvjournal"}, mc_kv_fsck},
};
#define PARTS (sizeof(parts) / sizeof(*parts))

/* One that is there. */
struct found {
	char *dir;   /* owned; NULL: it is not */
	int lock_fd; /* owned, -1: there is no lock file */
};

static bool is_there(const struct part *p, const char *dir)
{
	for (size_t i = 0; i < sizeof(p->signs) / sizeof(*p->signs); i++) {
		cleanup_free char *path = NULL;

		if (asprintf(&path, "%s/%s", dir, p->signs[i]) >= 0 && access(path, F_OK) == 0)
			return true;
	}
	return false;
}

/* A lock file that is not there is not made for a look. */
static int find_part(struct mc_fsck *f, const struct part *p, struct found *ret, struct mc_err *err)
{
	int r;

	if (asprintf(&ret->dir, "%s%s", f->top, p->below) < 0) {
		ret->dir = NULL;
		return -ENOMEM;
	}
	if (!is_there(p, ret->dir)) {
		free(ret->dir);
		ret->dir = NULL;
		return 0;
	}
	r = mc_dir_lock(ret->dir, p->lock, f->opts->repair, p->what, &ret->lock_fd, err);
	return r == -ENOENT ? 0 : r;
}

/* All locks before anything is looked at. */
static int find_all(struct mc_fsck *f, struct found found[PARTS], struct mc_err *err)
{
	bool any = false;
	int r = 0;

	for (size_t i = 0; i < PARTS && r == 0; i++) {
		r = find_part(f, &parts[i], &found[i], err);
		any |= found[i].dir != NULL;
	}
	if (r == 0 && !any)
		r = mc_err_set(err, -ENOENT,
			"%s holds no tier of mooncakefs: give the directory of --nvme", f->top);
	return r;
}

static void check_part(struct mc_fsck *f, const struct part *p, const char *dir)
{
	struct mc_err why = {0};
	int r;

	f->dir = dir;
	f->prefix = p->prefix;
	r = p->check(f, &why);
	if (r != 0)
		mc_fsck_give_up(f, p->what, r, why.text);
}

/* The device is locked by being opened. */
static int check_device(struct mc_fsck *f, struct mc_err *err)
{
	f->is_device = true;
	f->dir = f->top;
	f->prefix = "";
	return mc_kv_fsck(f, err);
}

static int check_dir(struct mc_fsck *f, struct mc_err *err)
{
	struct found found[PARTS];
	int r;

	for (size_t i = 0; i < PARTS; i++)
		found[i] = (struct found){.lock_fd = -1};
	r = find_all(f, found, err);
	for (size_t i = 0; i < PARTS && r == 0; i++)
		if (found[i].dir != NULL)
			check_part(f, &parts[i], found[i].dir);
	for (size_t i = 0; i < PARTS; i++) {
		if (found[i].lock_fd >= 0)
			close(found[i].lock_fd);
		free(found[i].dir);
	}
	return r;
}

int mc_fsck(const struct mc_fsck_opts *opts, struct mc_fsck_result *ret, struct mc_err *err)
{
	struct mc_fsck f = {.opts = opts, .io = opts->io != NULL ? opts->io : mc_io_real()};
	struct stat st = {0};
	int r;

	f.top = realpath(opts->dir, NULL);
	if (f.top == NULL || stat(f.top, &st) != 0) {
		r = -errno;
		free(f.top);
		return mc_err_set(err, r, "%s: %s", opts->dir, strerror(-r));
	}
	r = S_ISDIR(st.st_mode) ? check_dir(&f, err) : check_device(&f, err);
	if (r == 0)
		*ret = f.res;
	else
		mc_err_set(err, r, "%s: %s", f.top, strerror(-r));
	free(f.top);
	return r;
}
