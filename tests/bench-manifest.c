/*
 * Cost of a large manifest. Each step is a process of its own, so that its memory can be told:
 *   bench-manifest build DIR JSON   from the safetensors headers in DIR (gen-checkpoint); the data
 * is taken as present, its digests are made up bench-manifest parse JSON INDEX bench-manifest load
 * INDEX       (the page cache as it is) Each prints one line of JSON; memory in bytes, times in
 * seconds.
 */
#include "manifest/chunker.h"
#include "manifest/manifest-write.h"
#include "tier/cleanup.h"
#include "tier/lock.h"

#include <dirent.h>
#include <err.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const struct mc_new_meta meta = {.mode = 0644, .mtime_s = 1700000000};

static uint32_t scramble(uint64_t x)
{
	return (uint32_t)((x + 1) * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}

static void die(const char *what, int r, const struct mc_err *e)
{
	errx(1, "%s: %s (%s)", what, strerror(-r), e->text);
}

static void *read_header(const char *path, uint64_t *ret_size, size_t *ret_len)
{
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct mc_err e = {0};
	uint8_t first[8];
	struct stat st;
	uint64_t len;
	char *h;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0 || pread(fd, first, 8, 0) != 8)
		err(1, "%s", path);
	r = mc_safetensors_header_size(first, 8, (uint64_t)st.st_size, &len, &e);
	if (r < 0)
		die(path, r, &e);
	h = malloc(len);
	if (h == NULL || pread(fd, h, len, 0) != (ssize_t)len)
		err(1, "%s", path);
	*ret_size = (uint64_t)st.st_size;
	*ret_len = len;
	return h;
}

static void add_tensors(struct mc_writer *w, const char *name, const struct mc_safetensors *st)
{
	struct mc_err e = {0};

	for (size_t i = 0; i < mc_safetensors_count(st); i++) {
		const struct mc_st_tensor *t = mc_safetensors_tensor(st, i);
		int r = mc_writer_tensor(w,
			&(struct mc_new_tensor){.name = t->name,
				.file = name,
				.dtype = t->dtype,
				.rank = t->rank,
				.shape = t->shape,
				.off = t->off,
				.len = t->len},
			&e);

		if (r < 0)
			die(t->name, r, &e);
	}
}

static void add_content(
	struct mc_writer *w, const char *name, uint64_t size, const struct mc_safetensors *st)
{
	struct mc_extent all = {0, size};
	struct mc_chunk_input in = {.size = size, .data = &all, .n_data = 1};
	struct mc_new_file f = {.size = size};
	struct mc_chunk_plan plan;
	struct mc_err e = {0};
	struct mc_new_span *spans;
	uint64_t n = mc_block_count(size), *anchors;
	uint32_t *crcs = calloc(n + 1, sizeof(*crcs));
	int r = mc_chunk_anchors(st, &anchors, &in.n_anchors);

	in.anchors = anchors;
	if (r < 0 || mc_chunk_plan(&in, &plan) < 0 || crcs == NULL)
		errx(1, "%s: cannot plan", name);
	spans = calloc(plan.n, sizeof(*spans));
	if (spans == NULL)
		errx(1, "no memory");
	for (size_t i = 0; i < plan.n; i++) {
		spans[i].len = plan.spans[i].len;
		for (size_t k = 0; k < 8; k++) {
			uint32_t v = scramble(plan.spans[i].off * 8 + k + (uintptr_t)name[6]);

			memcpy(spans[i].sha256 + 4 * k, &v, sizeof(v));
		}
	}
	for (uint64_t i = 0; i < n; i++)
		crcs[i] = scramble(i);
	f.spans = spans;
	f.n_spans = plan.n;
	f.crc32c = crcs;
	r = mc_writer_file(w, name, &meta, &f, &e);
	if (r < 0)
		die(name, r, &e);
	mc_chunk_plan_done(&plan);
	free(spans);
	free(crcs);
	free(anchors);
}

static void add_dir(struct mc_writer *w, const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *entry;

	if (d == NULL)
		err(1, "%s", dir);
	while ((entry = readdir(d)) != NULL) {
		const char *dot = strrchr(entry->d_name, '.');
		struct mc_safetensors *st;
		struct mc_err e = {0};
		char path[4096];
		uint64_t size;
		size_t len;
		void *h;
		int r;

		if (dot == NULL || strcmp(dot, ".safetensors") != 0)
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
		h = read_header(path, &size, &len);
		r = mc_safetensors_parse(h, len, size, &st, &e);
		if (r < 0)
			die(path, r, &e);
		add_tensors(w, entry->d_name, st);
		add_content(w, entry->d_name, size, st);
		mc_safetensors_close(st);
		free(h);
	}
	closedir(d);
}

static long status_bytes(const char *key)
{
	FILE *f = fopen("/proc/self/status", "re");
	char line[256];
	long v = -1;

	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		if (strncmp(line, key, strlen(key)) == 0)
			v = 1024 * strtol(line + strlen(key) + 1, NULL, 10);
	if (f != NULL)
		fclose(f);
	return v;
}

static double seconds(uint64_t since_ns)
{
	return (double)(mc_now_ns() - since_ns) / 1e9;
}

static int build(const char *dir, const char *json_path)
{
	uint64_t t = mc_now_ns();
	struct mc_manifest *m;
	struct mc_err e = {0};
	struct mc_writer *w;
	size_t len;
	char *json;
	FILE *f;
	int r = mc_writer_open(&w);

	if (r < 0)
		die("writer", r, &e);
	add_dir(w, dir);
	r = mc_writer_finish(w, &json, &len, &m, &e);
	if (r < 0)
		die("finish", r, &e);
	f = fopen(json_path, "we");
	if (f == NULL || fwrite(json, 1, len, f) != len || fclose(f) != 0)
		err(1, "%s", json_path);
	printf("{\"json_bytes\":%zu,\"chunks\":%u,\"tensors\":%u,\"build_s\":%.3f}\n", len,
		mc_manifest_chunks(m), mc_manifest_tensors(m), seconds(t));
	mc_manifest_unref(m);
	free(json);
	mc_writer_close(w);
	return 0;
}

static int parse(const char *json_path, const char *index)
{
	cleanup_close int fd = open(json_path, O_RDONLY | O_CLOEXEC);
	struct mc_err e = {0};
	struct mc_manifest *m;
	struct stat st;
	double parse_s;
	uint64_t t;
	char *json;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		err(1, "%s", json_path);
	json = malloc((size_t)st.st_size);
	if (json == NULL || read(fd, json, (size_t)st.st_size) != st.st_size)
		err(1, "%s", json_path);
	t = mc_now_ns();
	r = mc_manifest_parse(json, (size_t)st.st_size, &m, &e);
	if (r < 0)
		die("parse", r, &e);
	parse_s = seconds(t);
	printf("{\"parse_s\":%.3f,\"peak_bytes\":%ld,\"peak_ratio\":%.2f", parse_s,
		status_bytes("VmHWM:"), (double)status_bytes("VmHWM:") / (double)st.st_size);
	t = mc_now_ns();
	r = mc_manifest_save_index(m, index, &e);
	if (r < 0)
		die("save", r, &e);
	printf(",\"save_s\":%.3f", seconds(t));
	free(json);
	printf(",\"after_bytes\":%ld}\n", status_bytes("VmRSS:"));
	mc_manifest_unref(m);
	return 0;
}

#define PLANS 100000

static double plan_time(const struct mc_source *s)
{
	uint64_t t = mc_now_ns(), off = 0;

	for (int i = 0; i < PLANS; i++) {
		struct mc_plan plan;

		mc_plan_init(&plan);
		off = (off + 7919 * MC_BLOCK_SIZE) % (s->id.size - MC_BLOCK_SIZE);
		if (s->ops->plan(s, off, MC_BLOCK_SIZE, &plan) < 0)
			errx(1, "no memory");
		mc_plan_done(&plan);
	}
	return seconds(t) / PLANS;
}

static int load(const char *index)
{
	uint64_t t = mc_now_ns();
	struct mc_manifest *m;
	struct mc_source *s;
	struct stat st;
	double load_s;
	int r = mc_manifest_load_index(index, NULL, &m);

	if (r < 0 || stat(index, &st) < 0)
		errx(1, "%s: %s", index, strerror(-r));
	load_s = seconds(t);
	if (mc_manifest_source(m, 1, &s) < 0)
		errx(1, "no memory");
	printf("{\"index_bytes\":%lld,\"load_s\":%.4f,\"plan_us\":%.3f,\"steady_bytes\":%ld}\n",
		(long long)st.st_size, load_s, plan_time(s) * 1e6, status_bytes("VmRSS:"));
	s->ops->release(s);
	mc_manifest_unref(m);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 4 && strcmp(argv[1], "build") == 0)
		return build(argv[2], argv[3]);
	if (argc == 4 && strcmp(argv[1], "parse") == 0)
		return parse(argv[2], argv[3]);
	if (argc == 3 && strcmp(argv[1], "load") == 0)
		return load(argv[2]);
	errx(2, "usage: bench-manifest build DIR JSON | parse JSON INDEX | load INDEX");
}
