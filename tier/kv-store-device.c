/*
 * A KV log on a device or in one file: superblock, an area for the journal, segments by number
 * (block-super.h). Numbers are places, so that a segment costs nothing to make; what is in one that
 * the journal does not know means nothing.
 */
#include "tier/kv-store.h"

#include "tier/block-super.h"
#include "tier/cleanup.h"
#include "tier/digest.h"
#include "tier/disk-health.h"
#include "tier/io.h"
#include "tier/shared-sync.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PAGE 4096u

struct device {
	struct mc_kv_store s; /* first */
	struct mc_block_dev dev;
	struct mc_block_super super;
	struct mc_shared_sync shared; /* by the segments and the journal */
	uint64_t *seen;               /* owned: failures of it, by segment, when writes began */
};

static struct device *self(struct mc_kv_store *s)
{
	return (struct device *)s;
}

static struct mc_kv_place place_of(const struct device *d, uint32_t id)
{
	return (struct mc_kv_place){
		.fd = d->dev.fd, .at = d->super.segments_at + (id - 1) * d->super.segment_bytes};
}

static uint64_t *seen_of(struct device *d, const struct mc_kv_place *p)
{
	return &d->seen[(p->at - d->super.segments_at) / d->super.segment_bytes];
}

static int make(struct mc_kv_store *s, uint32_t id, struct mc_kv_place *ret)
{
	if (id > self(s)->super.n_segments)
		return -ENOSPC;
	*ret = place_of(self(s), id);
	mc_shared_sync_begin(&self(s)->shared, &self(s)->seen[id - 1]);
	return 0;
}

static void discard(struct mc_kv_store *s, const struct mc_kv_place *p)
{
	mc_block_dev_discard(&self(s)->dev, p->at, s->segment_bytes);
	mc_shared_sync_begin(&self(s)->shared, seen_of(self(s), p));
}

static int remove_segment(struct mc_kv_store *s, uint32_t id, const struct mc_kv_place *p)
{
	(void)id;
	discard(s, p);
	return 0;
}

static void leave(struct mc_kv_store *s, const struct mc_kv_place *p)
{
	(void)s;
	(void)p;
}

static int sync_segment(struct mc_kv_store *s, const struct mc_kv_place *p, bool made)
{
	(void)made;
	return mc_shared_sync(&self(s)->shared, s->io, p->fd, seen_of(self(s), p));
}

/* Only numbers that the log knows have a meaning. */
static int find(
	struct mc_kv_store *s, int (*each)(void *ctx, const struct mc_kv_found *f), void *ctx)
{
	struct device *d = self(s);
	int r = 0;

	for (uint32_t id = 1; id <= d->super.n_segments && r >= 0; id++) {
		const struct mc_kv_found found = {
			.id = id, .place = place_of(d, id), .whole = true};

		r = each(ctx, &found);
	}
	return r < 0 ? r : 0;
}

static int probe(struct mc_kv_store *s)
{
	struct device *d = self(s);

	return mc_disk_probe_at(&d->shared, s->io, d->dev.fd, MC_BLOCK_PROBE_AT, PAGE);
}

static int bind_device(struct mc_kv_store *s, const uint8_t uuid[16])
{
	return mc_block_super_bind(&self(s)->dev, &self(s)->super, uuid);
}

static void close_device(struct mc_kv_store *s)
{
	struct device *d = self(s);

	mc_block_dev_close(&d->dev);
	mc_shared_sync_done(&d->shared);
	free(d->seen);
	free(s->name);
	free(d);
}

static const struct mc_kv_store_ops device_ops = {.make = make,
	.remove = remove_segment,
	.leave = leave,
	.sync = sync_segment,
	.discard = discard,
	.find = find,
	.probe = probe,
	.bind = bind_device,
	.close = close_device};

static int check_uuid(const struct device *d, const uint8_t *uuid, struct mc_err *err)
{
	char have[33], want[33];

	if (uuid == NULL || memcmp(d->super.uuid, uuid, sizeof(d->super.uuid)) == 0)
		return 0;
	mc_hex_encode(d->super.uuid, sizeof(d->super.uuid), have);
	mc_hex_encode(uuid, sizeof(d->super.uuid), want);
	return mc_err_set(err, -ESTALE, "%s: is the block tier %s, not %s", d->s.name, have, want);
}

static int bring_up(struct device *d, const char *path, const uint8_t *uuid, unsigned *ret_bad,
	struct mc_err *err)
{
	int r;

	d->s.name = strdup(path);
	if (d->s.name == NULL)
		return -ENOMEM;
	r = mc_block_dev_open(path, d->s.io, 0, &d->dev, err);
	if (r == 0)
		r = mc_block_super_read(&d->dev, path, ret_bad, &d->super, err);
	if (r == 0)
		r = check_uuid(d, uuid, err);
	if (r == 0)
		r = mc_block_super_used(&d->dev, &d->super);
	if (r < 0)
		return r;
	d->s.used = r == 1;
	memcpy(d->s.bound, d->super.above, sizeof(d->s.bound));
	d->s.direct = d->dev.direct;
	d->s.segment_bytes = d->super.segment_bytes;
	d->s.capacity = d->super.n_segments * d->super.segment_bytes;
	d->seen = calloc(d->super.n_segments, sizeof(*d->seen));
	if (d->seen == NULL)
		return -ENOMEM;
	d->s.journal_fd = d->dev.fd;
	d->s.journal_shared = &d->shared;
	d->s.journal_at = d->super.journal_at;
	d->s.journal_bytes = d->super.journal_bytes;
	memcpy(d->s.uuid, d->super.uuid, sizeof(d->s.uuid));
	return 0;
}

static int open_device(const char *path, const struct mc_io *io, const uint8_t *uuid,
	unsigned *ret_bad, struct mc_kv_store **ret, struct mc_err *err)
{
	struct device *d = calloc(1, sizeof(*d));
	int r;

	if (d == NULL)
		return -ENOMEM;
	d->s = (struct mc_kv_store){.ops = &device_ops, .io = io};
	d->dev.fd = -1;
	mc_shared_sync_init(&d->shared);
	r = bring_up(d, path, uuid, ret_bad, err);
	if (r != 0) {
		close_device(&d->s);
		return r;
	}
	*ret = &d->s;
	return 0;
}

int mc_kv_store_device_open(const char *path, const struct mc_io *io, const uint8_t *uuid,
	struct mc_kv_store **ret, struct mc_err *err)
{
	return open_device(path, io, uuid, NULL, ret, err);
}

int mc_kv_store_device_look(const char *path, const struct mc_io *io, unsigned *ret_bad,
	struct mc_kv_store **ret, struct mc_err *err)
{
	return open_device(path, io, NULL, ret_bad, ret, err);
}

int mc_kv_store_device_mend(struct mc_kv_store *s)
{
	struct mc_block_super super;

	return mc_block_super_read(&self(s)->dev, s->name, NULL, &super, NULL);
}
