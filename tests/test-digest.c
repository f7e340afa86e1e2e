/* Known answers for the checksums and the strict hex reader. */
#include "tests/suite.h"
#include "tier/digest.h"

#include <errno.h>
#include <string.h>

START_TEST(crc32c_matches_the_rfc_3720_vectors)
{
	uint8_t zeros[32] = {0}, ones[32];

	memset(ones, 0xff, sizeof(ones));
	ck_assert_uint_eq(mc_crc32c(0, "123456789", 9), 0xe3069283u);
	ck_assert_uint_eq(mc_crc32c(0, zeros, 32), 0x8a9136aau);
	ck_assert_uint_eq(mc_crc32c(0, ones, 32), 0x62a8ab43u);
	ck_assert_uint_eq(mc_crc32c(mc_crc32c(0, "1234", 4), "56789", 5), 0xe3069283u);
}
END_TEST

START_TEST(sha256_matches_fips_180_in_one_go_and_in_parts)
{
	static const char want[] =
		"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
	uint8_t d[MC_SHA256_SIZE];
	char hex[MC_SHA256_HEX + 1];
	struct mc_sha256 *h;

	ck_assert_int_eq(mc_sha256("abc", 3, d), 0);
	mc_hex_encode(d, sizeof(d), hex);
	ck_assert_str_eq(hex, want);
	ck_assert_int_eq(mc_sha256_open(&h), 0);
	for (int round = 0; round < 2; round++) {
		ck_assert_int_eq(mc_sha256_update(h, "a", 1), 0);
		ck_assert_int_eq(mc_sha256_update(h, "bc", 2), 0);
		ck_assert_int_eq(mc_sha256_final(h, d), 0);
		mc_hex_encode(d, sizeof(d), hex);
		ck_assert_str_eq(hex, want);
	}
	mc_sha256_close(h);
}
END_TEST

START_TEST(hex_is_lower_case_and_exact_length)
{
	uint8_t out[2];

	ck_assert_int_eq(mc_hex_decode("0aff", out, 2), 0);
	ck_assert_uint_eq(out[0], 0x0a);
	ck_assert_uint_eq(out[1], 0xff);
	ck_assert_int_eq(mc_hex_decode("0aFf", out, 2), -EINVAL);
	ck_assert_int_eq(mc_hex_decode("0af", out, 2), -EINVAL);
	ck_assert_int_eq(mc_hex_decode("0aff0", out, 2), -EINVAL);
}
END_TEST

SUITE_MAIN("digest", crc32c_matches_the_rfc_3720_vectors,
	sha256_matches_fips_180_in_one_go_and_in_parts, hex_is_lower_case_and_exact_length)
