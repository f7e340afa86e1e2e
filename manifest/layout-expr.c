/*
 * Expressions of layout documents: whole numbers, parameters, config:path, + - * / and parentheses,
 * and a ?? b (b when a names something that is not there). Division must be exact, nothing is
 * negative.
 */
#include "manifest/layout-build.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/json.h"

#define MAX_DEPTH 32

struct parser {
	const struct expr_env *env;
	const char *whole, *s;
	struct mc_err *err;
	unsigned depth;
	bool missing;   /* the failure is a name that is not there */
	char text[160]; /* why it failed */
};

static int sum(struct parser *p, uint64_t *ret);
static int value(const struct expr_env *e, const json_t *expr, uint64_t *ret, struct parser *up);

static int fail(struct parser *p, const char *why, const char *what, int len)
{
	snprintf(p->text, sizeof(p->text), "%s%.*s", why, len, what);
	return -EINVAL;
}

static void skip(struct parser *p)
{
	while (*p->s == ' ')
		p->s++;
}

static bool name_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
		c == '_' || c == '.';
}

/* config:a.b.c */
static int config_value(struct parser *p, const char *path, size_t len, uint64_t *ret)
{
	const json_t *at = p->env->config;
	size_t i = 0;

	while (i < len && at != NULL) {
		size_t j = i;
		char key[128];

		while (j < len && path[j] != '.')
			j++;
		if (j - i >= sizeof(key))
			return fail(p, "a key that is too long", "", 0);
		memcpy(key, path + i, j - i);
		key[j - i] = 0;
		at = json_is_array(at) ? json_array_get(at, strtoul(key, NULL, 10))
				       : json_object_get(at, key);
		i = j + 1;
	}
	if (at == NULL || json_is_null(at)) {
		p->missing = true;
		return fail(p, "config.json has no ", path, (int)len);
	}
	if (mc_json_uint(at, MC_JSON_INT_MAX, ret) < 0)
		return fail(p, "config.json has no whole number at ", path, (int)len);
	return 0;
}

static int name_value(struct parser *p, const char *name, size_t len, uint64_t *ret)
{
	const json_t *v;
	char key[64];

	if (len >= sizeof(key))
		return fail(p, "a name that is too long", "", 0);
	memcpy(key, name, len);
	key[len] = 0;
	v = json_object_get(p->env->params, key);
	if (v == NULL) {
		p->missing = true;
		return fail(p, "no parameter ", name, (int)len);
	}
	if (p->depth >= MAX_DEPTH)
		return fail(p, "a circle through parameter ", name, (int)len);
	return value(p->env, v, ret, p);
}

static int number(struct parser *p, uint64_t *ret)
{
	uint64_t v = 0;

	for (; *p->s >= '0' && *p->s <= '9'; p->s++) {
		v = v * 10 + (uint64_t)(*p->s - '0');
		if (v > MC_JSON_INT_MAX)
			return fail(p, "a number above 2^53", "", 0);
	}
	*ret = v;
	return 0;
}

static int factor(struct parser *p, uint64_t *ret)
{
	const char *from;
	bool config;

	skip(p);
	if (*p->s >= '0' && *p->s <= '9')
		return number(p, ret);
	if (*p->s == '(') {
		int r;

		if (++p->depth >= MAX_DEPTH)
			return fail(p, "too many parentheses", "", 0);
		p->s++;
		r = sum(p, ret);
		p->depth--;
		skip(p);
		if (r == 0 && *p->s++ != ')')
			return fail(p, "a parenthesis that is not closed", "", 0);
		return r;
	}
	config = strncmp(p->s, "config:", 7) == 0;
	if (config)
		p->s += 7;
	from = p->s;
	while (name_char(*p->s))
		p->s++;
	if (p->s == from)
		return fail(p, "a value is missing before ", p->s, 10);
	return config ? config_value(p, from, (size_t)(p->s - from), ret)
		      : name_value(p, from, (size_t)(p->s - from), ret);
}

static int product(struct parser *p, uint64_t *ret)
{
	int r = factor(p, ret);

	while (r == 0) {
		uint64_t b;
		char op;

		skip(p);
		op = *p->s;
		if (op != '*' && op != '/')
			break;
		p->s++;
		r = factor(p, &b);
		if (r < 0)
			break;
		if (op == '*' && (__builtin_mul_overflow(*ret, b, ret) || *ret > MC_JSON_INT_MAX))
			return fail(p, "a product above 2^53", "", 0);
		if (op == '/') {
			if (b == 0 || *ret % b != 0)
				return fail(p, "a division that leaves a rest", "", 0);
			*ret /= b;
		}
	}
	return r;
}

static int sum(struct parser *p, uint64_t *ret)
{
	int r = product(p, ret);

	while (r == 0) {
		uint64_t b;
		char op;

		skip(p);
		op = *p->s;
		if (op != '+' && op != '-')
			break;
		p->s++;
		r = product(p, &b);
		if (r < 0)
			break;
		if (op == '+' && (*ret += b) > MC_JSON_INT_MAX)
			return fail(p, "a sum above 2^53", "", 0);
		if (op == '-') {
			if (b > *ret)
				return fail(p, "a difference below 0", "", 0);
			*ret -= b;
		}
	}
	return r;
}

/* a ?? b ?? c: the first whose names are all there. */
static int alternatives(struct parser *p, uint64_t *ret)
{
	for (;;) {
		const char *next = strstr(p->s, "??");
		int r;

		p->missing = false;
		r = sum(p, ret);
		skip(p);
		if (r == 0 && (*p->s == 0 || p->s == next))
			return 0;
		if (r == 0)
			return fail(p, "what is not understood: ", p->s, 20);
		if (!p->missing || next == NULL)
			return r;
		p->s = next + 2;
	}
}

static int value(const struct expr_env *e, const json_t *expr, uint64_t *ret, struct parser *up)
{
	struct parser p = {.env = e, .depth = up != NULL ? up->depth + 1 : 0};
	int r;

	if (json_is_integer(expr)) {
		r = mc_json_uint(expr, MC_JSON_INT_MAX, ret);
		if (r < 0)
			fail(&p, "a number below 0 or above 2^53", "", 0);
	} else {
		p.whole = p.s = json_string_value(expr);
		r = alternatives(&p, ret);
	}
	if (r == 0)
		return 0;
	if (up != NULL) {
		up->missing = p.missing;
		memcpy(up->text, p.text, sizeof(up->text));
	}
	return -EINVAL;
}

int mc_ly_expr_value(
	const struct expr_env *e, const json_t *expr, uint64_t *ret, struct mc_err *err)
{
	struct parser top = {.env = e};

	if (value(e, expr, ret, &top) == 0)
		return 0;
	return mc_err_set(err, -EINVAL, "expression \"%s\": %s",
		json_is_string(expr) ? json_string_value(expr) : "number", top.text);
}
