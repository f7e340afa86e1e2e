/* The walk over a source: links kept, followed or refused, holes found, changes noticed. */
#include "manifest/crc-combine.h"
#include "manifest/scan.h"
#include "tests/suite.h"
#include "tier/digest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char top[64]; /* a directory for each test, removed at its end */

static void setup(void)
{
	strcpy(top, "/tmp/test-scan-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(top));
}

static void shell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void shell(const char *fmt, ...)
{
	char cmd[2048], *body = cmd + snprintf(cmd, sizeof(cmd), "cd %s && ", top);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(body, sizeof(cmd) - (size_t)(body - cmd), fmt, ap);
	va_end(ap);
	ck_assert_msg(system(cmd) == 0, "%s", cmd);
}

static void teardown(void)
{
	shell("chmod -R u+rwx . && rm -rf %s", top);
}

static int scan(struct mc_scan *s, struct mc_err *err)
{
	char src[128];

	err->text[0] = '\0';
	snprintf(src, sizeof(src), "%s/src", top);
	return mc_scan_local(src, s, err);
}

static const struct mc_scan_entry *find(const struct mc_scan *s, const char *path)
{
	for (size_t i = 0; i < s->n; i++)
		if (strcmp(s->entries[i].path, path) == 0)
			return &s->entries[i];
	ck_abort_msg("no entry %s", path);
	return NULL;
}

START_TEST(entries_are_sorted_and_carry_mode_time_and_size)
{
	struct mc_err err;
	struct mc_scan s;
	const struct mc_scan_entry *e;

	setup();
	shell("mkdir -p src/b/c src/empty && printf hello > src/b/f && : > src/zero && chmod 640 "
	      "src/b/f "
	      "&& touch -d @1234567890.123456789 src/b/f");
	ck_assert_int_eq(scan(&s, &err), 0);
	ck_assert_uint_eq(s.n, 6);
	for (size_t i = 1; i < s.n; i++)
		ck_assert_int_lt(strcmp(s.entries[i - 1].path, s.entries[i].path), 0);
	e = find(&s, "b/f");
	ck_assert_int_eq(e->type, MC_ENTRY_FILE);
	ck_assert_uint_eq(e->mode, 0640);
	ck_assert_uint_eq(e->size, 5);
	ck_assert_int_eq(e->mtime_s, 1234567890);
	ck_assert_uint_eq(e->mtime_ns, 123456789);
	ck_assert_int_eq(find(&s, "")->type, MC_ENTRY_DIR);
	ck_assert_uint_eq(find(&s, "zero")->n_data, 0);
	ck_assert_uint_eq(s.files, 2);
	ck_assert_uint_eq(s.bytes, 5);
	mc_scan_done(&s);
	teardown();
}
END_TEST

START_TEST(a_link_that_stays_inside_is_kept_or_made_relative)
{
	static const struct {
		const char *link, *target, *kept; /* target "$S…" is absolute below the source */
	} cases[] = {
		{"same", "d/f", "d/f"},
		{"d/up", "../g", "../g"},
		{"d/e/up2", "../../g", "../../g"},
		{"dangling", "nowhere", "nowhere"},
		{"absolute", "$S/d/f", "d/f"},
		{"d/e/abs", "$S/d/f", "../f"},
		{"d/e/abs2", "$S/g", "../../g"},
		{"dots", "d/../g", "g"},
		{"through", "../src/g", "g"},
		{"dir", "d", "d"},
	};
	struct mc_err err;
	struct mc_scan s;

	setup();
	shell("mkdir -p src/d/e && echo f > src/d/f && echo g > src/g");
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		shell("S=%s/src; ln -s \"%s\" \"src/%s\"", top, cases[i].target, cases[i].link);
	ck_assert_msg(scan(&s, &err) == 0, "%s", err.text);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const struct mc_scan_entry *e = find(&s, cases[i].link);

		ck_assert_int_eq(e->type, MC_ENTRY_SYMLINK);
		ck_assert_str_eq(e->target, cases[i].kept);
	}
	mc_scan_done(&s);
	teardown();
}
END_TEST

START_TEST(a_link_that_leaves_becomes_what_it_leads_to)
{
	struct mc_err err;
	struct mc_scan s;
	const struct mc_scan_entry *e;

	setup();
	shell("mkdir -p src/sub blobs/dir && echo blob > blobs/x && echo y > blobs/dir/y && "
	      "ln -s ../x blobs/dir/up && "
	      "ln -s ../blobs/x src/weights && ln -s ../../blobs/x src/sub/again && "
	      "ln -s weights src/alias && ln -s ../blobs/dir src/dir");
	ck_assert_msg(scan(&s, &err) == 0, "%s", err.text);
	e = find(&s, "weights");
	ck_assert_int_eq(e->type, MC_ENTRY_FILE);
	ck_assert_uint_eq(e->size, 5);
	ck_assert_ptr_nonnull(strstr(e->outside, "/blobs/x"));
	ck_assert_int_eq(find(&s, "sub/again")->type, MC_ENTRY_FILE);
	ck_assert_int_eq(find(&s, "alias")->type, MC_ENTRY_SYMLINK);
	ck_assert_int_eq(find(&s, "dir")->type, MC_ENTRY_DIR);
	ck_assert_int_eq(find(&s, "dir/y")->type, MC_ENTRY_FILE);
	/* Outside, ".." would mean another place: followed. */
	ck_assert_int_eq(find(&s, "dir/up")->type, MC_ENTRY_FILE);
	mc_scan_done(&s);
	teardown();
}
END_TEST

START_TEST(what_cannot_be_imported_is_named)
{
	static const struct {
		const char *make;
		int r;
		const char *text;
	} cases[] = {
		{"mkfifo src/pipe", -EINVAL, "pipe is neither file, directory nor link"},
		{"ln -s /nonexistent/x src/gone", -ENOENT, "the link"},
		{"ln -s .. src/loop", -ELOOP, "loop"},
		{"ln -s loop1 src/loop2; mkdir o; ln -s ../o/b o/a; ln -s ../o/a o/b; ln -s ../o/a "
		 "src/x",
			-ELOOP, "src/x"},
		{"touch \"src/$(printf 'a\\001b')\"", -EINVAL, "a\\x01b"},
		{"touch \"src/$(printf 'a\\377b')\"", -EINVAL, "a\\xffb"},
		{"rmdir src; touch src", -ENOTDIR, "no directory"},
		{"rmdir src", -ENOENT, "/src: No such file"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct mc_err err;
		struct mc_scan s;

		setup();
		shell("mkdir src && { %s; }", cases[i].make);
		ck_assert_msg(scan(&s, &err) == cases[i].r, "%s: %s", cases[i].make, err.text);
		ck_assert_msg(
			strstr(err.text, cases[i].text) != NULL, "%s: %s", cases[i].make, err.text);
		mc_scan_done(&s);
		teardown();
	}
}
END_TEST

START_TEST(holes_are_found)
{
	struct mc_err err;
	struct mc_scan s;
	const struct mc_scan_entry *e;
	bool sparse;

	setup();
	shell("mkdir src && truncate -s 1M src/hole && truncate -s 3M src/mixed && "
	      "dd if=/dev/urandom of=src/mixed bs=64k count=1 seek=16 conv=notrunc status=none && "
	      "sync");
	ck_assert_int_eq(scan(&s, &err), 0);
	e = find(&s, "hole");
	sparse = e->n_data == 0;
	if (sparse) {
		e = find(&s, "mixed");
		ck_assert_uint_eq(e->n_data, 1);
		ck_assert_uint_eq(e->data[0].off, 1 << 20);
		ck_assert_uint_eq(e->data[0].len, 65536);
		ck_assert_uint_eq(s.data_bytes, 65536);
	}
	mc_scan_done(&s);
	teardown();
}
END_TEST

START_TEST(any_change_between_two_scans_is_named)
{
	static const struct {
		const char *change, *text;
	} cases[] = {
		{"echo more >> src/d/f", "d/f changed its size"},
		{"touch -d @5 src/d/f", "d/f changed its modification time"},
		{"chmod 600 src/d/f", "d/f changed its mode"},
		{"cp -p src/d/f src/n && mv src/n src/d/f", "d/f was replaced"},
		{"rm src/d/f", "d/f disappeared"},
		{"touch src/d/new", "d/new appeared"},
		{"rm src/l && ln -s f src/l", "l leads elsewhere"},
		{"rm src/d/f && mkdir src/d/f", "d/f is of another type"},
		{"chmod 700 src/d", "d changed its mode"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct mc_scan before, now;
		struct mc_err err;

		setup();
		shell("mkdir -p src/d && echo f > src/d/f && ln -s d/f src/l && touch -h -d @9 "
		      "src/l && "
		      "touch -d @9 src/d/f");
		ck_assert_int_eq(scan(&before, &err), 0);
		ck_assert_int_eq(scan(&now, &err), 0);
		ck_assert_int_eq(mc_scan_compare(&before, &now, &err), 0);
		mc_scan_done(&now);
		shell("%s; touch -h -d @9 src/l || :", cases[i].change);
		ck_assert_int_eq(scan(&now, &err), 0);
		ck_assert_int_eq(mc_scan_compare(&before, &now, &err), -ESTALE);
		ck_assert_msg(strstr(err.text, cases[i].text) != NULL, "%s: %s", cases[i].change,
			err.text);
		mc_scan_done(&before);
		mc_scan_done(&now);
		teardown();
	}
}
END_TEST

START_TEST(checksums_of_parts_join_to_that_of_the_whole)
{
	static uint8_t buf[70000];
	unsigned seed = 12345;

	for (size_t i = 0; i < sizeof(buf); i++)
		buf[i] = (uint8_t)rand_r(&seed);
	for (size_t cut = 0; cut <= sizeof(buf); cut += 6997) {
		uint32_t a = mc_crc32c(0, buf, cut), b = mc_crc32c(0, buf + cut, sizeof(buf) - cut);

		ck_assert_uint_eq(
			mc_crc32c_join(a, b, sizeof(buf) - cut), mc_crc32c(0, buf, sizeof(buf)));
	}
	memset(buf + 100, 0, sizeof(buf) - 100);
	ck_assert_uint_eq(mc_crc32c_zeros(mc_crc32c(0, buf, 100), sizeof(buf) - 100),
		mc_crc32c(0, buf, sizeof(buf)));
	ck_assert_uint_eq(mc_crc32c_zeros(0, 0), 0);
}
END_TEST

SUITE_MAIN("scan", entries_are_sorted_and_carry_mode_time_and_size,
	a_link_that_stays_inside_is_kept_or_made_relative,
	a_link_that_leaves_becomes_what_it_leads_to, what_cannot_be_imported_is_named,
	holes_are_found, any_change_between_two_scans_is_named,
	checksums_of_parts_join_to_that_of_the_whole)
