/*
 * Pinned files: a flag in the table of files, and, where there is NVMe, their names in the file
 * "pins" of its directory, one a line, written anew at each change (tmp, fsync, rename).
 *
 * Invariants: 1. pinned_bytes is the sum of the sizes of pinned files; 2. a pinned file stays in
 * the table without references; 3. one change at a time (pin_lock, taken before the store's lock).
 */
#include "tier/cleanup.h"
#include "tier/image-name.h"
#include "tier/small-file.h"
#include "tier/store-impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* So much may be pinned: half of the larger tier. */
static uint64_t limit(const struct mc_store *s)
{
	uint64_t dram = s->capacity[MC_TIER_DRAM], nvme = s->capacity[MC_TIER_NVME];

	return (nvme > dram ? nvme : dram) / 2;
}

/* The identities of what is pinned; owned by the caller. */
static int list(struct mc_store *s, struct mc_file_id **ret, size_t *ret_n)
{
	struct mc_file_id *ids;
	size_t n = 0;

	mc_mutex_lock(&s->lock);
	for (size_t i = 0; i < s->hash_size; i++)
		for (const struct mc_file *f = s->hash[i]; f != NULL; f = f->hash_next)
			n += f->pinned;
	ids = calloc(n + 1, sizeof(*ids));
	n = 0;
	for (size_t i = 0; ids != NULL && i < s->hash_size; i++)
		for (const struct mc_file *f = s->hash[i]; f != NULL; f = f->hash_next)
			if (f->pinned)
				ids[n++] = f->id;
	mc_mutex_unlock(&s->lock);
	*ret = ids;
	*ret_n = n;
	return ids != NULL ? 0 : -ENOMEM;
}

static int save(struct mc_store *s)
{
	cleanup_free struct mc_file_id *ids = NULL;
	cleanup_free char *names = NULL;
	size_t n, len = 0;
	int r = list(s, &ids, &n);

	if (r < 0)
		return r;
	names = malloc(n * MC_IMAGE_NAME_MAX + 1);
	if (names == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		mc_image_name(&ids[i], names + len);
		len += strlen(names + len);
		names[len++] = '\n';
	}
	return mc_small_file_write(mc_nvme_dir(s->nvme), "pins", names, len);
}

/* -ENOSPC. */
static int set(struct mc_file *f, bool pinned)
{
	struct mc_store *s = f->store;
	uint64_t size = f->id.size;
	int r = 0;

	mc_mutex_lock(&s->lock);
	if (pinned && !f->pinned && s->pinned_bytes + size > limit(s))
		r = -ENOSPC;
	if (r == 0 && f->pinned != pinned) {
		s->pinned_bytes += pinned ? size : -size;
		for (int t = MC_TIER_DRAM; t <= MC_TIER_NVME; t++)
			if (f->backing[t] == 0)
				s->kept_bytes[t] += pinned ? size : -size;
		f->pinned = pinned;
	}
	if (!pinned)
		mc_store_room_locked(s);
	mc_mutex_unlock(&s->lock);
	return r;
}

int mc_store_pin(struct mc_store *s, const struct mc_file_id *id, bool pinned)
{
	struct mc_file *f = mc_file_make(s, id);
	bool before;
	int r;

	if (f == NULL)
		return -ENOMEM;
	mc_mutex_lock(&s->pin_lock);
	mc_mutex_lock(&s->lock);
	before = f->pinned;
	mc_mutex_unlock(&s->lock);
	r = before != pinned ? set(f, pinned) : 0;
	if (r == 0 && before != pinned && s->nvme != NULL) {
		r = save(s);
		if (r < 0)
			set(f, before);
	}
	mc_mutex_unlock(&s->pin_lock);
	mc_file_put(f);
	return r;
}

static int pin_line(struct mc_store *s, char *line)
{
	struct mc_file_id id;
	struct mc_file *f;
	int r;

	line[strcspn(line, "\n")] = '\0';
	if (mc_image_name_parse(line, &id) < 0 || id.size == 0)
		return 0; /* not ours; the next change leaves it out */
	f = mc_file_make(s, &id);
	if (f == NULL)
		return -ENOMEM;
	r = set(f, true);
	mc_file_put(f);
	return r == -ENOSPC ? 0 : r; /* the tiers are smaller now */
}

int mc_pins_load(struct mc_store *s)
{
	cleanup_free char *path = NULL;
	char line[MC_IMAGE_NAME_MAX + 2];
	FILE *in;
	int r = 0;

	if (asprintf(&path, "%s/pins", mc_nvme_dir(s->nvme)) < 0)
		return -ENOMEM;
	in = fopen(path, "re");
	if (in == NULL)
		return errno == ENOENT ? 0 : -errno;
	while (r == 0 && fgets(line, sizeof(line), in) != NULL)
		r = pin_line(s, line);
	fclose(in);
	return r;
}
