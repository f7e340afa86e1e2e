/* Element types of tensors: names and widths. */
#include "manifest/dtype.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

static const struct {
	const char *name;
	uint8_t bits;
	const char *torch; /* NULL: it has none */
} types[MC_DTYPE_COUNT] = {
	[MC_DTYPE_BOOL] = {"BOOL", 8, "bool"},
	[MC_DTYPE_F4] = {"F4", 4, NULL},
	[MC_DTYPE_F6_E2M3] = {"F6_E2M3", 6, NULL},
	[MC_DTYPE_F6_E3M2] = {"F6_E3M2", 6, NULL},
	[MC_DTYPE_U8] = {"U8", 8, "uint8"},
	[MC_DTYPE_I8] = {"I8", 8, "int8"},
	[MC_DTYPE_F8_E5M2] = {"F8_E5M2", 8, "float8_e5m2"},
	[MC_DTYPE_F8_E4M3] = {"F8_E4M3", 8, "float8_e4m3fn"},
	[MC_DTYPE_F8_E8M0] = {"F8_E8M0", 8, "float8_e8m0fnu"},
	[MC_DTYPE_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", 8, "float8_e4m3fnuz"},
	[MC_DTYPE_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", 8, "float8_e5m2fnuz"},
	[MC_DTYPE_I16] = {"I16", 16, "int16"},
	[MC_DTYPE_U16] = {"U16", 16, "uint16"},
	[MC_DTYPE_F16] = {"F16", 16, "float16"},
	[MC_DTYPE_BF16] = {"BF16", 16, "bfloat16"},
	[MC_DTYPE_I32] = {"I32", 32, "int32"},
	[MC_DTYPE_U32] = {"U32", 32, "uint32"},
	[MC_DTYPE_F32] = {"F32", 32, "float32"},
	[MC_DTYPE_C64] = {"C64", 64, "complex64"},
	[MC_DTYPE_F64] = {"F64", 64, "float64"},
	[MC_DTYPE_I64] = {"I64", 64, "int64"},
	[MC_DTYPE_U64] = {"U64", 64, "uint64"},
};

const char *mc_dtype_name(uint8_t dtype)
{
	assert(dtype < MC_DTYPE_COUNT);
	return types[dtype].name;
}

unsigned mc_dtype_bits(uint8_t dtype)
{
	assert(dtype < MC_DTYPE_COUNT);
	return types[dtype].bits;
}

int mc_dtype_parse(const char *name, uint8_t *ret)
{
	for (int i = 0; i < MC_DTYPE_COUNT; i++) {
		if (strcmp(types[i].name, name) == 0) {
			*ret = (uint8_t)i;
			return 0;
		}
	}
	return -EINVAL;
}

int mc_dtype_parse_torch(const char *name, uint8_t *ret)
{
	if (strncmp(name, "torch.", 6) == 0)
		name += 6;
	for (int i = 0; i < MC_DTYPE_COUNT; i++) {
		if (types[i].torch != NULL && strcmp(types[i].torch, name) == 0) {
			*ret = (uint8_t)i;
			return 0;
		}
	}
	return -EINVAL;
}

int mc_dtype_bytes(uint8_t dtype, const uint64_t *shape, unsigned rank, uint64_t *ret)
{
	uint64_t n = 1, bits;

	for (unsigned i = 0; i < rank; i++)
		if (__builtin_mul_overflow(n, shape[i], &n))
			return -EOVERFLOW;
	if (__builtin_mul_overflow(n, (uint64_t)mc_dtype_bits(dtype), &bits))
		return -EOVERFLOW;
	if (bits % 8 != 0)
		return -EDOM;
	*ret = bits / 8;
	return 0;
}
