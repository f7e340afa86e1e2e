/*
 * Drafts of layouts/.
 *
 * Invariants: 1. A draft can be found by its name or is open, or both; without either it is freed.
 * 2. No two can be found by one name. 3. There are at most MC_DRAFTS, of at most
 * MC_LAYOUT_MAX_BYTES each. 4. dirty: bytes were written that no try to publish has seen.
 * 5. What lacks bytes that were to be written is never published.
 */
#include "fs/draft.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "manifest/layout.h"
#include "tier/lock.h"

#define SUFFIX ".json"

struct draft {
	uint32_t number; /* 0 = a free place */
	unsigned opens;
	char name[MC_DRAFT_NAME_BYTES]; /* "" = none */
	bool published;                 /* the name is a layout's: nobody finds the draft by it */
	char *bytes;                    /* owned, cap bytes */
	size_t len, cap;
	struct timespec mtime;
	bool dirty;
	bool too_large; /* a write past the bound was refused */
	int last;       /* of the last try to publish */
	char error[MC_DRAFT_ERROR_BYTES];
};

struct mc_drafts {
	struct mc_mutex lock;
	/* Guarded by lock. */
	struct draft draft[MC_DRAFTS];
	uint32_t numbers; /* given so far */
	char error[MC_DRAFT_ERROR_BYTES];
};

int mc_drafts_open(struct mc_drafts **ret)
{
	struct mc_drafts *ds = calloc(1, sizeof(*ds));

	if (ds == NULL)
		return -ENOMEM;
	mc_mutex_init(&ds->lock);
	*ret = ds;
	return 0;
}

void mc_drafts_close(struct mc_drafts *ds)
{
	if (ds == NULL)
		return;
	for (int i = 0; i < MC_DRAFTS; i++)
		free(ds->draft[i].bytes);
	mc_mutex_done(&ds->lock);
	free(ds);
}

bool mc_draft_publishes(const char *name)
{
	size_t len = strlen(name), end = strlen(SUFFIX);

	return name[0] != '.' && len > end && strcmp(name + len - end, SUFFIX) == 0;
}

static struct draft *by_number_locked(struct mc_drafts *ds, uint32_t number) MC_REQUIRES(ds->lock)
{
	for (int i = 0; i < MC_DRAFTS; i++)
		if (ds->draft[i].number == number)
			return &ds->draft[i];
	return NULL;
}

static struct draft *by_name_locked(struct mc_drafts *ds, const char *name) MC_REQUIRES(ds->lock)
{
	for (int i = 0; i < MC_DRAFTS; i++)
		if (ds->draft[i].number != 0 && !ds->draft[i].published &&
			strcmp(ds->draft[i].name, name) == 0)
			return &ds->draft[i];
	return NULL;
}

/* Keeps invariant 1. */
static void settle_life(struct draft *d)
{
	if (d->opens > 0 || (d->name[0] != '\0' && !d->published))
		return;
	free(d->bytes);
	*d = (struct draft){0};
}

static void drop_name(struct draft *d)
{
	d->name[0] = '\0';
	settle_life(d);
}

/* A free place, or that of the oldest draft that nobody has open; NULL: there is none. */
static struct draft *place_locked(struct mc_drafts *ds) MC_REQUIRES(ds->lock)
{
	struct draft *oldest = NULL;

	for (int i = 0; i < MC_DRAFTS; i++) {
		struct draft *d = &ds->draft[i];

		if (d->number == 0)
			return d;
		if (d->opens == 0 && (oldest == NULL || d->number < oldest->number))
			oldest = d;
	}
	if (oldest != NULL)
		drop_name(oldest);
	return oldest;
}

static void touch(struct draft *d)
{
	clock_gettime(CLOCK_REALTIME, &d->mtime);
}

int mc_draft_find(struct mc_drafts *ds, const char *name, uint32_t *ret)
{
	struct draft *d;
	int r = -ENOENT;

	mc_mutex_lock(&ds->lock);
	d = by_name_locked(ds, name);
	if (d != NULL) {
		*ret = d->number;
		r = 0;
	}
	mc_mutex_unlock(&ds->lock);
	return r;
}

int mc_draft_create(struct mc_drafts *ds, const char *name, bool excl, uint32_t *ret)
{
	struct draft *d;
	int r = 0;

	mc_mutex_lock(&ds->lock);
	d = by_name_locked(ds, name);
	if (d != NULL && excl) {
		r = -EEXIST;
	} else if (d == NULL) {
		d = place_locked(ds);
		if (d == NULL) {
			r = -ENOSPC;
		} else {
			d->number = ++ds->numbers;
			snprintf(d->name, sizeof(d->name), "%s", name);
			touch(d);
		}
	}
	if (r == 0) {
		d->opens++;
		*ret = d->number;
	}
	mc_mutex_unlock(&ds->lock);
	return r;
}

int mc_draft_open(struct mc_drafts *ds, uint32_t number, bool truncate)
{
	struct draft *d;
	int r = -ESTALE;

	mc_mutex_lock(&ds->lock);
	d = by_number_locked(ds, number);
	if (d != NULL) {
		d->opens++;
		r = 0;
	}
	if (r == 0 && truncate) {
		d->dirty = d->len > 0;
		d->len = 0;
		d->too_large = false;
		touch(d);
	}
	mc_mutex_unlock(&ds->lock);
	return r;
}

bool mc_draft_release(struct mc_drafts *ds, uint32_t number)
{
	struct draft *d;
	bool untried = false;

	mc_mutex_lock(&ds->lock);
	d = by_number_locked(ds, number);
	if (d != NULL && d->opens > 0 && --d->opens == 0) {
		if (mc_draft_publishes(d->name)) {
			untried = d->len == 0;
			d->name[0] = '\0';
		}
		settle_life(d);
	}
	mc_mutex_unlock(&ds->lock);
	return untried;
}

int mc_draft_stat(struct mc_drafts *ds, uint32_t number, struct mc_draft_attr *ret)
{
	struct draft *d;
	int r = -ESTALE;

	mc_mutex_lock(&ds->lock);
	d = by_number_locked(ds, number);
	if (d != NULL) {
		*ret = (struct mc_draft_attr){.size = d->len, .mtime = d->mtime};
		r = 0;
	}
	mc_mutex_unlock(&ds->lock);
	return r;
}

int64_t mc_draft_read(struct mc_drafts *ds, uint32_t number, void *buf, size_t len, uint64_t off)
{
	struct draft *d;
	int64_t n = -ESTALE;

	mc_mutex_lock(&ds->lock);
	d = by_number_locked(ds, number);
	if (d != NULL) {
		n = off < d->len ? (int64_t)(len < d->len - off ? len : d->len - off) : 0;
		if (n > 0)
			memcpy(buf, d->bytes + off, (size_t)n);
	}
	mc_mutex_unlock(&ds->lock);
	return n;
}

/* Makes the draft len bytes long; new ones are zeros. */
static int resize(struct draft *d, uint64_t len)
{
	size_t cap = d->cap > 0 ? d->cap : 4096;
	char *p;

	while (cap < len)
		cap *= 2;
	if (cap > d->cap) {
		p = realloc(d->bytes, cap);
		if (p == NULL)
			return -ENOMEM;
		d->bytes = p;
		d->cap = cap;
	}
	if (len > d->len)
		memset(d->bytes + d->len, 0, len - d->len);
	d->len = len;
	d->dirty = true;
	touch(d);
	return 0;
}

int mc_draft_write(struct mc_drafts *ds, uint32_t number, const void *buf, size_t len, uint64_t off)
{
	struct draft *d;
	int r = -ESTALE;

	mc_mutex_lock(&ds->lock);
	d = by_number_locked(ds, number);
	if (d != NULL && (off > MC_LAYOUT_MAX_BYTES || len > MC_LAYOUT_MAX_BYTES - off)) {
		d->too_large = true;
		r = -EFBIG;
	} else if (d != NULL) {
		r = resize(d, off + len > d->len ? off + len : d->len);
	}
	if (r == 0)
		memcpy(d->bytes + off, buf, len);
	mc_mutex_unlock(&ds->lock);
	return r;
}

int mc_draft_truncate(struct mc_drafts *ds, uint32_t number, uint64_t size)
{
	struct draft *d;
	int r = -ESTALE;

	mc_mutex_lock(&ds->lock);
	d = by_number_locked(ds, number);
	if (d != NULL)
		r = size <= MC_LAYOUT_MAX_BYTES ? resize(d, size) : -EFBIG;
	if (r == 0)
		d->too_large = false;
	mc_mutex_unlock(&ds->lock);
	return r;
}

int mc_draft_copy(struct mc_drafts *ds, uint32_t number, bool always, struct mc_draft_copy *ret)
{
	bool wanted = false, named = false;
	struct draft *d;
	int r = -ESTALE;

	*ret = (struct mc_draft_copy){0};
	mc_mutex_lock(&ds->lock);
	d = by_number_locked(ds, number);
	if (d != NULL) {
		memcpy(ret->name, d->name, sizeof(ret->name));
		named = mc_draft_publishes(d->name);
		ret->last = named ? d->last : 0;
		wanted = always || (named && d->dirty && d->len > 0);
		r = d->too_large && (always || named) ? -EFBIG : 0;
	}
	if (r == 0 && wanted) {
		ret->text = malloc(d->len + 1);
		r = ret->text != NULL ? 0 : -ENOMEM;
	}
	if (ret->text != NULL) {
		if (d->len > 0)
			memcpy(ret->text, d->bytes, d->len);
		ret->len = d->len;
		d->dirty = false;
	}
	mc_mutex_unlock(&ds->lock);
	return r;
}

void mc_draft_settle(
	struct mc_drafts *ds, uint32_t number, const char *name, int res, const char *why)
{
	struct draft *d, *other;

	mc_mutex_lock(&ds->lock);
	snprintf(ds->error, sizeof(ds->error), "%s", why);
	d = by_number_locked(ds, number);
	other = res == 0 ? by_name_locked(ds, name) : NULL;
	if (other != NULL && other != d)
		drop_name(other);
	if (d != NULL) {
		d->last = res;
		snprintf(d->error, sizeof(d->error), "%s", why);
	}
	if (d != NULL && res == 0) {
		d->published = true;
		snprintf(d->name, sizeof(d->name), "%s", name);
		settle_life(d);
	}
	mc_mutex_unlock(&ds->lock);
}

int mc_draft_rename(struct mc_drafts *ds, uint32_t number, const char *to)
{
	struct draft *d, *other;
	int r = -ESTALE;

	mc_mutex_lock(&ds->lock);
	d = by_number_locked(ds, number);
	other = by_name_locked(ds, to);
	if (d != NULL) {
		if (other != NULL && other != d)
			drop_name(other);
		snprintf(d->name, sizeof(d->name), "%s", to);
		r = 0;
	}
	mc_mutex_unlock(&ds->lock);
	return r;
}

int mc_draft_unlink(struct mc_drafts *ds, const char *name)
{
	struct draft *d;

	mc_mutex_lock(&ds->lock);
	d = by_name_locked(ds, name);
	if (d != NULL)
		drop_name(d);
	mc_mutex_unlock(&ds->lock);
	return d != NULL ? 0 : -ENOENT;
}

void mc_drafts_fail(struct mc_drafts *ds, const char *why)
{
	mc_mutex_lock(&ds->lock);
	snprintf(ds->error, sizeof(ds->error), "%s", why);
	mc_mutex_unlock(&ds->lock);
}

void mc_drafts_error(struct mc_drafts *ds, char out[MC_DRAFT_ERROR_BYTES])
{
	mc_mutex_lock(&ds->lock);
	memcpy(out, ds->error, MC_DRAFT_ERROR_BYTES);
	mc_mutex_unlock(&ds->lock);
}

int mc_draft_error(struct mc_drafts *ds, uint32_t number, char out[MC_DRAFT_ERROR_BYTES])
{
	struct draft *d;

	mc_mutex_lock(&ds->lock);
	d = by_number_locked(ds, number);
	if (d != NULL)
		memcpy(out, d->error, MC_DRAFT_ERROR_BYTES);
	mc_mutex_unlock(&ds->lock);
	return d != NULL ? 0 : -ESTALE;
}
