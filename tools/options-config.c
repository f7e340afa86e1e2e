/* Option values from a configuration file: one JSON object whose keys are option names. */
#include "tools/options.h"

#include "tier/cleanup.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define CONFIG_MAX_BYTES (1 << 20)

static int unknown_key(const char *path, const char *key, struct mc_err *err)
{
	const char *names[MC_OPT_N], *near;
	size_t n = 0;

	for (int i = 0; i < MC_OPT_N; i++)
		if (mc_option_table[i].in_config)
			names[n++] = mc_option_table[i].name;
	near = mc_nearest_name(key, names, n);
	if (near == NULL)
		return mc_err_set(err, -EINVAL, "%s: unknown key \"%.80s\"", path, key);
	return mc_err_set(
		err, -EINVAL, "%s: unknown key \"%.80s\"; did you mean \"%s\"?", path, key, near);
}

static int set_key(struct mc_options *o, const char *path, const char *key, const json_t *value,
	struct mc_err *err)
{
	char where[256], number[32];
	const char *text = NULL;
	int id = -1;

	for (int i = 0; i < MC_OPT_N; i++)
		if (mc_option_table[i].in_config && strcmp(mc_option_table[i].name, key) == 0)
			id = i;
	if (id < 0)
		return unknown_key(path, key, err);
	/* One file serves all commands; what another command takes is left alone. */
	if ((mc_option_table[id].commands & o->command) == 0)
		return 0;
	snprintf(where, sizeof(where), "%.180s: \"%s\"", path, key);
	if (json_is_string(value)) {
		text = json_string_value(value);
	} else if (json_is_boolean(value)) {
		text = json_is_true(value) ? "true" : "false";
	} else if (json_is_integer(value) && json_integer_value(value) >= 0) {
		snprintf(
			number, sizeof(number), "%" JSON_INTEGER_FORMAT, json_integer_value(value));
		text = number;
	}
	if (text == NULL)
		return mc_err_set(
			err, -EINVAL, "%s must be a string, a whole number, true or false", where);
	return mc_options_set(o, (enum mc_option_id)id, MC_FROM_CONFIG, text, where, err);
}

/* The whole file, NUL-terminated; the caller frees it. */
static int read_file(const char *path, char **ret, struct mc_err *err)
{
	FILE *f = fopen(path, "re");
	char *buf;
	size_t n;
	int r = 0;

	if (f == NULL) {
		r = -errno;
		return mc_err_set(err, r, "%s: %s", path, strerror(-r));
	}
	buf = malloc(CONFIG_MAX_BYTES + 1);
	n = buf == NULL ? 0 : fread(buf, 1, CONFIG_MAX_BYTES + 1, f);
	if (buf == NULL)
		r = mc_err_set(err, -ENOMEM, "%s: out of memory", path);
	else if (ferror(f))
		r = mc_err_set(err, -EIO, "%s: cannot be read", path);
	else if (n > CONFIG_MAX_BYTES)
		r = mc_err_set(err, -EFBIG, "%s: more than 1 MiB is no configuration file", path);
	fclose(f);
	if (r < 0) {
		free(buf);
		return r;
	}
	buf[n] = '\0';
	*ret = buf;
	return 0;
}

int mc_options_load_config(struct mc_options *o, const char *path, struct mc_err *err)
{
	cleanup_free char *text = NULL;
	json_error_t where;
	json_t *root, *value;
	const char *key;
	int r = read_file(path, &text, err);

	if (r < 0)
		return r;
	root = json_loads(text, JSON_REJECT_DUPLICATES, &where);
	if (root == NULL)
		return mc_err_set(
			err, -EINVAL, "%s:%d:%d: %s", path, where.line, where.column, where.text);
	if (!json_is_object(root))
		r = mc_err_set(err, -EINVAL, "%s: not a JSON object", path);
	json_object_foreach(root, key, value)
	{
		r = set_key(o, path, key, value, err);
		if (r < 0)
			break;
	}
	json_decref(root);
	return r;
}
