/* Option values from a configuration file: one JSON object whose keys are option names. */
#include "tools/options.h"

#include "tools/config-file.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

static int unknown_key(
	const struct mc_config_file *f, const char *key, unsigned line, struct mc_err *err)
{
	const char *names[MC_OPT_N], *near;
	size_t n = 0;

	for (int i = 0; i < MC_OPT_N; i++)
		if (mc_option_table[i].in_config)
			names[n++] = mc_option_table[i].name;
	near = mc_nearest_name(key, names, n);
	if (near == NULL)
		return mc_err_set(err, -EINVAL, "%s:%u: unknown key \"%.80s\"", f->path, line, key);
	return mc_err_set(err, -EINVAL, "%s:%u: unknown key \"%.80s\"; did you mean \"%s\"?",
		f->path, line, key, near);
}

/* Sets an option from one value; where names it in errors. */
static int set_value(struct mc_options *o, enum mc_option_id id, const json_t *value,
	const char *where, struct mc_err *err)
{
	const char *text = NULL;
	char number[32];

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
	return mc_options_set(o, id, MC_FROM_CONFIG, text, where, err);
}

static int set_key(struct mc_options *o, const struct mc_config_file *f, const char *key,
	const json_t *value, struct mc_err *err)
{
	unsigned line = mc_config_file_line(f, key);
	char where[256];
	int id = -1, r = 0;

	/* Editors look there for the schema. */
	if (strcmp(key, "$schema") == 0)
		return 0;
	for (int i = 0; i < MC_OPT_N; i++)
		if (mc_option_table[i].in_config && strcmp(mc_option_table[i].name, key) == 0)
			id = i;
	if (id < 0)
		return unknown_key(f, key, line, err);
	/* One file serves all commands; what another command takes is left alone. */
	if ((mc_option_table[id].commands & o->command) == 0)
		return 0;
	snprintf(where, sizeof(where), "%.160s:%u: \"%s\"", f->path, line, key);
	if (mc_option_table[id].type != MC_OPTION_TEXTS || !json_is_array(value))
		return set_value(o, (enum mc_option_id)id, value, where, err);
	if (json_array_size(value) == 0)
		return mc_err_set(err, -EINVAL, "%s must not be an empty list", where);
	for (size_t i = 0; i < json_array_size(value) && r == 0; i++)
		r = set_value(o, (enum mc_option_id)id, json_array_get(value, i), where, err);
	return r;
}

int mc_options_load_config(struct mc_options *o, const char *path, struct mc_err *err)
{
	struct mc_config_file f;
	const char *key;
	json_t *value;
	int r = mc_config_file_open(path, &f, err);

	if (r < 0)
		return r;
	json_object_foreach(f.root, key, value)
	{
		r = set_key(o, &f, key, value, err);
		if (r < 0)
			break;
	}
	mc_config_file_close(&f);
	return r;
}

int mc_options_check_config(
	const char *path, void (*problem)(void *ctx, const char *text), void *ctx)
{
	struct mc_options all = {.command = ~0u};
	struct mc_err err = {0};
	struct mc_config_file f;
	const char *key;
	json_t *value;
	int n = 0, r = mc_config_file_open(path, &f, &err);

	if (r < 0) {
		problem(ctx, err.text);
		return r == -EINVAL || r == -EFBIG ? 1 : r;
	}
	json_object_foreach(f.root, key, value)
	{
		if (set_key(&all, &f, key, value, &err) < 0) {
			problem(ctx, err.text);
			err = (struct mc_err){0};
			n++;
		}
	}
	mc_config_file_close(&f);
	mc_options_done(&all);
	return n;
}
