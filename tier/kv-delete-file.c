/* <NVMe>/kv-deletes: which removals are pending, across restarts. docs/FORMAT.md says how. */
#include "tier/kv-delete.h"
#include "tier/kv-remote.h"

#include "tier/cleanup.h"
#include "tier/digest.h"
#include "tier/io.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define MAGIC UINT32_C(0x314c4544) /* "DEL1" */

struct entry {
	uint32_t magic;
	uint32_t crc; /* CRC32C of what follows, key included */
	uint32_t op;
	uint32_t key_len;
	uint8_t version[16];
};
_Static_assert(sizeof(struct entry) == 32, "no padding");

static const struct mc_io *io_of(const struct mc_kv *kv)
{
	return kv->opts.io != NULL ? kv->opts.io : mc_io_real();
}

int kv_delete_append(struct mc_kv *kv, enum kv_delete_op op, const struct kv_delete *d, bool sync)
{
	size_t from_len = strlen(d->key), to_len = op == KV_DELETE_MOVE ? strlen(d->to) + 1 : 0;
	size_t key_len = from_len + to_len, len = sizeof(struct entry) + key_len;
	cleanup_free char *buf = calloc(1, len);
	struct entry e = {.magic = MAGIC, .op = op, .key_len = (uint32_t)key_len};
	size_t from = offsetof(struct entry, op);
	const struct mc_io *io = io_of(kv);
	int r;

	if (kv->deletes_fd < 0)
		return 0;
	if (buf == NULL)
		return -ENOMEM;
	memcpy(e.version, d->version, sizeof(e.version));
	memcpy(buf, &e, sizeof(e));
	memcpy(buf + sizeof(e), d->key, from_len);
	if (to_len > 0)
		memcpy(buf + sizeof(e) + from_len + 1, d->to, to_len - 1);
	e.crc = mc_crc32c(0, buf + from, len - from);
	memcpy(buf, &e, sizeof(e));
	mc_mutex_lock(&kv->deletes_lock);
	r = mc_io_write_full(io, kv->deletes_fd, buf, len, kv->deletes_end);
	if (r == 0)
		kv->deletes_end += len;
	mc_mutex_unlock(&kv->deletes_lock);
	return r == 0 && sync ? io->fdatasync(io, kv->deletes_fd) : r;
}

/* key: NUL-terminated, with another behind it if it is a move. */
static void replay_one(struct mc_kv *kv, const struct entry *e, const char *key)
	MC_REQUIRES(kv->lock)
{
	struct kv_delete *d = kv_delete_find_locked(kv, key, e->version);

	if (e->op < KV_DELETE_ADD || e->op > KV_DELETE_MOVE)
		return;
	if (d != NULL && (e->op == KV_DELETE_DONE || e->op == KV_DELETE_MOVE))
		kv_delete_remove_locked(kv, d);
	if (e->op == KV_DELETE_DONE)
		return;
	if (e->op == KV_DELETE_MOVE)
		d = NULL;
	if (d == NULL) {
		d = kv_delete_push_locked(kv, key, e->version);
		if (d == NULL)
			return;
		d->earlier = true;
		d->waiting = d->later = e->op == KV_DELETE_LATER;
	}
	d->running = false;
	if (e->op == KV_DELETE_ADD) {
		d->waiting = d->later = false;
		kv_move_known_locked(kv, d);
	}
	if (e->op == KV_DELETE_MOVE && kv_move_set_locked(kv, d, key + strlen(key) + 1) < 0)
		kv_delete_remove_locked(kv, d);
}

static void replay(struct mc_kv *kv, const char *buf, size_t len) MC_REQUIRES(kv->lock)
{
	struct entry e;

	for (size_t at = 0; len - at >= sizeof(e);) {
		size_t from = at + offsetof(struct entry, op);
		char key[2 * KV_KEY_MAX + 3];

		memcpy(&e, buf + at, sizeof(e));
		if (e.magic != MAGIC || e.key_len > 2 * KV_KEY_MAX + 1 ||
			len - at - sizeof(e) < e.key_len ||
			mc_crc32c(0, buf + from, at + sizeof(e) + e.key_len - from) != e.crc) {
			at++; /* torn; what follows may be whole */
			continue;
		}
		memcpy(key, buf + at + sizeof(e), e.key_len);
		key[e.key_len] = key[e.key_len + 1] = '\0';
		replay_one(kv, &e, key);
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
		r = kv_delete_append(kv,
			d->to != NULL      ? KV_DELETE_MOVE
				: d->later ? KV_DELETE_LATER
					   : KV_DELETE_ADD,
			d, false);
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
	if (r == 0)
		kv_deletes_note(kv);
	return r;
}

void kv_delete_close(struct mc_kv *kv)
{
	mc_mutex_lock(&kv->lock);
	while (kv->deletes != NULL)
		kv_delete_remove_locked(kv, kv->deletes);
	kv_delete_free(kv->settled);
	kv->settled = NULL;
	mc_mutex_unlock(&kv->lock);
	if (kv->deletes_fd >= 0)
		io_of(kv)->close(io_of(kv), kv->deletes_fd);
	kv->deletes_fd = -1;
}

int kv_delete_sync(struct mc_kv *kv)
{
	return kv->deletes_fd < 0 ? 0 : io_of(kv)->fdatasync(io_of(kv), kv->deletes_fd);
}

int kv_delete_empty(struct mc_kv *kv)
{
	int r;

	mc_mutex_lock(&kv->deletes_lock);
	r = io_of(kv)->ftruncate(io_of(kv), kv->deletes_fd, 0);
	if (r == 0)
		kv->deletes_end = 0;
	mc_mutex_unlock(&kv->deletes_lock);
	return r;
}
