/* libFuzzer entry: a whole safetensors file; what is accepted must be consistent with its size. */
#include "manifest/dcp.h"
#include "manifest/dtype.h"
#include "manifest/safetensors.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct mc_err err = {0};
	struct mc_safetensors *st;
	const char *sharding;
	uint64_t at, bytes;
	struct mc_dcp *d;

	if (mc_safetensors_parse(data, size, size, &st, &err) < 0) {
		assert(err.text[0] != '\0');
		return 0;
	}
	at = mc_safetensors_data_start(st);
	for (size_t i = 0; i < mc_safetensors_count(st); i++) {
		const struct mc_st_tensor *t = mc_safetensors_tensor(st, i);

		assert(t->off == at);
		assert(mc_dtype_bytes(t->dtype, t->shape, t->rank, &bytes) == 0 && bytes == t->len);
		at += t->len;
	}
	assert(at == size);
	sharding = mc_safetensors_metadata(st, MC_DCP_KEY);
	if (sharding != NULL && mc_dcp_parse(sharding, &d, NULL) == 0)
		mc_dcp_close(d);
	mc_safetensors_close(st);
	return 0;
}
