/*
 * Regular expressions as a program for a set of threads that step over the name together (Pike).
 * Every instruction is in the set at most once, so a step costs at most the size of the program,
 * whatever the expression. Jumps are relative, so that a fragment can be copied and moved.
 */
#include "manifest/layout-re.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tier/cleanup.h"

#define MAX_CODE 1000 /* instructions */
#define MAX_DEPTH 64  /* nested groups */
#define MAX_REPEAT 255

enum op { OP_SET, OP_SPLIT, OP_JUMP, OP_SAVE, OP_MATCH };

struct inst {
	enum op op;
	int32_t a, b;    /* SPLIT: preferred and other target, JUMP: target, relative; SAVE: slot */
	uint8_t set[32]; /* SET: bytes that match */
};

struct mc_re {
	struct inst *code; /* owned */
	uint32_t n, n_captures;
};

struct compiler {
	struct mc_re *re;
	const char *s;
	unsigned depth;
	struct mc_err *err;
};

static int bad(struct compiler *c, const char *why)
{
	return mc_err_set(c->err, -EINVAL, "regular expression: %s near \"%.20s\"", why, c->s);
}

/* Inserts room for n instructions at place at. */
static int make_room(struct compiler *c, uint32_t at, uint32_t n)
{
	struct mc_re *re = c->re;

	if (re->n + n > MAX_CODE)
		return mc_err_set(
			c->err, -EINVAL, "regular expression: more than %d instructions", MAX_CODE);
	memmove(re->code + at + n, re->code + at, (re->n - at) * sizeof(*re->code));
	memset(re->code + at, 0, n * sizeof(*re->code));
	re->n += n;
	return 0;
}

static int emit(struct compiler *c, const struct inst *i)
{
	int r = make_room(c, c->re->n, 1);

	if (r == 0)
		c->re->code[c->re->n - 1] = *i;
	return r;
}

static void set_add(uint8_t *set, unsigned from, unsigned to)
{
	for (unsigned b = from; b <= to; b++)
		set[b / 8] |= (uint8_t)(1u << b % 8);
}

/* After a backslash: a class, or the character itself. */
static int escape(struct compiler *c, uint8_t *set, unsigned *ret_char)
{
	char e = *c->s;

	*ret_char = 256;
	if (e == 'd' || e == 'w')
		set_add(set, '0', '9');
	if (e == 'w') {
		set_add(set, 'a', 'z');
		set_add(set, 'A', 'Z');
		set_add(set, '_', '_');
	}
	if (e == 0 ||
		(((e >= 'a' && e <= 'z') || (e >= 'A' && e <= 'Z') || (e >= '0' && e <= '9')) &&
			e != 'd' && e != 'w'))
		return bad(c, "an escape that is not known");
	if (e != 'd' && e != 'w') {
		*ret_char = (unsigned char)e;
		set_add(set, *ret_char, *ret_char);
	}
	c->s++;
	return 0;
}

static int char_class(struct compiler *c, uint8_t *set)
{
	bool negate = *c->s == '^';
	int r = 0;

	c->s += negate;
	do {
		unsigned from = (unsigned char)*c->s, to;

		if (from == 0)
			return bad(c, "a class without its end");
		c->s++;
		if (from == '\\')
			r = escape(c, set, &from);
		if (r < 0 || from == 256)
			continue;
		to = from;
		if (c->s[0] == '-' && c->s[1] != ']' && c->s[1] != 0) {
			to = (unsigned char)c->s[1];
			c->s += 2;
			if (to < from || to == '\\')
				return bad(c, "a range that is not one");
		}
		set_add(set, from, to);
	} while (r == 0 && *c->s != ']');
	c->s++;
	for (unsigned i = 0; negate && i < 32; i++)
		set[i] = (uint8_t)~set[i];
	return r;
}

static int alternation(struct compiler *c);

static int group(struct compiler *c)
{
	bool plain = strncmp(c->s, "?:", 2) == 0;
	uint32_t which = c->re->n_captures;
	int r = 0;

	if (++c->depth > MAX_DEPTH)
		return bad(c, "groups too deep");
	if (plain)
		c->s += 2;
	else if (which == MC_CAPTURES)
		return bad(c, "too many groups");
	else
		c->re->n_captures++;
	if (!plain)
		r = emit(c, &(struct inst){.op = OP_SAVE, .a = (int32_t)(2 * which)});
	if (r == 0)
		r = alternation(c);
	if (r == 0 && *c->s != ')')
		r = bad(c, "a group without its end");
	if (r == 0 && !plain)
		r = emit(c, &(struct inst){.op = OP_SAVE, .a = (int32_t)(2 * which + 1)});
	c->s += r == 0;
	c->depth--;
	return r;
}

static int atom(struct compiler *c)
{
	struct inst i = {.op = OP_SET};
	unsigned ignored;
	int r = 0;
	char ch = *c->s++;

	if (ch == '(')
		return group(c);
	if (ch == '[')
		r = char_class(c, i.set);
	else if (ch == '\\')
		r = escape(c, i.set, &ignored);
	else if (ch == '.')
		set_add(i.set, 1, 255);
	else if (strchr("*+?{}^$]", ch) != NULL)
		r = (c->s--, bad(c, "a character that needs a backslash"));
	else
		set_add(i.set, (unsigned char)ch, (unsigned char)ch);
	return r < 0 ? r : emit(c, &i);
}

/* {m}, {m,}, {m,n}; max = UINT32_MAX without an end. */
static int counts(struct compiler *c, uint32_t *ret_min, uint32_t *ret_max)
{
	char *end;
	unsigned long lo = strtoul(c->s + 1, &end, 10), hi = lo;

	if (end == c->s + 1 || lo > MAX_REPEAT)
		return bad(c, "a count that is none or above 255");
	if (*end == ',' && end[1] == '}') {
		hi = UINT32_MAX;
		end++;
	} else if (*end == ',') {
		hi = strtoul(end + 1, &end, 10);
		if (hi < lo || hi > MAX_REPEAT)
			return bad(c, "a count that is none or above 255");
	}
	if (*end != '}')
		return bad(c, "a count without its end");
	c->s = end + 1;
	*ret_min = (uint32_t)lo;
	*ret_max = (uint32_t)hi;
	return 0;
}

/* Wraps code[at … n) in a loop that runs any number of times. */
static int star(struct compiler *c, uint32_t at)
{
	int32_t len = (int32_t)(c->re->n - at);
	int r = make_room(c, at, 1);

	if (r < 0)
		return r;
	c->re->code[at] = (struct inst){.op = OP_SPLIT, .a = 1, .b = len + 2};
	return emit(c, &(struct inst){.op = OP_JUMP, .a = -(len + 1)});
}

static int append_copy(struct compiler *c, const struct inst *code, uint32_t n)
{
	int r = 0;

	for (uint32_t i = 0; i < n && r == 0; i++)
		r = emit(c, &code[i]);
	return r;
}

/* code[at … n) is one atom; makes it min to max of them. */
static int repeat(struct compiler *c, uint32_t at, uint32_t min, uint32_t max)
{
	uint32_t len = c->re->n - at;
	cleanup_free struct inst *one = malloc((len + 1) * sizeof(*one));
	int r = 0;

	if (one == NULL)
		return -ENOMEM;
	memcpy(one, c->re->code + at, len * sizeof(*one));
	c->re->n = at;
	for (uint32_t i = 0; i < min && r == 0; i++)
		r = append_copy(c, one, len);
	if (r == 0 && max == UINT32_MAX) {
		at = c->re->n;
		r = append_copy(c, one, len);
		return r < 0 ? r : star(c, at);
	}
	for (uint32_t i = min; i < max && r == 0; i++) {
		r = emit(c, &(struct inst){.op = OP_SPLIT, .a = 1, .b = (int32_t)len + 1});
		if (r == 0)
			r = append_copy(c, one, len);
	}
	return r;
}

static int sequence(struct compiler *c)
{
	int r = 0;

	while (r == 0 && *c->s != 0 && *c->s != '|' && *c->s != ')') {
		uint32_t at = c->re->n, min = 1, max = 1;

		r = atom(c);
		if (r < 0)
			break;
		switch (*c->s) {
		case '*':
			min = 0;
			max = UINT32_MAX;
			break;
		case '+':
			max = UINT32_MAX;
			break;
		case '?':
			min = 0;
			break;
		case '{':
			r = counts(c, &min, &max);
			c->s--;
			break;
		default:
			continue;
		}
		c->s++;
		if (r == 0)
			r = repeat(c, at, min, max);
	}
	return r;
}

static int alternation(struct compiler *c)
{
	uint32_t at = c->re->n;
	int r = sequence(c);

	if (r == 0 && *c->s == '|') {
		uint32_t rest;

		c->s++;
		r = make_room(c, at, 1);
		if (r == 0)
			r = emit(c, &(struct inst){.op = OP_JUMP});
		rest = c->re->n;
		if (r < 0)
			return r;
		c->re->code[at] = (struct inst){.op = OP_SPLIT, .a = 1, .b = (int32_t)(rest - at)};
		if (++c->depth > MAX_DEPTH)
			return bad(c, "too many alternatives");
		r = alternation(c);
		c->depth--;
		c->re->code[rest - 1].a = (int32_t)(c->re->n - (rest - 1));
	}
	return r;
}

int mc_re_open(const char *text, struct mc_re **ret, struct mc_err *err)
{
	struct mc_re *re = calloc(1, sizeof(*re));
	struct compiler c = {.re = re, .s = text, .err = err};
	int r;

	if (re == NULL)
		return -ENOMEM;
	re->code = calloc(MAX_CODE + 1, sizeof(*re->code));
	r = re->code != NULL ? alternation(&c) : -ENOMEM;
	if (r == 0 && *c.s != 0)
		r = bad(&c, "a parenthesis too many");
	if (r == 0)
		r = emit(&c, &(struct inst){.op = OP_MATCH});
	if (r < 0)
		mc_re_close(re);
	else
		*ret = re;
	return r;
}

void mc_re_close(struct mc_re *re)
{
	if (re == NULL)
		return;
	free(re->code);
	free(re);
}

uint32_t mc_re_captures(const struct mc_re *re)
{
	return re->n_captures;
}

uint32_t mc_re_size(const struct mc_re *re)
{
	return re->n;
}

struct thread {
	uint32_t pc;
	uint32_t slot[2 * MC_CAPTURES];
};

struct threads {
	struct thread v[MAX_CODE + 1];
	uint32_t n;
};

struct machine {
	const struct mc_re *re;
	uint32_t mark[MAX_CODE + 1]; /* step at which an instruction was added */
	uint32_t step;
	struct threads a, b;
};

/* Adds pc with all that it leads to without reading; preferred branches first. */
static void follow(
	struct machine *m, struct threads *t, uint32_t pc, struct thread state, uint32_t at)
{
	/* Every instruction is entered once, so the stacks are bounded. */
	uint32_t saved[MAX_CODE + 1][2], n = 0, n_saved = 0;
	struct {
		uint32_t pc, n_saved;
	} stack[MAX_CODE + 1];

	for (;;) {
		bool dead = m->mark[pc] == m->step;
		const struct inst *i = &m->re->code[pc];

		m->mark[pc] = m->step;
		if (!dead && i->op == OP_JUMP) {
			pc = (uint32_t)((int32_t)pc + i->a);
			continue;
		}
		if (!dead && i->op == OP_SPLIT) {
			stack[n].n_saved = n_saved;
			stack[n++].pc = (uint32_t)((int32_t)pc + i->b);
			pc = (uint32_t)((int32_t)pc + i->a);
			continue;
		}
		if (!dead && i->op == OP_SAVE) {
			saved[n_saved][0] = (uint32_t)i->a;
			saved[n_saved++][1] = state.slot[i->a];
			state.slot[i->a] = at;
			pc++;
			continue;
		}
		if (!dead) {
			t->v[t->n] = state;
			t->v[t->n++].pc = pc;
		}
		if (n == 0)
			return;
		pc = stack[--n].pc;
		while (n_saved > stack[n].n_saved) {
			n_saved--;
			state.slot[saved[n_saved][0]] = saved[n_saved][1];
		}
	}
}

bool mc_re_match(const struct mc_re *re, const char *name, size_t len, struct mc_match *ret)
{
	cleanup_free struct machine *m = calloc(1, sizeof(*m));
	struct threads *now, *next;

	if (m == NULL)
		return false;
	m->re = re;
	m->step = 1;
	now = &m->a;
	next = &m->b;
	follow(m, now, 0, (struct thread){.pc = 0}, 0);
	for (size_t at = 0; at < len && now->n > 0; at++) {
		unsigned char ch = (unsigned char)name[at];
		struct threads *swap = now;

		m->step++;
		next->n = 0;
		for (uint32_t i = 0; i < now->n; i++) {
			const struct inst *c = &re->code[now->v[i].pc];

			if (c->op == OP_SET && (c->set[ch / 8] >> ch % 8 & 1) != 0)
				follow(m, next, now->v[i].pc + 1, now->v[i], (uint32_t)at + 1);
		}
		now = next;
		next = swap;
	}
	for (uint32_t i = 0; i < now->n; i++) {
		if (re->code[now->v[i].pc].op != OP_MATCH)
			continue;
		ret->n = re->n_captures;
		for (uint32_t k = 0; k < re->n_captures; k++) {
			ret->from[k] = now->v[i].slot[2 * k];
			ret->to[k] = now->v[i].slot[2 * k + 1];
		}
		return true;
	}
	return false;
}
