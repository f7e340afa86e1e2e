/*
 * The generation of a journal whose SUPER is damaged. A snapshot is complete and durable, and its
 * log made, before SUPER is to name it, and nothing was acknowledged elsewhere afterwards: so the
 * newest complete one is in force, whether SUPER had come to name it or not.
 */
#include "tier/journal-super.h"

#include "tier/cleanup.h"
#include "tier/io.h"
#include "tier/journal-page.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
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

static int open_file(const struct mc_journal_super *s, const char *name, uint64_t generation)
{
	cleanup_free char *path = NULL;

	if (asprintf(&path, "%s/%s.%" PRIu64, s->dir, name, generation) < 0)
		return -ENOMEM;
	return s->io->open(s->io, path, O_RDONLY, 0);
}

static bool complete(const struct mc_journal_super *s, uint64_t generation)
{
	struct mc_journal_opts o = {.io = s->io, .apply = pass_over};
	struct mc_journal_end end = {0};
	int fd = open_file(s, "log", generation);

	if (fd < 0)
		return false;
	s->io->close(s->io, fd);
	fd = open_file(s, "snapshot", generation);
	if (fd < 0)
		return false;
	if (mc_journal_pages_read(&o, fd, generation, &end, NULL) != 0)
		end.last = false;
	s->io->close(s->io, fd);
	return end.last;
}

int mc_journal_super_find(struct mc_journal_super *s)
{
	uint64_t best = s->generation;
	struct dirent *e;
	DIR *d = opendir(s->dir);

	if (d == NULL)
		return errno == ENOENT ? 0 : -errno;
	while ((e = readdir(d)) != NULL) {
		uint64_t generation = 0;
		char again[32];

		if (sscanf(e->d_name, "snapshot.%" SCNu64, &generation) != 1)
			continue;
		snprintf(again, sizeof(again), "snapshot.%" PRIu64, generation);
		if (strcmp(e->d_name, again) == 0 && generation > best && complete(s, generation))
			best = generation;
	}
	closedir(d);
	/* Both count the same: each SUPER that was written named one more. */
	if (best > s->generation)
		s->sequence = best;
	s->generation = best;
	return 0;
}
