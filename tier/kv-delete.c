/*
 * Removed versions whose remote copy still has to go: in the background, and remembered across
 * restarts in <NVMe>/kv-deletes. Without NVMe the removal is done before unlink answers.
 *
 * Invariants
 * 1. A remote object is removed only while its footer names the version that was removed here.
 * 2. A put of the same key and a removal never run at once: the put claims what is pending, and a
 * put that succeeded has replaced what was to be removed.
 * 3. An entry is on the disk before kv_delete_add returns, and leaves it after the removal.
 * 4. What waits is not removed before kv_delete_ripe, in this life or the next.
 * 5. Nothing is removed before recovery has ended; what is in the index then stays.
 */
#include "tier/kv-impl.h"
#include "tier/kv-remote.h"

#include "tier/digest.h"
#include "tier/io.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define MAGIC UINT32_C(0x314c4544) /* "DEL1" */
#define RETRY_NS UINT64_C(2000000000)
enum { ADD = 1, DONE = 2, LATER = 3 };

struct kv_delete {
	struct kv_delete *next;
	uint8_t version[16];
	bool running; /* being removed, or claimed by a put */
	bool waiting; /* until the version that replaced it is durable */
	bool held;    /* somebody reads the remote's copy: it stays, and is not replaced in haste */
	bool later;   /* the file says that it waits */
	char key[];
};

struct entry {
	uint32_t magic;
	uint32_t crc; /* CRC32C of what follows, key included */
	uint32_t op;
	uint32_t key_len;
	uint8_t version[16];
};
_Static_assert(sizeof(struct entry) == 32, "no padding");

static struct kv_delete *find_locked(struct mc_kv *kv, const char *key, const uint8_t *version)
	MC_REQUIRES(kv->lock)
{
	struct kv_delete *d = kv->deletes;

	while (d != NULL &&
		(strcmp(d->key, key) != 0 ||
			(version != NULL && memcmp(d->version, version, 16) != 0)))
		d = d->next;
	return d;
}

bool kv_delete_pending_locked(struct mc_kv *kv, const char *key)
{
	return find_locked(kv, key, NULL) != NULL;
}

bool kv_delete_pending(struct mc_kv *kv, const char *key)
{
	bool pending;

	mc_mutex_lock(&kv->lock);
	pending = kv_delete_pending_locked(kv, key);
	mc_mutex_unlock(&kv->lock);
	return pending;
}

/* Entered as running: the caller says when it may begin. NULL: no memory. */
static struct kv_delete *push_locked(struct mc_kv *kv, const char *key, const uint8_t version[16])
	MC_REQUIRES(kv->lock)
{
	size_t len = strlen(key);
	struct kv_delete *d = malloc(sizeof(*d) + len + 1);

	if (d == NULL)
		return NULL;
	*d = (struct kv_delete){.next = kv->deletes, .running = true};
	memcpy(d->version, version, sizeof(d->version));
	memcpy(d->key, key, len + 1);
	kv->deletes = d;
	return d;
}

static void remove_locked(struct mc_kv *kv, struct kv_delete *gone) MC_REQUIRES(kv->lock)
{
	struct kv_delete **at = &kv->deletes;

	while (*at != gone)
		at = &(*at)->next;
	*at = gone->next;
	kv->n_held_deletes -= gone->held;
	free(gone);
}

/* ---- the file */

static const struct mc_io *io_of(const struct mc_kv *kv)
{
	return kv->opts.io != NULL ? kv->opts.io : mc_io_real();
}

static int append(
	struct mc_kv *kv, unsigned op, const char *key, const uint8_t version[16], bool sync)
{
	size_t key_len = strlen(key), len = sizeof(struct entry) + key_len;
	cleanup_free char *buf = malloc(len);
	struct entry e = {.magic = MAGIC, .op = op, .key_len = (uint32_t)key_len};
	size_t from = offsetof(struct entry, op);
	const struct mc_io *io = io_of(kv);
	int r;

	if (kv->deletes_fd < 0)
		return 0;
	if (buf == NULL)
		return -ENOMEM;
	memcpy(e.version, version, sizeof(e.version));
	memcpy(buf, &e, sizeof(e));
	memcpy(buf + sizeof(e), key, key_len);
	e.crc = mc_crc32c(0, buf + from, len - from);
	memcpy(buf, &e, sizeof(e));
	mc_mutex_lock(&kv->deletes_lock);
	r = mc_io_write_full(io, kv->deletes_fd, buf, len, kv->deletes_end);
	if (r == 0)
		kv->deletes_end += len;
	mc_mutex_unlock(&kv->deletes_lock);
	return r == 0 && sync ? io->fdatasync(io, kv->deletes_fd) : r;
}

static void replay(struct mc_kv *kv, const char *buf, size_t len) MC_REQUIRES(kv->lock)
{
	struct entry e;

	for (size_t at = 0; len - at >= sizeof(e);) {
		size_t from = at + offsetof(struct entry, op);
		char key[KV_KEY_MAX + 1];
		struct kv_delete *d;

		memcpy(&e, buf + at, sizeof(e));
		if (e.magic != MAGIC || e.key_len > KV_KEY_MAX ||
			len - at - sizeof(e) < e.key_len ||
			mc_crc32c(0, buf + from, at + sizeof(e) + e.key_len - from) != e.crc) {
			at++; /* torn; what follows may be whole */
			continue;
		}
		memcpy(key, buf + at + sizeof(e), e.key_len);
		key[e.key_len] = '\0';
		d = find_locked(kv, key, e.version);
		if (e.op != DONE && d == NULL) {
			d = push_locked(kv, key, e.version);
			if (d != NULL)
				d->waiting = d->later = e.op == LATER;
		}
		if (e.op != DONE && d != NULL)
			d->running = false;
		if (e.op == ADD && d != NULL)
			d->waiting = d->later = false;
		if (e.op == DONE && d != NULL)
			remove_locked(kv, d);
		at += sizeof(e) + e.key_len;
	}
}

static int read_file(const struct mc_io *io, const char *path, char **ret_buf, size_t *ret_len)
{
	int fd = io->open(io, path, O_RDONLY | O_CLOEXEC, 0), r;
	struct stat st;

	*ret_buf = NULL;
	*ret_len = 0;
	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	r = io->fstat(io, fd, &st);
	if (r == 0) {
		*ret_len = (size_t)st.st_size;
		*ret_buf = malloc(*ret_len + 1);
		r = *ret_buf != NULL ? mc_io_read_full(io, fd, *ret_buf, *ret_len, 0) : -ENOMEM;
	}
	io->close(io, fd);
	return r;
}

/* A new file with what is pending takes the old one's place. */
static int rewrite(struct mc_kv *kv, const struct kv_delete *d, const char *path)
{
	const struct mc_io *io = io_of(kv);
	char tmp[4300];
	int r = 0;

	snprintf(tmp, sizeof(tmp), "%s.tmp", path);
	kv->deletes_fd = io->open(io, tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (kv->deletes_fd < 0)
		return kv->deletes_fd;
	for (; d != NULL && r == 0; d = d->next)
		r = append(kv, d->later ? LATER : ADD, d->key, d->version, false);
	if (r == 0)
		r = io->fsync(io, kv->deletes_fd);
	if (r == 0)
		r = io->rename(io, tmp, path);
	return r == 0 ? mc_io_sync_dir(io, kv->opts.nvme_dir) : r;
}

int kv_delete_open(struct mc_kv *kv)
{
	char path[4200];
	cleanup_free char *buf = NULL;
	struct kv_delete *list;
	size_t len;
	int r;

	if (kv->opts.nvme_dir == NULL || kv->opts.remote == NULL)
		return 0;
	snprintf(path, sizeof(path), "%s/kv-deletes", kv->opts.nvme_dir);
	r = read_file(io_of(kv), path, &buf, &len);
	if (r < 0)
		return r;
	mc_mutex_lock(&kv->lock);
	replay(kv, buf, len);
	list = kv->deletes;
	kv->deletes = NULL; /* nobody else shall know of it until it is written */
	mc_mutex_unlock(&kv->lock);
	r = rewrite(kv, list, path);
	mc_mutex_lock(&kv->lock);
	kv->deletes = list;
	if (!kv->recovering) /* it has ended meanwhile */
		kv_deletes_settle_locked(kv);
	mc_mutex_unlock(&kv->lock);
	return r;
}

void kv_delete_close(struct mc_kv *kv)
{
	mc_mutex_lock(&kv->lock);
	while (kv->deletes != NULL)
		remove_locked(kv, kv->deletes);
	mc_mutex_unlock(&kv->lock);
	if (kv->deletes_fd >= 0)
		io_of(kv)->close(io_of(kv), kv->deletes_fd);
	kv->deletes_fd = -1;
}

/* ---- removing */

/* [blocks] Removes it if it is still that version. */
static int delete_now(struct mc_kv *kv, const char *key, const uint8_t version[16])
{
	char path[KV_REMOTE_PATH];
	struct kv_footer f;
	bool same;
	int r = kv_remote_footer(kv, key, &f);

	if (r == -ENOENT || r == -EBADMSG)
		return 0;
	if (r < 0)
		return r;
	same = memcmp(f.version, version, sizeof(f.version)) == 0;
	kv_footer_done(&f);
	r = same ? kv_remote_path(key, path) : 0;
	if (r == 0 && same)
		r = mc_remote_unlink(kv->opts.remote, path, NULL);
	return r == -ENOENT ? 0 : r;
}

static int add(struct mc_kv *kv, const char *key, const uint8_t version[16], bool later)
{
	struct kv_delete *d;
	int r;

	mc_mutex_lock(&kv->lock);
	d = find_locked(kv, key, version);
	if (d != NULL && (later || !d->waiting)) {
		mc_mutex_unlock(&kv->lock);
		return 0;
	}
	if (d == NULL)
		d = push_locked(kv, key, version);
	if (d != NULL) {
		d->running = true;
		d->waiting = d->later = later;
	}
	mc_mutex_unlock(&kv->lock);
	if (d == NULL)
		return -ENOMEM;
	r = append(kv, later ? LATER : ADD, key, version, true);
	mc_mutex_lock(&kv->lock);
	d->running = false;
	/* What waits is written again when it may go: a failing disk is no reason to refuse a put.
	 */
	if (later)
		r = 0;
	else if (r < 0)
		remove_locked(kv, d);
	mc_cond_broadcast(&kv->change);
	mc_cond_signal(&kv->wake);
	mc_mutex_unlock(&kv->lock);
	return r;
}

int kv_delete_add(struct mc_kv *kv, const char *key, const uint8_t version[16])
{
	if (kv->opts.remote == NULL)
		return 0;
	return kv->deletes_fd < 0 ? delete_now(kv, key, version) : add(kv, key, version, false);
}

int kv_delete_later(struct mc_kv *kv, const char *key, const uint8_t version[16])
{
	return kv->opts.remote == NULL ? 0 : add(kv, key, version, true);
}

static struct kv_delete *find_later_locked(struct mc_kv *kv, const char *key) MC_REQUIRES(kv->lock)
{
	struct kv_delete *d = kv->deletes;

	while (d != NULL && (!d->later || strcmp(d->key, key) != 0))
		d = d->next;
	return d;
}

int kv_delete_ripe(struct mc_kv *kv, const char *key, bool sync)
{
	struct kv_delete *d;
	int r;

	mc_mutex_lock(&kv->lock);
	while ((d = find_later_locked(kv, key)) != NULL && d->running && sync)
		mc_cond_wait(&kv->change, &kv->lock);
	if (d != NULL && d->running) { /* the file is told by the next who asks */
		d->waiting = false;
		d = NULL;
	}
	if (d != NULL)
		d->running = true;
	mc_mutex_unlock(&kv->lock);
	if (d == NULL)
		return 0;
	r = kv->deletes_fd < 0 && sync ? delete_now(kv, key, d->version)
				       : append(kv, ADD, key, d->version, sync);
	mc_mutex_lock(&kv->lock);
	d->running = false;
	if (r == 0)
		d->waiting = d->later = false;
	if (r == 0 && kv->deletes_fd < 0)
		remove_locked(kv, d);
	mc_cond_broadcast(&kv->change);
	mc_cond_signal(&kv->wake);
	mc_mutex_unlock(&kv->lock);
	return r;
}

/* The log learns that a version's remote copy is not to be counted on. */
struct uncounted {
	struct mc_kv *kv;
	uint8_t version[16];
	char key[];
};

static void uncount_job(void *ctx)
{
	struct uncounted *u = ctx;

	mc_kv_log_remote(u->kv->log, u->key, u->version, 0);
	free(u);
}

/* The daemon died before the version was removed, or renamed, here; its remote copy may be gone. */
static void keep_locked(struct mc_kv *kv, struct kv_object *obj, const char *key)
	MC_REQUIRES(kv->lock)
{
	size_t len = strlen(key);
	struct uncounted *u;

	obj->unsure = 1;
	if (obj->remotes == 0 || (obj->loc.segment == 0 && obj->res == NULL))
		return;
	obj->remotes = 0;
	kv_redirty_locked(kv, obj);
	u = malloc(sizeof(*u) + len + 1);
	if (u == NULL)
		return;
	u->kv = kv;
	memcpy(u->version, obj->version, sizeof(u->version));
	memcpy(u->key, key, len + 1);
	if (kv_work_add(kv->work, uncount_job, u) < 0)
		free(u);
}

void kv_deletes_settle_locked(struct mc_kv *kv)
{
	for (struct kv_delete *d = kv->deletes, *next; d != NULL; d = next) {
		struct kv_object *obj = kv_index_find(kv->index, d->key);

		next = d->next;
		if (obj != NULL && memcmp(obj->version, d->version, sizeof(d->version)) == 0) {
			if (!d->waiting)
				keep_locked(kv, obj, d->key);
			remove_locked(kv, d);
			continue;
		}
		if (!d->waiting)
			continue;
		if (obj == NULL)
			remove_locked(kv, d);
		else if (obj->loc.segment != 0)
			d->waiting = false;
		else
			obj->flags |= KV_SHADOWS;
	}
}

static int empty(struct mc_kv *kv)
{
	int r;

	mc_mutex_lock(&kv->deletes_lock);
	r = io_of(kv)->ftruncate(io_of(kv), kv->deletes_fd, 0);
	if (r == 0)
		kv->deletes_end = 0;
	mc_mutex_unlock(&kv->deletes_lock);
	return r;
}

static void delete_job(void *ctx)
{
	struct mc_kv *kv = ctx;
	struct kv_delete *d;
	int r = 0;

	mc_mutex_lock(&kv->lock);
	while (r == 0 && !kv->closing) {
		for (d = kv->deletes; d != NULL && (d->running || d->waiting || d->held);)
			d = d->next;
		if (d == NULL)
			break;
		d->running = true;
		mc_mutex_unlock(&kv->lock);
		r = delete_now(kv, d->key, d->version);
		if (r == 0)
			append(kv, DONE, d->key, d->version, false);
		mc_mutex_lock(&kv->lock);
		d->running = false;
		if (r == 0)
			remove_locked(kv, d);
		mc_cond_broadcast(&kv->change);
	}
	if (r < 0)
		kv->delete_retry_ns = mc_now_ns() + RETRY_NS;
	/* The file is empty when nothing is pending: it never grows for long. */
	if (kv->deletes == NULL && kv->deletes_fd >= 0 && empty(kv) != 0)
		kv->delete_retry_ns = mc_now_ns() + RETRY_NS;
	kv->deleting = false;
	mc_mutex_unlock(&kv->lock);
}

void kv_deletes_tick(struct mc_kv *kv)
{
	bool start;

	mc_mutex_lock(&kv->lock);
	start = kv->deletes != NULL && !kv->deleting && !kv->closing && !kv->recovering &&
		mc_now_ns() >= kv->delete_retry_ns;
	if (start)
		kv->deleting = true;
	mc_mutex_unlock(&kv->lock);
	if (start && kv_work_add(kv->work, delete_job, kv) < 0) {
		mc_mutex_lock(&kv->lock);
		kv->deleting = false;
		mc_mutex_unlock(&kv->lock);
	}
}

void kv_delete_hold_locked(struct mc_kv *kv, const char *key, struct kv_object *obj)
{
	struct kv_delete *d = find_locked(kv, key, obj->version);

	if (d == NULL || d->held)
		return;
	d->held = true;
	kv->n_held_deletes++;
	obj->flags |= KV_HELD_REMOTE;
}

void kv_delete_unhold(struct mc_kv *kv, const uint8_t version[16])
{
	mc_mutex_lock(&kv->lock);
	for (struct kv_delete *d = kv->deletes; d != NULL; d = d->next)
		if (d->held && memcmp(d->version, version, sizeof(d->version)) == 0) {
			d->held = false;
			kv->n_held_deletes--;
		}
	mc_cond_signal(&kv->wake);
	mc_cond_signal(&kv->flush);
	mc_mutex_unlock(&kv->lock);
}

bool kv_delete_held_locked(struct mc_kv *kv, const char *key)
{
	const struct kv_delete *d = kv->n_held_deletes > 0 ? find_locked(kv, key, NULL) : NULL;

	return d != NULL && d->held;
}

struct kv_delete *kv_delete_claim(struct mc_kv *kv, const char *key)
{
	struct kv_delete *d;

	mc_mutex_lock(&kv->lock);
	while ((d = find_locked(kv, key, NULL)) != NULL && d->running)
		mc_cond_wait(&kv->change, &kv->lock);
	if (d != NULL)
		d->running = true;
	mc_mutex_unlock(&kv->lock);
	return d;
}

void kv_delete_release(struct mc_kv *kv, struct kv_delete *d, bool replaced)
{
	if (d == NULL)
		return;
	if (replaced)
		append(kv, DONE, d->key, d->version, false);
	mc_mutex_lock(&kv->lock);
	d->running = false;
	if (replaced)
		remove_locked(kv, d);
	mc_cond_broadcast(&kv->change);
	mc_mutex_unlock(&kv->lock);
}
