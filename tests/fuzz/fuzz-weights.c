/* libFuzzer entry: one of Mooncake's manifests; what is accepted is within its bounds, and a stored
 * one is a checkpoint whose tensors lie inside their objects. */
#include "manifest/layout-source.h"
#include "manifest/weight-payload.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_payload(const struct mc_weight_manifest *w)
{
	static const struct mc_model model = {"", "", ""};
	struct mc_layout_source source;
	struct mc_manifest *m;
	struct mc_err err = {0};

	if (mc_weight_payload(w, NULL, &model, &m, &err) < 0) {
		assert(err.text[0] != '\0');
		return;
	}
	for (uint32_t i = 0; i < mc_manifest_tensors(m); i++) {
		struct mc_tensor t;
		struct mc_entry e;

		mc_manifest_tensor(m, i, &t);
		mc_manifest_entry(m, t.entry, &e);
		assert(t.len <= e.size && t.off <= e.size - t.len);
		for (unsigned d = 0; d < t.rank && t.boxed; d++)
			assert(t.shape[d] <= t.global[d] &&
				t.box_off[d] <= t.global[d] - t.shape[d]);
	}
	if (mc_layout_source_init(&source, m, 0, &err) == 0) {
		assert(source.n == mc_weight_manifest_tensors(w));
		mc_layout_source_done(&source);
	}
	mc_manifest_unref(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct mc_weight_manifest *w;
	struct mc_err err = {0};
	char digest[MC_WEIGHT_DIGEST];

	if (mc_weight_manifest_parse(data, size, &w, &err) < 0) {
		assert(err.text[0] != '\0');
		return 0;
	}
	assert(mc_weight_manifest_digest(w, digest) == 0 && strlen(digest) == 64);
	for (uint32_t i = 0; i < mc_weight_manifest_fragments(w); i++) {
		struct mc_weight_fragment f;
		struct mc_weight_tensor t;

		mc_weight_manifest_fragment(w, i, &f);
		mc_weight_manifest_tensor(w, f.tensor, &t);
		assert(f.participant < mc_weight_manifest_participants(w));
		for (unsigned d = 0; d < t.rank; d++)
			assert(f.box.len[d] <= t.shape[d] &&
				f.box.off[d] <= t.shape[d] - f.box.len[d]);
	}
	if (mc_weight_manifest_kind(w) == MC_WEIGHT_STORED)
		check_payload(w);
	mc_weight_manifest_free(w);
	return 0;
}
