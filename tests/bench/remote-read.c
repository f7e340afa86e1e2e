/*
 * Reads one object of a remote through mc_remote_read, connections × depth requests in flight, as
 * the fetch engine does; the counterpart of raw-nfs-read for the remote alone.
 *
 *   remote-read [--connections N] [--depth N] [--size BYTES] [--passes N] [--json] URL PATH
 */
#include "tier/lock.h"
#include "tier/remote.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct job {
	struct mc_remote *r;
	uint64_t size, file_size, end; /* bytes */
	_Atomic uint64_t next;
	_Atomic unsigned running;
	_Atomic bool failed;
	struct mc_mutex lock;
	struct mc_cond over;
};

static void issue(struct job *j, struct mc_remote_read *req)
{
	uint64_t at = atomic_fetch_add(&j->next, j->size);

	if (at < j->end && !j->failed) {
		req->off = at % j->file_size;
		req->len = (uint32_t)j->size;
		mc_remote_read(j->r, req);
		return;
	}
	mc_mutex_lock(&j->lock);
	if (--j->running == 0)
		mc_cond_signal(&j->over);
	mc_mutex_unlock(&j->lock);
}

static void done(struct mc_remote_read *req, int res)
{
	struct job *j = req->ctx;

	if (res < 0) {
		fprintf(stderr, "remote-read: %s\n", strerror(-res));
		j->failed = true;
	}
	issue(j, req);
}

static int run(struct job *j, const char *path, unsigned in_flight, bool json)
{
	struct mc_remote_read *reqs = calloc(in_flight, sizeof(*reqs));
	uint64_t begin;
	double seconds;

	for (unsigned i = 0; i < in_flight; i++) {
		reqs[i] = (struct mc_remote_read){.path = path, .done = done, .ctx = j};
		if (posix_memalign(&reqs[i].buf, 4096, j->size) != 0)
			return 1;
		memset(reqs[i].buf, 1, j->size);
	}
	j->running = in_flight;
	begin = mc_now_ns();
	for (unsigned i = 0; i < in_flight; i++)
		issue(j, &reqs[i]);
	mc_mutex_lock(&j->lock);
	while (j->running > 0)
		mc_cond_wait(&j->over, &j->lock);
	mc_mutex_unlock(&j->lock);
	seconds = (double)(mc_now_ns() - begin) / 1e9;
	for (unsigned i = 0; i < in_flight; i++)
		free(reqs[i].buf);
	free(reqs);
	if (j->failed)
		return 1;
	printf(json ? "{\"bytes\": %llu, \"seconds\": %.6f, \"gb_per_s\": %.3f}\n"
		    : "%llu bytes in %.3f s: %.3f GB/s\n",
		(unsigned long long)j->end, seconds, (double)j->end / 1e9 / seconds);
	return 0;
}

int main(int argc, char **argv)
{
	struct mc_remote_opts opts = {.connections = 2, .depth = 8};
	struct job j = {.size = 1 << 20, .lock = MC_MUTEX_INIT};
	struct mc_remote_attr attr;
	struct mc_err err = {0};
	uint64_t passes = 1;
	bool json = false;
	int i = 1, res;

	for (; i < argc && strncmp(argv[i], "--", 2) == 0; i++) {
		const char *value = i + 1 < argc ? argv[i + 1] : "0";

		if (strcmp(argv[i], "--json") == 0) {
			json = true;
			continue;
		}
		if (strcmp(argv[i], "--connections") == 0)
			opts.connections = (unsigned)strtoul(value, NULL, 10);
		else if (strcmp(argv[i], "--depth") == 0)
			opts.depth = (unsigned)strtoul(value, NULL, 10);
		else if (strcmp(argv[i], "--size") == 0)
			j.size = strtoull(value, NULL, 10);
		else if (strcmp(argv[i], "--passes") == 0)
			passes = strtoull(value, NULL, 10);
		else
			break;
		i++;
	}
	if (argc - i != 2 || j.size == 0 || passes == 0) {
		fprintf(stderr,
			"usage: remote-read [--connections N] [--depth N] [--size BYTES] "
			"[--passes N] [--json] URL PATH\n");
		return 2;
	}
	if (mc_remote_open(argv[i], &opts, &j.r, &err) < 0 ||
		mc_remote_stat(j.r, argv[i + 1], &attr, &err) < 0) {
		fprintf(stderr, "remote-read: %s\n", err.text);
		return 1;
	}
	mc_cond_init(&j.over);
	j.file_size = attr.size / j.size * j.size;
	j.end = j.file_size * passes;
	res = j.file_size == 0 ? 1 : run(&j, argv[i + 1], opts.connections * opts.depth, json);
	mc_remote_close(j.r);
	return res;
}
