/*
 * What the NVMe tier writes to its journal: records of images and snapshots of the whole table.
 *
 * Identity in a record: 32 bytes digest, u64 size. Integers little endian, as journal-page.c
 * requires.
 */
#include "tier/nvme-impl.h"

#include "tier/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct id_record {
	uint8_t digest[MC_SHA256_SIZE];
	uint64_t size;
};

struct range_record {
	struct id_record id;
	uint64_t first, count;
};

static struct id_record id_record(const struct mc_nvme_image *img)
{
	struct id_record r = {.size = img->id.size};

	memcpy(r.digest, img->id.digest, sizeof(r.digest));
	return r;
}

int mc_nvme_log_id(struct mc_nvme_image *img, uint8_t type)
{
	struct id_record r = id_record(img);

	return mc_journal_append(img->nvme->journal, type, &r, sizeof(r));
}

int mc_nvme_log_evicted(struct mc_nvme_image *img, uint64_t first, uint64_t count)
{
	struct range_record r = {.id = id_record(img), .first = first, .count = count};

	return mc_journal_append(img->nvme->journal, MC_JOURNAL_EVICTED, &r, sizeof(r));
}

int mc_nvme_log_commit(struct mc_nvme *n)
{
	int r = mc_journal_commit(n->journal);

	if (r != 0)
		mc_nvme_failed(n);
	return r;
}

/* Builds a BLOCKS record of a run, at most MC_NVME_RUN_MAX, in rec; its length. */
size_t mc_nvme_blocks_record(
	const struct mc_nvme_image *img, uint64_t first, uint32_t count, unsigned char *rec)
{
	struct id_record id = id_record(img);
	size_t len = sizeof(id);

	memcpy(rec, &id, sizeof(id));
	memcpy(rec + len, &first, sizeof(first));
	len += sizeof(first);
	memcpy(rec + len, &count, sizeof(count));
	len += sizeof(count);
	memcpy(rec + len, &img->crc[first], count * sizeof(uint32_t));
	return len + count * sizeof(uint32_t);
}

/* ---- snapshots */

static int emit_image(struct mc_nvme_image *img, struct mc_journal *j, unsigned char *rec)
{
	int r = 0;

	if (img->dropped) /* its DROP is on the way, or in the log that this snapshot replaces */
		return 0;
	for (uint64_t b = 0; b < img->n_blocks && r == 0;) {
		uint32_t count = 0;

		while (count < MC_NVME_RUN_MAX && b + count < img->n_blocks &&
			mc_bitmap_get(img->present, b + count))
			count++;
		if (count == 0) {
			b++;
			continue;
		}
		r = mc_journal_snapshot_add(
			j, MC_JOURNAL_BLOCKS, rec, mc_nvme_blocks_record(img, b, count, rec));
		b += count;
	}
	if (r == 0 && img->verified_logged && img->n_present > 0) {
		struct id_record id = id_record(img);

		r = mc_journal_snapshot_add(j, MC_JOURNAL_VERIFIED, &id, sizeof(id));
	}
	return r;
}

static int emit_all(void *ctx, struct mc_journal *j)
{
	struct mc_nvme *n = ctx;
	cleanup_free unsigned char *rec = malloc(MC_NVME_RECORD_MAX);
	int r = rec == NULL ? -ENOMEM : 0;

	mc_mutex_lock(&n->lock);
	for (size_t i = 0; i < MC_NVME_BUCKETS && r == 0; i++)
		for (struct mc_nvme_image *img = n->buckets[i]; img != NULL && r == 0;
			img = img->next)
			r = emit_image(img, j, rec);
	mc_mutex_unlock(&n->lock);
	return r;
}

int mc_nvme_snapshot(struct mc_nvme *n)
{
	return mc_journal_snapshot(n->journal, emit_all, n);
}
