/* libFuzzer entry: the JSON of a manifest; what is accepted answers every question inside its
 * bounds. */
#include "manifest/manifest.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_source(struct mc_manifest *m, uint32_t entry, uint64_t size)
{
	struct mc_source *s;

	if (size == 0 || mc_manifest_source(m, entry, &s) < 0)
		return;
	for (uint64_t b = 0; b < mc_block_count(size) && b < 64; b++) {
		struct mc_plan plan;
		uint64_t start, end;

		mc_plan_init(&plan);
		assert(s->ops->plan(s, b << MC_BLOCK_SHIFT, mc_block_len(size, b), &plan) == 0);
		assert(mc_plan_len(&plan) == mc_block_len(size, b));
		mc_plan_done(&plan);
		s->ops->block_crc(s, b);
		if (s->ops->next_data(s, b << MC_BLOCK_SHIFT, &start, &end) == 0)
			assert(start >= b << MC_BLOCK_SHIFT && start < end && end <= size);
	}
	s->ops->release(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct mc_err err = {0};
	struct mc_manifest *m;
	char path[8192];

	if (mc_manifest_parse(data, size, &m, &err) < 0) {
		assert(err.text[0] != '\0');
		return 0;
	}
	for (uint32_t i = 0; i < mc_manifest_entries(m); i++) {
		struct mc_entry e;
		uint32_t found;

		mc_manifest_entry(m, i, &e);
		assert(mc_manifest_path(m, i, path, sizeof(path)) == 0);
		assert(mc_manifest_walk(m, path, &found) == 0 && found == i);
		if (e.type == MC_ENTRY_FILE)
			check_source(m, i, e.size);
	}
	for (uint32_t i = 0; i < mc_manifest_tensors(m); i++) {
		struct mc_tensor t;
		struct mc_entry e;

		mc_manifest_tensor(m, i, &t);
		mc_manifest_entry(m, t.entry, &e);
		assert(t.len <= e.size && t.off <= e.size - t.len);
	}
	mc_manifest_unref(m);
	return 0;
}
