/*
 * Adoption: what an earlier daemon of this boot left in DRAM. Records are taken from the newest to
 * the oldest; an older one for the same key or the same bytes is what a change under way left
 * behind, and goes.
 */
#include "tier/kv-impl.h"
#include "tier/kv-remote.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct adoption {
	struct mc_kv *kv;
	struct kv_found *found; /* keys and checksums point into the slab */
	size_t n, cap;
	uint64_t *files; /* numbers of adopted files: open addressing, 0 = empty */
	size_t n_slots;  /* a power of two */
	int res;
};

static void collect(void *ctx, const struct kv_found *f)
{
	struct adoption *a = ctx;

	if (a->n == a->cap) {
		size_t cap = a->cap != 0 ? 2 * a->cap : 1024;
		struct kv_found *grown = reallocarray(a->found, cap, sizeof(*grown));

		if (grown == NULL) {
			a->res = -ENOMEM;
			return;
		}
		a->found = grown;
		a->cap = cap;
	}
	a->found[a->n++] = *f;
}

static int newest_first(const void *x, const void *y)
{
	const struct kv_found *a = x, *b = y;

	return a->seq < b->seq ? 1 : a->seq > b->seq ? -1 : 0;
}

/* True when id was not there. */
static bool add_file(struct adoption *a, uint64_t id)
{
	size_t at = (id * UINT64_C(0x9e3779b97f4a7c15)) & (a->n_slots - 1);

	while (a->files[at] != 0 && a->files[at] != id)
		at = (at + 1) & (a->n_slots - 1);
	if (a->files[at] == id)
		return false;
	a->files[at] = id;
	return true;
}

static bool has_file(const struct adoption *a, uint64_t id)
{
	size_t at = (id * UINT64_C(0x9e3779b97f4a7c15)) & (a->n_slots - 1);

	while (a->files[at] != 0 && a->files[at] != id)
		at = (at + 1) & (a->n_slots - 1);
	return a->files[at] == id;
}

/* The bytes are there and nobody else's. */
static bool claim_data(struct adoption *a, const struct kv_found *f)
{
	struct mc_kv *kv = a->kv;
	cleanup_close int fd = -1;
	struct stat st;

	if (!f->is_file)
		return f->size < KV_SMALL &&
			(f->size == 0 ? f->data == 0
				      : mc_slab_claim(kv->slab, MC_SLAB_DATA, f->data,
						(uint32_t)f->size));
	fd = kv_file_open(kv, f->data, O_RDONLY);
	return fd >= 0 && f->data != 0 && fstat(fd, &st) == 0 && (uint64_t)st.st_size == f->size &&
		add_file(a, f->data);
}

static struct kv_object *object_of(const struct kv_found *f)
{
	const char *slash = strrchr(f->key, '/'), *name = slash != NULL ? slash + 1 : f->key;
	struct kv_object *obj = kv_object_new(name, strlen(name), f->size);
	struct kv_res *res = calloc(1, sizeof(*res));

	if (obj == NULL || res == NULL) {
		if (obj != NULL && f->n_crc > 1)
			free(obj->crc.many);
		free(obj);
		free(res);
		return NULL;
	}
	memcpy(obj->version, f->version, sizeof(obj->version));
	obj->mtime_ns = f->mtime_ns;
	kv_crcs_copy(obj, f->crc);
	obj->remotes = f->remotes;
	obj->flags = f->pinned ? KV_PINNED : 0;
	obj->res = res;
	res->obj = obj;
	res->ready = true;
	res->is_file = f->is_file;
	res->data = f->data;
	res->meta = f->meta;
	return obj;
}

static int enter_object_locked(struct mc_kv *kv, const struct kv_found *f) MC_REQUIRES(kv->lock)
{
	struct kv_object *obj = object_of(f), *old;
	const char *name;
	size_t len;
	int r = obj == NULL ? -ENOMEM : kv_index_make_parents(kv->index, f->key);

	if (r == 0)
		r = kv_index_insert(kv_index_parent(kv->index, f->key, &name, &len), obj, &old);
	if (r < 0)
		return r; /* no memory: the daemon does not start */
	assert(old == NULL);
	kv_object_drop_locked(kv, obj);
	obj->unsure = kv->opts.remote != NULL;
	mc_policy_insert(kv->policy, &obj->res->policy, kv_key_hash(f->key), obj->size + 1);
	if (f->is_file)
		kv->used += kv_res_bytes(obj);
	if (obj->remotes > 0) {
		obj->state = MC_KV_CLEAN;
	} else {
		obj->state = MC_KV_DIRTY;
		kv->dirty += obj->size;
		kv_dirty_add_locked(kv, obj->res);
	}
	return 0;
}

static int enter_dir_locked(struct mc_kv *kv, const struct kv_found *f) MC_REQUIRES(kv->lock)
{
	size_t len = strlen(f->key), n;
	struct kv_dir *d = kv_index_dir(kv->index, f->key, len), *parent;
	const char *name;
	int r = d == NULL ? kv_index_make_parents(kv->index, f->key) : 0;

	if (r == 0 && d == NULL) {
		parent = kv_index_parent(kv->index, f->key, &name, &n);
		r = kv_index_add_dir(parent, name, n, &d);
	}
	if (r == 0)
		d->meta = f->meta;
	return r;
}

static int adopt_one(struct adoption *a, const struct kv_found *f)
{
	struct mc_kv *kv = a->kv;
	bool known;
	int r = 0;

	mc_mutex_lock(&kv->lock);
	known = kv_index_find(kv->index, f->key) != NULL;
	if (f->is_dir) {
		struct kv_dir *d = kv_index_dir(kv->index, f->key, strlen(f->key));

		known = known || (d != NULL && d->meta != 0);
	}
	mc_mutex_unlock(&kv->lock);
	if (!mc_slab_claim(kv->slab, MC_SLAB_META, f->meta, 1))
		return 0;
	if (known || (!f->is_dir && !claim_data(a, f))) {
		kv_meta_clear(kv, f->meta);
		return 0;
	}
	mc_mutex_lock(&kv->lock);
	r = f->is_dir ? enter_dir_locked(kv, f) : enter_object_locked(kv, f);
	mc_mutex_unlock(&kv->lock);
	return r;
}

/* Whether it is a put's that is to be adopted. */
static bool is_put(struct adoption *a, uint64_t id)
{
	struct mc_kv *kv = a->kv;
	bool found = false;

	mc_mutex_lock(&kv->lock);
	for (size_t i = 0; i < kv->opts.n_puts; i++) {
		if (kv->opts.puts[i] == id && !found) {
			kv->left[kv->n_left++] = id;
			found = true;
		}
	}
	mc_mutex_unlock(&kv->lock);
	return found;
}

/* A file that is nobody's: removed, or held while a client still has it. */
static void remove_file(struct mc_kv *kv, uint64_t id)
{
	struct kv_file *f;

	if (kv_file_adopt(kv, id, NULL, &f) == 0)
		kv_file_remove(kv, f);
}

/* Files of changes under way, and of writers of whom nobody knows: nobody's now. */
static void remove_strays(struct adoption *a)
{
	char path[4200];
	uint64_t max = 0;
	struct dirent *e;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/f", a->kv->opts.dram_dir);
	dir = opendir(path);
	if (dir == NULL)
		return;
	while ((e = readdir(dir)) != NULL) {
		char *end;
		uint64_t id = strtoull(e->d_name, &end, 16);

		if (*end != '\0' || strlen(e->d_name) != 16)
			continue;
		if (id > max)
			max = id;
		if (!has_file(a, id) && !is_put(a, id))
			remove_file(a->kv, id);
	}
	closedir(dir);
	atomic_store(&a->kv->next_file, max + 1);
}

int kv_adopt(struct mc_kv *kv)
{
	struct adoption a = {.kv = kv, .n_slots = 1024};

	kv_meta_each(kv, collect, &a);
	while (a.n_slots < 2 * a.n)
		a.n_slots *= 2;
	a.files = calloc(a.n_slots, sizeof(*a.files));
	if (a.files == NULL)
		a.res = -ENOMEM;
	if (a.n > 0)
		qsort(a.found, a.n, sizeof(*a.found), newest_first);
	for (size_t i = 0; i < a.n && a.res == 0; i++)
		a.res = adopt_one(&a, &a.found[i]);
	mc_mutex_lock(&kv->lock);
	kv->left = calloc(kv->opts.n_puts + 1, sizeof(*kv->left));
	if (kv->left == NULL)
		a.res = -ENOMEM;
	mc_mutex_unlock(&kv->lock);
	if (a.res == 0) {
		remove_strays(&a);
		mc_slab_trim(kv->slab);
		if (a.n > 0)
			atomic_store(&kv->next_seq, a.found[0].seq + 1);
	}
	free(a.files);
	free(a.found);
	return a.res;
}

/* ---- puts of an earlier process */

/* Takes a put's file out of those that are left. */
static bool take_put(struct mc_kv *kv, uint64_t file, bool put_back)
{
	bool found = false;

	mc_mutex_lock(&kv->lock);
	for (size_t i = 0; i < kv->n_left && !found; i++) {
		found = kv->left[i] == (put_back ? 0 : file);
		if (found)
			kv->left[i] = put_back ? file : 0;
	}
	mc_mutex_unlock(&kv->lock);
	return found;
}

int mc_kv_writer_adopt(
	struct mc_kv *kv, uint64_t file, const struct stat *want, struct mc_kv_writer **ret)
{
	struct mc_kv_writer *w = calloc(1, sizeof(*w));
	int r = w != NULL ? 0 : -ENOMEM;

	if (r == 0 && (file == 0 || !take_put(kv, file, false)))
		r = -ENOENT;
	if (r == 0) {
		r = kv_file_adopt(kv, file, want, &w->file);
		if (r < 0)
			take_put(kv, file, true);
	}
	if (r < 0) {
		free(w);
		return r;
	}
	w->kv = kv;
	w->reserved = w->file->room;
	mc_mutex_init(&w->growing);
	mc_mutex_lock(&kv->lock);
	kv_reserve_locked(kv, w->reserved);
	mc_mutex_unlock(&kv->lock);
	*ret = w;
	return 0;
}

void mc_kv_adopted(struct mc_kv *kv)
{
	uint64_t *left;
	size_t n;

	mc_mutex_lock(&kv->lock);
	left = kv->left;
	n = kv->n_left;
	kv->left = NULL;
	kv->n_left = 0;
	mc_mutex_unlock(&kv->lock);
	for (size_t i = 0; i < n; i++) {
		if (left[i] != 0)
			remove_file(kv, left[i]);
	}
	free(left);
}
