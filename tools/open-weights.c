/* From a word of the command line to one of Mooncake's manifests. */
#include "tools/open-weights.h"

#include <string.h>

#include "tier/cleanup.h"
#include "tools/command.h"
#include "tools/model-table.h"

#define MANIFEST_MAX ((size_t)1 << 30) /* bytes */

int mc_open_weights(const char *text, struct mc_weight_manifest **ret)
{
	cleanup_free char *doc = NULL;
	struct mc_err err = {0};
	size_t len = strlen(text);
	int r;

	*ret = NULL;
	if (len <= 5 || strcmp(text + len - 5, ".json") != 0)
		return 0;
	r = mc_read_file(text, MANIFEST_MAX, &doc, &len, &err);
	if (r == 0 && memmem(doc, len, "\"reshard-layout\"", 16) == NULL) {
		r = mc_weight_manifest_parse(doc, len, ret, &err);
		if (r < 0)
			mc_err_prefix(&err, r, "%s", text);
	}
	return r < 0 ? mc_fail(&err, r) : 0;
}
