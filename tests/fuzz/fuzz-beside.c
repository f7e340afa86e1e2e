/* libFuzzer entry: the JSON that others write beside weights: the index of a checkpoint, the
 * sharding information of a file, an engine's profile. What is accepted answers its questions. */
#include "manifest/dcp.h"
#include "manifest/hf-index.h"
#include "manifest/profile.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_index(const uint8_t *data, size_t size)
{
	struct mc_hf_index *x;
	struct mc_err err = {0};

	if (mc_hf_index_parse(data, size, &x, &err) < 0) {
		assert(err.text[0] != '\0');
		return;
	}
	for (size_t i = 0; i < mc_hf_index_files(x); i++) {
		const char *file = mc_hf_index_file(x, i);

		assert(file[0] != '\0' && file[0] != '/' && strcmp(file, "..") != 0);
		assert(strncmp(file, "../", 3) != 0 && strstr(file, "/../") == NULL);
	}
	for (size_t i = 0; i < mc_hf_index_tensors(x); i++) {
		const char *file, *name = mc_hf_index_tensor(x, i, &file);

		assert(strcmp(mc_hf_index_file_of(x, name), file) == 0);
	}
	mc_hf_index_close(x);
}

static void check_sharding(const char *text)
{
	uint64_t off[MC_MAX_RANK], global[MC_MAX_RANK];
	struct mc_err err = {0};
	struct mc_dcp *d;
	bool has;

	if (mc_dcp_parse(text, &d, &err) < 0) {
		assert(err.text[0] != '\0');
		return;
	}
	for (unsigned rank = 0; rank <= MC_MAX_RANK; rank++)
		mc_dcp_box(d, "w", rank, off, global, &has);
	mc_dcp_close(d);
}

static void check_profile(const uint8_t *data, size_t size)
{
	struct mc_profile *p;
	struct mc_err err = {0};

	if (mc_profile_parse(data, size, &p, &err) < 0) {
		assert(err.text[0] != '\0');
		return;
	}
	assert(mc_profile_count(p) <= size);
	mc_profile_free(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = strndup((const char *)data, size);

	assert(text != NULL);
	check_index(data, size);
	check_sharding(text);
	check_profile(data, size);
	free(text);
	return 0;
}
