/* libFuzzer entry: a line of the control socket; what is accepted keeps to the rules of requests.
 */
#include "fs/control-request.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct mc_control_request q;
	const char *why = NULL;

	if (mc_control_parse((const char *)data, size, &q, &why) < 0) {
		assert(why != NULL);
		return 0;
	}
	assert(q.command < MC_CONTROL_N && q.n_paths <= MC_CONTROL_PATHS);
	assert(q.tier < MC_TIER_REMOTE);
	for (size_t i = 0; i < q.n_paths; i++) {
		const char *path = q.paths[i];

		assert(path[0] != '\0' && path[0] != '/' && strstr(path, "//") == NULL);
		assert(strncmp(path, "../", 3) != 0 && strstr(path, "/../") == NULL);
	}
	mc_control_request_done(&q);
	return 0;
}
