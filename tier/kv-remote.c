/*
 * The remote below the KV store: kv/<2 hex>/<2 hex>/<SHA-256 of the key>, published whole. What is
 * read there is believed only when footer, version and checksums fit.
 */
#include "tier/kv-impl.h"
#include "tier/future.h"
#include "tier/kv-remote.h"

#include "tier/digest.h"
#include "tier/remote-set.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define TAIL 4096 /* read at first: a footer is rarely longer */
#define VERSIONS_TRIED 4
#define TELL_NS UINT64_C(1000000000) /* one line a second about bad bytes */

int kv_remote_path(const char *key, char *ret)
{
	uint8_t digest[MC_SHA256_SIZE];
	char hex[MC_SHA256_HEX + 1];
	int r = mc_sha256(key, strlen(key), digest);

	if (r < 0)
		return r;
	mc_hex_encode(digest, sizeof(digest), hex);
	snprintf(ret, KV_REMOTE_PATH, "kv/%.2s/%.2s/%s", hex, hex + 2, hex);
	return 0;
}

void kv_tell_bad(struct mc_kv *kv, struct kv_object *obj, bool on_remote)
{
	uint64_t now = mc_now_ns(), next = atomic_load(&kv->tell_bad_ns);
	char key[KV_KEY_MAX + 1] = "", path[KV_REMOTE_PATH] = "", text[KV_KEY_MAX + 400];

	if (now < next || !atomic_compare_exchange_strong(&kv->tell_bad_ns, &next, now + TELL_NS))
		return;
	mc_mutex_lock(&kv->lock);
	obj = kv_now(obj);
	if (obj->dir != NULL)
		kv_key_of(obj, key);
	mc_mutex_unlock(&kv->lock);
	if (on_remote && kv_remote_path(key, path) == 0)
		snprintf(text, sizeof(text),
			"tier=remote url=%s object=%s key=\"%s\" bytes do not match their "
			"checksum; "
			"put the object again, or remove it",
			mc_remote_url(kv->opts.remote), path, key);
	else
		snprintf(text, sizeof(text),
			"tier=nvme dir=%s key=\"%s\" bytes do not match their checksum; the "
			"remote's "
			"copy is used where there is one",
			kv->opts.device != NULL ? kv->opts.device : kv->opts.nvme_dir, key);
	kv_event(kv, on_remote ? "remote-bad-object" : "nvme-bad-object", text);
}

/* ---- publishing */

/* A private map of the file with room for a footer behind it: nothing is copied but its last page.
 */
static char *map_with_room(struct mc_kv *kv, uint64_t file, uint64_t size, size_t total)
{
	cleanup_close int fd = kv_file_open(kv, file, O_RDONLY);
	char *base;

	if (fd < 0)
		return NULL;
	base = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (base == MAP_FAILED)
		return NULL;
	if (mmap(base, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, 0) ==
		MAP_FAILED) {
		munmap(base, total);
		return NULL;
	}
	return base;
}

/* An object that says that key is a directory; what another node has there stays. */
static int put_dir(struct mc_kv *kv, const char *key)
{
	const struct mc_kv_meta meta = {.key = key};
	size_t len = kv_footer_len(0, strlen(key));
	char path[KV_REMOTE_PATH], all[KV_KEY_MAX + KV_FOOTER_TAIL];
	struct kv_delete *pending;
	int r = kv_remote_path(key, path);

	if (r < 0)
		return r;
	kv_footer_write(&meta, all);
	pending = kv_delete_claim(kv, key);
	r = mc_remote_put(kv->opts.remote, path, all, len,
		(pending != NULL ? 0 : MC_PUT_EXCL) | MC_PUT_DURABLE, NULL);
	if (r == -EEXIST)
		r = 0;
	kv_delete_release(kv, pending, r == 0);
	return r;
}

/* The directories that key lies in, so that other nodes find the way to it. */
static int put_dirs(struct mc_kv *kv, const char *key)
{
	const char *slash = key;
	int r = 0;

	while (r == 0 && (slash = strchr(slash, '/')) != NULL) {
		size_t len = (size_t)(slash++ - key);
		char dir[KV_KEY_MAX + 1];
		struct kv_dir *d;
		bool missing;

		memcpy(dir, key, len);
		dir[len] = '\0';
		mc_mutex_lock(&kv->lock);
		d = kv_index_dir(kv->index, key, len);
		missing = d != NULL && !d->on_remote;
		mc_mutex_unlock(&kv->lock);
		if (!missing)
			continue;
		r = put_dir(kv, dir);
		mc_mutex_lock(&kv->lock);
		d = kv_index_dir(kv->index, key, len);
		if (d != NULL && r == 0)
			d->on_remote = true;
		mc_mutex_unlock(&kv->lock);
	}
	return r;
}

int kv_remote_put(
	struct mc_kv *kv, const struct mc_kv_meta *meta, const void *buf, const struct kv_res *res)
{
	size_t total = meta->size + kv_footer_len(meta->n_crc, strlen(meta->key));
	bool mapped = res != NULL && res->is_file;
	struct kv_delete *pending;
	char path[KV_REMOTE_PATH], *all;
	int r = kv_remote_path(meta->key, path);

	if (r < 0)
		return r;
	all = mapped ? map_with_room(kv, res->data, meta->size, total) : malloc(total);
	if (all == NULL)
		return -ENOMEM;
	if (!mapped)
		memcpy(all, buf, meta->size);
	kv_footer_write(meta, all + meta->size);
	r = put_dirs(kv, meta->key);
	pending = kv_delete_claim(kv, meta->key);
	if (r == 0)
		r = mc_remote_put(kv->opts.remote, path, all, total, MC_PUT_DURABLE, NULL);
	kv_delete_release(kv, pending, r == 0);
	if (mapped)
		munmap(all, total);
	else
		free(all);
	return r;
}

/* ---- reading */

static void wait_done(struct mc_remote_read *req, int res)
{
	mc_future_set(req->ctx, res);
}

/* req: what to read; its served is filled in. */
static int read_range(struct mc_kv *kv, struct mc_remote_read *req)
{
	struct mc_remote_read own = *req;
	struct mc_future w;
	int r;

	mc_future_init(&w);
	own.done = wait_done;
	own.ctx = &w;
	mc_remote_read(kv->opts.remote, &own);
	r = (int)mc_future_wait(&w);
	req->served = own.served;
	return r;
}

static int read_tail(struct mc_kv *kv, const char *path, const struct mc_remote_attr *attr,
	size_t len, char *buf)
{
	struct mc_remote_read req = {.path = path,
		.guard = {.set = true,
			.size = attr->size,
			.mtime_s = attr->mtime_s,
			.mtime_ns = attr->mtime_ns}};
	int r = 0;

	for (size_t at = 0; at < len && r == 0;) {
		size_t n = len - at < MC_BLOCK_SIZE ? len - at : MC_BLOCK_SIZE;

		req.off = attr->size - len + at;
		req.len = (uint32_t)n;
		req.buf = buf + at;
		r = read_range(kv, &req);
		at += n;
	}
	return r;
}

static int footer_once(struct mc_kv *kv, const char *path, struct kv_footer *ret)
{
	struct mc_remote_attr attr;
	int r = mc_remote_stat(kv->opts.remote, path, &attr, NULL);
	size_t need = TAIL;

	if (r < 0)
		return r;
	if (attr.type != MC_REMOTE_FILE || attr.size == 0)
		return -EBADMSG;
	do {
		size_t len = attr.size < need ? (size_t)attr.size : need;
		cleanup_free char *buf = malloc(len);

		if (buf == NULL)
			return -ENOMEM;
		r = read_tail(kv, path, &attr, len, buf);
		if (r == 0)
			r = kv_footer_parse(buf, len, attr.size, ret, &need);
	} while (r == -EAGAIN);
	return r;
}

/* The footer that was read is damaged: that of another copy, if there are several. */
static int footer_of_good_copy(struct mc_kv *kv, const char *path, struct kv_footer *ret)
{
	cleanup_free void *all = NULL;
	size_t len, need;
	int r = mc_remote_get_good(kv->opts.remote, path, SIZE_MAX, &all, &len);

	return r < 0 ? r : kv_footer_parse(all, len, len, ret, &need);
}

int kv_remote_footer(struct mc_kv *kv, const char *key, struct kv_footer *ret)
{
	char path[KV_REMOTE_PATH];
	int r = kv_remote_path(key, path);

	if (r == 0)
		r = -ESTALE;
	for (int i = 0; i < VERSIONS_TRIED && r == -ESTALE; i++)
		r = footer_once(kv, path, ret);
	if (r == -EBADMSG)
		r = footer_of_good_copy(kv, path, ret);
	if (r == 0 && strcmp(ret->key, key) != 0) {
		kv_footer_done(ret);
		return -EBADMSG;
	}
	return r == -ESTALE ? -EIO : r;
}

/* What an object read whole says it is, and whether its bytes are those of obj. */
static int check_whole(const char *all, size_t len, const struct kv_object *obj)
{
	struct kv_footer f;
	size_t need;
	int r = kv_footer_parse(all, len, len, &f, &need);

	if (r < 0)
		return r;
	if (memcmp(f.version, obj->version, sizeof(f.version)) != 0 || f.size != obj->size)
		r = -ESTALE;
	for (uint64_t b = 0; b < mc_block_count(obj->size) && r == 0; b++)
		if (mc_crc32c(0, all + (b << MC_BLOCK_SHIFT), mc_block_len(obj->size, b)) !=
			kv_crcs(obj)[b])
			r = -EBADMSG;
	kv_footer_done(&f);
	return r;
}

/* One block, of whichever copy has it right. */
static int get_block(
	struct mc_kv *kv, const char *path, const struct kv_object *obj, uint64_t block, char *buf)
{
	struct mc_remote_read req = {.path = path,
		.off = block << MC_BLOCK_SHIFT,
		.len = mc_block_len(obj->size, block),
		.buf = buf};

	for (;;) {
		int r = read_range(kv, &req);

		if (r < 0 || mc_crc32c(0, buf, req.len) == kv_crcs(obj)[block])
			return r;
		if (req.served == 0)
			return -EBADMSG;
		req.avoid |= req.served;
	}
}

/* Without a second copy of it in memory. */
static int get_large(
	struct mc_kv *kv, const char *key, const char *path, const struct kv_object *obj, char *buf)
{
	struct kv_footer f;
	int r = 0;

	for (uint64_t b = 0; b < mc_block_count(obj->size) && r == 0; b++)
		r = get_block(kv, path, obj, b, buf + (b << MC_BLOCK_SHIFT));
	if (r == -EBADMSG && kv_remote_footer(kv, key, &f) == 0) {
		if (memcmp(f.version, obj->version, sizeof(f.version)) != 0)
			r = -ESTALE;
		kv_footer_done(&f);
	}
	return r;
}

int kv_remote_get(struct mc_kv *kv, const char *key, const struct kv_object *obj, char *buf)
{
	size_t max = obj->size + kv_footer_len((uint32_t)mc_block_count(obj->size), KV_KEY_MAX);
	cleanup_free void *all = NULL;
	char path[KV_REMOTE_PATH];
	size_t len;
	int r = kv_remote_path(key, path);

	if (r == 0 && obj->size > KV_WHOLE)
		return get_large(kv, key, path, obj, buf);
	if (r == 0)
		r = mc_remote_get(kv->opts.remote, path, max, &all, &len, NULL);
	if (r == 0)
		r = check_whole(all, len, obj);
	if (r == -EBADMSG) {
		free(steal_ptr(all));
		r = mc_remote_get_good(kv->opts.remote, path, max, &all, &len);
		if (r == 0)
			r = check_whole(all, len, obj);
	}
	if (r == 0)
		memcpy(buf, all, obj->size);
	return r == -EFBIG ? -ESTALE : r;
}
