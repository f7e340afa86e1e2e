/*
 * A plan says where the bytes of a range of a file come from. Pure data: manifest/ writes plans,
 * tier/ executes them, and neither knows the other's insides.
 *
 * The pieces are in file order and cover the range exactly, without gap or overlap.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MC_BLOCK_SHIFT 20
/* Bytes; the last block of a file is short. */
#define MC_BLOCK_SIZE (UINT64_C(1) << MC_BLOCK_SHIFT)

static inline uint64_t mc_block_count(uint64_t size)
{
	return (size >> MC_BLOCK_SHIFT) + ((size & (MC_BLOCK_SIZE - 1)) != 0);
}

static inline uint32_t mc_block_len(uint64_t size, uint64_t block)
{
	uint64_t left = size - (block << MC_BLOCK_SHIFT);

	return (uint32_t)(left < MC_BLOCK_SIZE ? left : MC_BLOCK_SIZE);
}

enum mc_piece_kind {
	MC_PIECE_HOLE,   /* zeros, stored nowhere */
	MC_PIECE_INLINE, /* bytes carried by the plan */
	MC_PIECE_OBJECT, /* a contiguous range of one object on the remote */
	MC_PIECE_FILE,   /* a strided region of another file of the store */
};

#define MC_PLAN_DIMS 8

struct mc_file;

/* Runs of inner bytes in a file, in the order the loops visit them, the first loop outermost. */
struct mc_strides {
	uint64_t inner;                /* bytes of a run, > 0 */
	uint8_t rank;                  /* loops, ≤ MC_PLAN_DIMS */
	uint64_t count[MC_PLAN_DIMS];  /* > 0 */
	uint64_t stride[MC_PLAN_DIMS]; /* bytes in the file */
};

/* What a referenced object must look like for its bytes to be trusted as unchanged. */
struct mc_guard {
	bool set;
	uint64_t size;     /* bytes */
	int64_t mtime_s;   /* seconds since the epoch */
	uint32_t mtime_ns; /* 0 .. 999,999,999 */
};

struct mc_piece {
	enum mc_piece_kind kind;
	uint32_t len;              /* bytes, > 0 */
	const void *data;          /* INLINE: len bytes, owned by the plan */
	const char *path;          /* OBJECT: relative to the remote's root, owned by the plan */
	uint64_t off;              /* OBJECT, FILE: byte offset of the first byte */
	struct mc_guard guard;     /* OBJECT */
	struct mc_file *file;      /* FILE: borrowed from the source, which holds a reference */
	struct mc_strides strides; /* FILE: their bytes, one after the other, are the piece */
};

struct mc_plan {
	struct mc_piece *pieces; /* owned */
	size_t n;
	size_t cap;
	char **owned; /* strings and inline bytes, owned */
	size_t n_owned;
	size_t cap_owned;
};

void mc_plan_init(struct mc_plan *p);
void mc_plan_done(struct mc_plan *p);

/* Each appends one piece and returns 0 or -ENOMEM. data and path are copied; adjacent holes merge.
 */
int mc_plan_add_hole(struct mc_plan *p, uint32_t len);
int mc_plan_add_inline(struct mc_plan *p, const void *data, uint32_t len);
int mc_plan_add_object(struct mc_plan *p, const char *path, uint64_t off, uint32_t len,
	const struct mc_guard *guard /* may be NULL */);

/* len = inner × the product of the counts, at most 4 GiB − 1; every run lies inside the file. */
int mc_plan_add_file(
	struct mc_plan *p, struct mc_file *file, uint64_t off, const struct mc_strides *strides);

/* Sum of the pieces' lengths, bytes. */
uint64_t mc_plan_len(const struct mc_plan *p);
/* True when every piece is a hole. */
bool mc_plan_is_hole(const struct mc_plan *p);
