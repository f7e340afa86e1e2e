/* From ORG/MODEL[@REV] to a manifest. */
#include "tools/load-revision.h"

#include "tools/command.h"
#include "tools/near-revision.h"

#include <errno.h>

/* ret may be NULL: the name is wanted only. */
static int load(
	struct mc_remote *r, struct mc_rev_name *name, struct mc_manifest **ret, struct mc_err *err)
{
	struct mc_loaded loaded;
	struct mc_catalogue *c;
	int res = mc_catalogue_open(r, NULL, &c, err);

	if (res < 0)
		return res;
	if (name->rev[0] == '\0')
		res = mc_catalogue_latest(c, name, NULL, err);
	if (res == 0 && ret != NULL) {
		res = mc_catalogue_load(c, name, &loaded, err);
		if (res == 0)
			*ret = loaded.m;
	}
	if (res == -ENOENT)
		mc_revision_missing(c, r, name, err);
	mc_catalogue_close(c);
	return res;
}

int mc_load_revision(const struct mc_options *o, struct mc_remote *r, const char *text,
	struct mc_rev_name *ret_name, struct mc_manifest **ret)
{
	struct mc_err err = {0};
	int res = mc_rev_name_parse(text, ret_name, &err);

	if (res < 0)
		return mc_fail_usage(o, "%s", err.text);
	res = load(r, ret_name, ret, &err);
	return res < 0 ? mc_fail(&err, res) : 0;
}
