/* Readers of single values of a layout document; each error carries the JSON pointer. */
#include "manifest/layout-build.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/json.h"

int mc_ly_bad_at(const struct pointer *p, const char *fmt, ...)
{
	char why[320];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	return mc_err_set(p->err, -EBADMSG, "layout %s: %s", p->text[0] != 0 ? p->text : "/", why);
}

struct pointer mc_ly_deeper(const struct pointer *p, const char *key, size_t index)
{
	struct pointer q = *p;
	size_t at = strlen(q.text);

	if (key != NULL)
		snprintf(q.text + at, sizeof(q.text) - at, "/%s", key);
	else
		snprintf(q.text + at, sizeof(q.text) - at, "/%zu", index);
	return q;
}

void mc_ly_pointer_copy(const struct pointer *p, char *out, size_t size)
{
	size_t len = strnlen(p->text, size - 1);

	memcpy(out, p->text, len);
	out[len] = 0;
}

int mc_ly_get_string(const json_t *o, const char *key, const char **ret, const struct pointer *p)
{
	const json_t *v = json_object_get(o, key);
	struct pointer q = mc_ly_deeper(p, key, 0);

	if (v == NULL)
		return 0;
	if (!json_is_string(v))
		return mc_ly_bad_at(&q, "not a string");
	if (json_string_length(v) > MC_PATTERN_MAX)
		return mc_ly_bad_at(&q, "more than %d bytes", MC_PATTERN_MAX);
	*ret = json_string_value(v);
	return 0;
}

int mc_ly_get_bool(const json_t *o, const char *key, bool *ret, const struct pointer *p)
{
	const json_t *v = json_object_get(o, key);
	struct pointer q = mc_ly_deeper(p, key, 0);

	if (v == NULL)
		return 0;
	if (!json_is_boolean(v))
		return mc_ly_bad_at(&q, "not true or false");
	*ret = json_is_true(v);
	return 0;
}

int mc_ly_get_uint(
	const json_t *o, const char *key, uint32_t max, uint32_t *ret, const struct pointer *p)
{
	const json_t *v = json_object_get(o, key);
	struct pointer q = mc_ly_deeper(p, key, 0);
	uint64_t n;

	if (v == NULL)
		return 0;
	if (mc_json_uint(v, max, &n) < 0)
		return mc_ly_bad_at(&q, "not a whole number from 0 to %u", max);
	*ret = (uint32_t)n;
	return 0;
}

int mc_ly_check_expr(const json_t *v, const struct pointer *p)
{
	if (json_is_integer(v))
		return json_integer_value(v) >= 0 ? 0 : mc_ly_bad_at(p, "a number below 0");
	if (!json_is_string(v))
		return mc_ly_bad_at(p, "not a whole number and not an expression");
	return json_string_length(v) <= MC_PATTERN_MAX
		? 0
		: mc_ly_bad_at(p, "more than %d bytes", MC_PATTERN_MAX);
}

int mc_ly_get_expr(const json_t *o, const char *key, const json_t **ret, const struct pointer *p)
{
	const json_t *v = json_object_get(o, key);
	struct pointer q = mc_ly_deeper(p, key, 0);

	if (v == NULL)
		return 0;
	*ret = v;
	return mc_ly_check_expr(v, &q);
}

int mc_ly_get_array(
	const json_t *o, const char *key, size_t max, const json_t **ret, const struct pointer *p)
{
	const json_t *v = json_object_get(o, key);
	struct pointer q = mc_ly_deeper(p, key, 0);

	if (v == NULL)
		return 0;
	if (!json_is_array(v))
		return mc_ly_bad_at(&q, "not an array");
	if (json_array_size(v) > max)
		return mc_ly_bad_at(&q, "%zu entries, more than %zu", json_array_size(v), max);
	*ret = v;
	return 0;
}

int mc_ly_only_keys(const json_t *o, const char *const *known, const struct pointer *p)
{
	const char *key;
	json_t *v;

	if (!json_is_object(o))
		return mc_ly_bad_at(p, "not an object");
	json_object_foreach((json_t *)(uintptr_t)o, key, v)
	{
		size_t i = 0;

		while (known[i] != NULL && strcmp(known[i], key) != 0)
			i++;
		if (known[i] == NULL && strncmp(key, "x-", 2) != 0)
			return mc_ly_bad_at(p, "unknown key \"%.64s\"", key);
	}
	return 0;
}

int mc_ly_get_choice(const json_t *o, const char *key, const char *const *list, unsigned *ret,
	const struct pointer *p)
{
	struct pointer q = mc_ly_deeper(p, key, 0);
	const char *v = NULL;
	int r = mc_ly_get_string(o, key, &v, p);

	if (r < 0 || v == NULL)
		return r;
	for (unsigned i = 0; list[i] != NULL; i++)
		if (strcmp(list[i], v) == 0) {
			*ret = i;
			return 0;
		}
	return mc_ly_bad_at(&q, "\"%.64s\" is none of the choices", v);
}

static int open_pattern(const json_t *v, struct mc_name_pattern **ret, const struct pointer *p)
{
	struct mc_err why = {{0}};
	int r;

	if (!json_is_string(v))
		return mc_ly_bad_at(p, "not a pattern");
	r = mc_name_pattern_open(json_string_value(v), ret, &why);
	return r == -EINVAL ? mc_ly_bad_at(p, "%.256s", why.text) : r;
}

int mc_ly_get_pattern(
	const json_t *o, const char *key, struct mc_name_pattern **ret, const struct pointer *p)
{
	const json_t *v = json_object_get(o, key);
	struct pointer q = mc_ly_deeper(p, key, 0);

	return v == NULL ? 0 : open_pattern(v, ret, &q);
}

int mc_ly_get_patterns(
	const json_t *o, const char *key, struct patterns *ret, const struct pointer *p)
{
	struct pointer q = mc_ly_deeper(p, key, 0);
	const json_t *v = NULL;
	int r = mc_ly_get_array(o, key, 16, &v, p);

	if (r < 0 || v == NULL)
		return r;
	ret->v = calloc(json_array_size(v) + 1, sizeof(struct mc_name_pattern *));
	if (ret->v == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < json_array_size(v) && r == 0; i++) {
		struct pointer s = mc_ly_deeper(&q, NULL, i);

		r = open_pattern(json_array_get(v, i), &ret->v[ret->n], &s);
		ret->n += r == 0;
	}
	return r;
}

void mc_ly_patterns_done(struct patterns *p)
{
	for (uint32_t i = 0; i < p->n; i++)
		mc_name_pattern_close(p->v[i]);
	free(p->v);
	*p = (struct patterns){0};
}
