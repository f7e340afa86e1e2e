/*
 * The KV store of a mount. It has memory of its own out of --dram, and half of the NVMe tier, in a
 * directory beside the cache of checkpoints: neither kind of data can push the other out. The
 * device of --block lies below that directory; without --nvme it is there instead.
 */
#include "tools/mount-kv.h"

#include "tier/block-cache.h"
#include "tier/block-super.h"
#include "tier/cleanup.h"
#include "tier/digest.h"
#include "tools/node-name.h"
#include "tools/size.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

#define DRAM_MIN (UINT64_C(64) << 20) /* of either store */
#define PAIR (UINT64_C(2) << 20)

static _Thread_local uint64_t found_bytes;

static int add_bytes(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)path;
	(void)ftw;
	if (type == FTW_F)
		found_bytes += (uint64_t)st->st_blocks * 512;
	return 0;
}

/* 90 % of what is free on the tier's file system, what the tier holds already included. */
static uint64_t free_bytes(const char *dir)
{
	cleanup_free char *path = strdup(dir);
	struct statvfs sv;
	char *slash;

	found_bytes = 0;
	nftw(dir, add_bytes, 16, FTW_PHYS | FTW_MOUNT);
	/* The directory may be still to be made. */
	while (path != NULL && statvfs(path, &sv) != 0) {
		slash = strrchr(path, '/');
		if (slash == NULL || slash == path)
			return 0;
		*slash = '\0';
	}
	if (path == NULL)
		return 0;
	return ((uint64_t)sv.f_bavail * sv.f_frsize + found_bytes) / 10 * 9;
}

/* --block: an absolute path, since a daemon changes its directory. */
static int take_block(struct mc_mount_kv *m, const struct mc_options *o, struct mc_err *err)
{
	const char *text = mc_options_text(o, MC_OPT_BLOCK);
	cleanup_free char *cwd = NULL;
	size_t len;

	if (text == NULL)
		return mc_options_flag(o, MC_OPT_FORMAT)
			? mc_err_set(err, -EINVAL, "--format needs --block")
			: 0;
	if (mc_place_parse(text, &len, &m->block_bytes) < 0 ||
		(text[0] != '/' && (cwd = getcwd(NULL, 0)) == NULL))
		return mc_err_set(err, -EINVAL, "--block: give an absolute path");
	if (asprintf(&m->block, "%s%s%.*s", cwd != NULL ? cwd : "", cwd != NULL ? "/" : "",
		    (int)len, text) < 0) {
		m->block = NULL;
		return mc_err_set(err, -ENOMEM, "out of memory");
	}
	return 0;
}

static int format_block(const struct mc_mount_kv *m, const struct mc_options *o, struct mc_err *err)
{
	const struct mc_block_format f = {.path = m->block,
		.bytes = m->block_bytes,
		.force = mc_options_flag(o, MC_OPT_FORCE)};

	return m->block != NULL && mc_options_flag(o, MC_OPT_FORMAT) ? mc_block_format(&f, err) : 0;
}

int mc_mount_kv_share(struct mc_mount_kv *m, const struct mc_options *o, struct mc_mount_tiers *t,
	struct mc_err *err)
{
	uint64_t want = mc_options_number(o, MC_OPT_KV_DRAM);
	int r;

	m->ack = (enum mc_kv_ack)mc_options_number(o, MC_OPT_KV_ACK);
	if (mc_options_given(o, MC_OPT_KV_DRAM) && want == 0)
		return 0;
	if (want == 0)
		want = t->dram_bytes / 2;
	if (want > t->dram_bytes)
		return mc_err_set(err, -EINVAL, "--kv-dram is more than all of --dram");
	r = take_block(m, o, err);
	if (r < 0)
		return r;
	if (m->ack == MC_KV_ACK_NVME && t->nvme_dir[0] == '\0' && m->block == NULL)
		return mc_err_set(err, -EINVAL, "--kv-ack nvme needs --nvme or --block");
	if (m->block != NULL && mc_block_cache_open(&m->blocks) < 0)
		return mc_err_set(err, -ENOMEM, "out of memory");
	m->dram_bytes = want < DRAM_MIN ? DRAM_MIN : want / PAIR * PAIR;
	t->dram_bytes -= want / PAIR * PAIR;
	if (t->dram_bytes < DRAM_MIN)
		t->dram_bytes = DRAM_MIN;
	if (asprintf(&m->dram_dir, "%s.kv", t->dram_dir) < 0)
		return mc_err_set(err, -ENOMEM, "out of memory");
	if (t->nvme_dir[0] == '\0')
		return 0;
	if (asprintf(&m->nvme_dir, "%s/kv", t->nvme_dir) < 0)
		return mc_err_set(err, -ENOMEM, "out of memory");
	if (t->nvme_bytes == 0)
		t->nvme_bytes = free_bytes(t->nvme_dir);
	m->nvme_bytes = t->nvme_bytes / 2;
	t->nvme_bytes -= m->nvme_bytes;
	return 0;
}

int mc_mount_kv_open(struct mc_mount_kv *m, const struct mc_options *o, struct mc_remote *remote,
	void (*event)(void *ctx, const char *event, const char *text), struct mc_err *err)
{
	const char *uuid = mc_options_text(o, MC_OPT_BLOCK_UUID);
	cleanup_free char *node = NULL;
	uint8_t id[16];
	struct mc_kv_opts opts = {.dram_dir = m->dram_dir,
		.dram_capacity = m->dram_bytes,
		.nvme_dir = m->nvme_dir,
		.nvme_capacity = m->nvme_bytes,
		.device = m->block,
		.device_capacity = m->block_bytes,
		.blocks = m->blocks,
		.remote = remote,
		.replicas = (unsigned)mc_options_number(o, MC_OPT_KV_REPLICAS),
		.ack = m->ack,
		.deadline_ms = (unsigned)mc_options_number(o, MC_OPT_DEADLINE) * 1000,
		.puts = m->puts,
		.n_puts = m->n_puts,
		.event = event};
	int r;

	if (m->dram_bytes == 0)
		return 0;
	if (uuid != NULL) {
		if (strlen(uuid) != 32 || mc_hex_decode(uuid, id, sizeof(id)) < 0)
			return mc_err_set(err, -EINVAL, "--block-uuid: 32 hex digits");
		opts.device_uuid = id;
	}
	r = format_block(m, o, err);
	if (r < 0)
		return r;
	if (mc_node_name(&node) == 0)
		opts.node = node;
	r = mc_kv_open(&opts, &m->kv, err);
	return r < 0 ? mc_err_prefix(err, r, "KV store") : 0;
}

int64_t mc_mount_kv_close(struct mc_mount_kv *m, unsigned drain_ms)
{
	int64_t left = m->kv != NULL ? mc_kv_close(m->kv, drain_ms) : 0;

	m->kv = NULL;
	free(m->puts);
	free(m->dram_dir);
	free(m->nvme_dir);
	free(m->block);
	return left;
}
