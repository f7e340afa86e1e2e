/* The remote below the KV store, between the kv-*.c files: footers, copies, deletions. */
#pragma once

#include "tier/kv-impl.h"

/* ---- kv-remote.c: objects on the remote. */
/* [blocks] Publishes the object there; buf is the map of a file of res, or slab memory. */
int kv_remote_put(
	struct mc_kv *kv, const struct mc_kv_meta *meta, const void *buf, const struct kv_res *res);
/* [blocks] Its bytes, whole and verified, into buf. -ENOENT, -ESTALE: another version is there. */
int kv_remote_get(struct mc_kv *kv, const char *key, const struct kv_object *obj, char *buf);
/* Tells the log that a copy of the object has wrong bytes: key, tier and the way out. */
void kv_tell_bad(struct mc_kv *kv, struct kv_object *obj, bool on_remote) MC_EXCLUDES(kv->lock);
/* What a remote object's footer says; crc and key are owned. A directory is an empty object whose
 * version is zeros. */
struct kv_footer {
	uint8_t version[16];
	uint64_t size; /* of the payload */
	int64_t mtime_ns;
	uint32_t n_crc;
	uint32_t *crc;
	char *key;
};
void kv_footer_done(struct kv_footer *f);
extern const uint8_t kv_dir_version[16];
static inline bool kv_footer_is_dir(const struct kv_footer *f)
{
	return memcmp(f->version, kv_dir_version, sizeof(f->version)) == 0;
}
#define KV_FOOTER_TAIL 56u /* bytes of a footer beside checksums and key */
/* Bytes of a footer. */
size_t kv_footer_len(uint32_t n_crc, size_t key_len);
/* Writes one behind a payload. */
void kv_footer_write(const struct mc_kv_meta *meta, char *to);
/* Reads one from the last len bytes of an object of size bytes; *ret_need: so many are wanted. 0,
 * -EAGAIN with *ret_need, -EBADMSG. */
int kv_footer_parse(
	const char *tail, size_t len, uint64_t size, struct kv_footer *ret, size_t *ret_need);
/* [blocks] Of the key's object. -ENOENT, -EBADMSG (another key's, or damaged), -EIO, -ETIMEDOUT. */
int kv_remote_footer(struct mc_kv *kv, const char *key, struct kv_footer *ret);
/* kv-delete.c: removes this version of key from the remote, in the background; durable on return
 * where there is NVMe. */
int kv_delete_add(struct mc_kv *kv, const char *key, const uint8_t version[16]);
/* The same, but it waits for kv_delete_ripe(key): another version is to be durable first. After a
 * crash it is forgotten where none was. */
int kv_delete_later(struct mc_kv *kv, const char *key, const uint8_t version[16]);
/* What waits for it may go. sync: durable on return, which blocks. */
int kv_delete_ripe(struct mc_kv *kv, const char *key, bool sync) MC_EXCLUDES(kv->lock);
/* After recovery: what waits for a version that was lost is forgotten, what waits for one that is
 * there may go. */
void kv_deletes_settle_locked(struct mc_kv *kv) MC_REQUIRES(kv->lock);
/* [blocks] The file learns what was forgotten. What cannot be written now is later. */
int kv_deletes_note(struct mc_kv *kv) MC_EXCLUDES(kv->lock);
/* obj, whose removal is pending, is read from the remote: its copy stays there until the last
 * reference is dropped, and a new one of key is put only when somebody waits for that. */
void kv_delete_hold_locked(struct mc_kv *kv, const char *key, struct kv_object *obj)
	MC_REQUIRES(kv->lock);
void kv_delete_unhold(struct mc_kv *kv, const uint8_t version[16]) MC_EXCLUDES(kv->lock);
bool kv_delete_held_locked(struct mc_kv *kv, const char *key) MC_REQUIRES(kv->lock);
/* Where the copy lies that is held for readers of the version, KV_REMOTE_PATH bytes; false: none.
 */
bool kv_delete_held_path(struct mc_kv *kv, const uint8_t version[16], char *ret)
	MC_EXCLUDES(kv->lock);
bool kv_delete_pending(struct mc_kv *kv, const char *key) MC_EXCLUDES(kv->lock);
/* Likewise, but not what an earlier daemon removed: it may have put another version there. */
bool kv_delete_pending_here_locked(struct mc_kv *kv, const char *key) MC_REQUIRES(kv->lock);
int kv_delete_open(struct mc_kv *kv);
void kv_delete_close(struct mc_kv *kv);
void kv_deletes_tick(struct mc_kv *kv) MC_EXCLUDES(kv->lock);
/* [blocks] A put of key is about to begin: what is pending for it waits. NULL: nothing. */
struct kv_delete *kv_delete_claim(struct mc_kv *kv, const char *key) MC_EXCLUDES(kv->lock);
void kv_delete_release(struct mc_kv *kv, struct kv_delete *d, bool replaced) MC_EXCLUDES(kv->lock);
/* Where a key's object lies on the remote; ret holds KV_REMOTE_PATH bytes. */
int kv_remote_path(const char *key, char *ret);
/* ---- kv-move.c: renames on the remote, where the new name is put before the old one goes. */
/* [blocks] from, of this version, is about to be put as to; durable on return. *ret: for move_end;
 * NULL: nothing remembers it, there is no NVMe. */
int kv_move_begin(struct mc_kv *kv, const struct kv_object *obj, const char *from, const char *to,
	struct kv_delete **ret) MC_EXCLUDES(kv->lock);
/* [blocks] happened: the old name is to be removed now, durable on return. Else it is as before. */
int kv_move_end(struct mc_kv *kv, struct kv_delete *d, bool happened) MC_EXCLUDES(kv->lock);
/* Whether key is a name of a rename of an earlier daemon that may have happened, or not. */
bool kv_moving_locked(struct mc_kv *kv, const char *key) MC_REQUIRES(kv->lock);
/* Waits until neither key (NULL: no key) nor other (or NULL) is: 0, -EIO when the remote does not
 * say so in time, -ESHUTDOWN. */
int kv_moves_wait_locked(struct mc_kv *kv, const char *key, const char *other)
	MC_REQUIRES(kv->lock);
/* ---- kv-ask.c: what the remote has now. */
/* Why there is nothing under a key: -ENOENT, or -EIO where nothing of ours is there at all. */
int kv_remote_absent(struct mc_kv *kv);
/* [blocks] The version leaves this node's tiers. The gate is closed. */
int kv_give_up_locked(struct mc_kv *kv, const char *key, struct kv_object *obj)
	MC_REQUIRES(kv->lock);
/* What the remote has; nothing is here under that key. */
int kv_enter_found_locked(struct mc_kv *kv, const char *key, const struct kv_footer *f)
	MC_REQUIRES(kv->lock);
/* The remote has this version, as of now. */
void kv_asked_locked(struct mc_kv *kv, struct kv_object *obj) MC_REQUIRES(kv->lock);
/* Whether it may have another by now: its last answer is old. */
bool kv_ask_due_locked(struct mc_kv *kv, const struct kv_object *obj) MC_REQUIRES(kv->lock);
/* Who waited too long for an answer gets the one there is here. */
void kv_asks_tick(struct mc_kv *kv) MC_EXCLUDES(kv->lock);
/* [blocks] The object is on the remote alone, and there it is another: the index learns that. */
void kv_remote_refresh(struct mc_kv *kv, const char *key, const struct kv_object *was);
/* ---- kv-copy.c: remote copies of what is on NVMe, and what the log asks about its records. */
void kv_own_log(struct mc_kv *kv);
/* Whether reclaim has moved the object since it lay at from: what was read there is to be read
 * again. */
bool kv_moved(struct mc_kv *kv, struct kv_object *obj, const struct mc_kv_loc *from)
	MC_EXCLUDES(kv->lock);
void kv_sweep_tick(struct mc_kv *kv) MC_EXCLUDES(kv->lock);
/* Whether copies are made on the remote soon after each put. */
bool kv_wants_remote(const struct mc_kv *kv);
/* A clean object whose remote copies are wanted soon. */
void kv_replica_want_locked(struct mc_kv *kv, struct kv_res *r) MC_REQUIRES(kv->lock);
void kv_replicas_tick(struct mc_kv *kv) MC_EXCLUDES(kv->lock);
/* [blocks] Copies what lies on NVMe to the remote: 0 (also when that is not needed any more), -EIO,
 * -ESHUTDOWN, -ENOMEM. The caller has a reference. */
int kv_copy_now(struct mc_kv *kv, struct kv_object *obj) MC_EXCLUDES(kv->lock);
