/*
 * Joining CRC32C values. A CRC is a polynomial over GF(2) modulo P; appending n bytes multiplies
 * the register by x^8n. Bit 31 of a word is the coefficient of x^0 (the reflected order CRC32C
 * uses).
 */
#include "manifest/crc-combine.h"

#define POLYNOMIAL 0x82f63b78u /* Castagnoli, reflected (RFC 3720 B.4) */
#define ONE 0x80000000u        /* x^0 */

static uint32_t multiply(uint32_t a, uint32_t b)
{
	uint32_t product = 0;

	for (uint32_t bit = ONE; bit != 0; bit >>= 1) {
		if (a & bit)
			product ^= b;
		b = (b >> 1) ^ ((b & 1) != 0 ? POLYNOMIAL : 0);
	}
	return product;
}

/* x^(8 · len) modulo P, by repeated squaring. */
static uint32_t power_of_bytes(uint64_t len)
{
	uint32_t result = ONE, square = ONE >> 8;

	for (; len != 0; len >>= 1) {
		if (len & 1)
			result = multiply(square, result);
		square = multiply(square, square);
	}
	return result;
}

uint32_t mc_crc32c_join(uint32_t crc_a, uint32_t crc_b, uint64_t len_b)
{
	return multiply(power_of_bytes(len_b), crc_a) ^ crc_b;
}

uint32_t mc_crc32c_zeros(uint32_t crc_a, uint64_t len)
{
	return ~multiply(power_of_bytes(len), ~crc_a);
}
