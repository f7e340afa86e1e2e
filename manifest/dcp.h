/*
 * Tensors that lie in parts in several safetensors files (PyTorch's distributed checkpoint, written
 * in Hugging Face form): each file's __metadata__["DCP_SHARDING_INFO"] says where its part of a
 * tensor begins in the whole.
 */
#pragma once

#include "manifest/manifest.h"

#define MC_DCP_KEY "DCP_SHARDING_INFO"

struct mc_dcp; /* one file's sharding information, immutable once parsed */

/* text is the metadata value. -EBADMSG with the tensor and the rule in err; -ENOMEM. */
int mc_dcp_parse(const char *text, struct mc_dcp **ret, struct mc_err *err);
void mc_dcp_close(struct mc_dcp *d); /* NULL allowed */
/*
 * Where the tensor's part begins; rank numbers each. *ret_has_global is false when the file does
 * not say the whole's shape. -ENOENT when the tensor is not named, -EBADMSG when the rank differs.
 */
int mc_dcp_box(const struct mc_dcp *d, const char *name, unsigned rank, uint64_t *ret_off,
	uint64_t *ret_global, bool *ret_has_global);

/* One tensor as found in one file. name and file are borrowed. */
struct mc_dcp_part {
	const char *name, *file;
	uint8_t dtype, rank;
	bool boxed;      /* off is known */
	bool has_global; /* global is known; set by mc_dcp_resolve for every boxed part */
	bool replica;    /* set by mc_dcp_resolve: an earlier part has the same box */
	uint64_t shape[MC_MAX_RANK];
	uint64_t off[MC_MAX_RANK];
	uint64_t global[MC_MAX_RANK];
};

#define MC_DCP_MAX_PARTS 16384 /* of one tensor */

/*
 * Sorts the parts by name (then box, then file) and checks each tensor: a name may stand in several
 * places only with boxes; those agree in dtype and whole shape (inferred as the smallest that holds
 * all where no file says it), are inside it, are equal (replicas) or disjoint, and cover it.
 * -EBADMSG with the tensor and two of its files in err; -ENOMEM.
 */
int mc_dcp_resolve(struct mc_dcp_part *parts, size_t n, struct mc_err *err);
