/* Sizes, the option table, and where a value comes from: flag over -o over file over default. */
#include "tests/suite.h"
#include "tools/options.h"
#include "tools/size.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define N(a) (sizeof(a) / sizeof(*(a)))

START_TEST(sizes_are_read_exactly_and_without_overflow)
{
	static const struct {
		const char *text;
		int r;
		uint64_t bytes;
	} cases[] = {
		{"0", 0, 0},
		{"4096", 0, 4096},
		{"4GiB", 0, UINT64_C(4) << 30},
		{"512MiB", 0, UINT64_C(512) << 20},
		{"512 MiB", 0, UINT64_C(512) << 20},
		{"64k", 0, 65536},
		{"1TB", 0, UINT64_C(1000000000000)},
		{"1.5GiB", 0, UINT64_C(3) << 29},
		{"0.5P", 0, UINT64_C(1) << 49},
		{"18446744073709551615", 0, UINT64_MAX},
		{"18446744073709551616", -ERANGE, 0},
		{"16384P", -ERANGE, 0},
		{"16383.9P", 0, UINT64_C(16383) * (UINT64_C(1) << 50) + UINT64_C(1013309916158361)},
		{"", -EINVAL, 0},
		{"-1", -EINVAL, 0},
		{"+1", -EINVAL, 0},
		{"1.5", -EINVAL, 0},
		{"1.GiB", -EINVAL, 0},
		{"GiB", -EINVAL, 0},
		{"4Gib extra", -EINVAL, 0},
		{"4 ", -EINVAL, 0},
		{"0x10", -EINVAL, 0},
		{"1e3", -EINVAL, 0},
	};

	for (size_t i = 0; i < N(cases); i++) {
		uint64_t v = 0;

		ck_assert_msg(
			mc_size_parse(cases[i].text, &v) == cases[i].r, "\"%s\"", cases[i].text);
		ck_assert_msg(v == cases[i].bytes, "\"%s\" is %llu", cases[i].text,
			(unsigned long long)v);
	}
}
END_TEST

START_TEST(sizes_are_shown_short)
{
	static const struct {
		uint64_t bytes;
		const char *text;
	} cases[] = {{0, "0 B"}, {1023, "1023 B"}, {1024, "1 KiB"}, {1536, "1.50 KiB"},
		{UINT64_C(4) << 30, "4 GiB"}, {(UINT64_C(1) << 30) - 1, "1.00 GiB"},
		{UINT64_C(12) << 20 | 1 << 19, "12.5 MiB"}, {UINT64_MAX, "16 EiB"}};
	char text[MC_SIZE_TEXT];

	for (size_t i = 0; i < N(cases); i++) {
		mc_size_format(cases[i].bytes, text);
		ck_assert_str_eq(text, cases[i].text);
	}
}
END_TEST

/* Parses words as the line of a command; the options are the caller's to end. */
static int parse(
	unsigned command, struct mc_options *o, struct mc_err *err, const char *const *words)
{
	char *argv[16];
	int argc = 0;

	err->text[0] = '\0';
	for (; words[argc] != NULL; argc++)
		argv[argc] = (char *)(uintptr_t)words[argc];
	return mc_options_parse(command, argc, argv, o, err);
}
#define LINE(...) ((const char *const[]){__VA_ARGS__, NULL})

START_TEST(every_row_of_the_table_is_complete_and_unique)
{
	for (int i = 0; i < MC_OPT_N; i++) {
		const struct mc_option *a = &mc_option_table[i];

		ck_assert_ptr_nonnull(a->name);
		ck_assert_ptr_nonnull(a->sentence);
		ck_assert_uint_ne(a->commands, 0);
		ck_assert_int_eq(a->unit == NULL, a->type == MC_OPTION_FLAG);
		ck_assert_int_eq(a->sentence[strlen(a->sentence) - 1], '.');
		for (int j = 0; j < i; j++) {
			const struct mc_option *b = &mc_option_table[j];

			/* A name may mean another thing to other commands. */
			if ((a->commands & b->commands) != 0)
				ck_assert_str_ne(a->name, b->name);
			ck_assert_msg(a->letter == 0 || a->letter != b->letter,
				"%s and %s share -%c", a->name, b->name, a->letter);
		}
	}
}
END_TEST

START_TEST(flags_values_and_arguments_may_stand_in_any_order)
{
	struct mc_err err;
	struct mc_options o;

	ck_assert_int_eq(
		parse(MC_IN_IMPORT, &o, &err,
			LINE("src", "--remote=dir:/x", "--jobs", "3", "--strict", "--", "--odd")),
		0);
	ck_assert_uint_eq(o.n_args, 2);
	ck_assert_str_eq(o.args[0], "src");
	ck_assert_str_eq(o.args[1], "--odd");
	ck_assert_str_eq(mc_options_text(&o, MC_OPT_REMOTE), "dir:/x");
	ck_assert_uint_eq(mc_options_number(&o, MC_OPT_JOBS), 3);
	ck_assert_int_eq(mc_options_flag(&o, MC_OPT_STRICT), true);
	ck_assert_int_eq(mc_options_flag(&o, MC_OPT_REFERENCE), false);
	ck_assert_uint_eq(mc_options_number(&o, MC_OPT_CONNECTIONS), 2);
	ck_assert_int_eq(mc_options_given(&o, MC_OPT_CONNECTIONS), false);
	mc_options_done(&o);
}
END_TEST

START_TEST(a_wrong_line_says_what_is_wrong_and_what_was_meant)
{
	static const struct {
		unsigned command;
		const char *words[4];
		const char *text;
	} cases[] = {
		{MC_IN_IMPORT, {"--remoet", "x"},
			"unknown option --remoet; did you mean --remote?"},
		{MC_IN_IMPORT, {"--stirct"}, "unknown option --stirct; did you mean --strict?"},
		{MC_IN_IMPORT, {"--xyzzy"}, "unknown option --xyzzy"},
		{MC_IN_IMPORT, {"--lazy"}, "unknown option --lazy"},
		{MC_IN_IMPORT, {"-Z"}, "unknown option -Z"},
		{MC_IN_IMPORT, {"--jobs"}, "--jobs needs a value: N"},
		{MC_IN_IMPORT, {"--jobs", "0"}, "--jobs: 0 is outside 1 to 1024"},
		{MC_IN_IMPORT, {"--jobs", "4k"}, "--jobs: \"4k\" is not a whole number"},
		{MC_IN_IMPORT, {"--remote", ""}, "--remote: the value is empty"},
		{MC_IN_MOUNT, {"--dram", "4GB/s"},
			"--dram: \"4GB/s\" is not a size such as 512MiB or 4GiB"},
		{MC_IN_MOUNT, {"--dram", "1MiB"}, "--dram: 1MiB is outside 64 MiB to 1 PiB"},
		{MC_IN_MOUNT, {"-o", "dramm=1GiB"},
			"unknown option -o dramm; did you mean -o dram?"},
		{MC_IN_MOUNT, {"-o", "dram"}, "-o dram needs a value: dram=SIZE"},
		{MC_IN_VERIFY, {"--sample", "0"},
			"--sample: \"0\" is not per cent, more than 0 and at most 100"},
	};

	for (size_t i = 0; i < N(cases); i++) {
		struct mc_err err;
		struct mc_options o;

		ck_assert_int_eq(parse(cases[i].command, &o, &err, cases[i].words), -EINVAL);
		ck_assert_str_eq(err.text, cases[i].text);
		mc_options_done(&o);
	}
}
END_TEST

START_TEST(words_of_o_are_options_and_fstab_words_are_ignored)
{
	struct mc_err err;
	struct mc_options o;

	ck_assert_int_eq(
		parse(MC_IN_MOUNT, &o, &err,
			LINE("/mnt", "-o",
				"ro,_netdev,nvme=/n\\,1GiB,dram=1GiB,allow_other,"
				"x-systemd.automount,X-mount.mkdir=0755,noauto,nofail,user,"
				"users,comment=a b,uhelper=x")),
		0);
	ck_assert_str_eq(mc_options_text(&o, MC_OPT_NVME), "/n,1GiB");
	ck_assert_uint_eq(mc_options_number(&o, MC_OPT_DRAM), UINT64_C(1) << 30);
	ck_assert_int_eq(mc_options_flag(&o, MC_OPT_ALLOW_OTHER), true);
	mc_options_done(&o);
}
END_TEST

static void write_text(char *path_template, const char *text)
{
	int fd = mkstemp(path_template);
	size_t len = strlen(text);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, len), (ssize_t)len);
	close(fd);
}

START_TEST(a_flag_beats_o_and_o_beats_the_file_and_the_file_beats_the_default)
{
	char path[] = "/tmp/test-options-XXXXXX";
	struct mc_err err;
	struct mc_options o;

	write_text(path,
		"{\"remote\": \"dir:/file\", \"dram\": \"1GiB\", \"memory\": 134217728,"
		" \"connections\": 5, \"depth\": 6, \"allow-other\": true, \"jobs\": 9}");
	ck_assert_int_eq(
		parse(MC_IN_MOUNT, &o, &err,
			LINE("--dram", "2GiB", "-o", "dram=3GiB,depth=7", "--config", path)),
		0);
	unlink(path);
	ck_assert_str_eq(mc_options_text(&o, MC_OPT_REMOTE), "dir:/file");
	ck_assert_uint_eq(mc_options_number(&o, MC_OPT_DRAM), UINT64_C(2) << 30);
	ck_assert_uint_eq(mc_options_number(&o, MC_OPT_DEPTH), 7);
	ck_assert_uint_eq(mc_options_number(&o, MC_OPT_CONNECTIONS), 5);
	ck_assert_uint_eq(mc_options_number(&o, MC_OPT_MEMORY), UINT64_C(128) << 20);
	ck_assert_uint_eq(mc_options_number(&o, MC_OPT_DEADLINE), 30);
	ck_assert_int_eq(mc_options_flag(&o, MC_OPT_ALLOW_OTHER), true);
	mc_options_done(&o);
}
END_TEST

START_TEST(a_remote_given_several_times_is_all_of_them_of_the_best_origin)
{
	char path[] = "/tmp/mc-test-options-XXXXXX";
	int fd = mkstemp(path);
	struct mc_err err;
	struct mc_options o;
	char line[100];

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(
		dprintf(fd, "{\"remote\": [\"dir:/a\", \"dir:/b\"], \"replicas\": 3}"), 47);
	snprintf(line, sizeof(line), "--config=%s", path);
	ck_assert_int_eq(parse(MC_IN_LS, &o, &err, LINE(line)), 0);
	ck_assert_str_eq(mc_options_text(&o, MC_OPT_REMOTE), "dir:/a\ndir:/b");
	ck_assert_uint_eq(mc_options_number(&o, MC_OPT_REPLICAS), 3);
	mc_options_done(&o);
	ck_assert_int_eq(
		parse(MC_IN_LS, &o, &err, LINE(line, "-r", "dir:/c", "--remote=dir:/d")), 0);
	ck_assert_str_eq(mc_options_text(&o, MC_OPT_REMOTE), "dir:/c\ndir:/d");
	mc_options_done(&o);
	ck_assert_int_eq(parse(MC_IN_LS, &o, &err, LINE("--remote", "dir:/c\nd")), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "newline"));
	mc_options_done(&o);
	close(fd);
	unlink(path);
}
END_TEST

START_TEST(a_value_in_quotes_may_hold_commas)
{
	struct mc_err err;
	struct mc_options o;

	ck_assert_int_eq(
		parse(MC_IN_MOUNT, &o, &err, LINE("/mnt", "-o", "nvme=\"/n,2GiB\",dram=1GiB")), 0);
	ck_assert_str_eq(mc_options_text(&o, MC_OPT_NVME), "/n,2GiB");
	ck_assert_uint_eq(mc_options_number(&o, MC_OPT_DRAM), UINT64_C(1) << 30);
	mc_options_done(&o);
}
END_TEST

START_TEST(choices_places_and_addresses_are_checked_where_they_are_given)
{
	static const struct {
		const char *words[3];
		const char *text; /* NULL = good */
	} cases[] = {
		{{"--kv-ack", "nvme"}, NULL},
		{{"--kv-ack", "disk"}, "--kv-ack: \"disk\" is none of dram|nvme|remote"},
		{{"--kv-ack", "dram|nvme"}, "--kv-ack: \"dram|nvme\" is none of dram|nvme|remote"},
		{{"--kv-ack", ""}, "--kv-ack: \"\" is none of dram|nvme|remote"},
		{{"--nvme", "/n"}, NULL},
		{{"--nvme", "/n,x,64MiB"}, NULL},
		{{"--nvme", "/n,1MiB"}, "--nvme: /n,1MiB is outside 64 MiB to 1 EiB"},
		{{"--nvme", ",64MiB"},
			"--nvme: \",64MiB\" is not DIR or DIR,SIZE such as /nvme/mooncake,800GiB"},
		{{"--nvme", "/n,12XB"},
			"--nvme: \"/n,12XB\" is not DIR or DIR,SIZE such as "
			"/nvme/mooncake,800GiB"},
		{{"--metrics", "127.0.0.1:9464"}, NULL},
		{{"--metrics", "[::1]:9464"}, NULL},
		{{"--metrics", "localhost:9464"},
			"--metrics: \"localhost:9464\" is not a numeric address and port such as "
			"127.0.0.1:9464 or [::1]:9464"},
		{{"--metrics", "127.0.0.1:65536"},
			"--metrics: \"127.0.0.1:65536\" is not a numeric address and port such as "
			"127.0.0.1:9464 or [::1]:9464"},
		{{"--metrics", "127.0.0.1"},
			"--metrics: \"127.0.0.1\" is not a numeric address and port such as "
			"127.0.0.1:9464 or [::1]:9464"},
		{{"-o", "io_uring"},
			"-o io_uring: this transport is not used: a mount that it serves cannot be "
			"taken over by another process; leave the option out"},
		{{"-o", "remount,ro"},
			"-o remount: change the configuration file and send the daemon SIGHUP, or "
			"unmount and mount"},
	};

	for (size_t i = 0; i < N(cases); i++) {
		struct mc_err err;
		struct mc_options o;
		int r = parse(MC_IN_MOUNT, &o, &err, cases[i].words);

		ck_assert_int_eq(r, cases[i].text == NULL ? 0 : -EINVAL);
		ck_assert_str_eq(err.text, cases[i].text == NULL ? "" : cases[i].text);
		mc_options_done(&o);
	}
}
END_TEST

START_TEST(values_are_shown_as_they_are_written_with_their_origin)
{
	static const struct {
		enum mc_option_id id;
		const char *value, *origin;
	} cases[] = {{MC_OPT_DRAM, "1536MiB", "command line"},
		{MC_OPT_KV_DRAM, "768MiB", "default"}, {MC_OPT_KV_ACK, "remote", "-o"},
		{MC_OPT_NVME, "", "default"}, {MC_OPT_REMOTE, "dir:/r", "command line"},
		{MC_OPT_DEPTH, "8", "default"}, {MC_OPT_ALLOW_OTHER, "false", "default"}};
	char value[MC_OPTION_TEXT_MAX];
	struct mc_err err;
	struct mc_options o;

	ck_assert_int_eq(
		parse(MC_IN_MOUNT, &o, &err,
			LINE("--dram", "1.5GiB", "-o", "kv-ack=remote", "--remote", "dir:/r")),
		0);
	for (size_t i = 0; i < N(cases); i++) {
		ck_assert_str_eq(mc_options_show(&o, cases[i].id, value), cases[i].origin);
		ck_assert_str_eq(value, cases[i].value);
	}
	mc_options_done(&o);
}
END_TEST

struct problems {
	char text[1024];
};

static void add_problem(void *ctx, const char *text)
{
	struct problems *p = ctx;
	const char *colon = strchr(text, ':'); /* behind the file's name */

	strncat(p->text, colon + 1, sizeof(p->text) - strlen(p->text) - 2);
	strcat(p->text, "\n");
}

START_TEST(a_check_names_the_line_of_every_mistake)
{
	static const struct {
		const char *json, *text;
		int n;
	} cases[] = {
		{"{}", "", 0},
		{"{\"$schema\": \"x\", \"dram\": \"1GiB\", \"jobs\": 3}", "", 0},
		{"{\n \"dram\": \"1XB\",\n \"depth\":\n 8,\n\n \"dpeth\": 9,\n \"kv-ack\": "
		 "[\"a\"]}",
			"2: \"dram\": \"1XB\" is not a size such as 512MiB or 4GiB\n"
			"6: unknown key \"dpeth\"; did you mean \"depth\"?\n"
			"7: \"kv-ack\" must be a string, a whole number, true or false\n",
			3},
		{"{\n\"remote\": \"\\\"jobs\\\": {\",\n\"\\u006aobs\": 0}",
			"3: \"jobs\": 0 is outside 1 to 1024\n", 1},
		{"{\n\"dram\": \"1GiB\",\n\"dram\": \"1GiB\"}",
			"3:6: duplicate object key near '\"dram\"'\n", 1},
		{"\n[]", "1: not a JSON object\n", 1},
	};

	for (size_t i = 0; i < N(cases); i++) {
		char path[] = "/tmp/test-options-XXXXXX";
		struct problems p = {{0}};

		write_text(path, cases[i].json);
		ck_assert_int_eq(mc_options_check_config(path, add_problem, &p), cases[i].n);
		unlink(path);
		ck_assert_str_eq(p.text, cases[i].text);
	}
}
END_TEST

START_TEST(a_bad_configuration_file_is_refused_with_its_name)
{
	static const struct {
		const char *json, *text; /* text: what the error holds */
	} cases[] = {
		{"{\"dram\": \"1GiB\", \"dram\": \"2GiB\"}", "duplicate"},
		{"{\"drma\": \"1GiB\"}", "unknown key \"drma\"; did you mean \"dram\"?"},
		{"{\"dram\": 1.5}", "must be a string"},
		{"{\"dram\": -1}", "must be a string"},
		{"{\"depth\": 1000}", "1000 is outside 1 to 256"},
		{"[]", "not a JSON object"},
		{"{\"dram\": ", ":1:"},
	};

	for (size_t i = 0; i < N(cases); i++) {
		char path[] = "/tmp/test-options-XXXXXX";
		struct mc_err err;
		struct mc_options o;

		write_text(path, cases[i].json);
		ck_assert_int_eq(parse(MC_IN_MOUNT, &o, &err, LINE("--config", path)), -EINVAL);
		unlink(path);
		ck_assert_msg(strstr(err.text, cases[i].text) != NULL, "%s", err.text);
		ck_assert_msg(strstr(err.text, path) != NULL, "%s", err.text);
		mc_options_done(&o);
	}
}
END_TEST

SUITE_MAIN("options", sizes_are_read_exactly_and_without_overflow, sizes_are_shown_short,
	every_row_of_the_table_is_complete_and_unique,
	flags_values_and_arguments_may_stand_in_any_order,
	a_wrong_line_says_what_is_wrong_and_what_was_meant,
	words_of_o_are_options_and_fstab_words_are_ignored, a_value_in_quotes_may_hold_commas,
	a_remote_given_several_times_is_all_of_them_of_the_best_origin,
	choices_places_and_addresses_are_checked_where_they_are_given,
	values_are_shown_as_they_are_written_with_their_origin,
	a_check_names_the_line_of_every_mistake,
	a_flag_beats_o_and_o_beats_the_file_and_the_file_beats_the_default,
	a_bad_configuration_file_is_refused_with_its_name)
