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

#include "manifest/export.h"

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

static const size_t two_shards[][3] = {{9000000, 3000001, 17}, {12000000, 4096, 1}};
static const char index_json[] = "{\"metadata\":{},\"weight_map\":{\"a0\":\"model-1.safetensors\","
				 "\"a1\":\"model-1.safetensors\",\"a2\":\"model-1.safetensors\","
				 "\"b0\":\"model-2.safetensors\",\"b1\":\"model-2.safetensors\","
				 "\"b2\":\"model-2.safetensors\"}}";

void tree_fill(const struct tree *t)
{
	tree_weights(t, "src/model-1.safetensors", "a", two_shards[0], 3);
	tree_weights(t, "src/model-2.safetensors", "b", two_shards[1], 3);
	tree_weights(t, "src/stray.safetensors", "z", (const size_t[]){100, 200}, 2);
	tree_shell(t, "cat > src/model.safetensors.index.json <<'EOF'\n%s\nEOF", index_json);
	tree_shell(t,
		"echo '{\"architectures\":[\"LlamaForCausalLM\"]}' > src/config.json; cd src; "
		": > empty; mkdir -p emptydir 'od d/näme' sub; printf 1 > 'od d/näme/a b'; "
		"ln -s config.json link; ln -s ../config.json sub/up; ln -s nowhere dangling; "
		"truncate -s 20M sub/sparse; "
		"printf x | dd of=sub/sparse bs=1 seek=5000000 conv=notrunc status=none; "
		"truncate -s 3000001 allhole; head -c 9437185 /dev/urandom > blob.bin; "
		"cp blob.bin sub/copy.bin; chmod 600 blob.bin; chmod 755 sub/copy.bin; chmod 750 "
		"sub; "
		"touch -d @1111111111.123456789 blob.bin; touch -d @1222222222.5 emptydir; "
		"touch -h -d @1333333333.25 link; touch -d @1444444444.75 sub .");
}

void tree_export(const struct tree *t, const char *rev, const char *dest)
{
	const struct mc_export_opts opts = {.jobs = 4};
	struct mc_manifest *m = tree_load(t, rev);
	struct mc_export_result res;
	struct mc_err err = {0};
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", t->top, dest);
	ck_assert_msg(mc_export(t->remote, m, path, &opts, &res, &err) == 0, "%s", err.text);
	mc_manifest_unref(m);
}
