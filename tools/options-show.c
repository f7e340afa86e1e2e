/* Option values and their rules for others to read: as text, and as the schema of the file. */
#include "tools/options.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "tools/size.h"

const char *mc_options_show(const struct mc_options *o, enum mc_option_id id, char *out)
{
	static const char *const origins[] = {[MC_FROM_NOWHERE] = "default",
		[MC_FROM_DEFAULT] = "default",
		[MC_FROM_CONFIG] = "configuration file",
		[MC_FROM_WORDS] = "-o",
		[MC_FROM_FLAG] = "command line"};
	const struct mc_option *opt = &mc_option_table[id];
	const struct mc_option_value *v = &o->values[id];
	const char *word;
	size_t len;

	out[0] = '\0';
	if (opt->type == MC_OPTION_FLAG)
		snprintf(out, MC_OPTION_TEXT_MAX, "%s", v->number != 0 ? "true" : "false");
	else if (v->origin == MC_FROM_NOWHERE)
		return origins[v->origin];
	else if (v->text != NULL)
		snprintf(out, MC_OPTION_TEXT_MAX, "%s", v->text);
	else if (opt->type == MC_OPTION_SIZE)
		mc_size_exact(v->number, out);
	else if (opt->type == MC_OPTION_CHOICE &&
		(word = mc_option_choice(opt, (unsigned)v->number, &len)) != NULL)
		snprintf(out, MC_OPTION_TEXT_MAX, "%.*s", (int)len, word);
	else if (opt->type == MC_OPTION_PERCENT)
		snprintf(out, MC_OPTION_TEXT_MAX, "%g", (double)v->number / 10000);
	else
		snprintf(out, MC_OPTION_TEXT_MAX, "%" PRIu64, v->number);
	return origins[v->origin];
}

static json_t *choices(const struct mc_option *opt)
{
	json_t *list = json_array();
	const char *word;
	size_t len;

	for (unsigned i = 0; (word = mc_option_choice(opt, i, &len)) != NULL; i++)
		json_array_append_new(list, json_stringn(word, len));
	return list;
}

static json_t *rule_of(const struct mc_option *opt)
{
	json_int_t min = (json_int_t)opt->min, max = (json_int_t)opt->max;

	switch (opt->type) {
	case MC_OPTION_FLAG:
		return json_pack("{s:s}", "type", "boolean");
	case MC_OPTION_COUNT:
	case MC_OPTION_SECONDS:
		return json_pack(
			"{s:s, s:I, s:I}", "type", "integer", "minimum", min, "maximum", max);
	case MC_OPTION_SIZE:
		return json_pack("{s:[{s:s, s:I, s:I}, {s:s, s:s}]}", "anyOf", "type", "integer",
			"minimum", min, "maximum", max, "type", "string", "pattern",
			"^[0-9]+(\\.[0-9]+)? ?([kKmMgGtTpP]([iI]?[bB])?|[bB])?$");
	case MC_OPTION_CHOICE:
		return json_pack("{s:o}", "enum", choices(opt));
	case MC_OPTION_PLACE:
		return json_pack("{s:s, s:s}", "type", "string", "pattern",
			"^([^,]+|.+,[0-9]+(\\.[0-9]+)?[kKmMgGtTpP]?[iI]?[bB]?)$");
	case MC_OPTION_ADDRESS:
		return json_pack("{s:s, s:s}", "type", "string", "pattern",
			"^(\\[[0-9a-fA-F:.]+\\]|[0-9a-fA-F:.]+):[0-9]{1,5}$");
	case MC_OPTION_TEXTS:
		return json_pack("{s:[{s:s, s:i}, {s:s, s:i, s:{s:s, s:i}}]}", "anyOf", "type",
			"string", "minLength", 1, "type", "array", "minItems", 1, "items", "type",
			"string", "minLength", 1);
	case MC_OPTION_PERCENT:
	case MC_OPTION_TEXT:
		break;
	}
	return json_pack("{s:s, s:i}", "type", "string", "minLength", 1);
}

void mc_options_schema(FILE *out)
{
	json_t *properties = json_object(), *root, *rule;

	json_object_set_new(properties, "$schema", json_pack("{s:s}", "type", "string"));
	for (int i = 0; i < MC_OPT_N; i++) {
		const struct mc_option *opt = &mc_option_table[i];

		if (!opt->in_config)
			continue;
		rule = rule_of(opt);
		json_object_set_new(rule, "description", json_string(opt->sentence));
		if (opt->def != NULL)
			json_object_set_new(rule, "default",
				opt->type == MC_OPTION_COUNT || opt->type == MC_OPTION_SECONDS
					? json_integer((json_int_t)strtoull(opt->def, NULL, 10))
					: json_string(opt->def));
		json_object_set_new(properties, opt->name, rule);
	}
	root = json_pack("{s:s, s:s, s:s, s:b, s:o}", "$schema",
		"https://json-schema.org/draft/2020-12/schema", "title",
		"Configuration file of mooncakefs", "type", "object", "additionalProperties", 0,
		"properties", properties);
	json_dumpf(root, out, JSON_INDENT(2));
	fputc('\n', out);
	json_decref(root);
}
