/*
 * Several remotes as one: a remote whose objects have copies on some of its members. Everything
 * above uses it like any other; see remote-set-impl.h for how it works inside.
 *
 * Placement: the members in the order of a weighted rendezvous hash of the path; the first N of
 * them are its homes. N is `copies` for chunks, `kv_copies` for KV objects; everything else (what
 * names a revision, layouts) has a copy on every member. Format and hash: docs/FORMAT.md.
 *
 * Reading: the home with the least expected wait, another one when it takes longer than nearly all
 * reads do, is silent, has no copy, or the copy was bad (see `avoid` in remote.h). A member that
 * fails or is silent is fenced: it is asked only where no other can answer, probed at least every
 * second, and caught up when it returns.
 *
 * Writing: done when all homes have it, or all that can be reached, at least one. What a home
 * missed is noted beside the copies that were made, so that every node knows.
 */
#pragma once

#include "tier/remote.h"

#define MC_SET_MAX 16         /* members */
#define MC_SET_WEIGHT_MAX 1e6 /* of one member */

/* A member as the user writes it: URL[#name=NAME][,weight=W]. */
struct mc_set_url {
	char *url;     /* owned: what mc_remote_open takes */
	char *name;    /* owned: what placement knows it by; the URL up to '?' when none is given */
	double weight; /* its share of the objects, relative to the others; 1 when none is given; 0:
			  it is to be emptied, and gets nothing any more */
};

struct mc_set_opts {
	const struct mc_remote_opts *remote; /* of every member; borrowed until open returns */
	unsigned copies;                     /* of a chunk; 0 = 2; at most one a member */
	unsigned kv_copies;                  /* of a KV object; 0 = copies */
	bool tend; /* repair and catch up in the background; reading commands leave it */
	/* How a member is opened; NULL = mc_remote_open. */
	int (*open)(void *ctx, const char *url, const struct mc_remote_opts *opts,
		struct mc_remote **ret, struct mc_err *err);
	/* A member was fenced, is back, or is caught up; any thread, no lock held. May be NULL. */
	void (*event)(void *ctx, const char *event, const char *text);
	void *ctx;
};

/* 0, or -EINVAL with a text in err. */
int mc_set_url_parse(const char *text, struct mc_set_url *ret, struct mc_err *err);
void mc_set_url_done(struct mc_set_url *u);

/*
 * Opens n (1 … MC_SET_MAX) members. One alone is opened as it is. Of several, at least one must be
 * reachable; the others join when they are. Names must differ (-EINVAL).
 */
int mc_remote_set_open(const struct mc_set_url *urls, unsigned n, const struct mc_set_opts *opts,
	struct mc_remote **ret, struct mc_err *err);

/*
 * Of several copies one whose bytes are what its path says (a chunk's digest, a KV object's
 * checksums); bad ones are mended. As mc_remote_get otherwise; -EBADMSG when none is good, or when
 * r is no set.
 */
int mc_remote_get_good(
	struct mc_remote *r, const char *path, size_t max, void **ret_buf, size_t *ret_len);

struct mc_set_moved {
	uint64_t copied, copied_bytes; /* copies made */
	uint64_t removed;              /* copies taken away */
};

/*
 * Puts what lies in the directory (not below it) where it belongs: every home gets a right copy,
 * after that the others lose theirs. -ENOTCONN while a member is away, as what it holds is not
 * known then. file is called for each object, with 0 or why it could not be done (-EBADMSG: no copy
 * is good); non-zero ends the work and is returned. dir is called for each directory in it.
 */
struct mc_set_settle {
	int (*file)(void *ctx, const char *path, int res, const struct mc_set_moved *moved);
	int (*dir)(void *ctx, const char *path);
	void *ctx;
};
int mc_remote_set_settle(struct mc_remote *r, const char *dir, const struct mc_set_settle *how);

/*
 * The members one by one, for those who look at every copy: in the order of the path, its homes
 * first. r itself when it is no set.
 */
struct mc_set_copy {
	struct mc_remote *remote; /* borrowed until close; NULL: it was never reached */
	const char *url, *name;   /* borrowed until close */
};
struct mc_set_copies {
	unsigned n, homes; /* members; those of them that must have a copy */
	struct mc_set_copy at[MC_SET_MAX];
};
int mc_remote_set_copies(struct mc_remote *r, const char *path, struct mc_set_copies *ret);

struct mc_set_member_status {
	const char *url;     /* borrowed until close */
	bool up;             /* not fenced */
	uint64_t notes;      /* copies that it still has to get, as far as they are known here */
	uint64_t latency_ns; /* between two answers while busy, moving average; 0 = unknown */
	uint64_t fenced;     /* how often so far */
	uint64_t reads;      /* answered with bytes */
	uint64_t caught_up;  /* copies brought to it */
};

struct mc_set_status {
	unsigned n; /* members; 0: no set */
	struct mc_set_member_status members[MC_SET_MAX];
	uint64_t hedges; /* reads sent to a second member because the first took long */
};

void mc_remote_set_status(struct mc_remote *r, struct mc_set_status *ret);
