/* One option's value from text: its type, its limits, and what is said about a wrong one. */
#include "tools/options.h"

#include "tier/address.h"
#include "tools/size.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int parse_flag(const char *text, uint64_t *ret)
{
	static const struct {
		const char *text;
		uint64_t value;
	} words[] = {{"true", 1}, {"yes", 1}, {"on", 1}, {"1", 1}, {"false", 0}, {"no", 0},
		{"off", 0}, {"0", 0}};

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (strcmp(text, words[i].text) == 0) {
			*ret = words[i].value;
			return 0;
		}
	return -EINVAL;
}

static int parse_count(const char *text, uint64_t *ret)
{
	if (strspn(text, "0123456789") != strlen(text))
		return -EINVAL;
	return mc_size_parse(text, ret);
}

/* "12.5" or "12.5%" → 125,000 millionths of the whole. */
static int parse_percent(const char *text, uint64_t *ret)
{
	char *end;
	double v;

	if (strspn(text, "0123456789.") == 0)
		return -EINVAL;
	v = strtod(text, &end);
	if (*end == '%')
		end++;
	if (*end != '\0')
		return -EINVAL;
	if (!(v > 0 && v <= 100))
		return -ERANGE;
	*ret = (uint64_t)(v * 10000 + 0.5);
	if (*ret == 0)
		*ret = 1;
	return 0;
}

const char *mc_option_choice(const struct mc_option *opt, unsigned i, size_t *ret_len)
{
	const char *word = opt->unit;

	for (; i > 0; i--) {
		word += strcspn(word, "|");
		if (*word++ == '\0')
			return NULL;
	}
	*ret_len = strcspn(word, "|");
	return word;
}

static int parse_choice(const struct mc_option *opt, const char *text, uint64_t *ret)
{
	const char *word;
	size_t len;

	for (unsigned i = 0; (word = mc_option_choice(opt, i, &len)) != NULL; i++)
		if (strlen(text) == len && memcmp(text, word, len) == 0) {
			*ret = i;
			return 0;
		}
	return -EINVAL;
}

static bool is_text(const struct mc_option *opt)
{
	return opt->type == MC_OPTION_TEXT || opt->type == MC_OPTION_TEXTS ||
		opt->type == MC_OPTION_PLACE || opt->type == MC_OPTION_ADDRESS;
}

static int check_address(const char *text)
{
	struct addrinfo *at;
	int r = mc_address_parse(text, &at);

	if (r == 0)
		freeaddrinfo(at);
	return r;
}

/* Whether text is one of the option's type; *ret is its number where the type has one. */
static int parse_value(const struct mc_option *opt, const char *text, uint64_t *ret)
{
	size_t len;
	uint64_t v = 0;
	int r = -EINVAL;

	switch (opt->type) {
	case MC_OPTION_FLAG:
		return parse_flag(text, ret);
	case MC_OPTION_PERCENT:
		return parse_percent(text, ret);
	case MC_OPTION_COUNT:
	case MC_OPTION_SECONDS:
		r = parse_count(text, &v);
		break;
	case MC_OPTION_SIZE:
		r = mc_size_parse(text, &v);
		break;
	case MC_OPTION_CHOICE:
		return parse_choice(opt, text, ret);
	case MC_OPTION_PLACE:
		r = mc_place_parse(text, &len, &v);
		if (r < 0 || v == 0)
			return r;
		break;
	case MC_OPTION_ADDRESS:
		return check_address(text);
	case MC_OPTION_TEXT:
		return *text == '\0' ? -EINVAL : 0;
	case MC_OPTION_TEXTS:
		return *text == '\0' || strchr(text, '\n') != NULL ? -EINVAL : 0;
	}
	if (r == 0 && (v < opt->min || v > opt->max))
		r = -ERANGE;
	if (r == 0)
		*ret = v;
	return r;
}

static int bad_value(const struct mc_option *opt, int code, const char *text, const char *where,
	struct mc_err *err)
{
	static const char *const want[] = {[MC_OPTION_FLAG] = "true or false",
		[MC_OPTION_COUNT] = "a whole number",
		[MC_OPTION_SECONDS] = "a whole number of seconds",
		[MC_OPTION_SIZE] = "a size such as 512MiB or 4GiB",
		[MC_OPTION_PERCENT] = "per cent, more than 0 and at most 100",
		[MC_OPTION_PLACE] = "DIR or DIR,SIZE such as /nvme/mooncake,800GiB",
		[MC_OPTION_ADDRESS] =
			"a numeric address and port such as 127.0.0.1:9464 or [::1]:9464"};
	char min[MC_SIZE_TEXT], max[MC_SIZE_TEXT];

	if (opt->type == MC_OPTION_TEXT || opt->type == MC_OPTION_TEXTS)
		return mc_err_set(err, -EINVAL, "%s: the value %s", where,
			*text == '\0' ? "is empty" : "holds a newline");
	if (opt->type == MC_OPTION_CHOICE)
		return mc_err_set(err, -EINVAL, "%s: \"%s\" is none of %s", where, text, opt->unit);
	if (code != -ERANGE || opt->type == MC_OPTION_PERCENT || opt->max == 0)
		return mc_err_set(
			err, -EINVAL, "%s: \"%s\" is not %s", where, text, want[opt->type]);
	if (opt->type == MC_OPTION_SIZE || opt->type == MC_OPTION_PLACE) {
		mc_size_format(opt->min, min);
		mc_size_format(opt->max, max);
	} else {
		snprintf(min, sizeof(min), "%llu", (unsigned long long)opt->min);
		snprintf(max, sizeof(max), "%llu", (unsigned long long)opt->max);
	}
	return mc_err_set(err, -EINVAL, "%s: %s is outside %s to %s", where, text, min, max);
}

int mc_options_set(struct mc_options *o, enum mc_option_id id, enum mc_option_origin origin,
	const char *text, const char *where, struct mc_err *err)
{
	const struct mc_option *opt = &mc_option_table[id];
	struct mc_option_value *v = &o->values[id];
	uint64_t number = 0;
	bool more = opt->type == MC_OPTION_TEXTS && v->text != NULL && origin == v->origin;
	char *copy;
	int r = parse_value(opt, text, &number);

	if (r < 0)
		return bad_value(opt, r, text, where, err);
	/* Checked all the same: a file's mistake does not depend on the flags beside it. */
	if (origin < v->origin)
		return 0;
	if (is_text(opt)) {
		if (asprintf(&copy, "%s%s%s", more ? v->text : "", more ? "\n" : "", text) < 0)
			return mc_err_set(err, -ENOMEM, "%s: out of memory", where);
		free(v->text);
		v->text = copy;
	}
	v->number = number;
	v->origin = origin;
	return 0;
}

bool mc_options_given(const struct mc_options *o, enum mc_option_id id)
{
	return o->values[id].origin > MC_FROM_DEFAULT;
}

bool mc_options_flag(const struct mc_options *o, enum mc_option_id id)
{
	assert(mc_option_table[id].type == MC_OPTION_FLAG);
	return o->values[id].number != 0;
}

const char *mc_options_text(const struct mc_options *o, enum mc_option_id id)
{
	assert(is_text(&mc_option_table[id]));
	return o->values[id].text;
}

uint64_t mc_options_number(const struct mc_options *o, enum mc_option_id id)
{
	assert(!is_text(&mc_option_table[id]));
	return o->values[id].number;
}
