/* config.json of a checkpoint: its plan, executed block by block. */
#include "manifest/whole-file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/piece-read.h"
#include "tier/cleanup.h"

#define MAX_CONFIG (UINT64_C(4) << 20) /* bytes */

static int read_block(struct mc_remote *r, const struct mc_source *s, uint64_t block, char *out,
	struct mc_err *err)
{
	uint32_t len = mc_block_len(s->id.size, block);
	struct mc_plan plan;
	int res;

	mc_plan_init(&plan);
	res = s->ops->plan(s, block << MC_BLOCK_SHIFT, len, &plan);
	for (size_t i = 0, at = 0; i < plan.n && res == 0; at += plan.pieces[i++].len)
		res = mc_piece_read(r, &plan.pieces[i], out + at, err);
	mc_plan_done(&plan);
	if (res == 0 && mc_crc32c(0, out, len) != s->ops->block_crc(s, block))
		res = mc_err_set(err, -EBADMSG, "remote %s: block %llu does not match its checksum",
			mc_remote_url(r), (unsigned long long)block);
	return res;
}

static int read_file(struct mc_remote *r, struct mc_manifest *m, uint32_t entry, char **ret,
	size_t *ret_len, struct mc_err *err)
{
	cleanup_free char *buf = NULL;
	struct mc_source *s;
	struct mc_entry e;
	int res = 0;

	mc_manifest_entry(m, entry, &e);
	if (e.type != MC_ENTRY_FILE)
		return mc_err_set(err, -EISDIR, "%s is no file", e.name);
	if (e.size > MAX_CONFIG)
		return mc_err_set(err, -EFBIG, "%s has %llu bytes, more than %llu", e.name,
			(unsigned long long)e.size, (unsigned long long)MAX_CONFIG);
	buf = malloc(e.size + 1);
	if (buf == NULL)
		return -ENOMEM;
	buf[e.size] = '\0';
	if (e.size > 0)
		res = mc_manifest_source(m, entry, &s);
	if (e.size > 0 && res == 0) {
		for (uint64_t b = 0; b < mc_block_count(e.size) && res == 0; b++)
			res = read_block(r, s, b, buf + (b << MC_BLOCK_SHIFT), err);
		s->ops->release(s);
	}
	if (res < 0)
		return mc_err_prefix(err, res, "%s", e.name);
	*ret = steal_ptr(buf);
	*ret_len = e.size;
	return 0;
}

int mc_whole_config(
	struct mc_remote *r, struct mc_manifest *m, char **ret, size_t *ret_len, struct mc_err *err)
{
	struct mc_model model;
	uint32_t entry;

	mc_manifest_model(m, &model);
	*ret = NULL;
	*ret_len = 0;
	if (model.config_path[0] == '\0' || mc_manifest_walk(m, model.config_path, &entry) < 0)
		return 0;
	return read_file(r, m, entry, ret, ret_len, err);
}
