/* Replay: which generation is in force, its records, and what is told of what is damaged. */
#include "tier/journal-replay.h"

#include "tier/journal-page.h"
#include "tier/journal-super.h"
#include "tier/journal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

struct replay {
	const struct mc_journal_opts *opts;
	const struct mc_journal_place *place;
	struct mc_journal_super *super;
	unsigned damaged; /* things that are missing or not whole */
};

static void tell(const struct replay *p, const char *file, uint64_t generation, const char *what)
{
	char name[32];

	if (p->opts->damaged == NULL)
		return;
	if (generation != 0)
		snprintf(name, sizeof(name), "%s.%" PRIu64, file, generation);
	else
		snprintf(name, sizeof(name), "%s", file);
	p->opts->damaged(p->opts->damaged_ctx, name, what);
}

static const char *name_of(enum mc_journal_kind kind)
{
	return kind == MC_JOURNAL_SNAPSHOT ? "snapshot" : "log";
}

/* What ends a file too early. */
static int tell_end(const struct replay *p, enum mc_journal_kind kind,
	const struct mc_journal_file *f, const struct mc_journal_end *end)
{
	bool snapshot = kind == MC_JOURNAL_SNAPSHOT;
	int64_t stray = 0;
	char what[128];

	if (p->opts->damaged == NULL || (snapshot && end->last))
		return 0;
	if (!snapshot)
		stray = mc_journal_pages_stray(f, p->super->generation, end->pages + 1);
	if (stray < 0)
		return (int)stray;
	if (!snapshot && !(end->torn && f->owned) && stray == 0)
		return 0;
	snprintf(what, sizeof(what),
		"page %" PRIu64 " is not whole; the records from there on are lost", end->pages);
	tell(p, name_of(kind), p->super->generation, what);
	return 0;
}

/* Without SUPER and with nothing behind the first snapshot, nothing was ever acknowledged. */
static void tell_missing_super(struct replay *p, const struct mc_journal_end *log)
{
	if (p->super->whole > 0 || p->super->bad > 0 ||
		(p->super->generation == 1 && log->pages == 0))
		return;
	p->damaged++;
	tell(p, "SUPER", 0, "is missing");
}

static int read_file(struct replay *p, enum mc_journal_kind kind, struct mc_err *err)
{
	struct mc_journal_end end = {0};
	struct mc_journal_file f;
	int r = mc_journal_file_open(p->place, kind, p->super->generation, &f);

	if (r == -ENOENT) {
		p->damaged++;
		tell(p, name_of(kind), p->super->generation, "is missing; its records are lost");
		return 0;
	}
	if (r != 0)
		return r;
	r = mc_journal_pages_read(p->opts, &f, p->super->generation, &end, err);
	if (r == 0)
		r = tell_end(p, kind, &f, &end);
	mc_journal_file_close(&f);
	if (kind == MC_JOURNAL_SNAPSHOT && r == 0 && !end.last)
		p->damaged++;
	if (kind == MC_JOURNAL_LOG && r == 0)
		tell_missing_super(p, &end);
	return r;
}

static bool snapshot_exists(struct replay *p)
{
	struct mc_journal_file f;

	if (mc_journal_file_open(p->place, MC_JOURNAL_SNAPSHOT, p->super->generation, &f) != 0)
		return false;
	mc_journal_file_close(&f);
	return true;
}

/* Which generation is in force. */
static int find_generation(struct replay *p, struct mc_err *err)
{
	struct mc_journal_super *s = p->super;
	int r = mc_journal_super_read(s, err);

	if (r != 0 || (s->whole > 0 && s->bad == 0 && snapshot_exists(p)))
		return r;
	if (p->place->dir == NULL && s->bad == 0)
		return 0; /* an area of which nothing was used yet */
	if (s->bad > 0)
		tell(p, "SUPER", 0,
			s->whole > 0 ? "one of its two pages is not whole"
				     : "neither of its two pages is whole");
	p->damaged += s->whole == 0 && s->bad > 0;
	return mc_journal_super_find(s);
}

int mc_journal_replay(const struct mc_journal_opts *opts, const struct mc_journal_place *place,
	struct mc_journal_super *super, unsigned *damaged, struct mc_err *err)
{
	struct replay p = {.opts = opts, .place = place, .super = super};
	int r = find_generation(&p, err);

	if (r == 0 && opts->share != NULL && super->generation > 0)
		atomic_store(&opts->share->total, mc_journal_place_bytes(place, super->generation));
	if (r == 0 && super->generation > 0)
		r = read_file(&p, MC_JOURNAL_SNAPSHOT, err);
	if (r == 0 && super->generation > 0)
		r = read_file(&p, MC_JOURNAL_LOG, err);
	*damaged += p.damaged;
	return r;
}
