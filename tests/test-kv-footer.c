/* The footer of a KV object on the remote: what was written is read back, and what a damaged or
 * hostile one says is refused before memory is taken for it. */
#include "tests/suite.h"
#include "tier/digest.h"
#include "tier/kv-remote.h"

#include <errno.h>

#define KEY "a/key"
#define SIZE (UINT64_C(3) << 20)
#define FIELD(name) (size_t)(MADE_LEN - KV_FOOTER_TAIL + (name))
#define MADE_LEN (3 * sizeof(uint32_t) + sizeof(KEY) - 1 + KV_FOOTER_TAIL)
enum { LENGTH = 0, N_CRC = 32, KEY_LEN = 36, FORMAT = 40, CRC = 44, MAGIC = 48 };

static char made[MADE_LEN];

static void make(void)
{
	const uint32_t crc[3] = {1, 2, 3};
	struct mc_kv_meta meta = {
		.key = KEY, .size = SIZE, .mtime_s = -1, .mtime_ns = 5, .n_crc = 3, .crc = crc};

	memset(meta.version, 7, sizeof(meta.version));
	ck_assert_uint_eq(kv_footer_len(3, strlen(KEY)), MADE_LEN);
	kv_footer_write(&meta, made);
}

static int parse(uint64_t size, struct kv_footer *f, size_t *need)
{
	return kv_footer_parse(made, MADE_LEN, size, f, need);
}

/* As if whoever wrote that had meant it. */
static void put_checksum_right(void)
{
	uint32_t crc = mc_crc32c(0, made, FIELD(CRC));

	memcpy(made + FIELD(CRC), &crc, sizeof(crc));
}

START_TEST(what_was_written_is_read_back)
{
	struct kv_footer f;
	size_t need;

	make();
	ck_assert_int_eq(parse(SIZE + MADE_LEN, &f, &need), 0);
	ck_assert_uint_eq(f.size, SIZE);
	ck_assert_int_eq(f.mtime_ns, -999999995);
	ck_assert_uint_eq(f.n_crc, 3);
	ck_assert_uint_eq(f.crc[2], 3);
	ck_assert_str_eq(f.key, KEY);
	ck_assert_uint_eq(f.version[15], 7);
	ck_assert(!kv_footer_is_dir(&f));
	kv_footer_done(&f);
}
END_TEST

START_TEST(a_flipped_bit_anywhere_is_noticed)
{
	struct kv_footer f;
	size_t need;

	for (size_t i = 0; i < MADE_LEN; i++) {
		make();
		made[i] ^= 4;
		ck_assert_int_eq(parse(SIZE + MADE_LEN, &f, &need), -EBADMSG);
	}
}
END_TEST

START_TEST(more_than_was_read_is_asked_for_once)
{
	struct kv_footer f;
	size_t need = 0;

	make();
	ck_assert_int_eq(
		kv_footer_parse(made + 8, MADE_LEN - 8, SIZE + MADE_LEN, &f, &need), -EAGAIN);
	ck_assert_uint_eq(need, MADE_LEN);
	ck_assert_int_eq(kv_footer_parse(made, KV_FOOTER_TAIL - 1, SIZE, &f, &need), -EBADMSG);
}
END_TEST

/* A sparse file costs nothing, and its checksums would be gigabytes. */
START_TEST(a_size_that_no_object_has_is_refused_before_memory_is_taken)
{
	uint64_t length = UINT64_C(1) << 50;
	uint32_t n_crc = (uint32_t)(length >> 20);
	struct kv_footer f;
	size_t need = 0;

	make();
	memcpy(made + FIELD(LENGTH), &length, sizeof(length));
	memcpy(made + FIELD(N_CRC), &n_crc, sizeof(n_crc));
	put_checksum_right();
	ck_assert_int_eq(parse(length + kv_footer_len(n_crc, strlen(KEY)), &f, &need), -EBADMSG);
	ck_assert_uint_eq(need, 0);
}
END_TEST

START_TEST(a_key_that_no_client_could_name_is_refused)
{
	static const char *const keys[] = {"/abcd", "a//bc", "a/../", "../ab", "ab/cd"};
	struct kv_footer f;
	size_t need;

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		make();
		memcpy(made + 3 * sizeof(uint32_t), keys[i], strlen(KEY));
		if (i == 4) /* a NUL in it */
			made[3 * sizeof(uint32_t) + 2] = '\0';
		put_checksum_right();
		ck_assert_int_eq(parse(SIZE + MADE_LEN, &f, &need), -EBADMSG);
	}
}
END_TEST

SUITE_MAIN("kv-footer", what_was_written_is_read_back, a_flipped_bit_anywhere_is_noticed,
	more_than_was_read_is_asked_for_once,
	a_size_that_no_object_has_is_refused_before_memory_is_taken,
	a_key_that_no_client_could_name_is_refused)
