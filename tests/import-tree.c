/* The source tree and remote that import tests work on. */
#include "tests/import-tree.h"

#include <check.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

static int run(const struct tree *t, const char *fmt, va_list ap)
	__attribute__((format(printf, 2, 0)));

static int run(const struct tree *t, const char *fmt, va_list ap)
{
	char cmd[4096];
	int n = snprintf(cmd, sizeof(cmd), "cd %s && { ", t->top);

	n += vsnprintf(cmd + n, sizeof(cmd) - (size_t)n, fmt, ap);
	snprintf(cmd + n, sizeof(cmd) - (size_t)n, "\n}");
	n = system(cmd);
	return WIFEXITED(n) ? WEXITSTATUS(n) : 255;
}

void tree_shell(const struct tree *t, const char *fmt, ...)
{
	va_list ap;
	int code;

	va_start(ap, fmt);
	code = run(t, fmt, ap);
	va_end(ap);
	ck_assert_msg(code == 0, "%s: exit code %d", fmt, code);
}

int tree_ask(const struct tree *t, const char *fmt, ...)
{
	va_list ap;
	int code;

	va_start(ap, fmt);
	code = run(t, fmt, ap);
	va_end(ap);
	return code;
}

void tree_open(struct tree *t)
{
	struct mc_err err = {0};
	char state[80];

	strcpy(t->top, "/tmp/test-import-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(t->top));
	snprintf(t->src, sizeof(t->src), "%s/src", t->top);
	snprintf(t->url, sizeof(t->url), "dir:%s/remote", t->top);
	snprintf(state, sizeof(state), "%s/state", t->top);
	ck_assert_int_eq(setenv("XDG_STATE_HOME", state, 1), 0);
	tree_shell(t, "mkdir src remote");
	ck_assert_msg(mc_remote_open(t->url, NULL, &t->remote, &err) == 0, "%s", err.text);
}

void tree_close(struct tree *t)
{
	mc_remote_close(t->remote);
	tree_shell(t, "chmod -R u+rwx . && rm -rf %s", t->top);
}

void tree_weights(
	const struct tree *t, const char *path, const char *prefix, const size_t *sizes, size_t n)
{
	char header[4096], full[128];
	size_t len = 0, off = 0;
	uint64_t size;
	uint8_t *data;
	FILE *f;

	for (size_t i = 0; i < n; i++) {
		len += (size_t)snprintf(header + len, sizeof(header) - len,
			"%c\"%s%zu\":{\"dtype\":\"U8\",\"shape\":[%zu],\"data_offsets\":[%zu,%zu]}",
			i == 0 ? '{' : ',', prefix, i, sizes[i], off, off + sizes[i]);
		off += sizes[i];
	}
	header[len++] = '}';
	data = malloc(off);
	ck_assert_ptr_nonnull(data);
	/* No two mebibytes are alike, so nothing is deduplicated by accident. */
	for (size_t i = 0; i < off; i++)
		data[i] = (uint8_t)((i * 31 + (i >> 11) * 7 + (i >> 20) * 3) ^ (uint8_t)prefix[0]);
	snprintf(full, sizeof(full), "%s/%s", t->top, path);
	f = fopen(full, "w");
	ck_assert_ptr_nonnull(f);
	size = htole64(len);
	ck_assert_uint_eq(fwrite(&size, 8, 1, f), 1);
	ck_assert_uint_eq(fwrite(header, 1, len, f), len);
	ck_assert_uint_eq(fwrite(data, 1, off, f), off);
	ck_assert_int_eq(fclose(f), 0);
	free(data);
}

int tree_import(
	const struct tree *t, const char *rev, struct mc_import_result *ret, struct mc_err *err)
{
	struct mc_import_opts opts = {.src = t->src, .name = {.org = "o", .model = "m"}, .jobs = 4};

	err->text[0] = '\0';
	if (rev != NULL)
		strcpy(opts.name.rev, rev);
	return mc_import(t->remote, &opts, ret, err);
}

struct mc_manifest *tree_load(const struct tree *t, const char *rev)
{
	struct mc_rev_name name = {.org = "o", .model = "m"};
	struct mc_err err = {0};
	struct mc_catalogue *c;
	struct mc_loaded l;

	strcpy(name.rev, rev);
	ck_assert_int_eq(mc_catalogue_open(t->remote, NULL, &c, &err), 0);
	ck_assert_msg(mc_catalogue_load(c, &name, &l, &err) == 0, "%s", err.text);
	mc_catalogue_close(c);
	return l.m;
}
