/*
 * Generations, group commit and snapshots.
 *
 * Invariants:
 * 1. SUPER names a generation whose snapshot is durable and complete before SUPER says so.
 * 2. A log page is written once. After a failed write or sync (broken) nothing is written to that
 * log.
 * 3. Only the thread that set `leading` writes to files; the others wait for it. The buffer `next`
 * takes records at any time; the leader commits what it took out of it.
 * 4. A record appended before a commit is in the group of that commit or of an earlier one.
 */
#include "tier/journal.h"

#include "tier/cleanup.h"
#include "tier/io.h"
#include "tier/journal-page.h"
#include "tier/journal-super.h"
#include "tier/lock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_MAX (UINT64_C(4) << 20)
#define SPILL_BYTES (1u << 20) /* of a snapshot held in memory */

struct mc_journal {
	struct mc_journal_opts o;
	char *dir; /* owned */
	struct mc_mutex lock;
	struct mc_cond led; /* the leader is done */
	bool leading MC_GUARDED_BY(lock);
	bool broken MC_GUARDED_BY(lock);
	bool fresh MC_GUARDED_BY(lock); /* opened, no snapshot yet */
	struct mc_journal_buf next MC_GUARDED_BY(lock);
	uint64_t appended MC_GUARDED_BY(lock);  /* records so far */
	uint64_t committed MC_GUARDED_BY(lock); /* of them durable */
	uint64_t page MC_GUARDED_BY(lock);      /* next of the log */
	/* The leader's. */
	int log_fd; /* owned */
	struct mc_journal_super super;
	struct mc_journal_buf snapshot;
	uint64_t snapshot_page;
	int snapshot_fd;
};

static int file_path(const struct mc_journal *j, const char *name, uint64_t generation, char **ret)
{
	return asprintf(ret, "%s/%s.%" PRIu64, j->dir, name, generation) < 0 ? -ENOMEM : 0;
}

/* ---- replay */

static void tell(
	const struct mc_journal *j, const char *file, uint64_t generation, const char *what)
{
	char name[32];

	if (j->o.damaged == NULL)
		return;
	if (generation != 0)
		snprintf(name, sizeof(name), "%s.%" PRIu64, file, generation);
	else
		snprintf(name, sizeof(name), "%s", file);
	j->o.damaged(j->o.damaged_ctx, name, what);
}

/* What ends a file too early. */
static int tell_end(const struct mc_journal *j, const char *name, bool snapshot, int fd,
	const struct mc_journal_end *end)
{
	int64_t stray = 0;
	char what[128];

	if (j->o.damaged == NULL || (snapshot && end->last))
		return 0;
	if (!snapshot)
		stray = mc_journal_pages_stray(j->o.io, fd, end->pages + 1);
	if (stray < 0)
		return (int)stray;
	if (!snapshot && !end->torn && stray == 0)
		return 0;
	snprintf(what, sizeof(what),
		"page %" PRIu64 " is not whole; the records from there on are lost", end->pages);
	tell(j, name, j->super.generation, what);
	return 0;
}

static int read_file(struct mc_journal *j, const char *name, bool snapshot, unsigned *damaged,
	struct mc_err *err)
{
	cleanup_free char *path = NULL;
	struct mc_journal_end end = {0};
	int fd, r = file_path(j, name, j->super.generation, &path);

	if (r != 0)
		return r;
	fd = j->o.io->open(j->o.io, path, O_RDONLY, 0);
	if (fd == -ENOENT) {
		++*damaged;
		tell(j, name, j->super.generation, "is missing; its records are lost");
		return 0;
	}
	if (fd < 0)
		return fd;
	r = mc_journal_pages_read(&j->o, fd, j->super.generation, &end, err);
	if (r == 0)
		r = tell_end(j, name, snapshot, fd, &end);
	j->o.io->close(j->o.io, fd);
	if (snapshot && r == 0 && !end.last)
		++*damaged;
	return r;
}

static bool snapshot_exists(struct mc_journal *j)
{
	cleanup_free char *path = NULL;

	return file_path(j, "snapshot", j->super.generation, &path) == 0 && access(path, F_OK) == 0;
}

/* Which generation is in force. Without SUPER and with the first snapshot at most, nothing was ever
 * acknowledged. */
static int find_generation(struct mc_journal *j, unsigned *damaged, struct mc_err *err)
{
	struct mc_journal_super *s = &j->super;
	int r = mc_journal_super_read(s, err);

	if (r != 0 || (s->whole > 0 && s->bad == 0 && snapshot_exists(j)))
		return r;
	if (s->bad > 0)
		tell(j, "SUPER", 0,
			s->whole > 0 ? "one of its two pages is not whole"
				     : "neither of its two pages is whole");
	r = mc_journal_super_find(s);
	if (s->whole == 0 && s->bad == 0 && s->generation > 1)
		tell(j, "SUPER", 0, "is missing");
	*damaged += s->whole == 0 && (s->bad > 0 || s->generation > 1);
	return r;
}

int mc_journal_open(const struct mc_journal_opts *opts, struct mc_journal **ret,
	unsigned *ret_damaged, struct mc_err *err)
{
	struct mc_journal *j = calloc(1, sizeof(*j));
	int r;

	*ret_damaged = 0;
	if (j == NULL)
		return -ENOMEM;
	j->o = *opts;
	j->log_fd = -1;
	j->snapshot_fd = -1;
	j->fresh = true;
	if (j->o.max_bytes == 0)
		j->o.max_bytes = DEFAULT_MAX;
	mc_mutex_init(&j->lock);
	mc_cond_init(&j->led);
	j->dir = strdup(opts->dir);
	j->super = (struct mc_journal_super){.io = opts->io, .dir = j->dir};
	memcpy(j->super.uuid, opts->uuid, sizeof(j->super.uuid));
	r = j->dir == NULL ? -ENOMEM : find_generation(j, ret_damaged, err);
	if (r == 0 && j->super.generation > 0)
		r = read_file(j, "snapshot", true, ret_damaged, err);
	if (r == 0 && j->super.generation > 0)
		r = read_file(j, "log", false, ret_damaged, err);
	if (r != 0) {
		mc_journal_close(j);
		return r;
	}
	*ret = j;
	return 0;
}

void mc_journal_close(struct mc_journal *j)
{
	if (j == NULL)
		return;
	if (j->log_fd >= 0)
		j->o.io->close(j->o.io, j->log_fd);
	mc_journal_buf_done(&j->next);
	mc_cond_done(&j->led);
	mc_mutex_done(&j->lock);
	free(j->dir);
	free(j);
}

/* ---- append and commit */

int mc_journal_append(struct mc_journal *j, uint8_t type, const void *rec, size_t len)
{
	int r;

	mc_mutex_lock(&j->lock);
	r = mc_journal_buf_add(&j->next, type, rec, len);
	if (r == 0)
		j->appended++;
	mc_mutex_unlock(&j->lock);
	return r;
}

/* Called by the leader without the lock. */
static int write_group(struct mc_journal *j, const struct mc_journal_buf *group, uint64_t *page)
{
	int r = mc_journal_pages_write(j->o.io, j->log_fd, group, j->super.generation, page, 0);

	return r == 0 ? j->o.io->fdatasync(j->o.io, j->log_fd) : r;
}

int mc_journal_commit(struct mc_journal *j)
{
	struct mc_journal_buf group;
	uint64_t want, upto, page;
	int r;

	mc_mutex_lock(&j->lock);
	want = j->appended;
	while (j->committed < want && j->leading)
		mc_cond_wait(&j->led, &j->lock);
	if (j->committed >= want || j->broken || j->fresh) {
		r = j->committed >= want ? 0 : -EIO;
		mc_mutex_unlock(&j->lock);
		return r;
	}
	j->leading = true;
	group = j->next;
	upto = j->appended;
	page = j->page;
	j->next = (struct mc_journal_buf){0};
	mc_mutex_unlock(&j->lock);
	r = write_group(j, &group, &page);
	mc_journal_buf_done(&group);
	mc_mutex_lock(&j->lock);
	j->leading = false;
	if (r == 0)
		j->committed = upto;
	else
		j->broken = true;
	j->page = page;
	mc_cond_broadcast(&j->led);
	mc_mutex_unlock(&j->lock);
	return r;
}

bool mc_journal_snapshot_due(struct mc_journal *j)
{
	bool due;

	mc_mutex_lock(&j->lock);
	due = j->fresh || j->broken || j->page * MC_JOURNAL_PAGE >= j->o.max_bytes;
	mc_mutex_unlock(&j->lock);
	return due;
}

bool mc_journal_usable(struct mc_journal *j)
{
	bool usable;

	mc_mutex_lock(&j->lock);
	usable = !j->fresh && !j->broken;
	mc_mutex_unlock(&j->lock);
	return usable;
}

void mc_journal_set_max(struct mc_journal *j, uint64_t max_bytes)
{
	mc_mutex_lock(&j->lock);
	j->o.max_bytes = max_bytes;
	mc_mutex_unlock(&j->lock);
}

uint64_t mc_journal_log_bytes(struct mc_journal *j)
{
	uint64_t bytes;

	mc_mutex_lock(&j->lock);
	bytes = j->page * MC_JOURNAL_PAGE;
	mc_mutex_unlock(&j->lock);
	return bytes;
}

/* ---- snapshots */

/* Whole pages go to the file once there are enough of them: a large state is never in memory twice.
 */
static int spill(struct mc_journal *j)
{
	struct mc_journal_buf whole = j->snapshot;
	int r;

	whole.len -= whole.len % MC_JOURNAL_PAYLOAD;
	r = mc_journal_pages_write(
		j->o.io, j->snapshot_fd, &whole, j->super.generation + 1, &j->snapshot_page, 0);
	j->snapshot.len -= whole.len;
	memmove(j->snapshot.data, j->snapshot.data + whole.len, j->snapshot.len);
	return r;
}

int mc_journal_snapshot_add(struct mc_journal *j, uint8_t type, const void *rec, size_t len)
{
	int r = mc_journal_buf_add(&j->snapshot, type, rec, len);

	return r == 0 && j->snapshot.len >= SPILL_BYTES ? spill(j) : r;
}

/* snapshot.<n>: temporary name, content, fsync, rename. The directory is synced with the log's
 * name. */
static int write_snapshot(struct mc_journal *j, uint64_t generation,
	int (*emit)(void *ctx, struct mc_journal *j), void *ctx)
{
	cleanup_free char *path = NULL, *tmp = NULL;
	int fd, r = file_path(j, "snapshot", generation, &path);

	if (r != 0)
		return r;
	if (asprintf(&tmp, "%s.tmp", path) < 0)
		return -ENOMEM;
	fd = j->o.io->open(j->o.io, tmp, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (fd < 0)
		return fd;
	j->snapshot_fd = fd;
	j->snapshot_page = 0;
	r = emit(ctx, j);
	if (r == 0)
		r = mc_journal_pages_write(
			j->o.io, fd, &j->snapshot, generation, &j->snapshot_page, MC_JOURNAL_LAST);
	if (r == 0)
		r = j->o.io->fsync(j->o.io, fd);
	j->o.io->close(j->o.io, fd);
	j->snapshot_fd = -1;
	return r == 0 ? j->o.io->rename(j->o.io, tmp, path) : r;
}

/*
 * An empty log.<n> with room for twice the size at which a snapshot is due: on a full disk
 * evictions can still be recorded.
 */
static int make_log(struct mc_journal *j, uint64_t generation, int *ret_fd)
{
	cleanup_free char *path = NULL;
	int fd, r = file_path(j, "log", generation, &path);

	if (r != 0)
		return r;
	fd = j->o.io->open(j->o.io, path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (fd < 0)
		return fd;
	r = j->o.io->fallocate(j->o.io, fd, 0, 0, 2 * j->o.max_bytes);
	if (r == 0 || r == -EOPNOTSUPP)
		r = j->o.io->fsync(j->o.io, fd);
	if (r == 0)
		r = mc_io_sync_dir(j->o.io, j->dir);
	if (r != 0) {
		j->o.io->close(j->o.io, fd);
		return r;
	}
	*ret_fd = fd;
	return 0;
}

/* Removes the files of other generations. Failures wait for the next time. */
static void remove_others(struct mc_journal *j)
{
	DIR *d = opendir(j->dir);
	struct dirent *e;

	if (d == NULL)
		return;
	while ((e = readdir(d)) != NULL) {
		cleanup_free char *path = NULL, *keep_log = NULL, *keep_snapshot = NULL;

		if (e->d_name[0] == '.' || strcmp(e->d_name, "SUPER") == 0 ||
			file_path(j, "log", j->super.generation, &keep_log) != 0 ||
			file_path(j, "snapshot", j->super.generation, &keep_snapshot) != 0 ||
			asprintf(&path, "%s/%s", j->dir, e->d_name) < 0)
			continue;
		if (strcmp(path, keep_log) != 0 && strcmp(path, keep_snapshot) != 0)
			j->o.io->unlink(j->o.io, path);
	}
	closedir(d);
}

/*
 * *ret_unsure: SUPER may or may not name the new generation after a crash, so nothing more may be
 * acknowledged in the old log. The next attempt writes the same generation and the same page of
 * SUPER.
 */
static int new_generation(struct mc_journal *j, int (*emit)(void *ctx, struct mc_journal *j),
	void *ctx, bool *ret_unsure)
{
	uint64_t generation = j->super.generation + 1;
	int fd = -1, r = write_snapshot(j, generation, emit, ctx);

	if (r == 0)
		r = make_log(j, generation, &fd);
	if (r == 0) {
		r = mc_journal_super_write(&j->super, generation);
		*ret_unsure = r != 0;
	}
	if (r != 0) {
		if (fd >= 0)
			j->o.io->close(j->o.io, fd);
		return r;
	}
	if (j->log_fd >= 0)
		j->o.io->close(j->o.io, j->log_fd);
	j->log_fd = fd;
	j->super.generation = generation;
	return 0;
}

int mc_journal_snapshot(
	struct mc_journal *j, int (*emit)(void *ctx, struct mc_journal *j), void *ctx)
{
	bool unsure = false;
	int r;

	mc_mutex_lock(&j->lock);
	while (j->leading)
		mc_cond_wait(&j->led, &j->lock);
	j->leading = true;
	mc_mutex_unlock(&j->lock);
	r = new_generation(j, emit, ctx, &unsure);
	mc_journal_buf_done(&j->snapshot);
	mc_mutex_lock(&j->lock);
	j->leading = false;
	if (r == 0) {
		j->page = 0;
		j->broken = false;
		j->fresh = false;
	} else if (unsure) {
		j->broken = true;
	}
	mc_cond_broadcast(&j->led);
	mc_mutex_unlock(&j->lock);
	if (r == 0)
		remove_others(j);
	return r;
}
