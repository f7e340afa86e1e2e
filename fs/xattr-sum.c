/* Attributes of directories: sums over the files below, made on the pool. */
#include "fs/xattr.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "fs/spot-job.h"
#include "fs/walk.h"
#include "tier/kv.h"
#include "tier/store.h"

struct sum {
	struct mc_fs *fs;
	uint64_t files, bytes, dram, nvme, block, hits, pinned, dirty,
		replicas; /* replicas: the least */
};

static const struct {
	const char *name;
	size_t at; /* of the uint64_t in struct sum */
} sums[] = {
	{"files", offsetof(struct sum, files)},
	{"bytes", offsetof(struct sum, bytes)},
	{"resident.dram", offsetof(struct sum, dram)},
	{"resident.nvme", offsetof(struct sum, nvme)},
	{"resident.block", offsetof(struct sum, block)},
	{"hits", offsetof(struct sum, hits)},
	{"pinned", offsetof(struct sum, pinned)},
	{"replicas", offsetof(struct sum, replicas)},
	{"state", offsetof(struct sum, dirty)},
};
#define N_SUMS (sizeof(sums) / sizeof(*sums))

const char *mc_xattr_sum_name(size_t i)
{
	return i < N_SUMS ? sums[i].name : NULL;
}

static size_t find(const char *name)
{
	size_t i = 0;

	while (i < N_SUMS && strcmp(name, sums[i].name) != 0)
		i++;
	return i;
}

bool mc_xattr_is_sum(const char *name)
{
	return find(name) < N_SUMS;
}

static void add_entry(struct sum *s, const struct mc_spot *file, uint64_t *ret_replicas)
{
	struct mc_residency res = {0};
	struct mc_file_id id;
	struct mc_entry e;

	mc_manifest_entry(file->place->manifest, file->entry, &e);
	mc_entry_file_id(&e, &id);
	if (id.size > 0)
		mc_store_residency(s->fs->opts->store, &id, &res);
	s->bytes += e.size;
	s->dram += res.dram;
	s->nvme += res.nvme;
	s->block += res.block;
	s->hits += res.hits;
	s->pinned += res.pinned;
	*ret_replicas = file->place->view == NULL;
}

static void add_object(struct sum *s, const struct mc_spot *file, uint64_t *ret_replicas)
{
	struct mc_kv_attr a;

	if (mc_kv_lookup(s->fs->opts->kv, file->key, &a) < 0)
		return; /* removed meanwhile */
	s->bytes += a.size;
	s->dram += a.dram;
	s->nvme += a.nvme;
	s->block += a.block;
	s->hits += a.hits;
	s->pinned += a.pinned;
	s->dirty += a.state == MC_KV_DIRTY || a.state == MC_KV_FLUSHING;
	*ret_replicas = a.remotes;
}

static int add(void *ctx, const struct mc_spot *file)
{
	struct sum *s = ctx;
	uint64_t replicas = 0;

	if (file->kind == MC_NODE_ENTRY)
		add_entry(s, file, &replicas);
	else
		add_object(s, file, &replicas);
	if (s->files++ == 0 || replicas < s->replicas)
		s->replicas = replicas;
	return 0;
}

static void sum_now(struct mc_spot_job *job)
{
	struct sum s = {.fs = job->fs};
	int r = mc_walk_files(job->fs, &job->spot, add, &s);
	size_t i = find(job->name);
	fuse_req_t req;
	char text[32];
	uint64_t value;
	int len;

	if (r < 0) {
		mc_spot_job_err(job, r);
		return;
	}
	value = *(const uint64_t *)(const void *)((const char *)&s + sums[i].at);
	if (sums[i].at == offsetof(struct sum, dirty))
		len = snprintf(text, sizeof(text), "%s", value > 0 ? "dirty" : "clean");
	else
		len = snprintf(text, sizeof(text), "%" PRIu64, value);
	req = mc_spot_job_take(job);
	if (req != NULL)
		mc_xattr_reply(req, job->size, text, (size_t)len);
	mc_spot_job_end(job);
}

void mc_xattr_sum(fuse_req_t req, const struct mc_spot *dir, const char *name, size_t size)
{
	struct mc_spot_job *job = mc_spot_job_new(req, dir, name, sum_now);

	if (job == NULL)
		return;
	job->size = size;
	mc_spot_job_start(job, job->fs->admin);
}
