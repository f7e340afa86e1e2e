/* The store against a real directory remote: bytes, single flight, caps, tiers, restarts, leases.
 */
#include "tests/store-fixture.h"
#include "tests/suite.h"
#include "tier/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

START_TEST(any_range_reads_right_and_again_from_memory)
{
	static const struct {
		uint64_t off;
		uint32_t len;
	} t[] = {{0, 1}, {0, MIB}, {1, MIB}, {MIB - 1, 2}, {5 * MIB + 17, MIB + 4096}, {3145738, 2},
		{9 * MIB, 5}, {9 * MIB + 4, 1}};
	struct place p;
	struct pattern pat;
	struct mc_file *f;
	uint64_t fetched;

	place_make(&p);
	pat = make_pattern(&p, "a", 9 * MIB + 5);
	place_open(&p, 64 * MIB, 0);
	f = file_open(&p, &pat);
	for (int round = 0; round < 2; round++) {
		for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++)
			ck_assert_int_eq(read_check(f, &pat, t[i].off, t[i].len), 0);
		read_whole(f, &pat);
		if (round == 0)
			fetched = stats(&p).fetched_bytes;
	}
	ck_assert_uint_eq(fetched, pat.size);
	ck_assert_uint_eq(stats(&p).fetched_bytes, fetched);
	mc_file_put(f);
	place_close(&p, false);
	ck_assert_int_eq(pattern_live, 0);
	place_remove(&p);
}
END_TEST

struct reader {
	struct mc_file *f;
	const struct pattern *pat;
	unsigned seed;
	int rounds;
};

static void *whole_reader(void *arg)
{
	struct reader *r = arg;

	read_whole(r->f, r->pat);
	return NULL;
}

START_TEST(sixteen_readers_cost_the_remote_one_copy)
{
	struct place p;
	struct pattern pat;
	pthread_t th[16];
	struct reader r;

	place_make(&p);
	pat = make_pattern(&p, "b", 24 * MIB + 100);
	place_open(&p, 64 * MIB, 0);
	r = (struct reader){.f = file_open(&p, &pat), .pat = &pat};
	for (int i = 0; i < 16; i++)
		ck_assert_int_eq(pthread_create(&th[i], NULL, whole_reader, &r), 0);
	for (int i = 0; i < 16; i++)
		pthread_join(th[i], NULL);
	ck_assert_uint_eq(stats(&p).fetched_bytes, pat.size);
	mc_file_put(r.f);
	place_close(&p, false);
	place_remove(&p);
}
END_TEST

static void *random_reader(void *arg)
{
	struct reader *r = arg;

	for (int i = 0; i < r->rounds; i++) {
		uint64_t off = ((uint64_t)rand_r(&r->seed) << 8 ^ (uint64_t)rand_r(&r->seed)) %
			(r->pat->size - 1);
		uint64_t len = 1 + (uint64_t)rand_r(&r->seed) % (MIB + 4096);

		if (len > r->pat->size - off)
			len = r->pat->size - off;
		ck_assert_int_eq(read_check(r->f, r->pat, off, (uint32_t)len), 0);
	}
	return NULL;
}

START_TEST(sixty_four_readers_of_three_times_the_memory_stay_within_it)
{
	struct place p;
	struct pattern pat;
	pthread_t th[64];
	struct reader r[64];
	struct mc_file *f;
	struct mc_store_stats st;

	place_make(&p);
	pat = make_pattern(&p, "c", 96 * MIB + 7);
	place_open(&p, 32 * MIB, 0);
	f = file_open(&p, &pat);
	for (unsigned i = 0; i < 64; i++) {
		r[i] = (struct reader){.f = f, .pat = &pat, .seed = i + 1, .rounds = 20};
		ck_assert_int_eq(pthread_create(&th[i], NULL, random_reader, &r[i]), 0);
	}
	for (unsigned i = 0; i < 64; i++)
		pthread_join(th[i], NULL);
	st = stats(&p);
	ck_assert_uint_le(st.dram.used, 32 * MIB);
	ck_assert_uint_gt(st.evicted_dram, 0);
	mc_file_put(f);
	place_close(&p, false);
	place_remove(&p);
}
END_TEST

START_TEST(what_left_memory_is_read_from_nvme_not_from_the_remote)
{
	struct place p;
	struct pattern pat;
	struct mc_file *f;
	struct mc_residency res;
	uint64_t fetched;

	place_make(&p);
	pat = make_pattern(&p, "d", 40 * MIB);
	place_open(&p, 16 * MIB, 128 * MIB);
	f = file_open(&p, &pat);
	/* A block that has to leave while the backlog is full is dropped: it comes down next time.
	 */
	for (int i = 0; i < 20; i++) {
		read_whole(f, &pat);
		mc_file_residency(f, &res);
		if (res.nvme == pat.size)
			break;
	}
	await_nvme(f, pat.size);
	fetched = stats(&p).fetched_bytes;
	read_whole(f, &pat);
	ck_assert_uint_eq(stats(&p).fetched_bytes, fetched);
	ck_assert_uint_ge(stats(&p).hits_nvme, 40 - 16);
	mc_file_put(f);
	place_close(&p, false);
	place_remove(&p);
}
END_TEST

START_TEST(a_killed_store_is_followed_by_one_that_fetches_nothing_again)
{
	struct place p;
	struct pattern pat;
	struct mc_file *f;
	int status;
	pid_t pid;

	place_make(&p);
	pat = make_pattern(&p, "e", 20 * MIB + 3);
	pid = fork();
	if (pid == 0) {
		place_open(&p, 64 * MIB, 0);
		read_whole(file_open(&p, &pat), &pat);
		kill(getpid(), SIGKILL);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFSIGNALED(status));
	place_open(&p, 64 * MIB, 0);
	f = file_open(&p, &pat);
	read_whole(f, &pat);
	ck_assert_uint_eq(stats(&p).fetched_bytes, 0);
	mc_file_put(f);
	place_close(&p, false);
	place_remove(&p);
}
END_TEST

START_TEST(nvme_survives_a_clean_restart)
{
	struct place p;
	struct pattern pat;
	struct mc_file *f;

	place_make(&p);
	pat = make_pattern(&p, "f", 12 * MIB + 3);
	place_open(&p, 64 * MIB, 64 * MIB);
	f = file_open(&p, &pat);
	read_whole(f, &pat);
	await_nvme(f, pat.size);
	mc_file_put(f);
	place_close(&p, false);
	place_open(&p, 64 * MIB, 64 * MIB);
	f = file_open(&p, &pat);
	read_whole(f, &pat);
	ck_assert_uint_eq(stats(&p).fetched_bytes, 0);
	ck_assert_uint_eq(stats(&p).hits_nvme, 13);
	mc_file_put(f);
	place_close(&p, false);
	place_remove(&p);
}
END_TEST

START_TEST(bytes_that_do_not_verify_are_an_error_and_never_seen)
{
	struct place p;
	struct pattern pat;
	struct mc_file *f;

	place_make(&p);
	pat = make_pattern(&p, "g", 4 * MIB);
	pat.bad_block = 2;
	place_open(&p, 64 * MIB, 64 * MIB);
	f = file_open(&p, &pat);
	ck_assert_int_eq(read_check(f, &pat, MIB, MIB), 0);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(read_check(f, &pat, 2 * MIB + 5, 10), -EIO);
	ck_assert_int_eq(read_check(f, &pat, 2 * MIB - 5, 10), -EIO);
	ck_assert_int_eq(read_check(f, &pat, 3 * MIB, MIB), 0);
	ck_assert_uint_eq(stats(&p).read_errors, 4);
	mc_file_put(f);
	place_close(&p, false);
	place_remove(&p);
}
END_TEST

START_TEST(holes_are_zeros_and_take_no_memory)
{
	struct place p;
	struct pattern pat;
	struct mc_file *f;
	uint64_t start, end;

	place_make(&p);
	pat = (struct pattern){.dir = p.remote_dir,
		.name = "h",
		.size = 30 * MIB,
		.hole_off = 2 * MIB + 100,
		.hole_len = 25 * MIB,
		.bad_block = UINT64_MAX};
	pattern_write(&pat);
	place_open(&p, 64 * MIB, 0);
	f = file_open(&p, &pat);
	read_whole(f, &pat);
	ck_assert_uint_le(stats(&p).dram.used, 8 * MIB);
	ck_assert_int_eq(mc_file_next_data(f, 3 * MIB, &start, &end), 0);
	ck_assert_uint_eq(start, 27 * MIB + 100);
	ck_assert(!mc_file_backing_ready(f));
	mc_file_put(f);
	place_close(&p, false);
	place_remove(&p);
}
END_TEST

/* Other files push until eviction had every chance. */
static void press(struct place *p, const struct pattern *other)
{
	struct mc_file *f = file_open(p, other);

	for (int i = 0; i < 3; i++)
		read_whole(f, other);
	mc_file_put(f);
}

START_TEST(a_mapping_outlives_close_and_eviction_pressure)
{
	struct place p;
	struct pattern pat, other;
	struct mc_file *f;
	enum mc_tier tier;
	cleanup_close int fd = -1, client = -1;
	char proc[64];
	uint8_t *map;

	place_make(&p);
	pat = make_pattern(&p, "i", 10 * MIB);
	other = make_pattern(&p, "j", 60 * MIB);
	place_open(&p, 32 * MIB, 0);
	f = file_open(&p, &pat);
	ck_assert_int_eq(mc_file_backing_get(f, &fd, &tier), -EAGAIN);
	read_whole(f, &pat);
	ck_assert_int_eq(mc_file_backing_get(f, &fd, &tier), 0);
	ck_assert_int_eq(tier, MC_TIER_DRAM);
	/* What the kernel does for a client of a passthrough file: an open file of its own. */
	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
	client = open(proc, O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(client, 0);
	map = mmap(NULL, pat.size, PROT_READ, MAP_SHARED, client, 0);
	ck_assert_ptr_ne(map, MAP_FAILED);
	close(steal_fd(client));
	close(steal_fd(fd));
	mc_file_backing_put(f, tier);
	press(&p, &other);
	ck_assert(pattern_equal(&pat, 0, map, pat.size));
	ck_assert_uint_le(stats(&p).dram.used, 32 * MIB);
	munmap(map, pat.size);
	do {
		usleep(100000); /* the store looks again once a second */
		press(&p, &other);
	} while (mc_file_backing_ready(f));
	mc_file_put(f);
	place_close(&p, false);
	place_remove(&p);
}
END_TEST

START_TEST(random_reads_fetch_only_the_blocks_they_touch)
{
	struct place p;
	struct pattern pat;
	struct mc_file *f;
	unsigned seed = 11, distinct = 0;
	bool seen[64] = {0};

	place_make(&p);
	pat = make_pattern(&p, "k", 64 * MIB);
	place_open(&p, 256 * MIB, 0);
	f = file_open(&p, &pat);
	for (int i = 0; i < 40; i++) {
		uint64_t off = ((uint64_t)rand_r(&seed) % (64 * 256)) * 4096;

		distinct += !seen[off / MIB];
		seen[off / MIB] = true;
		ck_assert_int_eq(read_check(f, &pat, off, 4096), 0);
	}
	ck_assert_uint_eq(stats(&p).fetched_bytes, distinct * MIB);
	mc_file_put(f);
	place_close(&p, false);
	place_remove(&p);
}
END_TEST

START_TEST(a_stream_of_more_than_the_memory_is_fetched_once)
{
	struct place p;
	struct pattern warm, stream;
	struct mc_file *fw, *fs;
	uint64_t before;

	place_make(&p);
	warm = make_pattern(&p, "warm", 32 * MIB);
	stream = make_pattern(&p, "stream", 256 * MIB);
	place_open(&p, 128 * MIB, 0);
	fw = file_open(&p, &warm);
	fs = file_open(&p, &stream);
	for (int round = 0; round < 70; round++) /* until the policy has learned from it */
		read_whole(fw, &warm);
	before = stats(&p).fetched_bytes;
	read_whole(fs, &stream);
	ck_assert_uint_le(stats(&p).fetched_bytes - before, stream.size + stream.size / 100);
	mc_file_put(fw);
	mc_file_put(fs);
	place_close(&p, false);
	place_remove(&p);
}
END_TEST

SUITE_MAIN("store", any_range_reads_right_and_again_from_memory,
	sixteen_readers_cost_the_remote_one_copy,
	sixty_four_readers_of_three_times_the_memory_stay_within_it,
	what_left_memory_is_read_from_nvme_not_from_the_remote,
	a_killed_store_is_followed_by_one_that_fetches_nothing_again, nvme_survives_a_clean_restart,
	bytes_that_do_not_verify_are_an_error_and_never_seen, holes_are_zeros_and_take_no_memory,
	a_mapping_outlives_close_and_eviction_pressure,
	random_reads_fetch_only_the_blocks_they_touch,
	a_stream_of_more_than_the_memory_is_fetched_once)
