/* Requests of the control socket: which are taken, and that nothing else ever is. */
#include "fs/control-request.h"
#include "tests/seed.h"
#include "tests/suite.h"

#include <errno.h>
#include <string.h>

#define N(a) (sizeof(a) / sizeof(*(a)))

static int parse(const char *line, struct mc_control_request *q, const char **why)
{
	return mc_control_parse(line, strlen(line), q, why);
}

START_TEST(each_command_takes_its_keys_and_no_others)
{
	static const struct {
		const char *line;
		const char *why; /* NULL = taken */
	} cases[] = {
		{"{\"command\":\"status\"}", NULL},
		{" {\"command\" : \"events\"} ", NULL},
		{"{\"command\":\"warm\",\"tier\":\"nvme\",\"paths\":[\"a\"]}", NULL},
		{"{\"command\":\"warm\",\"tier\":\"dram\",\"paths\":[\"a/b\"],\"bytes_per_second\":"
		 "7}",
			NULL},
		{"{\"command\":\"evict\",\"paths\":[\"a\"]}", NULL},
		{"{\"command\":\"scrub\"}", NULL},
		{"{\"command\":\"scrub\",\"bytes_per_second\":7}", NULL},
		{"{\"command\":\"scrub\",\"tier\":\"nvme\"}",
			"a key that the command does not take"},
		{"{\"command\":\"pin\",\"paths\":[\"kv/..a\",\"kv/a..\",\"kv/...\"]}", NULL},
		{"", "a request is one JSON object on one line"},
		{"{\"command\":\"status\"", "a request is one JSON object on one line"},
		{"[\"status\"]", "a request is one JSON object on one line"},
		{"{\"command\":\"status\",\"command\":\"status\"}",
			"a request is one JSON object on one line"},
		{"{}", "command must be one that the daemon knows"},
		{"{\"command\":7}", "command must be one that the daemon knows"},
		{"{\"command\":\"shutdown\"}", "command must be one that the daemon knows"},
		{"{\"command\":\"status\",\"paths\":[\"a\"]}",
			"a key that the command does not take"},
		{"{\"command\":\"pin\",\"tier\":\"dram\",\"paths\":[\"a\"]}",
			"a key that the command does not take"},
		{"{\"command\":\"warm\",\"paths\":[\"a\"]}", "tier must be dram, nvme or block"},
		{"{\"command\":\"evict\",\"tier\":\"remote\",\"paths\":[\"a\"]}",
			"tier must be dram, nvme or block"},
		{"{\"command\":\"warm\",\"tier\":\"dram\",\"paths\":[\"a\"],\"bytes_per_second\":-"
		 "1}",
			"bytes_per_second must be a whole number"},
		{"{\"command\":\"warm\",\"tier\":\"dram\",\"paths\":[\"a\"],\"bytes_per_second\":1."
		 "5}",
			"bytes_per_second must be a whole number"},
	};

	for (size_t i = 0; i < N(cases); i++) {
		struct mc_control_request q;
		const char *why = "";
		int r = parse(cases[i].line, &q, &why);

		ck_assert_msg(
			r == (cases[i].why == NULL ? 0 : -EINVAL), "%s: %d", cases[i].line, r);
		if (cases[i].why != NULL)
			ck_assert_str_eq(why, cases[i].why);
		else
			mc_control_request_done(&q);
	}
}
END_TEST

START_TEST(paths_stay_below_the_mount_point)
{
	static const char *const bad[] = {"[]", "7", "\"a\"", "[7]", "[\"\"]", "[\"/a\"]",
		"[\"a/\"]", "[\"a//b\"]", "[\".\"]", "[\"..\"]", "[\"../a\"]", "[\"a/../b\"]",
		"[\"a/.\"]", "[\"a\\u0000b\"]", "[\"a\",\"\"]"};
	char line[256];

	for (size_t i = 0; i < N(bad); i++) {
		struct mc_control_request q;
		const char *why;

		snprintf(line, sizeof(line), "{\"command\":\"pin\",\"paths\":%s}", bad[i]);
		ck_assert_msg(parse(line, &q, &why) == -EINVAL, "%s", line);
	}
}
END_TEST

START_TEST(what_is_taken_is_what_was_written)
{
	struct mc_control_request q;
	const char *why;

	ck_assert_int_eq(parse("{\"paths\":[\"kv/\\u00e4\",\"kv/b\"],\"bytes_per_second\":1048576,"
			       "\"tier\":\"nvme\",\"command\":\"warm\"}",
				 &q, &why),
		0);
	ck_assert_int_eq(q.command, MC_CONTROL_WARM);
	ck_assert_int_eq(q.tier, MC_TIER_NVME);
	ck_assert_uint_eq(q.bytes_per_second, 1048576);
	ck_assert_uint_eq(q.n_paths, 2);
	ck_assert_str_eq(q.paths[0], "kv/\xc3\xa4");
	ck_assert_str_eq(q.paths[1], "kv/b");
	mc_control_request_done(&q);
	ck_assert_int_eq(parse("{\"command\":\"evict\",\"paths\":[\"a\"]}", &q, &why), 0);
	ck_assert_int_eq(q.all_tiers, true);
	mc_control_request_done(&q);
	ck_assert_int_eq(
		parse("{\"command\":\"evict\",\"tier\":\"dram\",\"paths\":[\"a\"]}", &q, &why), 0);
	ck_assert_int_eq(q.all_tiers, false);
	mc_control_request_done(&q);
}
END_TEST

START_TEST(mutated_requests_are_refused_or_keep_the_rules)
{
	static const char good[] = "{\"command\":\"warm\",\"tier\":\"nvme\",\"paths\":[\"kv/a\","
				   "\"checkpoints/o/m@v/f\"],\"bytes_per_second\":1}";
	unsigned seed = seed_choose();
	unsigned taken = 0;

	for (int round = 0; round < 20000; round++) {
		char line[sizeof(good)];
		struct mc_control_request q;
		const char *why = NULL;

		memcpy(line, good, sizeof(good));
		for (int i = rand_r(&seed) % 4; i >= 0; i--)
			line[(size_t)rand_r(&seed) % (sizeof(good) - 1)] =
				"{}[]\",:./\\\0\x80 a0-e"[rand_r(&seed) % 18];
		if (mc_control_parse(line, sizeof(good) - 1, &q, &why) < 0) {
			ck_assert_ptr_nonnull(why);
			continue;
		}
		taken++;
		ck_assert_int_lt((int)q.command, MC_CONTROL_N);
		for (size_t i = 0; i < q.n_paths; i++)
			ck_assert_msg(q.paths[i][0] != '\0' && q.paths[i][0] != '/' &&
					strstr(q.paths[i], "//") == NULL,
				"%s", q.paths[i]);
		mc_control_request_done(&q);
	}
	ck_assert_uint_gt(taken, 0);
}
END_TEST

SUITE_MAIN("control", each_command_takes_its_keys_and_no_others, paths_stay_below_the_mount_point,
	what_is_taken_is_what_was_written, mutated_requests_are_refused_or_keep_the_rules)
