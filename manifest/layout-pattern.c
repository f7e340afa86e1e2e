/*
 * Globs. Alternatives are expanded into separate token lists when the pattern is read. A match
 * walks the tokens with two places to return to: the last '*' (which stops at a '.') and, behind
 * it, the last
 * '**'. Going back further never helps: an earlier wildcard that matched less leaves more to the
 * later.
 */
#include "manifest/layout-pattern.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/layout-re.h"
#include "tier/cleanup.h"

#define MAX_ALTERNATIVES 64
#define MAX_TOKENS 64

enum token_kind { T_TEXT, T_STAR, T_GLOBSTAR, T_ANY, T_NUMBER };

struct token {
	enum token_kind kind;
	uint16_t at, len; /* T_TEXT: in glob.text */
};

struct glob {
	char *text; /* owned */
	struct token token[MAX_TOKENS];
	uint32_t n_tokens, n_captures;
};

struct mc_name_pattern {
	struct glob *glob; /* owned, n */
	uint32_t n;
	struct mc_re *re; /* owned; instead of globs */
};

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static enum token_kind kind_of(const char *s)
{
	switch (*s) {
	case '*':
		return s[1] == '*' ? T_GLOBSTAR : T_STAR;
	case '?':
		return T_ANY;
	case '#':
		return T_NUMBER;
	default:
		return T_TEXT;
	}
}

/* One glob without alternatives. */
static int tokenise(struct glob *g, struct mc_err *err)
{
	const char *s = g->text;

	while (*s != 0) {
		struct token *t = &g->token[g->n_tokens];
		size_t len = 1;

		if (g->n_tokens == MAX_TOKENS)
			return mc_err_set(err, -EINVAL, "more than %d parts", MAX_TOKENS);
		t->kind = kind_of(s);
		if (t->kind == T_GLOBSTAR)
			len = 2;
		while (t->kind == T_TEXT && s[len] != 0 && kind_of(s + len) == T_TEXT)
			len++;
		t->at = (uint16_t)(s - g->text);
		t->len = (uint16_t)len;
		if (t->kind == T_STAR || t->kind == T_GLOBSTAR || t->kind == T_NUMBER)
			g->n_captures++;
		g->n_tokens++;
		s += len;
	}
	if (g->n_captures > MC_CAPTURES)
		return mc_err_set(err, -EINVAL, "more than %d wildcards", MC_CAPTURES);
	return 0;
}

static int add_glob(struct mc_name_pattern *p, const char *text, struct mc_err *err)
{
	struct glob *g;

	if (p->n == MAX_ALTERNATIVES)
		return mc_err_set(err, -EINVAL, "more than %d alternatives", MAX_ALTERNATIVES);
	g = realloc(p->glob, (p->n + 1) * sizeof(*g));
	if (g == NULL)
		return -ENOMEM;
	p->glob = g;
	g += p->n;
	*g = (struct glob){.text = strdup(text)};
	if (g->text == NULL)
		return -ENOMEM;
	p->n++;
	return tokenise(g, err);
}

/* Expands the first {a,b}; what follows it is expanded by the recursion, at most 64 times in all.
 */
static int expand(struct mc_name_pattern *p, const char *text, struct mc_err *err)
{
	const char *open = strchr(text, '{'), *close = strchr(text, '}');
	int r = 0;

	if (open == NULL && close == NULL)
		return add_glob(p, text, err);
	if (open == NULL || close == NULL || close < open)
		return mc_err_set(err, -EINVAL, "a brace without its other half");
	if (memchr(open + 1, '{', (size_t)(close - open - 1)) != NULL)
		return mc_err_set(err, -EINVAL, "braces inside braces");
	for (const char *s = open + 1; s <= close && r == 0;) {
		const char *end = s;
		char one[MC_PATTERN_MAX + 1];
		size_t head = (size_t)(open - text), len;

		while (*end != ',' && *end != '}')
			end++;
		len = (size_t)(end - s);
		memcpy(one, text, head);
		memcpy(one + head, s, len);
		memcpy(one + head + len, close + 1, strlen(close + 1) + 1); /* shorter than text */
		r = expand(p, one, err);
		s = end + 1;
	}
	return r;
}

int mc_name_pattern_open(const char *text, struct mc_name_pattern **ret, struct mc_err *err)
{
	struct mc_name_pattern *p = calloc(1, sizeof(*p));
	int r;

	if (p == NULL)
		return -ENOMEM;
	if (strlen(text) > MC_PATTERN_MAX)
		r = mc_err_set(err, -EINVAL, "a pattern of more than %d bytes", MC_PATTERN_MAX);
	else if (strncmp(text, "re:", 3) == 0)
		r = mc_re_open(text + 3, &p->re, err);
	else
		r = expand(p, text, err);
	for (uint32_t i = 1; i < p->n && r == 0; i++)
		if (p->glob[i].n_captures != p->glob[0].n_captures)
			r = mc_err_set(
				err, -EINVAL, "alternatives with different numbers of wildcards");
	if (r < 0)
		mc_name_pattern_close(p);
	else
		*ret = p;
	return r;
}

void mc_name_pattern_close(struct mc_name_pattern *p)
{
	if (p == NULL)
		return;
	for (uint32_t i = 0; i < p->n; i++)
		free(p->glob[i].text);
	free(p->glob);
	mc_re_close(p->re);
	free(p);
}

uint32_t mc_name_pattern_captures(const struct mc_name_pattern *p)
{
	return p->re != NULL ? mc_re_captures(p->re) : p->glob[0].n_captures;
}

uint32_t mc_name_pattern_cost(const struct mc_name_pattern *p)
{
	return p->re != NULL ? mc_re_size(p->re) : p->n;
}

/* Where a match can be taken up again: token i + 1 with the wildcard i one character longer. */
struct resume {
	uint32_t token, capture;
	size_t at;
	bool set;
};

struct glob_walk {
	const struct glob *g;
	const char *s;
	size_t len, at;
	uint32_t i, capture;
	struct resume star, globstar;
	struct mc_match m;
};

/* Token i at the present place; false when it does not fit. */
static bool token_fits(struct glob_walk *w)
{
	const struct token *t = &w->g->token[w->i];
	size_t left = w->len - w->at, n = 0;

	switch (t->kind) {
	case T_TEXT:
		if (left < t->len || memcmp(w->s + w->at, w->g->text + t->at, t->len) != 0)
			return false;
		n = t->len;
		break;
	case T_ANY:
		n = 1;
		break;
	case T_NUMBER:
		while (n < left && is_digit(w->s[w->at + n]))
			n++;
		break;
	case T_STAR:
		n = left > 0 && w->s[w->at] != '.' ? 1 : 0;
		break;
	case T_GLOBSTAR:
		w->star.set = false;
		w->globstar = (struct resume){
			.token = w->i, .capture = w->capture, .at = w->at, .set = true};
		break;
	}
	if (n > left || (n == 0 && t->kind != T_GLOBSTAR))
		return false;
	if (t->kind == T_STAR)
		w->star = (struct resume){
			.token = w->i, .capture = w->capture, .at = w->at + n, .set = true};
	if (t->kind != T_TEXT && t->kind != T_ANY) {
		w->m.from[w->capture] = (uint32_t)w->at;
		w->m.to[w->capture++] = (uint32_t)(w->at + n);
	}
	w->at += n;
	w->i++;
	return true;
}

static bool take_up(struct glob_walk *w, struct resume *r)
{
	r->at++;
	w->i = r->token + 1;
	w->capture = r->capture + 1;
	w->at = r->at;
	w->m.to[r->capture] = (uint32_t)r->at;
	return true;
}

static bool go_back(struct glob_walk *w)
{
	if (w->star.set && w->star.at < w->len && w->s[w->star.at] != '.')
		return take_up(w, &w->star);
	w->star.set = false;
	return w->globstar.set && w->globstar.at < w->len && take_up(w, &w->globstar);
}

static bool glob_match(const struct glob *g, const char *s, size_t len, struct mc_match *ret)
{
	const struct token *last = g->n_tokens > 0 ? &g->token[g->n_tokens - 1] : NULL;
	struct glob_walk w = {.g = g, .s = s, .len = len};

	/* Nearly all rules differ in the last words of the name. */
	if (last != NULL && last->kind == T_TEXT &&
		(len < last->len ||
			memcmp(s + len - last->len, g->text + last->at, last->len) != 0))
		return false;
	for (;;) {
		if (w.i == g->n_tokens && w.at == len)
			break;
		if ((w.i == g->n_tokens || !token_fits(&w)) && !go_back(&w))
			return false;
	}
	w.m.n = g->n_captures;
	*ret = w.m;
	return true;
}

bool mc_name_pattern_match(
	const struct mc_name_pattern *p, const char *name, size_t len, struct mc_match *ret)
{
	if (len > MC_NAME_MAX)
		return false;
	if (p->re != NULL)
		return mc_re_match(p->re, name, len, ret);
	for (uint32_t i = 0; i < p->n; i++)
		if (glob_match(&p->glob[i], name, len, ret))
			return true;
	return false;
}

int mc_match_number(const struct mc_match *m, const char *name, uint32_t which, uint64_t *ret)
{
	uint64_t v = 0;
	uint32_t at, to;

	if (which == 0 || which > m->n)
		return -EINVAL;
	at = m->from[which - 1];
	to = m->to[which - 1];
	if (at == to || to - at > 9 || (name[at] == '0' && to - at > 1))
		return -EINVAL;
	for (; at < to; at++) {
		if (!is_digit(name[at]))
			return -EINVAL;
		v = v * 10 + (uint64_t)(name[at] - '0');
	}
	*ret = v;
	return 0;
}

int mc_match_expand(
	const struct mc_match *m, const char *name, const char *template, char *out, size_t size)
{
	size_t at = 0;

	for (const char *s = template; *s != 0; s++) {
		const char *from = s;
		size_t len = 1;

		if (*s == '}')
			return -EINVAL;
		if (*s == '{') {
			uint32_t which = (uint32_t)(s[1] - '1');

			if (s[1] < '1' || which >= m->n || s[2] != '}')
				return -EINVAL;
			from = name + m->from[which];
			len = m->to[which] - m->from[which];
			s += 2;
		}
		if (at + len >= size)
			return -ENAMETOOLONG;
		memcpy(out + at, from, len);
		at += len;
	}
	out[at] = 0;
	return 0;
}
