/* Name patterns of layout documents: globs and bounded regular expressions. */
#include "manifest/layout-pattern.h"
#include "tests/suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void expect_match(const char *pattern, const char *name, bool want)
{
	struct mc_name_pattern *p = NULL;
	struct mc_err err = {{0}};
	struct mc_match m;
	int r = mc_name_pattern_open(pattern, &p, &err);

	ck_assert_msg(r == 0, "%s: %s", pattern, err.text);
	ck_assert_msg(mc_name_pattern_match(p, name, strlen(name), &m) == want, "%s on %s", pattern,
		name);
	mc_name_pattern_close(p);
}

START_TEST(globs_and_expressions_match_whole_names)
{
	static const struct {
		const char *pattern, *name;
		bool want;
	} t[] = {
		{"a.*.b", "a.x.b", true},
		{"a.*.b", "a.x.y.b", false},
		{"a.**.b", "a.x.y.b", true},
		{"a.*", "a.", false},
		{"a.**", "a.", true},
		{"a.#.b", "a.17.b", true},
		{"a.#.b", "a.x.b", false},
		{"{a,b}.w", "b.w", true},
		{"{a,b}.w", "c.w", false},
		{"a?c", "abc", true},
		{"a?c", "ac", false},
		{"*.x*y", "a.xb.xcy", false},
		{"**.x*y", "a.xb.xcy", true},
		{"*a*b", "aaab", true},
		{"**ab**ab", "xabxabab", true},
		{"**.scale", "a.scales", false},
		{"", "", true},
		{"*", "a", true},
		{"re:a.*b", "axxb", true},
		{"re:a.*b", "axxbc", false},
		{"re:(a|bc)+d?", "abcad", true},
		{"re:[a-c]{2,3}", "abca", false},
		{"re:[a-c]{2,3}", "abc", true},
		{"re:[^.]+\\.\\d+", "ab.12", true},
		{"re:[^.]+\\.\\d+", "a.b.12", false},
		{"re:(?:x|y|z)*", "zyx", true},
		{"re:", "", true},
		{"re:(a*)*", "aaaa", true},
		{"re:(a|a)*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac", false},
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++)
		expect_match(t[i].pattern, t[i].name, t[i].want);
}
END_TEST

START_TEST(patterns_that_explode_or_are_broken_are_refused)
{
	static const char *const bad[] = {"re:(a{255}){255}", "re:a{3,2}", "re:(a", "re:a)",
		"re:[a", "re:*a", "re:a\\q", "re:((((((((((a))))))))))", "{a,b", "a}b", "{a,{b}}",
		"{a,#}.x", "#.#.#.#.#.#.#.#.#", "re:a{256}", "re:[z-a]"};
	char longer[MC_PATTERN_MAX + 2], many[512] = "";

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct mc_name_pattern *p = NULL;
		struct mc_err err = {{0}};

		ck_assert_msg(mc_name_pattern_open(bad[i], &p, &err) == -EINVAL, "%s", bad[i]);
		ck_assert_str_ne(err.text, "");
		ck_assert_ptr_null(p);
	}
	memset(longer, 'a', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = 0;
	ck_assert_int_eq(
		mc_name_pattern_open(longer, &(struct mc_name_pattern *){NULL}, NULL), -EINVAL);
	for (int i = 0; i < 7; i++)
		strcat(many, "{a,b}");
	ck_assert_int_eq(
		mc_name_pattern_open(many, &(struct mc_name_pattern *){NULL}, NULL), -EINVAL);
}
END_TEST

START_TEST(captures_are_numbers_and_fill_templates)
{
	const char *name = "model.layers.12.mlp.experts.7.w1";
	struct mc_name_pattern *p;
	struct mc_match m;
	uint64_t v;
	char out[64];

	ck_assert_int_eq(mc_name_pattern_open("model.layers.#.mlp.experts.#.*", &p, NULL), 0);
	ck_assert_uint_eq(mc_name_pattern_captures(p), 3);
	ck_assert(mc_name_pattern_match(p, name, strlen(name), &m));
	ck_assert_int_eq(mc_match_number(&m, name, 2, &v), 0);
	ck_assert_uint_eq(v, 7);
	ck_assert_int_eq(mc_match_number(&m, name, 3, &v), -EINVAL);
	ck_assert_int_eq(mc_match_expand(&m, name, "l{1}.{3}.e{2}", out, sizeof(out)), 0);
	ck_assert_str_eq(out, "l12.w1.e7");
	ck_assert_int_eq(mc_match_expand(&m, name, "{4}", out, sizeof(out)), -EINVAL);
	mc_name_pattern_close(p);
	ck_assert_int_eq(mc_name_pattern_open("re:model\\.layers\\.(\\d+)\\.(.*)", &p, NULL), 0);
	ck_assert(mc_name_pattern_match(p, name, strlen(name), &m));
	ck_assert_int_eq(mc_match_expand(&m, name, "{2}@{1}", out, sizeof(out)), 0);
	ck_assert_str_eq(out, "mlp.experts.7.w1@12");
	mc_name_pattern_close(p);
}
END_TEST

SUITE_MAIN("layout-pattern", globs_and_expressions_match_whole_names,
	patterns_that_explode_or_are_broken_are_refused, captures_are_numbers_and_fill_templates)
