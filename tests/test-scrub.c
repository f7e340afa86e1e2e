/* Scrubbing: what flips on NVMe is found in one pass and dealt with, under readers too. */
#include "tests/kv-fixture.h"
#include "tests/store-fixture.h"
#include "tier/image-name.h"
#include "tier/lease.h"
#include "tier/pace.h"
#include "tier/scrub.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#define SECOND UINT64_C(1000000000)
#define TAIL 4321u

/* ---- damage */

static uint64_t seed;

static uint64_t dice(uint64_t below)
{
	seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (seed >> 33) % below;
}

static void seed_from_clock(void)
{
	const char *given = getenv("MC_SEED");

	seed = given != NULL ? strtoull(given, NULL, 10) : mc_now_ns();
	printf("MC_SEED=%llu\n", (unsigned long long)seed);
	fflush(stdout);
}

static void flip(const char *path, uint64_t off)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	unsigned char c;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pread(fd, &c, 1, (off_t)off), 1);
	c ^= (unsigned char)(1u << dice(8));
	ck_assert_int_eq(pwrite(fd, &c, 1, (off_t)off), 1);
	ck_assert_int_eq(fsync(fd), 0);
	close(fd);
}

/* ---- passes */

static struct mc_scrub *scrub_of(struct mc_store *store, struct mc_kv *kv, const char *dir)
{
	struct mc_scrub_opts o = {.store = store, .kv = kv, .dir = dir};
	struct mc_scrub *s;

	ck_assert_int_eq(mc_scrub_open(&o, &s), 0);
	return s;
}

static struct mc_scrub_counts whole_pass(struct mc_scrub *s)
{
	struct mc_scrub_status st;
	uint64_t n = mc_scrub_start(s, 0);

	while (!mc_scrub_wait(s, n, mc_now_ns() + SECOND))
		;
	mc_scrub_status(s, &st);
	mc_scrub_leave(s, n);
	return st.last;
}

static struct mc_scrub_counts one_pass(struct mc_store *store, struct mc_kv *kv)
{
	struct mc_scrub *s = scrub_of(store, kv, NULL);
	struct mc_scrub_counts c = whole_pass(s);

	mc_scrub_close(s);
	return c;
}

/* ---- files of checkpoints */

static void image_path(const struct place *p, const struct pattern *pat, char *out, size_t len)
{
	struct mc_source *src = pattern_source(pat);
	char name[MC_IMAGE_NAME_MAX];

	mc_image_name(&src->id, name);
	src->ops->release(src);
	snprintf(out, len, "%s/images/%.2s/%s", p->nvme, name, name);
}

static void expect_all(struct mc_file *f, const struct pattern *pat)
{
	for (uint64_t off = 0; off < pat->size; off += MIB)
		ck_assert_int_eq(read_check(f, pat, off, mc_block_len(pat->size, off / MIB)), 0);
}

static void await_nvme(struct mc_file *f, uint64_t bytes)
{
	struct mc_residency r;

	for (;;) {
		mc_file_residency(f, &r);
		if (r.nvme >= bytes)
			return;
		usleep(1000);
	}
}

/* All of it on NVMe and nothing in DRAM, after a restart with the image verified. */
static struct mc_file *on_nvme(struct place *p, const struct pattern *pat)
{
	struct mc_file *f = file_open(p, pat);
	const char *why;

	expect_all(f, pat);
	await_nvme(f, pat->size);
	ck_assert_int_eq(mc_store_evict(p->store, mc_file_id(f), MC_TIER_DRAM, &why), 0);
	return f;
}

/* What the kernel does for a client of a passthrough file: an open file of its own, mapped. NULL:
 * no leases here, so nothing is passed through. */
static const uint8_t *pass_through(struct mc_file *f, uint64_t size, int *ret_fd)
{
	enum mc_tier tier;
	char path[64];
	void *map;
	int fd;

	if (mc_file_backing_get(f, &fd, &tier) < 0)
		return NULL;
	ck_assert_int_eq(tier, MC_TIER_NVME);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	*ret_fd = open(path, O_RDONLY | O_CLOEXEC);
	close(fd);
	ck_assert_int_ge(*ret_fd, 0);
	map = mmap(NULL, size, PROT_READ, MAP_SHARED, *ret_fd, 0);
	ck_assert_ptr_ne(map, MAP_FAILED);
	return map;
}

START_TEST(flips_in_images_are_found_in_one_pass_and_fetched_again)
{
	static const char *const names[] = {"a", "b", "c"};
	struct pattern pats[3];
	struct mc_file *files[3];
	struct mc_scrub_counts c;
	uint64_t damaged[3] = {0}, bad = 0, blocks = 0;
	struct place p;

	seed_from_clock();
	place_make(&p);
	for (unsigned i = 0; i < 3; i++)
		pats[i] = make_pattern(&p, names[i], (5 + 3 * i) * MIB + TAIL);
	place_open(&p, 64 * MIB, 128 * MIB);
	for (unsigned i = 0; i < 3; i++) {
		files[i] = on_nvme(&p, &pats[i]);
		blocks += mc_block_count(pats[i].size);
	}
	c = one_pass(p.store, NULL);
	ck_assert_uint_eq(c.checked, blocks);
	ck_assert_uint_eq(c.bytes, pats[0].size + pats[1].size + pats[2].size);
	ck_assert_uint_eq(c.bad, 0);
	for (unsigned n = 0; n < 9; n++) {
		unsigned i = n % 3;
		uint64_t off = dice(pats[i].size);
		char path[300];

		if ((damaged[i] >> (off / MIB) & 1) != 0)
			continue; /* a second flip could undo the first */
		damaged[i] |= UINT64_C(1) << (off / MIB);
		bad++;
		image_path(&p, &pats[i], path, sizeof(path));
		flip(path, off);
	}
	c = one_pass(p.store, NULL);
	ck_assert_uint_eq(c.checked, blocks);
	ck_assert_uint_eq(c.bad, bad);
	ck_assert_uint_eq(c.dropped, bad);
	ck_assert_uint_eq(stats(&p).nvme.bad_blocks, bad);
	for (unsigned i = 0; i < 3; i++) {
		expect_all(files[i], &pats[i]);
		await_nvme(files[i], pats[i].size);
	}
	c = one_pass(p.store, NULL);
	ck_assert_uint_eq(c.checked, blocks);
	ck_assert_uint_eq(c.bad, 0);
	for (unsigned i = 0; i < 3; i++)
		mc_file_put(files[i]);
	place_close(&p, false);
	place_remove(&p);
}
END_TEST

struct verified {
	struct mc_nvme_image *img;
	uint8_t *good; /* block 1 */
	uint32_t crc;
	unsigned bad;
};

/* Somebody fetches the block anew before the end of the image is reached. */
static void fetched_anew(void *ctx, uint64_t block)
{
	struct verified *v = ctx;

	ck_assert_uint_eq(block, 1);
	v->bad++;
	ck_assert_int_eq(mc_nvme_put(v->img, block, v->good, v->crc), 0);
}

START_TEST(damage_that_is_fetched_anew_meanwhile_is_told_all_the_same)
{
	struct verified v = {.good = aligned_alloc(4096, MIB)};
	struct mc_nvme_opts o = {.commit_ms = 1};
	struct place p;
	struct pattern pat;
	struct mc_nvme *n;
	struct mc_file *f;
	char path[300];

	seed_from_clock();
	place_make(&p);
	pat = make_pattern(&p, "a", 4 * MIB);
	place_open(&p, 64 * MIB, 64 * MIB);
	f = on_nvme(&p, &pat);
	read_copy(f, MIB, (uint32_t)MIB, v.good);
	v.crc = mc_crc32c(0, v.good, MIB);
	image_path(&p, &pat, path, sizeof(path));
	mc_file_put(f);
	place_close(&p, false);
	flip(path, MIB + dice(MIB));
	o.dir = p.nvme;
	ck_assert_int_eq(mc_nvme_open(&o, &n, NULL), 0);
	{
		struct mc_source *src = pattern_source(&pat);

		ck_assert_int_eq(mc_nvme_image_get(n, &src->id, false, &v.img), 0);
		src->ops->release(src);
	}
	ck_assert_int_eq(mc_nvme_verify(v.img, fetched_anew, &v), 0);
	ck_assert_uint_eq(v.bad, 1);
	ck_assert_int_eq(mc_nvme_sync(n), 0);
	ck_assert_uint_eq(mc_nvme_present_blocks(v.img), 4);
	mc_nvme_image_put(v.img);
	mc_nvme_close(n);
	free(v.good);
	place_remove(&p);
}
END_TEST

START_TEST(what_a_client_reads_past_us_is_put_right_in_its_place)
{
	struct place p;
	struct pattern pat;
	struct mc_scrub_counts c;
	const uint8_t *map;
	struct mc_file *f;
	struct stat before, after;
	char path[300];
	int fd = -1;

	seed_from_clock();
	place_make(&p);
	pat = make_pattern(&p, "a", 9 * MIB + TAIL);
	place_open(&p, 64 * MIB, 64 * MIB);
	f = on_nvme(&p, &pat);
	image_path(&p, &pat, path, sizeof(path));
	map = pass_through(f, pat.size, &fd);
	if (map != NULL) {
		ck_assert(pattern_equal(&pat, 0, map, pat.size));
		ck_assert_int_eq(stat(path, &before), 0);
		for (unsigned i = 0; i < 4; i++) /* the last one in the tail */
			flip(path, 3 * i * MIB + dice(i < 3 ? MIB : TAIL));
		ck_assert(!pattern_equal(&pat, 0, map, pat.size));
		c = one_pass(p.store, NULL);
		ck_assert_uint_eq(c.bad, 4);
		ck_assert_uint_eq(c.repaired, 4);
		ck_assert(pattern_equal(&pat, 0, map, pat.size));
		ck_assert_int_eq(stat(path, &after), 0);
		ck_assert_uint_eq(after.st_ino, before.st_ino);
		ck_assert_int_eq(after.st_blocks, before.st_blocks);
		ck_assert_uint_eq(stats(&p).repaired_blocks, 4);
		c = one_pass(p.store, NULL);
		ck_assert_uint_eq(c.bad, 0);
		mc_file_backing_put(f, MC_TIER_NVME);
		munmap((void *)(uintptr_t)map, pat.size);
		close(fd);
	}
	mc_file_put(f);
	place_close(&p, false);
	place_remove(&p);
}
END_TEST

/* The usual way to load weights: open, map, close. */
START_TEST(a_mapping_that_outlives_its_close_is_put_right_too)
{
	struct place p;
	struct pattern pat;
	struct mc_scrub_counts c;
	const uint8_t *map;
	struct mc_file *f;
	char path[300];
	int fd = -1;

	seed_from_clock();
	place_make(&p);
	pat = make_pattern(&p, "a", 6 * MIB);
	place_open(&p, 64 * MIB, 64 * MIB);
	f = on_nvme(&p, &pat);
	image_path(&p, &pat, path, sizeof(path));
	map = pass_through(f, pat.size, &fd);
	if (map != NULL) {
		close(fd);
		mc_file_backing_put(f, MC_TIER_NVME);
	}
	mc_file_put(f);
	if (map != NULL) {
		flip(path, 4 * MIB + dice(MIB));
		c = one_pass(p.store, NULL);
		ck_assert_uint_eq(c.bad, 1);
		ck_assert_uint_eq(c.repaired, 1);
		ck_assert(pattern_equal(&pat, 0, map, pat.size));
		munmap((void *)(uintptr_t)map, pat.size);
		/* Nobody reaches the image any more: its source goes within seconds. */
		while (pattern_live > 0)
			usleep(10000);
		flip(path, 2 * MIB + dice(MIB));
		c = one_pass(p.store, NULL);
		ck_assert_uint_eq(c.dropped, 1);
	}
	place_close(&p, false);
	place_remove(&p);
}
END_TEST

static bool leases_work(const struct place *p)
{
	int fd = open(p->dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	bool yes = fd >= 0 && mc_lease_supported(fd);

	if (fd >= 0)
		close(fd);
	return yes;
}

/* Takes what lies in a directory to another one. */
static void move_all(const char *from, const char *to)
{
	DIR *d = opendir(from);
	struct dirent *e;

	ck_assert_ptr_nonnull(d);
	while ((e = readdir(d)) != NULL) {
		char a[400], b[400];

		snprintf(a, sizeof(a), "%s/%s", from, e->d_name);
		snprintf(b, sizeof(b), "%s/%s", to, e->d_name);
		if (e->d_name[0] != '.')
			ck_assert_int_eq(rename(a, b), 0);
	}
	closedir(d);
}

START_TEST(without_the_remote_damage_stays_under_a_reader_until_it_is_back)
{
	struct place p;
	struct pattern pat;
	struct mc_scrub_counts c;
	struct mc_file *f;
	const uint8_t *map;
	char path[300], away[128];
	int fd = -1;

	seed_from_clock();
	place_make(&p);
	snprintf(away, sizeof(away), "%s/away", p.dir);
	pat = make_pattern(&p, "a", 6 * MIB);
	ck_assert_int_eq(mkdir(away, 0700), 0);
	place_open(&p, 64 * MIB, 64 * MIB);
	mc_file_put(on_nvme(&p, &pat));
	place_close(&p, false);
	place_open(&p, 64 * MIB, 64 * MIB); /* a remote that has no object open */
	f = file_open(&p, &pat);
	image_path(&p, &pat, path, sizeof(path));
	while (leases_work(&p) && !mc_file_backing_ready(f))
		usleep(1000); /* it is verified */
	map = pass_through(f, pat.size, &fd);
	if (map != NULL) {
		uint64_t one = MIB + dice(MIB), other = 4 * MIB + dice(MIB);

		move_all(p.remote_dir, away);
		flip(path, one);
		flip(path, other);
		c = one_pass(p.store, NULL);
		ck_assert_uint_eq(c.bad, 2);
		ck_assert_uint_eq(c.waiting, 2);
		ck_assert_uint_eq(stats(&p).unrepaired_blocks, 2);
		/* What is not damaged of these blocks is as it was. */
		ck_assert(pattern_equal(&pat, 0, map, one));
		ck_assert(pattern_equal(&pat, one + 1, map + one + 1, other - one - 1));
		ck_assert(!pattern_equal(&pat, one, map + one, 1));
		ck_assert(!mc_file_backing_ready(f));
		move_all(away, p.remote_dir);
		while (stats(&p).unrepaired_blocks > 0)
			usleep(10000);
		ck_assert(pattern_equal(&pat, 0, map, pat.size));
		ck_assert_uint_eq(stats(&p).repaired_blocks, 2);
		mc_file_backing_put(f, MC_TIER_NVME);
		munmap((void *)(uintptr_t)map, pat.size);
		close(fd);
	}
	mc_file_put(f);
	place_close(&p, false);
	place_remove(&p);
}
END_TEST

START_TEST(a_pass_goes_on_where_the_last_daemon_was)
{
	struct place p;
	struct pattern pat;
	struct mc_scrub_opts o;
	struct mc_scrub_status st;
	struct mc_scrub *s;
	uint64_t before;

	place_make(&p);
	pat = make_pattern(&p, "a", 24 * MIB);
	place_open(&p, 64 * MIB, 64 * MIB);
	mc_file_put(on_nvme(&p, &pat));
	o = (struct mc_scrub_opts){.store = p.store, .dir = p.nvme, .rate = 8 * MIB};
	ck_assert_int_eq(mc_scrub_open(&o, &s), 0);
	do {
		usleep(1000);
		mc_scrub_status(s, &st);
	} while (st.now.checked < 3);
	mc_scrub_close(s);
	place_close(&p, false);
	place_open(&p, 64 * MIB, 64 * MIB);
	o.store = p.store;
	o.rate = 0;
	ck_assert_int_eq(mc_scrub_open(&o, &s), 0);
	mc_scrub_status(s, &st);
	ck_assert_uint_ge(st.now.checked, 3);
	ck_assert_uint_lt(st.now.checked, 24);
	before = st.now.checked;
	mc_scrub_set_rate(s, UINT64_C(1) << 40);
	do {
		usleep(1000);
		mc_scrub_status(s, &st);
	} while (st.passes == 0);
	ck_assert_uint_eq(st.last.checked, 24);
	ck_assert_uint_eq(st.ever.checked, 24 - before);
	ck_assert_int_gt(st.ended_s, 0);
	mc_scrub_close(s);
	place_close(&p, false);
	place_remove(&p);
}
END_TEST

START_TEST(a_place_that_cannot_be_read_is_the_beginning)
{
	static const char strange_image[] =
		"mooncakefs scrub 1\nbegan 1 ended 1 on 1 kv 0\nfile zz 5\nlog 0 0 "
		"00000000000000000000000000000000 0\ncounts 0 0 0 0 0 0 0 0\n";
	static const char *const texts[] = {
		"", "mooncakefs scrub 2\n", "mooncakefs scrub 1\nbegan x", strange_image};
	struct mc_scrub_status st;
	struct mc_scrub *s;
	struct place p;
	struct pattern pat;
	char path[128];

	place_make(&p);
	pat = make_pattern(&p, "a", 2 * MIB);
	place_open(&p, 64 * MIB, 64 * MIB);
	mc_file_put(on_nvme(&p, &pat));
	snprintf(path, sizeof(path), "%s/scrub", p.nvme);
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		FILE *out = fopen(path, "w");

		ck_assert_ptr_nonnull(out);
		fputs(texts[i], out);
		fclose(out);
		s = scrub_of(p.store, NULL, p.nvme);
		mc_scrub_status(s, &st);
		ck_assert_uint_eq(st.now.checked, 0);
		ck_assert_int_eq(st.ended_s, 0);
		ck_assert_uint_eq(whole_pass(s).checked, 2);
		mc_scrub_close(s);
	}
	place_close(&p, false);
	place_remove(&p);
}
END_TEST

START_TEST(who_joins_an_ordered_pass_gets_its_result_and_who_leaves_ends_the_order)
{
	struct mc_scrub_status st;
	struct mc_scrub *s;
	struct place p;
	struct pattern pat;
	uint64_t a, b;

	place_make(&p);
	pat = make_pattern(&p, "a", 8 * MIB);
	place_open(&p, 64 * MIB, 64 * MIB);
	mc_file_put(on_nvme(&p, &pat));
	s = scrub_of(p.store, NULL, NULL);
	a = mc_scrub_start(s, 1); /* it would take for ever */
	mc_scrub_status(s, &st);
	ck_assert(st.ordered);
	ck_assert_uint_eq(st.rate, 1);
	ck_assert(!mc_scrub_wait(s, a, mc_now_ns()));
	mc_scrub_leave(s, a);
	mc_scrub_status(s, &st);
	ck_assert(!st.ordered);
	ck_assert(!st.running); /* off but for orders */
	a = mc_scrub_start(s, 1);
	b = mc_scrub_start(s, 0);
	ck_assert_uint_eq(a, b);
	while (!mc_scrub_wait(s, a, mc_now_ns() + SECOND))
		;
	mc_scrub_leave(s, a);
	ck_assert(mc_scrub_wait(s, b, mc_now_ns()));
	mc_scrub_status(s, &st);
	ck_assert_uint_eq(st.last.checked, 8);
	mc_scrub_leave(s, b);
	mc_scrub_close(s);
	place_close(&p, false);
	place_remove(&p);
}
END_TEST

/* ---- KV objects */

static struct {
	struct mc_mutex lock;
	unsigned lost;
	char text[512];
} told = {.lock = MC_MUTEX_INIT};

static void on_event(void *ctx, const char *event, const char *text)
{
	if (strcmp(event, "kv-object-lost") != 0)
		return;
	mc_mutex_lock(&told.lock);
	told.lost++;
	snprintf(told.text, sizeof(told.text), "%s", text);
	mc_mutex_unlock(&told.lock);
}

static bool flip_in(const char *path, const char *bytes, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	char *map, *at;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fstat(fd, &st), 0);
	map = st.st_size > 0 ? mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0) : NULL;
	ck_assert_ptr_ne(map, MAP_FAILED);
	close(fd);
	at = map != NULL ? memmem(map, (size_t)st.st_size, bytes, size) : NULL;
	if (at != NULL)
		flip(path, (uint64_t)(at - map) + dice(size));
	if (map != NULL)
		munmap(map, (size_t)st.st_size);
	return at != NULL;
}

static const char *wanted_bytes;
static size_t wanted_size;
static unsigned flipped;

static int flip_file(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	if (type == FTW_F && strstr(path, "journal") == NULL)
		flipped += flip_in(path, wanted_bytes, wanted_size);
	return 0;
}

/* Flips a bit of the object's payload, wherever it lies on NVMe: large ones lie in parts. */
static void flip_object(const struct kv_fixture *x, size_t size, uint32_t object_seed)
{
	int fd = memfd_create("object", MFD_CLOEXEC);
	char *bytes;

	ck_assert_int_ge(fd, 0);
	kv_fill_fd(fd, size, object_seed);
	bytes = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(bytes, MAP_FAILED);
	close(fd);
	wanted_size = size < 64 ? size : 64;
	wanted_bytes = bytes + dice(size - wanted_size + 1) / 64 * 64;
	flipped = 0;
	ck_assert_int_eq(nftw(x->nvme, flip_file, 16, FTW_PHYS), 0);
	ck_assert_uint_eq(flipped, 1);
	munmap(bytes, size);
}

/* A store of nothing, for a scrub of KV alone. */
struct both {
	struct place p;
	struct kv_fixture x;
};

static void both_open(struct both *b, bool remote)
{
	place_make(&b->p);
	place_open(&b->p, 64 * MIB, 0);
	kv_fixture_paths(&b->x, 128 * MIB);
	b->x.opts.nvme_dir = b->x.nvme;
	b->x.opts.nvme_capacity = 512 * MIB;
	b->x.opts.event = on_event;
	if (remote) {
		kv_fixture_remote(&b->x);
		b->x.opts.replicas = 1;
	}
	kv_fixture_start(&b->x);
	told.lost = 0;
}

static void both_close(struct both *b)
{
	kv_fixture_close(&b->x);
	place_close(&b->p, false);
	place_remove(&b->p);
}

static const struct object {
	const char *key;
	size_t size;
} objects[] = {{"tiny", 100}, {"small", 5000}, {"record", 300000}, {"blocks", (1u << 20) + 77},
	{"large", 6u << 20}, {"image", (9u << 20) + 5}, {"other", 7000}, {"end", 64}};
#define N_OBJECTS (sizeof(objects) / sizeof(*objects))

static void put_all(struct both *b)
{
	for (uint32_t i = 0; i < N_OBJECTS; i++)
		ck_assert_int_eq(kv_put(b->x.kv, objects[i].key, objects[i].size, i + 1, 0), 0);
	for (uint32_t i = 0; i < N_OBJECTS; i++)
		ck_assert_int_eq(mc_kv_sync(b->x.kv, objects[i].key), 0);
}

static struct mc_kv_attr attr_of(struct both *b, uint32_t i)
{
	struct mc_kv_attr a;

	ck_assert_int_eq(mc_kv_lookup(b->x.kv, objects[i].key, &a), 0);
	return a;
}

static void leave_dram(struct both *b, uint32_t i)
{
	while (mc_kv_evict(b->x.kv, objects[i].key) != 0)
		usleep(1000); /* it is being flushed or copied */
}

START_TEST(damaged_objects_are_written_anew_from_dram)
{
	struct both b;
	struct mc_scrub_counts c;

	seed_from_clock();
	both_open(&b, false);
	put_all(&b);
	c = one_pass(b.p.store, b.x.kv);
	ck_assert_uint_ge(c.checked, N_OBJECTS);
	ck_assert_uint_eq(c.bad, 0);
	for (uint32_t i = 0; i < N_OBJECTS; i++)
		flip_object(&b.x, objects[i].size, i + 1);
	c = one_pass(b.p.store, b.x.kv);
	ck_assert_uint_eq(c.bad, N_OBJECTS);
	ck_assert_uint_eq(c.repaired, N_OBJECTS);
	for (uint32_t i = 0; i < N_OBJECTS; i++) {
		ck_assert_int_eq(mc_kv_sync(b.x.kv, objects[i].key), 0);
		leave_dram(&b, i);
		kv_expect(b.x.kv, objects[i].key, objects[i].size, i + 1);
	}
	c = one_pass(b.p.store, b.x.kv);
	ck_assert_uint_eq(c.bad, 0);
	both_close(&b);
}
END_TEST

START_TEST(damaged_objects_with_a_copy_on_the_remote_leave_nvme)
{
	struct both b;
	struct mc_scrub_counts c;

	seed_from_clock();
	both_open(&b, true);
	put_all(&b);
	for (uint32_t i = 0; i < N_OBJECTS; i++) {
		while (attr_of(&b, i).remotes == 0)
			usleep(1000);
		leave_dram(&b, i);
		flip_object(&b.x, objects[i].size, i + 1);
	}
	c = one_pass(b.p.store, b.x.kv);
	ck_assert_uint_eq(c.bad, N_OBJECTS);
	ck_assert_uint_eq(c.dropped, N_OBJECTS);
	for (uint32_t i = 0; i < N_OBJECTS; i++) {
		ck_assert_uint_eq(attr_of(&b, i).nvme, 0);
		kv_expect(b.x.kv, objects[i].key, objects[i].size, i + 1);
	}
	ck_assert_uint_eq(one_pass(b.p.store, b.x.kv).bad, 0);
	both_close(&b);
}
END_TEST

START_TEST(a_damaged_last_copy_stays_and_is_told)
{
	struct both b;
	struct mc_scrub_counts c;
	struct mc_kv_object *obj;

	seed_from_clock();
	both_open(&b, false);
	put_all(&b);
	for (uint32_t i = 0; i < N_OBJECTS; i++)
		leave_dram(&b, i);
	flip_object(&b.x, objects[1].size, 2);
	for (unsigned i = 1; i <= 2; i++) { /* each pass says so */
		c = one_pass(b.p.store, b.x.kv);
		ck_assert_uint_eq(c.bad, 1);
		ck_assert_uint_eq(c.lost, 1);
		ck_assert_uint_eq(told.lost, i);
		ck_assert_ptr_nonnull(strstr(told.text, "key=\"small\""));
		ck_assert_uint_gt(attr_of(&b, 1).nvme, 0);
		usleep(100000); /* lines are not written all at once */
	}
	ck_assert_int_eq(kv_open_object(b.x.kv, objects[1].key, &obj), -EIO);
	for (uint32_t i = 0; i < N_OBJECTS; i++)
		if (i != 1)
			kv_expect(b.x.kv, objects[i].key, objects[i].size, i + 1);
	both_close(&b);
}
END_TEST

/* ---- pace */

START_TEST(a_pace_holds_its_rate_and_saves_nothing_up)
{
	struct mc_pace p = {0};
	uint64_t now = 5 * SECOND, began = now;

	for (unsigned i = 0; i < 64; i++) /* reads of 1 ms */
		now = mc_pace_read(&p, now + SECOND / 1000, 16 * MIB, MIB, SECOND / 1000, false);
	ck_assert_uint_ge(now - began, 4 * SECOND);
	ck_assert_uint_le(now - began, 4 * SECOND + SECOND / 100);
	/* After an hour of nothing the next piece costs its time again. */
	now += 3600 * SECOND;
	ck_assert_uint_ge(
		mc_pace_read(&p, now, 16 * MIB, MIB, SECOND / 1000, false) - now, SECOND / 20);
	ck_assert_uint_eq(mc_pace_read(&p, now, 0, MIB, SECOND, true), now);
}
END_TEST

START_TEST(a_pace_yields_to_others_and_comes_back)
{
	struct mc_pace p = {0};
	uint64_t now = SECOND, next, cost = SECOND / 16;

	next = mc_pace_read(&p, now, 16 * MIB, MIB, SECOND / 1000, true); /* told */
	ck_assert_uint_ge(next, now + MC_PACE_YIELD * cost - SECOND / 1000);
	now = next;
	next = mc_pace_read(&p, now, 16 * MIB, MIB, SECOND / 100, false); /* felt */
	ck_assert_uint_ge(next, now + MC_PACE_YIELD * cost - SECOND / 100);
	now = next;
	next = mc_pace_read(&p, now, 16 * MIB, MIB, SECOND / 1000, false);
	ck_assert_uint_le(next, now + cost);
}
END_TEST

SUITE_MAIN("scrub", flips_in_images_are_found_in_one_pass_and_fetched_again,
	damage_that_is_fetched_anew_meanwhile_is_told_all_the_same,
	what_a_client_reads_past_us_is_put_right_in_its_place,
	a_mapping_that_outlives_its_close_is_put_right_too,
	without_the_remote_damage_stays_under_a_reader_until_it_is_back,
	a_pass_goes_on_where_the_last_daemon_was, a_place_that_cannot_be_read_is_the_beginning,
	who_joins_an_ordered_pass_gets_its_result_and_who_leaves_ends_the_order,
	damaged_objects_are_written_anew_from_dram,
	damaged_objects_with_a_copy_on_the_remote_leave_nvme, a_damaged_last_copy_stays_and_is_told,
	a_pace_holds_its_rate_and_saves_nothing_up, a_pace_yields_to_others_and_comes_back)
