/* Log lines as JSON, and the ring of the last ones. */
#include "fs/fs.h"
#include "fs/log.h"
#include "tests/suite.h"

#include <stdio.h>
#include <string.h>

/* The line that text gives, without its time. */
static const char *line_of(const char *text)
{
	static char out[4096];
	const struct timespec at = {.tv_sec = 0, .tv_nsec = 5000000};
	FILE *f = fmemopen(out, sizeof(out), "w");

	ck_assert_int_eq(mc_log_json(&at, MC_LOG_WARNING, "e", text, f), 0);
	fclose(f);
	return out + strlen("{\"time\":\"1970-01-01T00:00:00.005Z\",");
}

static const struct {
	const char *text, *json; /* members after the event */
} lines[] = {
	{"", ""},
	{"a=1", ",\"a\":\"1\""},
	{"a=1 b=\"two words\" c=", ",\"a\":\"1\",\"b\":\"two words\",\"c\":\"\""},
	{"a=\"\" b=2", ",\"a\":\"\",\"b\":\"2\""},
	{"text=\"say \"no\" to it\" b=2", ",\"text\":\"say \\\"no\\\" to it\",\"b\":\"2\""},
	{"text=\"cut off", ",\"text\":\"cut off\""},
	{"words without a key b=2", ",\"b\":\"2\""},
	{"key=\"a\xff\" b=2", ",\"key\":\"?\",\"b\":\"2\""},
	{"a=\"back\\slash\"", ",\"a\":\"back\\\\slash\""},
};

START_TEST(pairs_become_members)
{
	char want[256];

	snprintf(want, sizeof(want), "\"level\":\"warning\",\"event\":\"e\"%s}\n", lines[_i].json);
	ck_assert_str_eq(line_of(lines[_i].text), want);
}
END_TEST

START_TEST(the_last_lines_are_remembered_in_order)
{
	char *text = NULL, *at;
	size_t len;
	FILE *f = open_memstream(&text, &len);
	unsigned n = 0;

	ck_assert_ptr_nonnull(freopen("/dev/null", "w", stderr)); /* a thousand lines */
	for (unsigned i = 0; i < 1000; i++)
		mc_log(MC_LOG_INFO, "counted", "i=%u", i);
	ck_assert_int_eq(mc_log_recent(f), 0);
	fclose(f);
	for (at = strstr(text, "\"i\":\""); at != NULL; at = strstr(at + 1, "\"i\":\"")) {
		ck_assert_uint_eq(strtoul(at + 5, NULL, 10), 1000 - 256 + n);
		n++;
	}
	ck_assert_uint_eq(n, 256);
	free(text);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("log");
	TCase *t = tcase_create("all");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_loop_test(t, pairs_become_members, 0, sizeof(lines) / sizeof(*lines));
	tcase_add_test(t, the_last_lines_are_remembered_in_order);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
