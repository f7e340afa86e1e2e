/* Slots in pieces of one mapped file: sizes, room, adoption by the next daemon. */
#include "tests/suite.h"
#include "tier/slab.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECES 8

static char dir[64], path[96];

static void make_dir(void)
{
	snprintf(dir, sizeof(dir), "/dev/shm/mc-slab-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/slab", dir);
}

static void remove_dir(void)
{
	unlink(path);
	rmdir(dir);
}

static struct mc_slab *open_slab(uint64_t pieces, bool adopt, bool want_adopted)
{
	struct mc_slab *s;
	bool adopted;

	ck_assert_int_eq(mc_slab_open(path, pieces * MC_SLAB_PIECE, adopt, &s, &adopted), 0);
	ck_assert_int_eq(adopted, want_adopted);
	return s;
}

static uint64_t file_bytes(void)
{
	struct stat st;

	ck_assert_int_eq(stat(path, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

static uint64_t take(struct mc_slab *s, enum mc_slab_kind kind, uint32_t size)
{
	uint64_t off;

	ck_assert_int_eq(mc_slab_alloc(s, kind, size, &off), 0);
	ck_assert_uint_ne(off, 0);
	return off;
}

START_TEST(slots_hold_their_size_and_never_overlap)
{
	static const uint32_t sizes[] = {1, 127, 128, 129, 4095, 4096, 4097, 65535, 65536};
	enum { N = sizeof(sizes) / sizeof(*sizes), EACH = 20 };
	struct mc_slab *s;
	uint64_t off[N][EACH];

	make_dir();
	s = open_slab(64, false, false);
	for (unsigned i = 0; i < N; i++)
		for (unsigned k = 0; k < EACH; k++) {
			off[i][k] = take(s, MC_SLAB_DATA, sizes[i]);
			memset(mc_slab_ptr(s, off[i][k]), (int)(i * EACH + k), sizes[i]);
		}
	for (unsigned i = 0; i < N; i++)
		for (unsigned k = 0; k < EACH; k++) {
			const unsigned char *p = mc_slab_ptr(s, off[i][k]);

			ck_assert_uint_eq(p[0], (i * EACH + k) & 0xff);
			ck_assert_uint_eq(p[sizes[i] - 1], (i * EACH + k) & 0xff);
		}
	mc_slab_close(s);
	remove_dir();
}
END_TEST

START_TEST(a_full_slab_is_enospc_until_a_slot_is_freed)
{
	uint64_t off[PIECES * 32], more;
	struct mc_slab *s;

	make_dir();
	s = open_slab(PIECES, false, false);
	for (unsigned i = 0; i < PIECES * 32; i++) /* 32 slots of 64 KiB in a piece */
		off[i] = take(s, MC_SLAB_DATA, 65536);
	ck_assert_int_eq(mc_slab_alloc(s, MC_SLAB_DATA, 65536, &more), -ENOSPC);
	ck_assert_int_eq(mc_slab_alloc(s, MC_SLAB_META, 1, &more), -ENOSPC);
	mc_slab_free(s, off[77]);
	ck_assert_uint_eq(take(s, MC_SLAB_DATA, 65536), off[77]);
	/* A piece that became empty serves another kind. */
	for (unsigned i = 0; i < PIECES * 32; i++)
		mc_slab_free(s, off[i]);
	for (unsigned i = 0; i < (PIECES - 2) * 32; i++)
		take(s, MC_SLAB_META, 65536);
	mc_slab_close(s);
	remove_dir();
}
END_TEST

START_TEST(memory_of_empty_pieces_goes_back_and_is_not_counted)
{
	uint64_t off[PIECES * 32], empty, full;
	struct mc_slab *s;

	make_dir();
	s = open_slab(PIECES, false, false);
	empty = mc_slab_used(s);
	for (unsigned i = 0; i < PIECES * 32; i++)
		off[i] = take(s, MC_SLAB_DATA, 65536);
	full = mc_slab_used(s);
	ck_assert_uint_eq(full - empty, PIECES * MC_SLAB_PIECE);
	ck_assert_uint_ge(file_bytes(), full);
	for (unsigned i = 0; i < PIECES * 32; i++)
		mc_slab_free(s, off[i]);
	ck_assert_uint_le(mc_slab_used(s) - empty, 2 * MC_SLAB_PIECE); /* a few stay warm */
	ck_assert_uint_le(file_bytes(), mc_slab_used(s));
	mc_slab_close(s);
	remove_dir();
}
END_TEST

struct seen {
	uint64_t off[4096];
	unsigned n;
};

static void see(void *ctx, uint64_t off, uint32_t slot_size)
{
	struct seen *seen = ctx;

	ck_assert_uint_ge(slot_size, 100);
	if (seen->n < 4096)
		seen->off[seen->n++] = off;
}

static bool saw(const struct seen *seen, uint64_t off)
{
	for (unsigned i = 0; i < seen->n; i++)
		if (seen->off[i] == off)
			return true;
	return false;
}

START_TEST(the_next_daemon_adopts_what_it_claims_and_the_rest_is_free)
{
	static struct seen seen;
	uint64_t meta, data, stale, used;
	struct mc_slab *s;

	make_dir();
	s = open_slab(PIECES, true, false);
	meta = take(s, MC_SLAB_META, 1000);
	data = take(s, MC_SLAB_DATA, 30000);
	stale = take(s, MC_SLAB_DATA, 60000);
	memcpy(mc_slab_ptr(s, meta), "record", 7);
	memcpy(mc_slab_ptr(s, data), "bytes", 6);
	mc_slab_close(s);
	s = open_slab(PIECES, true, true);
	mc_slab_each(s, MC_SLAB_META, see, &seen);
	ck_assert_int_eq(saw(&seen, meta), true);
	ck_assert_int_eq(saw(&seen, data), false);
	ck_assert_int_eq(mc_slab_claim(s, MC_SLAB_META, meta, 1000), true);
	ck_assert_int_eq(mc_slab_claim(s, MC_SLAB_META, meta, 1000), false);  /* twice */
	ck_assert_int_eq(mc_slab_claim(s, MC_SLAB_META, data, 30000), false); /* wrong kind */
	ck_assert_int_eq(mc_slab_claim(s, MC_SLAB_DATA, data + 64, 30000), false);
	ck_assert_int_eq(mc_slab_claim(s, MC_SLAB_DATA, data, 60000), false); /* too large */
	ck_assert_int_eq(mc_slab_claim(s, MC_SLAB_DATA, 0, 1), false);
	ck_assert_int_eq(mc_slab_claim(s, MC_SLAB_DATA, UINT64_MAX, 1), false);
	ck_assert_int_eq(mc_slab_claim(s, MC_SLAB_DATA, data, 30000), true);
	used = mc_slab_used(s);
	mc_slab_trim(s);
	ck_assert_uint_eq(mc_slab_used(s), used - MC_SLAB_PIECE); /* of the one not claimed */
	ck_assert_int_eq(mc_slab_claim(s, MC_SLAB_DATA, stale, 60000), false);
	ck_assert_str_eq(mc_slab_ptr(s, meta), "record");
	ck_assert_str_eq(mc_slab_ptr(s, data), "bytes");
	ck_assert_uint_ne(take(s, MC_SLAB_META, 1000), meta);
	mc_slab_free(s, meta);
	mc_slab_close(s);
	remove_dir();
}
END_TEST

static void write_byte(uint64_t off, unsigned char b)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pwrite(fd, &b, 1, (off_t)off), 1);
	close(fd);
}

START_TEST(another_size_another_boot_or_a_damaged_head_is_not_adopted)
{
	struct mc_slab *s;
	uint64_t off;

	make_dir();
	s = open_slab(PIECES, true, false);
	off = take(s, MC_SLAB_DATA, 100);
	mc_slab_close(s);
	s = open_slab(PIECES + 1, true, false);
	ck_assert_int_eq(mc_slab_claim(s, MC_SLAB_DATA, off, 100), false);
	off = take(s, MC_SLAB_DATA, 100);
	memcpy(mc_slab_ptr(s, off), "old", 4);
	mc_slab_close(s);
	write_byte(10, 'x'); /* of the boot's id */
	s = open_slab(PIECES + 1, true, false);
	ck_assert_int_eq(mc_slab_claim(s, MC_SLAB_DATA, off, 100), false);
	ck_assert_uint_eq(take(s, MC_SLAB_DATA, 100), off);
	ck_assert_uint_eq(*(char *)mc_slab_ptr(s, off), 0);
	mc_slab_close(s);
	/* A class that does not exist: that piece is free, the others are adopted. */
	write_byte(8 + 36 + 4 + 3, 200);
	s = open_slab(PIECES + 1, true, true);
	ck_assert_int_eq(mc_slab_claim(s, MC_SLAB_DATA, off, 100), true);
	mc_slab_close(s);
	remove_dir();
}
END_TEST

START_TEST(a_file_system_without_room_is_enospc_before_a_slot_is_touched)
{
	struct mc_slab *s;
	bool adopted;
	uint64_t off;
	int r = 0;

	make_dir();
	if (mount("mc-slab", dir, "tmpfs", 0, "size=6m") != 0) {
		printf("skipped: no right to mount\n");
		remove_dir();
		return;
	}
	ck_assert_int_eq(mc_slab_open(path, 64 * MC_SLAB_PIECE, false, &s, &adopted), 0);
	for (unsigned i = 0; i < 200 && r == 0; i++) {
		r = mc_slab_alloc(s, MC_SLAB_DATA, 65536, &off);
		if (r == 0)
			memset(mc_slab_ptr(s, off), 1, 65536);
	}
	ck_assert_int_eq(r, -ENOSPC);
	ck_assert_uint_le(mc_slab_used(s), 6u << 20);
	mc_slab_close(s);
	umount2(dir, 0);
	remove_dir();
}
END_TEST

struct worker {
	struct mc_slab *s;
	unsigned id;
	uint64_t rng;
};

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	uint64_t held[50] = {0};
	uint32_t size[50] = {0};

	for (unsigned i = 0; i < 5000; i++) {
		unsigned k = i % 50;

		w->rng = w->rng * UINT64_C(6364136223846793005) + 1442695040888963407;
		if (held[k] != 0) {
			const unsigned char *p = mc_slab_ptr(w->s, held[k]);

			ck_assert_uint_eq(p[0], w->id);
			ck_assert_uint_eq(p[size[k] - 1], w->id);
			mc_slab_free(w->s, held[k]);
		}
		size[k] = 1 + (uint32_t)(w->rng >> 40) % (i % 10 == 0 ? 65536 : 2000);
		held[k] = take(w->s, (w->rng >> 33) % 2 ? MC_SLAB_META : MC_SLAB_DATA, size[k]);
		memset(mc_slab_ptr(w->s, held[k]), (int)w->id, size[k]);
	}
	for (unsigned k = 0; k < 50; k++)
		mc_slab_free(w->s, held[k]);
	return NULL;
}

START_TEST(threads_never_get_each_others_slots)
{
	struct worker w[4];
	pthread_t t[4];
	struct mc_slab *s;

	make_dir();
	s = open_slab(128, false, false);
	for (unsigned i = 0; i < 4; i++) {
		w[i] = (struct worker){.s = s, .id = i + 1, .rng = i};
		ck_assert_int_eq(pthread_create(&t[i], NULL, worker_main, &w[i]), 0);
	}
	for (unsigned i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	mc_slab_close(s);
	remove_dir();
}
END_TEST

START_TEST(two_blocks_fill_a_piece_and_are_nobodys_after_a_restart)
{
	uint64_t a, b, data, empty;
	struct mc_slab *s;

	make_dir();
	s = open_slab(4, false, false);
	empty = mc_slab_used(s);
	ck_assert_int_eq(mc_slab_has_block(s), false);
	a = take(s, MC_SLAB_BLOCK, MC_SLAB_BLOCK_SIZE);
	ck_assert_int_eq(mc_slab_has_block(s), true);
	b = take(s, MC_SLAB_BLOCK, MC_SLAB_BLOCK_SIZE);
	ck_assert_int_eq(mc_slab_has_block(s), false);
	ck_assert_uint_eq(a % MC_SLAB_BLOCK_SIZE, 0);
	ck_assert_uint_eq(a ^ b, MC_SLAB_BLOCK_SIZE); /* neighbours */
	ck_assert_uint_eq(mc_slab_used(s), empty + MC_SLAB_PIECE);
	data = take(s, MC_SLAB_DATA, 5000);
	memset(mc_slab_ptr(s, a), 1, MC_SLAB_BLOCK_SIZE);
	memset(mc_slab_ptr(s, b), 2, MC_SLAB_BLOCK_SIZE);
	ck_assert_uint_eq(((const unsigned char *)mc_slab_ptr(s, a))[MC_SLAB_BLOCK_SIZE - 1], 1);
	mc_slab_close(s);
	s = open_slab(4, true, true);
	ck_assert_int_eq(mc_slab_claim(s, MC_SLAB_DATA, data, 5000), true);
	mc_slab_trim(s);
	ck_assert_uint_eq(mc_slab_used(s), empty + MC_SLAB_PIECE);
	mc_slab_close(s);
	remove_dir();
}
END_TEST

SUITE_MAIN("slab", slots_hold_their_size_and_never_overlap,
	a_full_slab_is_enospc_until_a_slot_is_freed,
	memory_of_empty_pieces_goes_back_and_is_not_counted,
	the_next_daemon_adopts_what_it_claims_and_the_rest_is_free,
	another_size_another_boot_or_a_damaged_head_is_not_adopted,
	a_file_system_without_room_is_enospc_before_a_slot_is_touched,
	threads_never_get_each_others_slots,
	two_blocks_fill_a_piece_and_are_nobodys_after_a_restart)
