/* The names in the mount's root: one table for looking up and listing. */
#include "fs/ops.h"

#include <string.h>
#include <sys/stat.h>

#include "fs/generated.h"
#include "fs/kv.h"
#include "fs/tiers.h"
#include "fs/tree.h"

static const struct {
	const char *name;
	enum mc_node_kind kind;         /* unless there is */
	void (*lookup)(fuse_req_t req); /* a part of the tree with nodes of its own */
	fuse_ino_t ino;                 /* its root */
} tops[] = {
	{"checkpoints", MC_NODE_CHECKPOINTS},
	{"views", MC_NODE_VIEWS},
	{"layouts", MC_NODE_LAYOUTS},
	{"tiers", MC_NODE_TIERS, mc_tierop_lookup_root},
	{"kv", .lookup = mc_kvop_lookup_root, .ino = MC_KVFS_ROOT_ID},
	{MC_GENERATED_NAME, .lookup = mc_genop_lookup_root, .ino = MC_GENERATED_ROOT_ID},
};
#define N_TOPS (sizeof(tops) / sizeof(*tops))

static bool is_there(const struct mc_fs *fs, size_t i)
{
	return tops[i].lookup != mc_kvop_lookup_root || fs->kvfs != NULL;
}

void mc_root_lookup(fuse_req_t req, const char *name)
{
	struct mc_fs *fs = mc_ops_fs(req);
	struct mc_spot s = {.kind = MC_NODE_ROOT};
	size_t i = 0;

	while (i < N_TOPS && (strcmp(name, tops[i].name) != 0 || !is_there(fs, i)))
		i++;
	if (i == N_TOPS) {
		mc_reply_missing(req, mc_tree_negative_timeout(&s));
	} else if (tops[i].lookup != NULL) {
		tops[i].lookup(req);
	} else {
		s.kind = tops[i].kind;
		mc_reply_spot(req, fs, &s, 0);
	}
}

void mc_root_list(struct mc_fs *fs, struct mc_page *p, off_t off)
{
	for (size_t i = (size_t)off; i < N_TOPS; i++) {
		const struct mc_spot s = {.kind = tops[i].kind};
		uint64_t ino = tops[i].ino != 0 ? tops[i].ino : mc_tree_ino(&s);

		if (is_there(fs, i) &&
			!mc_page_put_bare(p, tops[i].name, S_IFDIR, ino, (off_t)i + 3))
			return;
	}
}
