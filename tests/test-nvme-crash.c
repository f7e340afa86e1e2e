/*
 * Crash exploration of the NVMe tier: a random history is run again and again, each time with the
 * n-th changing call failing, torn or the last one before the power goes; then the tier recovers
 * and is held against a model of what was acknowledged.
 *
 * I1 a present block has its bytes, and a verified image has them in its backing file. I2 what a
 * sync acknowledged is present. I3 what was evicted or dropped is not. I4 used equals the disk's
 * blocks.
 *
 * Each kind of fault gets 2.5 s, with MC_LONG=1 80 s; MC_SEED=n starts at another history.
 */
#include "tests/io-fault.h"
#include "tests/nvme-fixture.h"
#include "tests/suite.h"

#define FILES 3
#define BLOCKS 3
#define STEPS 12

static const uint64_t sizes[FILES] = {5000, MIB + 100, 2 * MIB + 8192};

/* What is known of a block. */
enum knowledge { NOTHING, DURABLE, GONE };

struct model {
	bool written[FILES][BLOCKS]; /* acknowledged, not yet synced */
	enum knowledge known[FILES][BLOCKS];
};

struct run {
	const char *dir;
	struct io_fault *fault;
	struct mc_nvme *n; /* NULL: could not be opened */
	struct model m;
	unsigned seed;
};

static bool open_tier(struct run *r)
{
	struct mc_nvme_opts o = {.dir = r->dir,
		.capacity = 4 * MIB,
		.journal_bytes = 12288, /* a snapshot every third commit */
		.io = io_fault_table(r->fault),
		.commit_ms = 1000000,
		.probe_ms = 1000000};
	struct mc_err err = {0};

	if (mc_nvme_open(&o, &r->n, &err) == 0)
		return true;
	r->n = NULL;
	return false;
}

static void forget_file(struct run *r, unsigned f, enum knowledge k)
{
	for (unsigned b = 0; b < BLOCKS; b++) {
		r->m.known[f][b] = k;
		r->m.written[f][b] = false;
	}
}

static void step_put(struct run *r, unsigned f, unsigned b)
{
	struct mc_file_id id = tier_file_id(f, sizes[f]);
	struct mc_nvme_image *img;

	if (mc_nvme_image_get(r->n, &id, true, &img) != 0)
		return;
	if (nvme_put(img, f, sizes[f], b) == 0)
		r->m.written[f][b] = true;
	/* From here on it may become durable at any time. */
	if (r->m.known[f][b] == GONE)
		r->m.known[f][b] = NOTHING;
	mc_nvme_image_put(img);
}

static void step_sync(struct run *r)
{
	bool ok = mc_nvme_sync(r->n) == 0;

	for (unsigned f = 0; f < FILES; f++)
		for (unsigned b = 0; b < BLOCKS; b++) {
			if (ok && r->m.written[f][b])
				r->m.known[f][b] = DURABLE;
			r->m.written[f][b] = false;
		}
}

static void step_evict(struct run *r, unsigned f, unsigned b)
{
	struct mc_file_id id = tier_file_id(f, sizes[f]);
	struct mc_nvme_image *img;
	int64_t n;

	if (mc_nvme_image_get(r->n, &id, false, &img) != 0)
		return;
	n = mc_nvme_evict(img, b, 1);
	if (n != 0)
		r->m.known[f][b] = n > 0 ? GONE : NOTHING;
	r->m.written[f][b] = false;
	mc_nvme_image_put(img);
}

static void step_drop(struct run *r, unsigned f)
{
	struct mc_file_id id = tier_file_id(f, sizes[f]);
	struct mc_nvme_image *img;
	uint64_t errors = nvme_stats(r->n).errors;

	if (mc_nvme_image_get(r->n, &id, false, &img) != 0)
		return;
	mc_nvme_drop(img);
	mc_nvme_image_put(img);
	forget_file(r, f, nvme_stats(r->n).errors == errors ? GONE : NOTHING);
}

static void step_verify(struct run *r, unsigned f)
{
	struct mc_file_id id = tier_file_id(f, sizes[f]);
	struct mc_nvme_image *img;

	if (mc_nvme_image_get(r->n, &id, false, &img) != 0)
		return;
	mc_nvme_verify(img, NULL, NULL);
	mc_nvme_image_put(img);
}

/* A clean stop makes everything durable that can be. */
static void step_restart(struct run *r)
{
	step_sync(r);
	mc_nvme_close(r->n);
	open_tier(r);
}

static void play(struct run *r)
{
	unsigned seed = r->seed;

	for (unsigned i = 0; i < STEPS && r->n != NULL; i++) {
		unsigned f = (unsigned)rand_r(&seed) % FILES, what = (unsigned)rand_r(&seed) % 16;
		unsigned b = (unsigned)rand_r(&seed) % (unsigned)mc_block_count(sizes[f]);

		if (what < 7)
			step_put(r, f, b);
		else if (what < 10)
			step_sync(r);
		else if (what < 12)
			step_evict(r, f, b);
		else if (what < 13)
			step_drop(r, f);
		else if (what < 14)
			step_verify(r, f);
		else
			step_restart(r);
	}
}

/* A verified image is read by clients without us: its backing file must be right by itself. */
static void check_backing(const struct run *r, unsigned f, struct mc_nvme_image *img)
{
	char *buf = malloc(MC_BLOCK_SIZE), path[4096];
	int fd;

	nvme_path(r->dir, f, sizes[f], path, sizeof(path));
	fd = open(path, O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	for (uint64_t b = 0; b < mc_block_count(sizes[f]); b++) {
		uint32_t len = mc_block_len(sizes[f], b);

		if (!mc_nvme_present(img, b))
			continue;
		ck_assert_int_eq(pread(fd, buf, len, (off_t)(b * MC_BLOCK_SIZE)), len);
		ck_assert(tier_matches(buf, len, f, b * MC_BLOCK_SIZE));
	}
	close(fd);
	free(buf);
}

static void check_file(struct run *r, unsigned f, const char *where)
{
	struct mc_file_id id = tier_file_id(f, sizes[f]);
	struct mc_nvme_image *img = NULL;
	int got = mc_nvme_image_get(r->n, &id, false, &img);

	ck_assert_msg(got == 0 || got == -ENOENT, "%s: get %d", where, got);
	for (unsigned b = 0; b < mc_block_count(sizes[f]); b++) {
		bool present = got == 0 && mc_nvme_present(img, b);
		int res = present ? nvme_get(img, f, sizes[f], b) : -ENOENT;

		ck_assert_msg(
			!present || res == 0, "%s: file %u block %u reads %d", where, f, b, res);
		ck_assert_msg(r->m.known[f][b] != DURABLE || present,
			"%s: file %u block %u was synced and is lost", where, f, b);
		ck_assert_msg(r->m.known[f][b] != GONE || !present,
			"%s: file %u block %u was evicted and is back", where, f, b);
	}
	if (got != 0)
		return;
	if (mc_nvme_verified(img))
		check_backing(r, f, img);
	mc_nvme_image_put(img);
}

/*
 * One history with one fault, counted from the first open or from after it; false when the history
 * has fewer changing calls.
 */
static bool explore(unsigned seed, enum io_fault_kind kind, uint64_t at, bool in_open)
{
	char *dir = tier_dir_make("/dev/shm"), where[96];
	struct run r = {.dir = dir, .fault = io_fault_open(dir), .seed = seed};
	uint64_t calls;

	snprintf(where, sizeof(where), "MC_SEED=%u kind %d call %u", seed, kind, (unsigned)at);
	if (in_open)
		io_fault_arm(r.fault, kind, at, seed + (unsigned)at);
	if (open_tier(&r)) {
		if (!in_open)
			io_fault_arm(r.fault, kind, at, seed + (unsigned)at);
		play(&r);
	}
	calls = io_fault_calls(r.fault);
	/* The power goes before the last close can do anything. */
	if (r.n != NULL) {
		if (calls < at || kind == IO_FAULT_FAIL)
			io_fault_arm(r.fault, IO_FAULT_CRASH, 1, seed);
		mc_nvme_close(r.n);
	}
	io_fault_restart(r.fault);
	ck_assert_msg(open_tier(&r), "%s: no recovery", where);
	ck_assert_uint_eq(nvme_stats(r.n).used, nvme_disk_bytes(dir));
	ck_assert_uint_le(nvme_stats(r.n).used, 4 * MIB);
	for (unsigned f = 0; f < FILES; f++)
		check_file(&r, f, where);
	ck_assert_uint_eq(nvme_stats(r.n).used, nvme_disk_bytes(dir));
	mc_nvme_close(r.n);
	io_fault_close(r.fault);
	tier_dir_remove(dir);
	return calls >= at;
}

static unsigned first_seed(void)
{
	const char *text = getenv("MC_SEED");

	return text != NULL ? (unsigned)atoi(text) : 1;
}

static void explore_all(enum io_fault_kind kind, unsigned histories)
{
	uint64_t deadline = mc_now_ns() + UINT64_C(80000000000);
	unsigned states = 0, first = first_seed();

	if (getenv("MC_LONG") == NULL)
		deadline = mc_now_ns() + UINT64_C(2500000000);
	/* The first open makes 260 directories: each 60th call of it will do. */
	for (uint64_t at = 1; at < 280; at += at < 260 ? 60 : 5, states++)
		explore(first, kind, at, true);
	for (unsigned s = 0; s < histories && mc_now_ns() < deadline; s++)
		for (uint64_t at = 1; mc_now_ns() < deadline; at++, states++)
			if (!explore(first + s, kind, at, false))
				break;
	printf("kind %d: %u states, histories from MC_SEED=%u\n", kind, states, first);
}

START_TEST(recovers_from_a_crash_at_every_call)
{
	explore_all(IO_FAULT_CRASH, 1000);
}
END_TEST

START_TEST(recovers_from_a_torn_write_at_every_call)
{
	explore_all(IO_FAULT_TEAR, 1000);
}
END_TEST

START_TEST(goes_on_after_one_failure_at_every_call)
{
	explore_all(IO_FAULT_FAIL, 1000);
}
END_TEST

SUITE_MAIN("nvme-crash", recovers_from_a_crash_at_every_call,
	recovers_from_a_torn_write_at_every_call, goes_on_after_one_failure_at_every_call)
