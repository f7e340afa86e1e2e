/*
 * The generation of a journal whose SUPER is damaged. A snapshot is complete and durable, and its
 * log made, before SUPER is to name it, and nothing was acknowledged elsewhere afterwards: so the
 * newest complete one is in force, whether SUPER had come to name it or not. One that was given up
 * before SUPER was to name it is removed.
 */
#include "tier/journal-super.h"

#include "tier/journal-page.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int pass_over(void *ctx, uint8_t type, const void *rec, size_t len, struct mc_err *err)
{
	(void)ctx;
	(void)type;
	(void)rec;
	(void)len;
	(void)err;
	return 0;
}

static bool complete(const struct mc_journal_super *s, uint64_t generation)
{
	struct mc_journal_opts o = {.io = s->place->io, .apply = pass_over};
	struct mc_journal_end end = {0};
	struct mc_journal_file f;

	if (mc_journal_file_open(s->place, MC_JOURNAL_LOG, generation, &f) != 0)
		return false;
	mc_journal_file_close(&f);
	if (mc_journal_file_open(s->place, MC_JOURNAL_SNAPSHOT, generation, &f) != 0)
		return false;
	if (mc_journal_pages_read(&o, &f, generation, &end, NULL) != 0)
		end.last = false;
	mc_journal_file_close(&f);
	return end.last;
}

static void look_at(struct mc_journal_super *s, uint64_t generation)
{
	if (generation <= s->generation || !complete(s, generation))
		return;
	s->generation = generation;
	/* Each SUPER that was written named one more, or the same again. */
	s->sequence = s->sequence < generation ? generation : s->sequence + 1;
}

static int find_in_area(struct mc_journal_super *s)
{
	int r = 0;

	for (uint64_t i = 0; i < 2 && r == 0; i++) {
		struct mc_journal_file f;
		uint64_t generation;

		r = mc_journal_file_open(s->place, MC_JOURNAL_SNAPSHOT, i, &f);
		if (r == 0)
			r = mc_journal_pages_generation(&f, &generation);
		if (r == 0 && generation % 2 == i)
			look_at(s, generation);
	}
	return r;
}

int mc_journal_super_find(struct mc_journal_super *s)
{
	struct dirent *e;
	DIR *d;

	if (s->place->dir == NULL)
		return find_in_area(s);
	d = opendir(s->place->dir);
	if (d == NULL)
		return errno == ENOENT ? 0 : -errno;
	while ((e = readdir(d)) != NULL) {
		uint64_t generation = 0;
		char again[32];

		if (sscanf(e->d_name, "snapshot.%" SCNu64, &generation) != 1)
			continue;
		snprintf(again, sizeof(again), "snapshot.%" PRIu64, generation);
		if (strcmp(e->d_name, again) == 0)
			look_at(s, generation);
	}
	closedir(d);
	return 0;
}
