/*
 * Slots of a few sizes in 2 MiB pieces of one mapped tmpfs file: where the KV store keeps what is
 * too small for a file of its own. The file outlives the daemon: whoever opens it again in the same
 * boot says which slots are taken (mc_slab_claim). Offsets are bytes from the file's start and
 * never 0. Thread-safe.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mc_slab;
struct mc_full_watch;

#define MC_SLAB_PIECE (UINT64_C(2) << 20)
#define MC_SLAB_SLOT_MAX (UINT32_C(64) << 10)
#define MC_SLAB_BLOCK_SIZE (UINT32_C(1) << 20) /* of every MC_SLAB_BLOCK */

/* Kinds that never share a piece: records that describe objects, their bytes, and blocks of larger
 * ones, which nobody claims after a restart. */
enum mc_slab_kind { MC_SLAB_META, MC_SLAB_DATA, MC_SLAB_BLOCK };

/*
 * Maps the file at path for pieces of together max_bytes. With adopt the content of an earlier
 * daemon in this boot is kept, if its header fits; *ret_adopted says so. 0 or -errno.
 */
int mc_slab_open(
	const char *path, uint64_t max_bytes, bool adopt, struct mc_slab **ret, bool *ret_adopted);
void mc_slab_close(struct mc_slab *s); /* NULL allowed; the file stays */
/* Memory is given back through w, borrowed; before anything else is done. */
void mc_slab_watch(struct mc_slab *s, struct mc_full_watch *w);

/* A slot of at least size bytes, 1 … MC_SLAB_SLOT_MAX; content undefined. 0 or -ENOSPC. A block is
 * aligned to its size in the file. */
int mc_slab_alloc(struct mc_slab *s, enum mc_slab_kind kind, uint32_t size, uint64_t *ret_off);
void mc_slab_free(struct mc_slab *s, uint64_t off);
/* Whether a block can be had from the pieces in use. */
bool mc_slab_has_block(struct mc_slab *s);
/* Borrowed until the slot is freed. */
void *mc_slab_ptr(struct mc_slab *s, uint64_t off);
/* After adoption, before any alloc: the slot is taken. False when it is none, or taken already. */
bool mc_slab_claim(struct mc_slab *s, enum mc_slab_kind kind, uint64_t off, uint32_t size);
/* Every slot of a kind, taken or not, after adoption. */
void mc_slab_each(struct mc_slab *s, enum mc_slab_kind kind,
	void (*each)(void *ctx, uint64_t off, uint32_t slot_size), void *ctx);
/* Gives empty adopted pieces back: call once, when all claims are made. */
void mc_slab_trim(struct mc_slab *s);
/* Bytes of the pieces in use. */
uint64_t mc_slab_used(struct mc_slab *s);
