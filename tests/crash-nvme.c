/*
 * A user of an NVMe tier that loses power: see crash-nvme.h.
 *
 * I1 a block that is present has its bytes. I2 what a sync acknowledged is present. I3 what was
 * evicted or dropped is not. I4 used is what the file system allocated.
 */
#include "tests/crash-nvme.h"

#include "tests/crash-history.h"
#include "tests/nvme-fixture.h"

#include <sys/mman.h>

#define FILES 4
#define FILE_SIZE (2 * MIB + 12345)
#define BLOCKS 3
#define OPS 40

enum kind { PUT, SYNC, EVICT, DROP };
enum knowledge { NOTHING, DURABLE, GONE };

struct op {
	struct crash_span span;
	enum kind kind;
	unsigned file, block;
	bool done; /* it did what it is for */
};

struct crash_nvme {
	struct op ops[OPS];
};

struct model {
	enum knowledge known[FILES][BLOCKS];
	bool written[FILES][BLOCKS];
};

struct crash_nvme *crash_nvme_new(void)
{
	struct crash_nvme *h =
		mmap(NULL, sizeof(*h), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (h == MAP_FAILED)
		crash_die("no memory");
	return h;
}

void crash_nvme_free(struct crash_nvme *h)
{
	munmap(h, sizeof(*h));
}

static struct mc_nvme *open_tier(const char *dir)
{
	char path[300];
	struct mc_nvme_opts o = {
		.dir = path, .capacity = 16 * MIB, .commit_ms = 20, .journal_bytes = 65536};
	struct mc_err err = {0};
	struct mc_nvme *n;
	int r;

	snprintf(path, sizeof(path), "%s/tier", dir);
	r = mc_nvme_open(&o, &n, &err);
	if (r != 0)
		crash_die("the NVMe tier does not open: %d %s", r, err.text);
	return n;
}

/* ---- the user */

static bool do_op(struct mc_nvme *n, const struct op *op)
{
	struct mc_file_id id = tier_file_id(op->file, FILE_SIZE);
	struct mc_nvme_image *img;
	bool done = false;

	if (op->kind == SYNC)
		return mc_nvme_sync(n) == 0;
	if (mc_nvme_image_get(n, &id, op->kind == PUT, &img) != 0)
		return false;
	if (op->kind == PUT)
		done = nvme_put(img, op->file, FILE_SIZE, op->block) == 0;
	else if (op->kind == EVICT)
		done = mc_nvme_evict(img, op->block, 1) >= 0 && !mc_nvme_present(img, op->block);
	else
		done = mc_nvme_drop(img) >= 0;
	mc_nvme_image_put(img);
	return done;
}

void crash_nvme_work(struct crash_nvme *h, const struct disk *d, const char *dir, uint64_t seed)
{
	static const enum kind kinds[] = {PUT, PUT, PUT, PUT, PUT, SYNC, SYNC, EVICT, EVICT, DROP};
	struct mc_nvme *n = open_tier(dir);
	uint64_t rng = crash_rng(seed);

	for (unsigned i = 0; i < OPS; i++) {
		struct op *op = &h->ops[i];

		op->kind = kinds[crash_random(&rng) % (sizeof(kinds) / sizeof(*kinds))];
		op->file = (unsigned)(crash_random(&rng) % FILES);
		op->block = (unsigned)(crash_random(&rng) % BLOCKS);
		op->span.begun = disk_position(d) + 1;
		op->done = do_op(n, op);
		op->span.acknowledged = disk_position(d) + 1;
	}
}

size_t crash_nvme_acks(const struct crash_nvme *h, uint64_t *ret, size_t max)
{
	size_t n = 0;

	for (unsigned i = 0; i < OPS && n < max; i++)
		if (h->ops[i].done && h->ops[i].kind != PUT)
			ret[n++] = h->ops[i].span.acknowledged - 1;
	return n;
}

/* ---- the judgement */

static void note_sync(struct model *m)
{
	for (unsigned f = 0; f < FILES; f++)
		for (unsigned b = 0; b < BLOCKS; b++)
			if (m->written[f][b])
				m->known[f][b] = DURABLE;
}

static void note(struct model *m, const struct op *op, uint64_t cut)
{
	bool done = crash_acknowledged(&op->span, cut) && op->done;
	enum knowledge *known = &m->known[op->file][op->block];

	if (op->kind == PUT) {
		if (*known == GONE)
			*known = NOTHING; /* it may become durable at any time */
		m->written[op->file][op->block] |= done;
	} else if (op->kind == SYNC) {
		if (done)
			note_sync(m);
	} else {
		unsigned first = op->kind == DROP ? 0 : op->block;
		unsigned end = op->kind == DROP ? BLOCKS : op->block + 1;

		for (unsigned b = first; b < end; b++) {
			m->known[op->file][b] = done ? GONE : NOTHING;
			m->written[op->file][b] = false;
		}
	}
}

static void judge_file(struct mc_nvme *n, const struct model *m, unsigned f)
{
	struct mc_file_id id = tier_file_id(f, FILE_SIZE);
	struct mc_nvme_image *img = NULL;
	bool got = mc_nvme_image_get(n, &id, false, &img) == 0;

	for (unsigned b = 0; b < BLOCKS; b++) {
		bool present = got && mc_nvme_present(img, b);
		int r = present ? nvme_get(img, f, FILE_SIZE, b) : 0;

		if (r != 0)
			crash_die("file %u block %u reads %d", f, b, r);
		if (!present && m->known[f][b] == DURABLE)
			crash_die("file %u block %u was synced and is lost", f, b);
		if (present && m->known[f][b] == GONE)
			crash_die("file %u block %u was evicted and is back", f, b);
	}
	if (got)
		mc_nvme_image_put(img);
}

void crash_nvme_check(struct crash_nvme *h, const char *dir, uint64_t cut)
{
	struct mc_nvme *n = open_tier(dir);
	struct model m = {0};
	char path[300];
	uint64_t used, disk;

	for (unsigned f = 0; f < FILES; f++)
		for (unsigned b = 0; b < BLOCKS; b++)
			m.known[f][b] = GONE;
	for (unsigned i = 0; i < OPS && crash_begun(&h->ops[i].span, cut); i++)
		note(&m, &h->ops[i], cut);
	snprintf(path, sizeof(path), "%s/tier", dir);
	used = nvme_stats(n).used;
	disk = nvme_disk_bytes(path);
	/* Tails count whole pages; a file system with smaller blocks gives less. */
	if (used < disk || used - disk >= FILES * 4096)
		crash_die("%llu bytes are in use, the files have %llu", (unsigned long long)used,
			(unsigned long long)disk);
	for (unsigned f = 0; f < FILES; f++)
		judge_file(n, &m, f);
	mc_nvme_close(n);
}
