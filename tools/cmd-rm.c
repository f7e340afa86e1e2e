/* mooncakefs rm: takes a revision out of the catalogue. */
#include "tools/command.h"

#include "manifest/catalogue.h"
#include "tier/remote.h"
#include "tools/json-line.h"
#include "tools/near-revision.h"
#include "tools/open-remote.h"

#include <errno.h>

static int take_out(struct mc_remote *remote, const struct mc_rev_name *name, struct mc_err *err)
{
	struct mc_catalogue *c;
	int r = mc_catalogue_open(remote, NULL, &c, err);

	if (r < 0)
		return r;
	r = mc_catalogue_remove(c, name, err);
	if (r == -ENOENT)
		mc_revision_missing(c, remote, name, err);
	mc_catalogue_close(c);
	return r;
}

int mc_cmd_rm(const struct mc_options *o)
{
	struct mc_rev_name name;
	struct mc_remote *remote;
	struct mc_json_line j;
	struct mc_err err = {0};
	int r = mc_rev_name_parse(o->args[0], &name, &err);

	if (r < 0)
		return mc_fail_usage(o, "%s", err.text);
	if (name.rev[0] == '\0')
		return mc_fail_usage(o, "\"%s\": say which revision, ORG/MODEL@REV", o->args[0]);
	r = mc_open_remote(o, &remote);
	if (r != 0)
		return r;
	r = take_out(remote, &name, &err);
	mc_remote_close(remote);
	if (r < 0)
		return mc_fail(&err, r);
	if (mc_options_flag(o, MC_OPT_JSON)) {
		mc_json_line_begin(&j, stdout);
		mc_json_line_text(&j, "event", "removed");
		mc_json_line_text(&j, "org", name.org);
		mc_json_line_text(&j, "model", name.model);
		mc_json_line_text(&j, "revision", name.rev);
		mc_json_line_end(&j);
	} else {
		printf("%s/%s@%s removed; 'mooncakefs gc --delete' frees its chunks\n", name.org,
			name.model, name.rev);
	}
	return MC_EXIT_OK;
}
