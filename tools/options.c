/* Options of a command: reading its line and the words of -o, and computed defaults. */
#include "tools/options.h"

#include "tier/cleanup.h"
#include "tools/machine-memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MIN_TIER (UINT64_C(64) << 20)
#define MIN_BUDGET (UINT64_C(64) << 20)
#define MAX_BUDGET (UINT64_C(256) << 20)

/* Words of fstab and mount(8) that ask for what is so anyway, or are for mount(8) itself. */
static const char *const ignored_words[] = {"_netdev", "async", "atime", "auto", "comment",
	"default_permissions", "defaults", "dev", "diratime", "exec", "group", "lazytime", "loud",
	"noatime", "noauto", "nodev", "nodiratime", "nofail", "nogroup", "nolazytime", "noowner",
	"norelatime", "nostrictatime", "nosuid", "nouser", "nousers", "owner", "relatime", "ro",
	"rw", "silent", "strictatime", "suid", "uhelper", "user", "users"};

/* What other file systems have, and why we have not. */
static const struct {
	const char *word, *text;
} refused_words[] = {
	{"remount",
		"change the configuration file and send the daemon SIGHUP, or unmount and "
		"mount"},
	{"io_uring",
		"this transport is not used: a mount that it serves cannot be taken over by "
		"another process; leave the option out"},
};

static int unknown(
	unsigned command, const char *word, size_t len, bool in_words, struct mc_err *err)
{
	const char *names[MC_OPT_N], *near;
	char name[64];
	size_t n = 0;

	for (int i = 0; i < MC_OPT_N; i++)
		if ((mc_option_table[i].commands & command) != 0 &&
			(!in_words || mc_option_table[i].in_words))
			names[n++] = mc_option_table[i].name;
	snprintf(name, sizeof(name), "%.*s", (int)(len < sizeof(name) ? len : sizeof(name) - 1),
		word);
	near = mc_nearest_name(name, names, n);
	if (near == NULL)
		return mc_err_set(
			err, -EINVAL, "unknown option %s%s", in_words ? "-o " : "--", name);
	return mc_err_set(err, -EINVAL, "unknown option %s%s; did you mean %s%s?",
		in_words ? "-o " : "--", name, in_words ? "-o " : "--", near);
}

static int find_name(unsigned command, const char *name, size_t len)
{
	for (int i = 0; i < MC_OPT_N; i++) {
		const struct mc_option *opt = &mc_option_table[i];

		if ((opt->commands & command) != 0 && strlen(opt->name) == len &&
			memcmp(opt->name, name, len) == 0)
			return i;
	}
	return -1;
}

/* One word of -o, changed in place: "dram=4GiB", "allow_other". */
static int set_word(struct mc_options *o, char *word, struct mc_err *err)
{
	char *eq = strchr(word, '='), where[80];
	int id;

	if (eq != NULL)
		*eq = '\0';
	for (size_t i = 0; i < sizeof(ignored_words) / sizeof(*ignored_words); i++)
		if (strcmp(word, ignored_words[i]) == 0)
			return 0;
	if (word[0] == '\0' || strncasecmp(word, "x-", 2) == 0)
		return 0;
	for (size_t i = 0; i < sizeof(refused_words) / sizeof(*refused_words); i++)
		if (strcmp(word, refused_words[i].word) == 0)
			return mc_err_set(err, -EINVAL, "-o %s: %s", word, refused_words[i].text);
	for (char *c = word; *c != '\0'; c++)
		if (*c == '_')
			*c = '-';
	id = find_name(o->command, word, strlen(word));
	if (id < 0 || !mc_option_table[id].in_words)
		return unknown(o->command, word, strlen(word), true, err);
	snprintf(where, sizeof(where), "-o %s", word);
	if (eq == NULL && mc_option_table[id].type != MC_OPTION_FLAG)
		return mc_err_set(err, -EINVAL, "%s needs a value: %s=%s", where, word,
			mc_option_table[id].unit);
	return mc_options_set(
		o, (enum mc_option_id)id, MC_FROM_WORDS, eq == NULL ? "true" : eq + 1, where, err);
}

/* Splits at commas that no backslash precedes and that stand in no double quotes. */
static int set_words(struct mc_options *o, const char *list, struct mc_err *err)
{
	cleanup_free char *copy = strdup(list);
	char *word = copy, *out = copy;
	bool quoted = false;
	int r;

	if (copy == NULL)
		return mc_err_set(err, -ENOMEM, "-o: out of memory");
	for (const char *in = list;; in++) {
		if (*in == '\\' && in[1] != '\0') {
			*out++ = *++in;
		} else if (*in == '"') {
			quoted = !quoted;
		} else if ((*in == ',' && !quoted) || *in == '\0') {
			bool last = *in == '\0';

			*out = '\0';
			r = set_word(o, word, err);
			if (r < 0 || last)
				return r;
			word = ++out;
		} else {
			*out++ = *in;
		}
	}
}

/* The option that argv[*i] names; sets *ret_value to what stands behind '=' or in the letter's
 * word. */
static int find_option(
	unsigned command, const char *word, const char **ret_value, struct mc_err *err)
{
	size_t len;
	int id = -1;

	*ret_value = NULL;
	if (word[1] == '-') {
		len = strcspn(word + 2, "=");
		id = find_name(command, word + 2, len);
		if (id < 0)
			return unknown(command, word + 2, len, false, err);
		if (word[2 + len] == '=')
			*ret_value = word + 2 + len + 1;
		return id;
	}
	for (int i = 0; i < MC_OPT_N; i++)
		if (mc_option_table[i].letter == word[1] &&
			(mc_option_table[i].commands & command) != 0)
			id = i;
	if (id < 0)
		return mc_err_set(err, -EINVAL, "unknown option -%c", word[1]);
	if (word[2] != '\0')
		*ret_value = word + 2;
	return id;
}

/* Handles the option at argv[*i] and moves *i to its last word. */
static int take_option(
	struct mc_options *o, int argc, char *const *argv, int *i, struct mc_err *err)
{
	const struct mc_option *opt;
	const char *value;
	char where[80];
	int id = find_option(o->command, argv[*i], &value, err);

	if (id < 0)
		return id;
	opt = &mc_option_table[id];
	snprintf(where, sizeof(where), "--%s", opt->name);
	if (opt->type == MC_OPTION_FLAG) {
		if (value != NULL && argv[*i][1] != '-')
			return mc_err_set(err, -EINVAL, "unknown option %s; -%c takes no value",
				argv[*i], opt->letter);
		if (value == NULL)
			value = "true";
	} else if (value == NULL) {
		if (*i + 1 >= argc)
			return mc_err_set(err, -EINVAL, "%s needs a value: %s", where, opt->unit);
		value = argv[++*i];
	}
	if (id == MC_OPT_WORDS)
		return set_words(o, value, err);
	return mc_options_set(o, (enum mc_option_id)id, MC_FROM_FLAG, value, where, err);
}

static void set_computed(struct mc_options *o, enum mc_option_id id, uint64_t number)
{
	struct mc_option_value *v = &o->values[id];

	if (v->origin == MC_FROM_NOWHERE && (mc_option_table[id].commands & o->command) != 0)
		*v = (struct mc_option_value){.origin = MC_FROM_DEFAULT, .number = number};
}

static uint64_t between(uint64_t low, uint64_t v, uint64_t high)
{
	return v < low ? low : v > high ? high : v;
}

/* Defaults that depend on the machine, or on what else was given. */
static void compute_defaults(struct mc_options *o)
{
	uint64_t memory = mc_machine_memory("");

	set_computed(o, MC_OPT_MEMORY, between(MIN_BUDGET, memory / 8, MAX_BUDGET));
	if ((o->command & (MC_IN_MOUNT | MC_IN_CONFIG)) == 0)
		return;
	set_computed(o, MC_OPT_DRAM, between(MIN_TIER, memory / 4, UINT64_MAX));
	set_computed(o, MC_OPT_KV_DRAM, o->values[MC_OPT_DRAM].number / 2);
}

static int set_defaults(struct mc_options *o, struct mc_err *err)
{
	int r = 0;

	for (int i = 0; i < MC_OPT_N && r == 0; i++)
		if (mc_option_table[i].def != NULL)
			r = mc_options_set(o, (enum mc_option_id)i, MC_FROM_DEFAULT,
				mc_option_table[i].def, mc_option_table[i].name, err);
	return r;
}

int mc_options_parse(
	unsigned command, int argc, char *const *argv, struct mc_options *ret, struct mc_err *err)
{
	bool only_args = false;
	int r;

	*ret = (struct mc_options){.command = command};
	ret->args = calloc((size_t)argc + 1, sizeof(*ret->args));
	r = ret->args == NULL ? mc_err_set(err, -ENOMEM, "out of memory") : set_defaults(ret, err);
	for (int i = 0; i < argc && r == 0; i++) {
		if (!only_args && strcmp(argv[i], "--") == 0) {
			only_args = true;
		} else if (!only_args && argv[i][0] == '-' && argv[i][1] != '\0') {
			r = take_option(ret, argc, argv, &i, err);
		} else {
			ret->args[ret->n_args++] = argv[i];
		}
	}
	if (r == 0 && !mc_options_flag(ret, MC_OPT_HELP) && mc_options_given(ret, MC_OPT_CONFIG))
		r = mc_options_load_config(ret, mc_options_text(ret, MC_OPT_CONFIG), err);
	if (r == 0)
		compute_defaults(ret);
	return r;
}

int mc_options_reread(
	const struct mc_options *o, const char *path, struct mc_options *ret, struct mc_err *err)
{
	int r;

	*ret = (struct mc_options){.command = o->command};
	r = set_defaults(ret, err);
	for (int i = 0; i < MC_OPT_N && r == 0; i++) {
		const struct mc_option_value *v = &o->values[i];

		if (v->origin <= MC_FROM_CONFIG)
			continue;
		free(ret->values[i].text);
		ret->values[i] = *v;
		if (v->text != NULL && (ret->values[i].text = strdup(v->text)) == NULL)
			r = mc_err_set(err, -ENOMEM, "out of memory");
	}
	if (r == 0)
		r = mc_options_load_config(ret, path, err);
	if (r == 0)
		compute_defaults(ret);
	return r;
}

void mc_options_done(struct mc_options *o)
{
	for (int i = 0; i < MC_OPT_N; i++)
		free(o->values[i].text);
	free(o->args);
	*o = (struct mc_options){0};
}
