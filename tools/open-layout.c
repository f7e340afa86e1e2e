/* From a word of the command line to a layout. */
#include "tools/open-layout.h"

#include <errno.h>
#include <string.h>

#include "manifest/preset.h"
#include "manifest/views.h"
#include "tier/cleanup.h"
#include "tools/command.h"
#include "tools/model-table.h"
#include "tools/open-remote.h"

/* *ret stays NULL when the remote has no such document. An exit code. */
static int registered(const struct mc_options *o, const char *name, char **ret, size_t *ret_len)
{
	struct mc_remote *remote;
	struct mc_err err = {0};
	int r = mc_open_remote(o, &remote);

	if (r != 0)
		return r;
	r = mc_layouts_get(remote, name, ret, ret_len, &err);
	mc_remote_close(remote);
	return r < 0 && r != -ENOENT ? mc_fail(&err, r) : 0;
}

int mc_open_layout(
	const struct mc_options *o, const char *text, const json_t *config, struct mc_layout **ret)
{
	cleanup_free char *doc = NULL;
	struct mc_err err = {0};
	size_t len = strlen(text);
	int r;

	if (len > 5 && strcmp(text + len - 5, ".json") == 0) {
		r = mc_read_file(text, MC_LAYOUT_MAX_BYTES, &doc, &len, &err);
	} else {
		r = mc_preset_layout(config, text, ret, &err);
		if (r != -ENOENT || mc_options_text(o, MC_OPT_REMOTE) == NULL)
			return r < 0 ? mc_fail(&err, r) : 0;
		r = registered(o, text, &doc, &len);
		if (r != 0)
			return r;
		if (doc == NULL)
			return mc_fail(&err, -ENOENT);
		err.text[0] = '\0';
	}
	if (r == 0)
		r = mc_layout_parse(doc, len, ret, &err);
	return r < 0 ? mc_fail(&err, r) : 0;
}
