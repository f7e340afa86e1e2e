/* mooncakefs refresh: what the daemon remembers of the catalogue is asked for again. */
#include "tools/command.h"
#include "tools/control-client.h"

#include <jansson.h>

int mc_cmd_refresh(const struct mc_options *o)
{
	struct mc_err err = {0};
	struct mc_client c;
	json_t *result = NULL;
	int r = mc_client_open(o->n_args > 0 ? o->args[0] : NULL, &c, &err);

	if (r < 0)
		return mc_fail(&err, r);
	r = mc_client_command(&c, "refresh", &result, &err);
	json_decref(result);
	mc_client_close(&c);
	if (r < 0)
		return mc_fail(&err, r);
	if (mc_options_flag(o, MC_OPT_JSON))
		printf("{\"ok\":true}\n");
	return MC_EXIT_OK;
}
