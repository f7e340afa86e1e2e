/* From a word of the command line to a layout or a profile. */
#include "tools/open-document.h"

#include <errno.h>
#include <string.h>

#include "manifest/preset.h"
#include "manifest/views.h"
#include "tier/cleanup.h"
#include "tools/command.h"
#include "tools/model-table.h"
#include "tools/open-remote.h"

typedef int get_fn(
	struct mc_remote *r, const char *name, char **ret, size_t *ret_len, struct mc_err *err);

static bool is_file(const char *text)
{
	size_t len = strlen(text);

	return len > 5 && strcmp(text + len - 5, ".json") == 0;
}

/* The document of the remote that get knows. Without one err, which says why text is nothing else,
 * is the message. An exit code. */
static int registered(const struct mc_options *o, get_fn *get, const char *text, char **ret,
	size_t *ret_len, struct mc_err *err)
{
	struct mc_remote *remote;
	struct mc_err why = {0};
	int r;

	if (mc_options_text(o, MC_OPT_REMOTE) == NULL)
		return mc_fail(err, -ENOENT);
	r = mc_open_remote(o, &remote);
	if (r != 0)
		return r;
	r = get(remote, text, ret, ret_len, &why);
	mc_remote_close(remote);
	return r < 0 ? mc_fail(r == -ENOENT ? err : &why, r) : 0;
}

int mc_open_layout(
	const struct mc_options *o, const char *text, const json_t *config, struct mc_layout **ret)
{
	cleanup_free char *doc = NULL;
	struct mc_err err = {0};
	size_t len = 0;
	int r;

	if (is_file(text)) {
		r = mc_read_file(text, MC_LAYOUT_MAX_BYTES, &doc, &len, &err);
	} else {
		r = mc_preset_layout(config, text, ret, &err);
		if (r != -ENOENT)
			return r < 0 ? mc_fail(&err, r) : 0;
		r = registered(o, mc_layouts_get, text, &doc, &len, &err);
		if (r != 0)
			return r;
		err.text[0] = '\0';
	}
	if (r == 0)
		r = mc_layout_parse(doc, len, ret, &err);
	return r < 0 ? mc_fail(&err, r) : 0;
}

int mc_open_profile(const struct mc_options *o, const char *text, const json_t *config, uint32_t tp,
	struct mc_profile **ret)
{
	cleanup_free char *doc = NULL;
	struct mc_err err = {0};
	size_t len = 0;
	int r;

	if (is_file(text)) {
		r = mc_read_file(text, MC_PROFILE_MAX_BYTES, &doc, &len, &err);
	} else {
		r = mc_profile_builtin(text, config, tp, ret, &err);
		if (r != -ENOENT)
			return r < 0 ? mc_fail(&err, r) : 0;
		r = registered(o, mc_profiles_get, text, &doc, &len, &err);
		if (r != 0)
			return r;
		err.text[0] = '\0';
	}
	if (r == 0)
		r = mc_profile_parse(doc, len, ret, &err);
	if (r < 0)
		mc_err_prefix(&err, r, "%s", text);
	return r < 0 ? mc_fail(&err, r) : 0;
}
