/* The daemon's state as lines of its log: what SIGUSR1 asks for. */
#include "fs/status.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>

#include "fs/log.h"

int mc_status_log(struct mc_fs *fs)
{
	char *text = NULL, *part;
	size_t size = 0;
	json_t *root, *value;
	const char *key;
	FILE *out = open_memstream(&text, &size);
	int r = out == NULL ? -ENOMEM : mc_status_json(fs, out);

	if (out != NULL && fclose(out) != 0 && r == 0)
		r = -ENOMEM;
	root = r == 0 ? json_loadb(text, size, 0, NULL) : NULL;
	free(text);
	json_object_foreach(root, key, value)
	{
		part = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
		mc_log(MC_LOG_INFO, "state", "part=%s value=\"%s\"", key, part != NULL ? part : "");
		free(part);
	}
	json_decref(root);
	return r;
}
