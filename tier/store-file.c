/*
 * Files of the store: the table by identity, references, what is resident, passthrough backing.
 *
 * A file stays in the table while it is referenced or holds memory or disk (pairs, runs); its
 * source only while it is referenced, so an unused checkpoint's manifest can go.
 */
#include "tier/image-name.h"
#include "tier/store-impl.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

static struct mc_file *find_locked(struct mc_store *s, const struct mc_file_id *id)
	MC_REQUIRES(s->lock)
{
	struct mc_file *f = s->hash[mc_file_id_hash(id) & (s->hash_size - 1)];

	while (f != NULL && !mc_file_id_equal(&f->id, id))
		f = f->hash_next;
	return f;
}

/* Doubles the table when it is full; keeps the old one when there is no memory. */
static void grow_locked(struct mc_store *s) MC_REQUIRES(s->lock)
{
	size_t size = 2 * s->hash_size;
	struct mc_file **bigger;

	if (s->n_files < s->hash_size)
		return;
	bigger = calloc(size, sizeof(struct mc_file *));
	if (bigger == NULL)
		return;
	for (size_t i = 0; i < s->hash_size; i++) {
		struct mc_file *f = s->hash[i];

		while (f != NULL) {
			struct mc_file *next = f->hash_next;
			size_t slot = mc_file_id_hash(&f->id) & (size - 1);

			f->hash_next = bigger[slot];
			bigger[slot] = f;
			f = next;
		}
	}
	free(s->hash);
	s->hash = bigger;
	s->hash_size = size;
}

static struct mc_file *file_new(struct mc_store *s, const struct mc_file_id *id)
{
	struct mc_file *f = calloc(1, sizeof(*f));

	if (f == NULL)
		return NULL;
	f->store = s;
	f->id = *id;
	f->blocks = mc_block_count(id->size);
	f->data_blocks = UINT64_MAX;
	f->pairs = calloc((f->blocks + 1) / 2 + 1, sizeof(struct mc_pair *));
	f->runs = calloc((f->blocks >> MC_RUN_SHIFT) + 1, sizeof(struct mc_run *));
	if (f->pairs == NULL || f->runs == NULL) {
		free(f->pairs);
		free(f->runs);
		free(f);
		return NULL;
	}
	return f;
}

static void insert_locked(struct mc_store *s, struct mc_file *f) MC_REQUIRES(s->lock)
{
	struct mc_file **slot;

	grow_locked(s);
	slot = &s->hash[mc_file_id_hash(&f->id) & (s->hash_size - 1)];
	f->hash_next = *slot;
	*slot = f;
	s->n_files++;
}

static void unlink_locked(struct mc_store *s, struct mc_file *f) MC_REQUIRES(s->lock)
{
	struct mc_file **slot = &s->hash[mc_file_id_hash(&f->id) & (s->hash_size - 1)];

	while (*slot != f)
		slot = &(*slot)->hash_next;
	*slot = f->hash_next;
	s->n_files--;
}

static void file_free(struct mc_file *f)
{
	if (f->dram != NULL)
		mc_dram_image_put(f->dram);
	if (f->nvme != NULL)
		mc_nvme_image_put(f->nvme);
	free(f->pairs);
	free(f->runs);
	free(f);
}

/* Takes the file out of the table; who asks for it meanwhile waits, lest its images be dropped
 * under the feet of a new one of that identity. */
static void leave(struct mc_file *f)
{
	struct mc_store *s = f->store;

	if (f->dram != NULL)
		mc_dram_drop(f->dram);
	if (f->nvme != NULL && mc_nvme_present_blocks(f->nvme) == 0)
		mc_nvme_drop(f->nvme);
	mc_mutex_lock(&s->lock);
	unlink_locked(s, f);
	mc_cond_broadcast(&s->left);
	mc_mutex_unlock(&s->lock);
	file_free(f);
}

struct mc_file *mc_file_ref_locked(struct mc_store *s, struct mc_file *f)
{
	if (f->refs++ == 0 && f->idle.on != NULL)
		mc_queue_take(&s->idle, &f->idle);
	return f;
}

struct mc_file *mc_file_ref(struct mc_file *f)
{
	struct mc_store *s = f->store;

	mc_mutex_lock(&s->lock);
	mc_file_ref_locked(s, f);
	mc_mutex_unlock(&s->lock);
	return f;
}

void mc_file_put(struct mc_file *f)
{
	struct mc_store *s = f->store;
	struct mc_source *src = NULL;
	struct mc_images closing = {0};
	bool leaving = false;

	mc_mutex_lock(&s->lock);
	assert(f->refs > 0);
	if (--f->refs == 0) {
		src = f->src;
		f->src = NULL;
		f->leaving = f->n_pairs == 0 && f->n_runs == 0 && !f->pinned;
		leaving = f->leaving;
		if (!leaving)
			mc_file_idle_locked(s, f, &closing);
	}
	mc_mutex_unlock(&s->lock);
	if (leaving)
		leave(f);
	mc_images_close(&closing);
	if (src != NULL)
		src->ops->release(src);
}

static struct mc_file *find_or_make_locked(struct mc_store *s, const struct mc_file_id *id)
	MC_REQUIRES(s->lock)
{
	struct mc_file *f;

	while ((f = find_locked(s, id)) != NULL && f->leaving)
		mc_cond_wait(&s->left, &s->lock);
	if (f != NULL)
		return f;
	f = file_new(s, id);
	if (f != NULL)
		insert_locked(s, f);
	return f;
}

int mc_store_file_get(struct mc_store *s, struct mc_source *src, struct mc_file **ret)
{
	struct mc_file *f;
	int r;

	assert(src->id.size > 0);
	mc_mutex_lock(&s->lock);
	f = find_or_make_locked(s, &src->id);
	if (f != NULL) {
		mc_file_ref_locked(s, f);
		if (f->src == NULL) {
			f->src = src;
			src = NULL;
		}
	}
	mc_mutex_unlock(&s->lock);
	if (src != NULL)
		src->ops->release(src);
	r = f != NULL ? mc_file_images_open(f) : -ENOMEM;
	if (r < 0 && f != NULL)
		mc_file_put(f);
	*ret = f;
	return r;
}

const struct mc_file_id *mc_file_id(const struct mc_file *f)
{
	return &f->id;
}

struct mc_pair *mc_pair_make_locked(struct mc_store *s, struct mc_file *f, uint64_t block)
{
	struct mc_pair **slot = &f->pairs[block >> 1];

	if (*slot == NULL) {
		*slot = calloc(1, sizeof(struct mc_pair));
		if (*slot == NULL)
			return NULL;
		(*slot)->file = f;
		(*slot)->index = (uint32_t)(block >> 1);
		f->n_pairs++;
	}
	return *slot;
}

void mc_pair_free_locked(struct mc_store *s, struct mc_pair *p)
{
	struct mc_file *f = p->file;

	assert(p->pins == 0 && !mc_policy_linked(&p->entry));
	if (p->todo.on != NULL)
		mc_queue_take(&s->behind_todo, &p->todo);
	f->pairs[p->index] = NULL;
	f->n_pairs--;
	free(p);
}

struct mc_run *mc_run_make_locked(struct mc_store *s, struct mc_file *f, uint64_t block)
{
	struct mc_run **slot = &f->runs[block >> MC_RUN_SHIFT];

	if (*slot == NULL) {
		*slot = calloc(1, sizeof(struct mc_run));
		if (*slot == NULL)
			return NULL;
		(*slot)->file = f;
		(*slot)->index = (uint32_t)(block >> MC_RUN_SHIFT);
		f->n_runs++;
	}
	return *slot;
}

void mc_run_free_locked(struct mc_store *s, struct mc_run *r)
{
	struct mc_file *f = r->file;

	assert(r->pins == 0 && !mc_policy_linked(&r->entry));
	f->runs[r->index] = NULL;
	f->n_runs--;
	free(r);
}

bool mc_file_block_is_hole(const struct mc_file *f, uint64_t block)
{
	uint64_t off = block << MC_BLOCK_SHIFT, start, end;

	if (f->src->ops->next_data(f->src, off, &start, &end) < 0)
		return true;
	return start >= off + mc_block_len(f->id.size, block);
}

struct mc_file *mc_file_find_locked(struct mc_store *s, const struct mc_file_id *id)
{
	struct mc_file *f = find_locked(s, id);

	return f == NULL || f->leaving ? NULL : f;
}

struct mc_file *mc_file_make(struct mc_store *s, const struct mc_file_id *id)
{
	struct mc_file *f;

	mc_mutex_lock(&s->lock);
	f = find_or_make_locked(s, id);
	if (f != NULL)
		mc_file_ref_locked(s, f);
	mc_mutex_unlock(&s->lock);
	return f;
}

int mc_file_adopt_dram(struct mc_store *s, const struct mc_file_id *id)
{
	struct mc_file *f = mc_file_make(s, id);
	int r = f != NULL ? mc_file_dram_open(f, false) : -ENOMEM;

	for (uint64_t b = 0; r == 0 && b < f->blocks; b++) {
		struct mc_pair *p;

		if (!mc_dram_present(f->dram, b))
			continue;
		mc_mutex_lock(&s->lock);
		p = mc_pair_make_locked(s, f, b);
		if (p != NULL) {
			p->blk[b & 1].state = MC_BLK_VALID;
			f->n_valid++;
			if (!mc_policy_linked(&p->entry))
				mc_policy_insert(s->dram_policy, &p->entry,
					mc_file_id_hash(id) + p->index, mc_pair_weight(p));
		}
		mc_mutex_unlock(&s->lock);
		if (p == NULL)
			r = -ENOMEM;
	}
	if (f != NULL)
		mc_file_put(f);
	return r;
}

int mc_file_adopt_nvme(struct mc_store *s, const struct mc_file_id *id)
{
	struct mc_file *f = mc_file_make(s, id);
	int r = f != NULL ? mc_file_nvme_open(f, false) : -ENOMEM;

	for (uint64_t b = 0; r == 0 && b < f->blocks; b++) {
		struct mc_run *run;

		if (!mc_nvme_present(f->nvme, b))
			continue;
		mc_mutex_lock(&s->lock);
		run = mc_run_make_locked(s, f, b);
		if (run != NULL) {
			run->blocks++;
			if (f->pairs[b >> 1] != NULL)
				f->pairs[b >> 1]->blk[b & 1].behind = MC_BEHIND_DONE;
			if (!mc_policy_linked(&run->entry))
				mc_policy_insert(s->nvme_policy, &run->entry,
					mc_file_id_hash(id) + run->index,
					MC_RUN_BLOCKS * MC_BLOCK_SIZE);
		}
		mc_mutex_unlock(&s->lock);
		if (run == NULL)
			r = -ENOMEM;
	}
	if (f != NULL)
		mc_file_put(f);
	return r;
}

/* At close: nothing runs any more. */
void mc_file_free_all(struct mc_store *s)
{
	for (size_t i = 0; i < s->hash_size; i++) {
		struct mc_file *f = s->hash[i];

		while (f != NULL) {
			struct mc_file *next = f->hash_next;

			assert(f->refs == 0);
			for (uint64_t p = 0; p < (f->blocks + 1) / 2; p++)
				free(f->pairs[p]);
			for (uint64_t r = 0; r <= f->blocks >> MC_RUN_SHIFT; r++)
				free(f->runs[r]);
			file_free(f);
			f = next;
		}
		s->hash[i] = NULL;
	}
}

int mc_file_next_data(const struct mc_file *f, uint64_t off, uint64_t *ret_start, uint64_t *ret_end)
{
	return f->src->ops->next_data(f->src, off, ret_start, ret_end);
}

/* Valid blocks in bytes: all are whole but the file's last one. */
static uint64_t dram_bytes_locked(const struct mc_file *f)
{
	const struct mc_pair *p = mc_file_pair(f, f->blocks - 1);
	uint64_t bytes = f->n_valid << MC_BLOCK_SHIFT;

	if (p != NULL && p->blk[(f->blocks - 1) & 1].state == MC_BLK_VALID)
		bytes -= MC_BLOCK_SIZE - mc_block_len(f->id.size, f->blocks - 1);
	return bytes;
}

void mc_store_residency(struct mc_store *s, const struct mc_file_id *id, struct mc_residency *ret)
{
	const struct mc_file *f;

	memset(ret, 0, sizeof(*ret));
	mc_mutex_lock(&s->lock);
	f = mc_file_find_locked(s, id);
	if (f != NULL) {
		ret->dram = dram_bytes_locked(f);
		ret->hits = f->hits;
		ret->pinned = f->pinned;
	}
	mc_mutex_unlock(&s->lock);
	if (s->opts.blocks != NULL)
		ret->block = mc_block_cache_resident(s->opts.blocks, id);
	if (f != NULL && s->nvme != NULL)
		ret->nvme = mc_nvme_resident(s->nvme, id);
}

bool mc_store_has(const struct mc_store *s, enum mc_tier tier)
{
	return tier == MC_TIER_NVME     ? s->nvme != NULL
		: tier == MC_TIER_BLOCK ? s->opts.blocks != NULL
					: true;
}

void mc_file_residency(struct mc_file *f, struct mc_residency *ret)
{
	mc_store_residency(f->store, &f->id, ret);
}
