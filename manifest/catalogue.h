/*
 * The catalogue of checkpoints on a remote (docs/FORMAT.md, "Remote layout"): which revisions are
 * READY, loading their manifests (through the local index where there is one), publishing new ones.
 *
 * Thread-safe; every call is synchronous and ends by the remote's deadline. Who calls: fs/ from its
 * metadata threads, tools/.
 */
#pragma once

#include "manifest/manifest.h"
#include "manifest/path.h"
#include "tier/remote.h"

/*
 * What names a revision. rev is the escaped form, one path component: '/' is written %2F and '%'
 * %25. As it stands in the mount: checkpoints/<org>/<model>@<rev>.
 */
struct mc_rev_name {
	char org[MC_NAME_MAX + 1];
	char model[MC_NAME_MAX + 1];
	char rev[MC_NAME_MAX + 1]; /* "" = none given: the latest */
};

/* "ORG/MODEL" or "ORG/MODEL@REV"; REV may hold '/' or be escaped already. -EINVAL with the rule. */
int mc_rev_name_parse(const char *text, struct mc_rev_name *ret, struct mc_err *err);
/* org and model: a good component that holds no '@' and does not start with '.'. */
bool mc_model_name_good(const char *name);
/* An escaped revision: a good component without leading '.', '%' only as %2F or %25, not "latest".
 */
bool mc_rev_good(const char *rev);

struct mc_catalogue;

/* remote is borrowed until close. index_dir: where manifest indexes are kept, made if missing; NULL
 * = none, every load parses the JSON. */
int mc_catalogue_open(struct mc_remote *remote, const char *index_dir, struct mc_catalogue **ret,
	struct mc_err *err);
void mc_catalogue_close(struct mc_catalogue *c); /* NULL allowed */

/*
 * Calls each for every org, model of an org, READY revision of a model (escaped) until it returns
 * non-zero, which is then returned. Names that break the rules are skipped. The order is the
 * remote's. -ENOENT when the parent does not exist (no checkpoint at all is 0 calls).
 */
typedef int mc_catalogue_each(void *ctx, const char *name);
int mc_catalogue_orgs(
	struct mc_catalogue *c, mc_catalogue_each *each, void *ctx, struct mc_err *err);
int mc_catalogue_models(struct mc_catalogue *c, const char *org, mc_catalogue_each *each, void *ctx,
	struct mc_err *err);
int mc_catalogue_revisions(struct mc_catalogue *c, const struct mc_rev_name *model,
	mc_catalogue_each *each, void *ctx, struct mc_err *err);

/* Fills rev with the model's newest revision. ret_id (MC_SHA256_SIZE bytes) may be NULL. -ENOENT
 * when nothing was published, -EBADMSG when the pointer is damaged. */
int mc_catalogue_latest(
	struct mc_catalogue *c, struct mc_rev_name *model, uint8_t *ret_id, struct mc_err *err);
/* The id of a READY revision: one small read and one stat. -ENOENT when it is not READY. */
int mc_catalogue_id(struct mc_catalogue *c, const struct mc_rev_name *rev,
	uint8_t ret_id[MC_SHA256_SIZE], struct mc_err *err);

struct mc_loaded {
	struct mc_manifest *m;     /* the caller's reference */
	bool from_index;           /* the JSON was not read */
	struct mc_err index_error; /* why the index could not be saved, or "" */
};
/* -ENOENT not READY; -EBADMSG the manifest is damaged, hostile or not the one its id promises;
 * -EFBIG. */
int mc_catalogue_load(struct mc_catalogue *c, const struct mc_rev_name *rev, struct mc_loaded *ret,
	struct mc_err *err);

/* The manifest of that id from the local index, without the remote. -ENOENT: it is not there. */
int mc_catalogue_load_local(
	struct mc_catalogue *c, const uint8_t id[MC_SHA256_SIZE], struct mc_manifest **ret);

/*
 * Publishes a manifest: its id, then the JSON, whose presence makes the revision READY, then
 * latest. The chunks are there and synced already. Publishing the same bytes again is 0 (and moves
 * latest); -EEXIST when the revision is READY with another id.
 */
int mc_catalogue_publish(struct mc_catalogue *c, const struct mc_rev_name *rev, const void *json,
	size_t len, struct mc_err *err);

/*
 * Takes a revision out of the catalogue; its chunks stay until a garbage collection (gc.h). When it
 * was the latest, the one published last before it becomes that. -ENOENT when it is not READY.
 */
int mc_catalogue_remove(struct mc_catalogue *c, const struct mc_rev_name *rev, struct mc_err *err);
