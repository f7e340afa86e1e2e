/* Scrubbing of images: what flips on NVMe is found in one pass and dealt with, under readers too.
 */
#include "tests/scrub-fixture.h"
#include "tier/lease.h"

#include <dirent.h>
#include <sys/mman.h>

#define TAIL 4321u

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

	scrub_seed = seed_choose();
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

	scrub_seed = seed_choose();
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

	scrub_seed = seed_choose();
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

	scrub_seed = seed_choose();
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

	scrub_seed = seed_choose();
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

SUITE_MAIN("scrub", flips_in_images_are_found_in_one_pass_and_fetched_again,
	damage_that_is_fetched_anew_meanwhile_is_told_all_the_same,
	what_a_client_reads_past_us_is_put_right_in_its_place,
	a_mapping_that_outlives_its_close_is_put_right_too,
	without_the_remote_damage_stays_under_a_reader_until_it_is_back)
