/* Element types of tensors, by their safetensors names. The numbers are stored in index files. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum mc_dtype {
	MC_DTYPE_BOOL,
	MC_DTYPE_F4,
	MC_DTYPE_F6_E2M3,
	MC_DTYPE_F6_E3M2,
	MC_DTYPE_U8,
	MC_DTYPE_I8,
	MC_DTYPE_F8_E5M2,
	MC_DTYPE_F8_E4M3,
	MC_DTYPE_F8_E8M0,
	MC_DTYPE_F8_E4M3FNUZ,
	MC_DTYPE_F8_E5M2FNUZ,
	MC_DTYPE_I16,
	MC_DTYPE_U16,
	MC_DTYPE_F16,
	MC_DTYPE_BF16,
	MC_DTYPE_I32,
	MC_DTYPE_U32,
	MC_DTYPE_F32,
	MC_DTYPE_C64,
	MC_DTYPE_F64,
	MC_DTYPE_I64,
	MC_DTYPE_U64,
	MC_DTYPE_COUNT,
};

const char *mc_dtype_name(uint8_t dtype); /* dtype < MC_DTYPE_COUNT */
unsigned mc_dtype_bits(uint8_t dtype);    /* bits of one element */
/* 0 or -EINVAL for a name that is not in the table. */
int mc_dtype_parse(const char *name, uint8_t *ret);
/* The same for torch's names ("bfloat16", "float8_e4m3fn", with or without "torch."). */
int mc_dtype_parse_torch(const char *name, uint8_t *ret);
/*
 * Bytes of a tensor; shape holds rank dimensions, a dimension of 0 gives 0. -EOVERFLOW when the
 * number of elements or bits passes 64 bits (each prefix of the product counts), -EDOM when the
 * bits are not whole bytes.
 */
int mc_dtype_bytes(uint8_t dtype, const uint64_t *shape, unsigned rank, uint64_t *ret);
