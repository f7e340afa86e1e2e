/*
 * Group commit, snapshots and the generations they begin; journal-replay.c reads them.
 *
 * Invariants:
 * 1. SUPER names a generation whose snapshot is durable and complete before SUPER says so.
 * 2. A log page is written once. After a failed write or sync (broken) nothing is written to that
 * log.
 * 3. Only the thread that set `leading` writes to files; the others wait for it. The buffer `next`
 * takes records at any time; the leader commits what it took out of it.
 * 4. A record appended before a commit is in the group of that commit or of an earlier one, or in a
 * snapshot: one that is complete has the effect of everything that was appended before its end.
 * 5. A record that found no memory (lost) counts as appended: only a snapshot that began after it
 * makes it durable, and nothing that follows it is durable before it.
 */
#include "tier/journal.h"

#include "tier/io.h"
#include "tier/journal-page.h"
#include "tier/journal-replay.h"
#include "tier/journal-super.h"
#include "tier/lock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_MAX (UINT64_C(4) << 20)
#define SPILL_BYTES (1u << 20) /* of a snapshot held in memory */

struct mc_journal {
	struct mc_journal_opts o;
	struct mc_journal_place place;
	struct mc_mutex lock;
	struct mc_cond led; /* the leader is done */
	bool leading MC_GUARDED_BY(lock);
	bool broken MC_GUARDED_BY(lock);
	bool lost MC_GUARDED_BY(lock);  /* a record, since the last snapshot began */
	bool fresh MC_GUARDED_BY(lock); /* opened, no snapshot yet */
	struct mc_journal_buf next MC_GUARDED_BY(lock);
	uint64_t appended MC_GUARDED_BY(lock);  /* records so far */
	uint64_t committed MC_GUARDED_BY(lock); /* of them durable */
	uint64_t page MC_GUARDED_BY(lock);      /* next of the log */
	/* The leader's. */
	struct mc_journal_file log;
	struct mc_journal_super super;
	bool unsure; /* SUPER may name a generation that is not in force */
	struct mc_journal_buf snapshot;
	struct mc_journal_file snapshot_file;
	uint64_t snapshot_generation, snapshot_page;
	size_t joined;           /* bytes of next that the snapshot has, too */
	uint64_t joined_records; /* appended until then */
};

int mc_journal_open(const struct mc_journal_opts *opts, struct mc_journal **ret,
	unsigned *ret_damaged, struct mc_err *err)
{
	struct mc_journal *j = calloc(1, sizeof(*j));
	int r;

	*ret_damaged = 0;
	if (j == NULL)
		return -ENOMEM;
	j->o = *opts;
	j->log.fd = -1;
	j->fresh = true;
	mc_mutex_init(&j->lock);
	mc_cond_init(&j->led);
	r = mc_journal_place_init(&j->place, opts);
	mc_journal_set_max(j, j->o.max_bytes != 0 ? j->o.max_bytes : DEFAULT_MAX);
	j->super = (struct mc_journal_super){.place = &j->place};
	memcpy(j->super.uuid, opts->uuid, sizeof(j->super.uuid));
	if (r == 0)
		r = mc_journal_replay(opts, &j->place, &j->super, ret_damaged, err);
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
	mc_journal_file_close(&j->log);
	mc_journal_buf_done(&j->next);
	mc_cond_done(&j->led);
	mc_mutex_done(&j->lock);
	mc_journal_place_done(&j->place);
	free(j);
}

/* ---- append and commit */

int mc_journal_append(struct mc_journal *j, uint8_t type, const void *rec, size_t len)
{
	int r;

	mc_mutex_lock(&j->lock);
	r = mc_journal_buf_add(&j->next, type, rec, len);
	j->appended++;
	if (r != 0)
		j->lost = j->broken = true;
	mc_mutex_unlock(&j->lock);
	return r;
}

/* Called by the leader without the lock. */
static int write_group(struct mc_journal *j, const struct mc_journal_buf *group, uint64_t *page)
{
	int r = mc_journal_pages_write(&j->log, group, j->super.generation, page, 0);

	return r == 0 ? mc_journal_file_sync(&j->log) : r;
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
		r = j->committed >= want ? 0 : j->lost ? -ENOMEM : -EIO;
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
	/* A log that ends while a snapshot is on its way costs a failed commit. */
	uint64_t most = mc_journal_place_log_bytes(&j->place) / 2;

	mc_mutex_lock(&j->lock);
	j->o.max_bytes = max_bytes < most ? max_bytes : most;
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
		&j->snapshot_file, &whole, j->snapshot_generation, &j->snapshot_page, 0);
	mc_journal_buf_drop(&j->snapshot, whole.len);
	return r;
}

int mc_journal_snapshot_add(struct mc_journal *j, uint8_t type, const void *rec, size_t len)
{
	int r = mc_journal_buf_add(&j->snapshot, type, rec, len);

	return r == 0 && j->snapshot.len >= SPILL_BYTES ? spill(j) : r;
}

/* What was appended so far ends the snapshot. In the new log a crash could cut it off in the
 * middle: the state would be mixed with what it was before. */
static int join_appended(struct mc_journal *j)
{
	int r;

	mc_mutex_lock(&j->lock);
	r = j->lost ? -ENOMEM : mc_journal_buf_join(&j->snapshot, &j->next);
	j->joined = j->next.len;
	j->joined_records = j->appended;
	mc_mutex_unlock(&j->lock);
	return r;
}

static int write_snapshot(struct mc_journal *j, uint64_t generation,
	int (*emit)(void *ctx, struct mc_journal *j), void *ctx)
{
	struct mc_journal_file *f = &j->snapshot_file;
	int r = mc_journal_file_make(&j->place, MC_JOURNAL_SNAPSHOT, generation, 0, f);

	if (r != 0)
		return r;
	j->snapshot_generation = generation;
	j->snapshot_page = 0;
	r = emit(ctx, j);
	if (r == 0)
		r = join_appended(j);
	if (r == 0)
		r = mc_journal_pages_write(
			f, &j->snapshot, generation, &j->snapshot_page, MC_JOURNAL_LAST);
	if (r == 0)
		return mc_journal_file_keep(&j->place, MC_JOURNAL_SNAPSHOT, generation, f);
	mc_journal_file_close(f);
	return r;
}

/*
 * An empty log with room for twice the size at which a snapshot is due: on a full disk evictions
 * can still be recorded.
 */
static int make_log(struct mc_journal *j, uint64_t generation, struct mc_journal_file *ret)
{
	int r = mc_journal_file_make(
		&j->place, MC_JOURNAL_LOG, generation, 2 * j->o.max_bytes, ret);

	if (r != 0)
		return r;
	r = mc_journal_file_keep(&j->place, MC_JOURNAL_LOG, generation, ret);
	if (r != 0)
		mc_journal_file_close(ret);
	return r;
}

/*
 * Where SUPER may or may not name the new generation (unsure), nothing more may be acknowledged in
 * the old log. The next attempt makes SUPER name the old one for certain before it writes over what
 * the first attempt left.
 */
static int new_generation(
	struct mc_journal *j, int (*emit)(void *ctx, struct mc_journal *j), void *ctx)
{
	uint64_t generation = j->super.generation + 1;
	struct mc_journal_file log = {.fd = -1};
	int r = j->unsure ? mc_journal_super_write(&j->super, j->super.generation) : 0;

	if (r != 0)
		return r;
	j->unsure = false;
	if (j->super.generation == 0)
		generation = mc_journal_place_first(&j->place);
	if (generation == 0)
		return -EIO;
	r = write_snapshot(j, generation, emit, ctx);
	if (r == 0)
		r = make_log(j, generation, &log);
	if (r == 0) {
		r = mc_journal_super_write(&j->super, generation);
		j->unsure = r != 0;
	}
	if (r != 0) {
		mc_journal_file_close(&log);
		/* What SUPER was not to name yet must not be found where SUPER is lost: the log in
		 * force goes on. */
		if (!j->unsure)
			mc_journal_place_clean(&j->place, j->super.generation);
		return r;
	}
	mc_journal_file_close(&j->log);
	j->log = log;
	j->super.generation = generation;
	return 0;
}

int mc_journal_snapshot(
	struct mc_journal *j, int (*emit)(void *ctx, struct mc_journal *j), void *ctx)
{
	int r;

	mc_mutex_lock(&j->lock);
	while (j->leading)
		mc_cond_wait(&j->led, &j->lock);
	j->leading = true;
	j->lost = false; /* emit sees what the record was to say */
	mc_mutex_unlock(&j->lock);
	r = new_generation(j, emit, ctx);
	mc_journal_buf_done(&j->snapshot);
	mc_mutex_lock(&j->lock);
	j->leading = false;
	if (r == 0) {
		j->page = 0;
		j->broken = j->lost;
		j->fresh = false;
		mc_journal_buf_drop(&j->next, j->joined);
		j->committed = j->joined_records;
	} else if (j->unsure) {
		j->broken = true;
	}
	mc_cond_broadcast(&j->led);
	mc_mutex_unlock(&j->lock);
	if (r == 0)
		mc_journal_place_clean(&j->place, j->super.generation);
	return r;
}
