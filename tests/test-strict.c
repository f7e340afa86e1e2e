/* Small strict readers: base64, UTF-8, paths and link targets, JSON integers and escapes. */
#include "manifest/base64.h"
#include "manifest/json-out.h"
#include "manifest/json.h"
#include "manifest/path.h"
#include "manifest/utf8.h"
#include "tests/suite.h"

#include <errno.h>
#include <string.h>

START_TEST(base64_matches_rfc_4648_and_nothing_else)
{
	static const char *const good[] = {
		"", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"};
	static const struct {
		const char *text;
		size_t len;
	} bad[] = {{"Zg=", 1}, {"Zg", 1}, {"Zh==", 1}, {"Zm9=", 2}, {"Zm8==", 2}, {"Zm8\n", 2},
		{"Z===", 1}, {"=g==", 1}, {"Zm9v", 2}, {"Zm9v", 4}, {"Zm9vZg==", 3}, {"Zm-v", 3}};
	char text[16];
	uint8_t out[8];

	for (size_t i = 0; i <= 6; i++) {
		mc_base64_encode((const uint8_t *)"foobar", i, text);
		ck_assert_uint_eq(mc_base64_len(i), strlen(good[i]));
		ck_assert_mem_eq(text, good[i], strlen(good[i]));
		ck_assert_int_eq(mc_base64_decode(good[i], strlen(good[i]), out, i), 0);
		ck_assert_mem_eq(out, "foobar", i);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		ck_assert_msg(mc_base64_decode(bad[i].text, strlen(bad[i].text), out, bad[i].len) ==
				-EINVAL,
			"%s", bad[i].text);
}
END_TEST

START_TEST(utf8_follows_rfc_3629)
{
	static const struct {
		const char *text;
		bool good;
		size_t at;
	} rows[] = {{"", true, 0}, {"plain text, longer than a word", true, 0},
		{"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", true, 0}, {"\x7f", true, 0},
		{"\xf4\x8f\xbf\xbf", true, 0}, {"\xed\x9f\xbf\xee\x80\x80", true, 0},
		{"12345678\x80", false, 8}, {"\xc0\x80", false, 0}, {"\xc1\xbf", false, 0},
		{"a\xe0\x9f\xbf", false, 1}, {"\xed\xa0\x80", false, 0},
		{"\xf0\x8f\xbf\xbf", false, 0}, {"\xf4\x90\x80\x80", false, 0},
		{"\xf5\x80\x80\x80", false, 0}, {"\xff", false, 0}, {"\xc3", false, 0},
		{"\xe2\x82", false, 0}, {"\xe2\x82g", false, 0}, {"ok\xf0\x9f\x98", false, 2},
		{"\xc3\xc3\xa9", false, 0}};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		size_t at = 0;

		ck_assert_msg(
			mc_utf8_valid(rows[i].text, strlen(rows[i].text), &at) == rows[i].good,
			"row %zu", i);
		ck_assert_uint_eq(at, rows[i].at);
	}
}
END_TEST

START_TEST(paths_stay_inside_and_are_printable)
{
	static const char *const good[] = {
		"a", "a/b", ".hidden", "..a", "a..", "...", "a b", "-", "\xc3\xa9", "a\\b", "a:b"};
	static const char *const bad[] = {"", "/", "/a", "a/", "a//b", ".", "..", "a/.", "a/..",
		"./a", "../a", "a/../b", "a\nb", "\x7f", "a\x01", "\xff"};
	char text[4200];

	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
		ck_assert_msg(mc_path_fault(good[i]) == NULL, "%s", good[i]);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		ck_assert_msg(mc_path_fault(bad[i]) != NULL, "%s", bad[i]);
	memset(text, 'x', sizeof(text));
	text[255] = '\0';
	ck_assert_ptr_null(mc_path_fault(text));
	text[255] = 'x';
	text[256] = '\0';
	ck_assert_ptr_nonnull(mc_path_fault(text));
	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = i % 2 == 0 ? 'x' : '/';
	text[4095] = '\0';
	ck_assert_ptr_null(mc_path_fault(text));
	text[4095] = 'y';
	text[4096] = '\0';
	ck_assert_ptr_nonnull(mc_path_fault(text));
	ck_assert_ptr_nonnull(mc_name_fault("a/b"));
}
END_TEST

START_TEST(links_never_leave_the_tree)
{
	static const struct {
		const char *path, *target;
		bool good;
	} rows[] = {{"a", "b", true}, {"a", "b/c", true}, {"d/a", "../b", true},
		{"d/a", "..", true}, {"d/e/a", "../../b", true}, {"a", "..", false},
		{"a", "../b", false}, {"d/a", "../../b", false}, {"a", "b/../c", false},
		{"d/a", "../x/../../y", false}, {"a", "/b", false}, {"a", "", false},
		{"a", ".", false}, {"a", "./b", false}, {"d/a", "../", false}, {"d/a", "..b", true},
		{"a", "b\nc", false}};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		ck_assert_msg((mc_link_fault(rows[i].path, rows[i].target) == NULL) == rows[i].good,
			"%s -> %s", rows[i].path, rows[i].target);
}
END_TEST

START_TEST(json_strings_are_escaped_as_python_does)
{
	struct mc_json_out o = {0};

	mc_json_put_string(&o, "a\"b\\c/\b\f\n\r\t\x01\x1f\x7f\xc3\xa9");
	ck_assert_uint_eq(
		o.b.len, strlen("\"a\\\"b\\\\c/\\b\\f\\n\\r\\t\\u0001\\u001f\x7f\xc3\xa9\""));
	ck_assert_mem_eq(
		o.b.p, "\"a\\\"b\\\\c/\\b\\f\\n\\r\\t\\u0001\\u001f\x7f\xc3\xa9\"", o.b.len);
	mc_buffer_done(&o.b);
}
END_TEST

START_TEST(brackets_in_strings_do_not_count_as_depth)
{
	const char *text = "[\"[[[[\\\"[[[\\\\\",[]]", *deep = "[[[]]]";
	json_t *v;

	ck_assert_int_eq(mc_json_load(text, strlen(text), 2, &v, NULL), 0);
	json_decref(v);
	ck_assert_int_eq(mc_json_load(deep, strlen(deep), 3, &v, NULL), 0);
	json_decref(v);
	ck_assert_int_eq(mc_json_load(deep, strlen(deep), 2, &v, NULL), -EBADMSG);
}
END_TEST

SUITE_MAIN("strict", base64_matches_rfc_4648_and_nothing_else, utf8_follows_rfc_3629,
	paths_stay_inside_and_are_printable, links_never_leave_the_tree,
	json_strings_are_escaped_as_python_does, brackets_in_strings_do_not_count_as_depth)
