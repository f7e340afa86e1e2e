/* Where a journal lies. */
#include "tier/journal-place.h"

#include "tier/cleanup.h"
#include "tier/io.h"
#include "tier/shared-sync.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#define SUPER_BYTES (UINT64_C(2) * MC_JOURNAL_PAGE)

int mc_journal_place_init(struct mc_journal_place *p, const struct mc_journal_opts *o)
{
	*p = (struct mc_journal_place){.io = o->io, .area = o->area};
	if (o->dir == NULL)
		return 0;
	p->dir = strdup(o->dir);
	return p->dir == NULL ? -ENOMEM : 0;
}

void mc_journal_place_done(struct mc_journal_place *p)
{
	free(p->dir);
}

const char *mc_journal_place_name(const struct mc_journal_place *p)
{
	return p->dir != NULL ? p->dir : p->area.name;
}

/* ---- an area */

uint64_t mc_journal_area_snapshot_bytes(uint64_t bytes)
{
	return (bytes - SUPER_BYTES) / 3 / MC_JOURNAL_PAGE * MC_JOURNAL_PAGE;
}

static uint64_t area_log_bytes(const struct mc_journal_area *a)
{
	return mc_journal_area_snapshot_bytes(a->bytes) / 2 / MC_JOURNAL_PAGE * MC_JOURNAL_PAGE;
}

static struct mc_journal_file in_area(
	const struct mc_journal_place *p, enum mc_journal_kind kind, uint64_t generation)
{
	const struct mc_journal_area *a = &p->area;
	uint64_t snapshot = mc_journal_area_snapshot_bytes(a->bytes);
	struct mc_journal_file f = {.io = p->io, .fd = a->fd, .at = a->at, .shared = a->shared};

	mc_shared_sync_begin(a->shared, &f.seen);

	switch (kind) {
	case MC_JOURNAL_SUPER:
		f.limit = SUPER_BYTES;
		break;
	case MC_JOURNAL_SNAPSHOT:
		f.at += SUPER_BYTES + (generation & 1) * snapshot;
		f.limit = snapshot;
		break;
	case MC_JOURNAL_LOG:
		f.limit = area_log_bytes(a);
		f.at += SUPER_BYTES + 2 * snapshot + (generation & 1) * f.limit;
		break;
	}
	return f;
}

/* ---- a directory */

static int path_of(const struct mc_journal_place *p, enum mc_journal_kind kind, uint64_t generation,
	char **ret)
{
	int n = kind == MC_JOURNAL_SUPER
		? asprintf(ret, "%s/SUPER", p->dir)
		: asprintf(ret, "%s/%s.%" PRIu64, p->dir,
			  kind == MC_JOURNAL_LOG ? "log" : "snapshot", generation);

	return n < 0 ? -ENOMEM : 0;
}

static int open_path(
	const struct mc_journal_place *p, const char *path, int flags, struct mc_journal_file *ret)
{
	int fd = p->io->open(p->io, path, flags, 0600);

	if (fd < 0)
		return fd;
	*ret = (struct mc_journal_file){.io = p->io, .fd = fd, .limit = UINT64_MAX, .owned = true};
	return 0;
}

int mc_journal_file_open(const struct mc_journal_place *p, enum mc_journal_kind kind,
	uint64_t generation, struct mc_journal_file *ret)
{
	cleanup_free char *path = NULL;
	int r;

	if (p->dir == NULL) {
		*ret = in_area(p, kind, generation);
		return 0;
	}
	r = path_of(p, kind, generation, &path);
	return r == 0 ? open_path(p, path, O_RDONLY, ret) : r;
}

/* A snapshot has a temporary name until it is complete. */
int mc_journal_file_make(const struct mc_journal_place *p, enum mc_journal_kind kind,
	uint64_t generation, uint64_t bytes, struct mc_journal_file *ret)
{
	cleanup_free char *path = NULL, *tmp = NULL;
	int r;

	if (p->dir == NULL) {
		*ret = in_area(p, kind, generation);
		return 0;
	}
	r = path_of(p, kind, generation, &path);
	if (r != 0)
		return r;
	if (kind == MC_JOURNAL_SUPER)
		return open_path(p, path, O_RDWR | O_CREAT, ret);
	if (asprintf(&tmp, "%s%s", path, kind == MC_JOURNAL_SNAPSHOT ? ".tmp" : "") < 0)
		return -ENOMEM;
	r = open_path(p, tmp, O_RDWR | O_CREAT | O_TRUNC, ret);
	if (r != 0 || bytes == 0)
		return r;
	r = p->io->fallocate(p->io, ret->fd, 0, 0, bytes);
	if (r == -EOPNOTSUPP)
		return 0;
	if (r != 0)
		mc_journal_file_close(ret);
	return r;
}

/* The directory is synced with the log's name, and with SUPER's: a snapshot's is among them. */
static int keep_in_dir(const struct mc_journal_place *p, enum mc_journal_kind kind,
	uint64_t generation, struct mc_journal_file *f)
{
	cleanup_free char *path = NULL, *tmp = NULL;
	int r = p->io->fsync(p->io, f->fd);

	if (r != 0 || kind != MC_JOURNAL_SNAPSHOT)
		return r == 0 ? mc_io_sync_dir(p->io, p->dir) : r;
	mc_journal_file_close(f);
	r = path_of(p, kind, generation, &path);
	if (r == 0 && asprintf(&tmp, "%s.tmp", path) < 0)
		r = -ENOMEM;
	return r == 0 ? p->io->rename(p->io, tmp, path) : r;
}

int mc_journal_file_keep(const struct mc_journal_place *p, enum mc_journal_kind kind,
	uint64_t generation, struct mc_journal_file *f)
{
	int r = 0;

	if (p->dir != NULL)
		r = keep_in_dir(p, kind, generation, f);
	else if (kind != MC_JOURNAL_LOG)
		r = mc_journal_file_sync(f);
	if (kind == MC_JOURNAL_SNAPSHOT)
		mc_journal_file_close(f);
	return r;
}

int mc_journal_file_sync(struct mc_journal_file *f)
{
	return mc_shared_sync(f->shared, f->io, f->fd, &f->seen);
}

void mc_journal_file_close(struct mc_journal_file *f)
{
	if (f->owned && f->fd >= 0)
		f->io->close(f->io, f->fd);
	f->fd = -1;
}

void mc_journal_place_clean(const struct mc_journal_place *p, uint64_t generation)
{
	DIR *d = p->dir != NULL ? opendir(p->dir) : NULL;
	struct dirent *e;

	if (d == NULL)
		return;
	while ((e = readdir(d)) != NULL) {
		cleanup_free char *path = NULL, *log = NULL, *snapshot = NULL;

		if (e->d_name[0] == '.' || strcmp(e->d_name, "SUPER") == 0 ||
			path_of(p, MC_JOURNAL_LOG, generation, &log) != 0 ||
			path_of(p, MC_JOURNAL_SNAPSHOT, generation, &snapshot) != 0 ||
			asprintf(&path, "%s/%s", p->dir, e->d_name) < 0)
			continue;
		if (strcmp(path, log) != 0 && strcmp(path, snapshot) != 0)
			p->io->unlink(p->io, path);
	}
	closedir(d);
}

uint64_t mc_journal_place_first(const struct mc_journal_place *p)
{
	uint64_t first = 1;

	if (p->dir == NULL && getrandom(&first, sizeof(first), 0) != (ssize_t)sizeof(first))
		return 0;
	return p->dir == NULL ? first >> 16 | UINT64_C(1) << 47 : first;
}

uint64_t mc_journal_place_bytes(const struct mc_journal_place *p, uint64_t generation)
{
	static const enum mc_journal_kind kinds[] = {MC_JOURNAL_SNAPSHOT, MC_JOURNAL_LOG};
	uint64_t bytes = 0;

	for (unsigned i = 0; i < 2; i++) {
		struct mc_journal_file f;
		struct stat st;

		if (mc_journal_file_open(p, kinds[i], generation, &f) != 0)
			continue;
		if (!f.owned)
			bytes += f.limit;
		else if (fstat(f.fd, &st) == 0)
			bytes += (uint64_t)st.st_size;
		mc_journal_file_close(&f);
	}
	return bytes;
}

uint64_t mc_journal_place_log_bytes(const struct mc_journal_place *p)
{
	return p->dir != NULL ? UINT64_MAX : area_log_bytes(&p->area);
}
