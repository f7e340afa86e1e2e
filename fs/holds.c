/* What a tier holds of checkpoints. */
#include "fs/holds.h"

#include "tier/store.h"

uint64_t mc_holds_bytes(struct mc_fs *fs, enum mc_at at, const struct mc_entry *e)
{
	struct mc_residency res;
	struct mc_file_id id;

	if (at == MC_AT_REMOTE)
		return e->size - e->hole_bytes;
	mc_entry_file_id(e, &id);
	if (id.size == 0)
		return 0;
	mc_store_residency(fs->opts->store, &id, &res);
	return mc_residency_bytes(&res, mc_at_tier(at));
}

/* Recursion is as deep as a path has components. */
static bool holds(struct mc_fs *fs, enum mc_at at, const struct mc_place *place, uint32_t entry,
	unsigned *left)
{
	struct mc_entry e;

	mc_manifest_entry(place->manifest, entry, &e);
	if (e.type == MC_ENTRY_SYMLINK)
		return false;
	if (at == MC_AT_REMOTE)
		return true;
	if (e.type == MC_ENTRY_FILE)
		return mc_holds_bytes(fs, at, &e) > 0;
	for (uint32_t i = 0; i < e.n_children; i++) {
		if (*left == 0)
			return true;
		--*left;
		if (holds(fs, at, place, e.first_child + i, left))
			return true;
	}
	return false;
}

bool mc_holds_entry(
	struct mc_fs *fs, enum mc_at at, const struct mc_place *place, uint32_t entry, unsigned max)
{
	return holds(fs, at, place, entry, &max);
}
