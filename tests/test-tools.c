/* Parts of the program: memory limits, progress texts, JSON lines, names from a mistyped word. */
#include "tests/suite.h"
#include "tools/json-line.h"
#include "tools/machine-memory.h"
#include "tools/options.h"
#include "tools/progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void shell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void shell(const char *fmt, ...)
{
	char cmd[2048];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(cmd, sizeof(cmd), fmt, ap);
	va_end(ap);
	ck_assert_msg(system(cmd) == 0, "%s", cmd);
}

START_TEST(memory_is_the_least_of_machine_group_and_its_parents)
{
	static const struct {
		const char *cgroup, *limits; /* limits: "file value" lines below sys/fs/cgroup */
		uint64_t bytes;
	} cases[] = {
		{"", "", 1024000000},
		{"0::/a/b", "a/b/memory.max max\na/memory.max 500000\nmemory.max 900000", 500000},
		{"0::/a/b", "a/b/memory.max 400000\na/memory.max 500000", 400000},
		{"0::/", "memory.max 300000", 300000},
		{"0::/gone", "memory.max max", 1024000000},
		{"5:cpu,memory:/x\n1:name=systemd:/y", "memory/x/memory.limit_in_bytes 200000",
			200000},
		{"5:memory:/x",
			"memory/x/memory.limit_in_bytes 9223372036854771712\n"
			"memory/memory.limit_in_bytes 9223372036854771712",
			1024000000},
		{"5:memoryless:/x", "memory/x/memory.limit_in_bytes 200000", 1024000000},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char top[] = "/tmp/test-tools-XXXXXX";

		ck_assert_ptr_nonnull(mkdtemp(top));
		shell("cd %s; mkdir -p proc/self sys/fs/cgroup; echo 'MemFree: 5 kB\nMemTotal: "
		      "1000000 kB' "
		      "> proc/meminfo; printf '1 1 0:1 / /sys/fs/cgroup rw - cgroup2 x rw\n"
		      "2 1 0:2 / /sys/fs/cgroup/memory rw - cgroup x rw,memory\n' > "
		      "proc/self/mountinfo; printf '%s\n' > proc/self/cgroup; printf '%s\n' | "
		      "while "
		      "read -r f v; do "
		      "[ -z \"$f\" ] || { mkdir -p sys/fs/cgroup/$(dirname $f); echo $v > "
		      "sys/fs/cgroup/$f; }; "
		      "done",
			top, cases[i].cgroup, cases[i].limits);
		ck_assert_msg(mc_machine_memory(top) == cases[i].bytes, "case %zu: %llu", i,
			(unsigned long long)mc_machine_memory(top));
		shell("rm -r %s", top);
	}
	ck_assert_uint_gt(mc_machine_memory(""), 1 << 20);
}
END_TEST

START_TEST(progress_shows_rate_and_time_left)
{
	struct mc_progress now = {.stage = "read", .bytes_total = UINT64_C(10) << 30};
	struct mc_progress_view v = {0};
	char text[MC_PROGRESS_TEXT];

	mc_progress_sample(&v, &now, 1000000000);
	mc_progress_text(&v, &now, text);
	ck_assert_str_eq(text, "read 0 B of 10 GiB (0 %)");
	for (uint64_t s = 1; s <= 4; s++) {
		now.bytes_done = s << 30;
		mc_progress_sample(&v, &now, 1000000000 * (s + 1));
	}
	mc_progress_text(&v, &now, text);
	ck_assert_str_eq(text, "read 4 GiB of 10 GiB (40 %), 1 GiB/s, 6 s left");
	now.bytes_total = UINT64_C(4000) << 30;
	mc_progress_text(&v, &now, text);
	ck_assert_str_eq(text, "read 4 GiB of 3.91 TiB (0 %), 1 GiB/s, 1 h 6 min left");
	now = (struct mc_progress){.stage = "check", .items_done = 3, .items_total = 9};
	mc_progress_text(&v, &now, text);
	ck_assert_str_eq(text, "check 3 of 9");
	now.items_total = 0;
	mc_progress_text(&v, &now, text);
	ck_assert_str_eq(text, "check");
}
END_TEST

START_TEST(a_slower_source_lowers_the_rate_smoothly)
{
	struct mc_progress now = {.stage = "read", .bytes_total = 1 << 30};
	struct mc_progress_view v = {0};

	mc_progress_sample(&v, &now, 1000000000);
	now.bytes_done = 100;
	mc_progress_sample(&v, &now, 2000000000);
	ck_assert_double_eq_tol(v.rate, 100, 1e-9);
	mc_progress_sample(&v, &now, 3000000000);
	ck_assert_double_eq_tol(v.rate, 80, 1e-9);
	/* Another stage starts anew. */
	now.stage = "check";
	mc_progress_sample(&v, &now, 4000000000);
	ck_assert_double_eq_tol(v.rate, 0, 1e-9);
}
END_TEST

START_TEST(json_lines_are_escaped)
{
	char buf[200] = "";
	FILE *f = fmemopen(buf, sizeof(buf), "w");
	struct mc_json_line j;

	mc_json_line_begin(&j, f);
	mc_json_line_text(&j, "a", "x\"\\\n\tä");
	mc_json_line_number(&j, "b", UINT64_MAX);
	mc_json_line_flag(&j, "c", true);
	mc_json_line_real(&j, "d", 0.5);
	mc_json_line_end(&j);
	fclose(f);
	ck_assert_str_eq(buf,
		"{\"a\":\"x\\\"\\\\\\u000a\\u0009ä\",\"b\":18446744073709551615,\"c\":true,"
		"\"d\":0.500}\n");
}
END_TEST

START_TEST(a_mistyped_name_finds_its_neighbour_only)
{
	static const char *const names[] = {"import", "export", "mount", "umount"};
	static const struct {
		const char *word, *near;
	} cases[] = {{"imprt", "import"}, {"improt", "import"}, {"exprot", "export"},
		{"moutn", "mount"}, {"unmount", "umount"}, {"frobnicate", NULL}, {"x", NULL},
		{"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", NULL}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const char *near = mc_nearest_name(cases[i].word, names, 4);

		if (cases[i].near == NULL)
			ck_assert_msg(near == NULL, "%s: %s", cases[i].word, near);
		else
			ck_assert_str_eq(near, cases[i].near);
	}
}
END_TEST

SUITE_MAIN("tools", memory_is_the_least_of_machine_group_and_its_parents,
	progress_shows_rate_and_time_left, a_slower_source_lowers_the_rate_smoothly,
	json_lines_are_escaped, a_mistyped_name_finds_its_neighbour_only)
