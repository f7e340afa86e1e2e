/* mooncakefs version: what this program is and which libraries it runs with. */
#include "tools/command.h"

#include <jansson.h>
#include <openssl/crypto.h>

int mc_cmd_version(const struct mc_options *o)
{
	const char *crypto = OpenSSL_version(OPENSSL_FULL_VERSION_STRING);

	if (mc_options_flag(o, MC_OPT_JSON))
		printf("{\"program\":\"mooncakefs\",\"version\":\"%s\",\"jansson\":\"%s\","
		       "\"openssl\":\"%s\"}\n",
			MC_VERSION, jansson_version_str(), crypto);
	else
		printf("mooncakefs %s (jansson %s, OpenSSL %s)\n", MC_VERSION,
			jansson_version_str(), crypto);
	return MC_EXIT_OK;
}
