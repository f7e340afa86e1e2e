/* Removals that are pending on the remote: the list, and the file that remembers it. For
 * kv-delete*.c. */
#pragma once

#include "tier/kv-impl.h"

struct kv_delete {
	struct kv_delete *next;
	uint8_t version[16];
	bool running; /* being removed, or claimed by a put */
	bool waiting; /* until the version that replaced it is durable */
	bool held;    /* somebody reads the remote's copy: it stays, and is not replaced in haste */
	bool later;   /* the file says that it waits */
	bool unsynced; /* the file says that it does not, and may have lost that after a crash */
	bool earlier;  /* of an earlier daemon: the key may have another version there by now */
	char *to;      /* owned: it is being renamed to this, and stays so long; or NULL */
	char key[];
};

/* What an entry of the file says. */
enum kv_delete_op {
	KV_DELETE_ADD = 1,
	KV_DELETE_DONE = 2,
	KV_DELETE_LATER = 3,
	KV_DELETE_MOVE = 4
};

/* version NULL: any, but what is being renamed. */
struct kv_delete *kv_delete_find_locked(struct mc_kv *kv, const char *key, const uint8_t *version)
	MC_REQUIRES(kv->lock);
/* Entered as running: the caller says when it may begin. NULL: no memory. */
struct kv_delete *kv_delete_push_locked(
	struct mc_kv *kv, const char *key, const uint8_t version[16]) MC_REQUIRES(kv->lock);
void kv_delete_remove_locked(struct mc_kv *kv, struct kv_delete *gone) MC_REQUIRES(kv->lock);

/* Frees a list of them. */
void kv_delete_free(struct kv_delete *list);

/* ---- kv-move.c */
int kv_move_set_locked(struct mc_kv *kv, struct kv_delete *d, const char *to) MC_REQUIRES(kv->lock);
/* It is a removal like others from now on. */
void kv_move_known_locked(struct mc_kv *kv, struct kv_delete *d) MC_REQUIRES(kv->lock);
/* [blocks] What became of the renames of an earlier daemon; no removal runs. 0, or the remote's
 * error: to be tried again. */
int kv_moves_decide(struct mc_kv *kv) MC_EXCLUDES(kv->lock);

/* ---- kv-delete-file.c: <NVMe>/kv-deletes; without NVMe these do nothing. */
int kv_delete_append(struct mc_kv *kv, enum kv_delete_op op, const struct kv_delete *d, bool sync);
/* What was appended is durable. */
int kv_delete_sync(struct mc_kv *kv);
int kv_delete_empty(struct mc_kv *kv);
