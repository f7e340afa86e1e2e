/* Commands of the control socket over the files of a mount, some at a time. */
#include "tools/mount-files.h"

#include "tools/control-client.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

/* In the worst case a byte of a path takes six of a request of 64 KiB. */
#define BATCH_BYTES 8192
#define BATCH_PATHS 256

struct batch {
	const struct mc_mount_run *run;
	uint64_t bytes_before;
	size_t first;
};

static void told(void *ctx, const struct mc_client_told *now)
{
	const struct batch *b = ctx;

	b->run->tell(b->run->ctx, b->bytes_before + now->bytes, b->first + now->paths);
}

/* The paths from first on that go into one request; *ret_end is behind the last. */
static json_t *request(const struct mc_mount_files *m, const struct mc_mount_run *run, size_t first,
	size_t *ret_end)
{
	json_t *paths = json_array(), *root;
	size_t bytes = 0, i = first;

	for (; i < m->n && i - first < BATCH_PATHS && (bytes < BATCH_BYTES || i == first); i++) {
		json_t *path = json_string(m->files[i].path);

		/* Not UTF-8: the daemon is not asked, the path counts as failed. */
		if (path == NULL && run->failed != NULL)
			run->failed(run->ctx, m->files[i].path, "the name is not UTF-8");
		if (path != NULL)
			json_array_append_new(paths, path);
		bytes += strlen(m->files[i].path);
	}
	*ret_end = i;
	if (json_array_size(paths) == 0) {
		json_decref(paths);
		return NULL;
	}
	root = json_pack("{s:s, s:o}", "command", run->command, "paths", paths);
	if (run->tier != NULL)
		json_object_set_new(root, "tier", json_string(run->tier));
	if (run->bytes_per_second > 0)
		json_object_set_new(
			root, "bytes_per_second", json_integer((json_int_t)run->bytes_per_second));
	return root;
}

static void hand_out(const struct mc_mount_files *m, const struct mc_mount_run *run, size_t first,
	size_t end, const json_t *result)
{
	const json_t *item;
	size_t i, at = first;

	json_array_foreach(json_object_get(result, "failures"), i, item)
	{
		if (run->failed != NULL)
			run->failed(run->ctx, json_string_value(json_object_get(item, "path")),
				json_string_value(json_object_get(item, "text")));
	}
	/* Entries come in the order of the paths, without those that failed. */
	json_array_foreach(json_object_get(result, "files"), i, item)
	{
		const char *path = json_string_value(json_object_get(item, "path"));

		while (at < end && path != NULL && strcmp(m->files[at].path, path) != 0)
			at++;
		if (at < end && run->each != NULL)
			run->each(run->ctx, &m->files[at], item);
	}
}

int mc_mount_files_run(
	const struct mc_mount_files *m, const struct mc_mount_run *run, struct mc_err *err)
{
	struct batch b = {.run = run};
	const struct mc_client_progress progress = {
		.tell = run->tell != NULL ? told : NULL, .ctx = &b};
	struct mc_client c;
	int r = mc_client_connect(&m->mount, &c, err);
	size_t end;

	if (r < 0)
		return r;
	for (b.first = 0; b.first < m->n && r == 0; b.first = end) {
		json_t *q = request(m, run, b.first, &end), *result = NULL;

		if (q != NULL)
			r = mc_client_ask(&c, q, &progress, &result, err);
		if (r == 0)
			hand_out(m, run, b.first, end, result);
		json_decref(result);
		for (size_t i = b.first; i < end; i++)
			b.bytes_before += m->files[i].bytes;
		if (r == 0 && run->tell != NULL)
			run->tell(run->ctx, b.bytes_before, end);
	}
	mc_client_close(&c);
	return r;
}
