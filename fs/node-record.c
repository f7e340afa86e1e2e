/*
 * Nodes in the table of takeover.h.
 *
 * Invariants: 1. A record names texts that are in use from before it is published until after it is
 * cleared. 2. Nodes with one struct mc_place share one text, which place->record_users counts; both
 * are guarded by the node table's lock.
 */
#include "fs/node-record.h"

#include <string.h>

#include "fs/texts.h"

/* The text of a place: hash, id of the manifest (zeros: none), HAS_…, then those names, each with
 * its NUL. */
enum { HAS_MODEL = 1, HAS_REV = 2, HAS_LAYOUT = 4, HAS_MANIFEST = 8, IS_DOCUMENT = 16 };
#define FLAGS_AT (sizeof(uint64_t) + MC_SHA256_SIZE)
#define NAMES_AT (FLAGS_AT + 1)

static bool append(char *text, size_t *len, const char *name)
{
	size_t n = name != NULL ? strlen(name) + 1 : 0;

	if (*len + n > MC_TEXT_MAX)
		return false;
	if (n > 0)
		memcpy(text + *len, name, n);
	*len += n;
	return true;
}

static uint32_t add_place(struct mc_takeover *t, const struct mc_place *p)
{
	char text[MC_TEXT_MAX] = {0};
	size_t len = NAMES_AT;
	uint8_t flags = 0;

	memcpy(text, &p->hash, sizeof(p->hash));
	if (p->manifest != NULL)
		memcpy(text + sizeof(p->hash), mc_manifest_id(p->manifest), MC_SHA256_SIZE);
	flags |= p->model != NULL ? HAS_MODEL : 0;
	flags |= p->rev != NULL ? HAS_REV : 0;
	flags |= p->layout != NULL ? HAS_LAYOUT : 0;
	flags |= p->manifest != NULL ? HAS_MANIFEST : 0;
	flags |= p->view != NULL && p->layout == NULL ? IS_DOCUMENT : 0;
	text[FLAGS_AT] = (char)flags;
	if (!append(text, &len, p->org) || !append(text, &len, p->model) ||
		!append(text, &len, p->rev) || !append(text, &len, p->layout))
		return 0;
	return mc_texts_add(mc_takeover_texts(t), text, len);
}

/* The next name of the text, or NULL: it ends before. */
static const char *next_name(const char **at, const char *end)
{
	const char *name = *at, *nul = memchr(name, '\0', (size_t)(end - name));

	if (nul == NULL)
		return NULL;
	*at = nul + 1;
	return name;
}

bool mc_place_was(struct mc_takeover *t, uint32_t ref, struct mc_place_was *ret)
{
	size_t len;
	const char *text = mc_texts_get(mc_takeover_texts(t), ref, &len), *at, *end;
	unsigned flags;

	if (text == NULL || len < NAMES_AT)
		return false;
	*ret = (struct mc_place_was){0};
	memcpy(&ret->hash, text, sizeof(ret->hash));
	flags = (unsigned char)text[FLAGS_AT];
	if ((flags & HAS_MANIFEST) != 0)
		ret->manifest = (const uint8_t *)text + sizeof(ret->hash);
	ret->is_document = (flags & IS_DOCUMENT) != 0;
	at = text + NAMES_AT;
	end = text + len;
	ret->org = next_name(&at, end);
	ret->model = (flags & HAS_MODEL) != 0 ? next_name(&at, end) : NULL;
	ret->rev = (flags & HAS_REV) != 0 ? next_name(&at, end) : NULL;
	ret->layout = (flags & HAS_LAYOUT) != 0 ? next_name(&at, end) : NULL;
	return ret->org != NULL && (ret->model != NULL || (flags & HAS_MODEL) == 0) &&
		(ret->rev != NULL || (flags & HAS_REV) == 0) &&
		(ret->layout != NULL || (flags & HAS_LAYOUT) == 0);
}

/* Whether the node's texts are there, or it has none. */
static bool add_texts(struct mc_takeover *t, struct mc_node *n, struct mc_node_record *r)
{
	struct mc_place *p = n->place;

	r->key =
		n->key != NULL ? mc_texts_add(mc_takeover_texts(t), n->key, strlen(n->key) + 1) : 0;
	if (n->key != NULL && r->key == 0)
		return false;
	r->place = 0;
	if (p == NULL)
		return true;
	if (p->record == 0)
		p->record = add_place(t, p);
	r->place = p->record;
	p->record_users += p->record != 0;
	return p->record != 0;
}

void mc_node_record_add(struct mc_takeover *t, struct mc_node *n)
{
	struct mc_node_record *r = mc_takeover_node(t, n->slot);

	if (r == NULL)
		return;
	if (!add_texts(t, n, r)) {
		mc_takeover_end(t, MC_TAKEOVER_FULL);
		return;
	}
	r->gen = n->gen;
	r->entry = n->entry;
	r->kind = (uint8_t)n->kind;
	r->at = (uint8_t)n->at;
	r->retired = 0;
	atomic_store_explicit(&r->refs, n->refs, memory_order_relaxed);
	atomic_store_explicit(&r->opens, 0, memory_order_relaxed);
	atomic_store_explicit(&r->used, 1, memory_order_release);
}

void mc_node_record_refs(struct mc_takeover *t, const struct mc_node *n)
{
	struct mc_node_record *r = mc_takeover_node(t, n->slot);

	if (r != NULL)
		atomic_store_explicit(&r->refs, n->refs, memory_order_relaxed);
}

void mc_node_record_retire(struct mc_takeover *t, const struct mc_node *n)
{
	struct mc_node_record *r = mc_takeover_node(t, n->slot);

	if (r != NULL)
		r->retired = 1;
}

void mc_node_record_drop(struct mc_takeover *t, const struct mc_node *n)
{
	struct mc_node_record *r = mc_takeover_node(t, n->slot);
	struct mc_place *p = n->place;

	if (r == NULL)
		return;
	atomic_store_explicit(&r->used, 0, memory_order_release);
	mc_texts_drop(mc_takeover_texts(t), r->key);
	r->key = 0;
	if (p != NULL && --p->record_users == 0) {
		mc_texts_drop(mc_takeover_texts(t), p->record);
		p->record = 0;
	}
}

void mc_node_record_opens(struct mc_takeover *t, const struct mc_node *n, uint64_t opens)
{
	struct mc_node_record *r = mc_takeover_node(t, n->slot);

	if (r != NULL)
		atomic_store_explicit(&r->opens, (uint32_t)opens, memory_order_release);
}

void mc_node_record_mode(struct mc_takeover *t, const struct mc_node *n, enum mc_open_mode mode,
	int backing_id, int tier)
{
	struct mc_node_record *r = mc_takeover_node(t, n->slot);

	if (r == NULL)
		return;
	r->mode = (uint8_t)mode;
	r->tier = (uint8_t)tier;
	atomic_store_explicit(&r->backing_id, backing_id, memory_order_relaxed);
}

void mc_node_record_closed(struct mc_takeover *t, const struct mc_node *n, int backing_id)
{
	struct mc_node_record *r = mc_takeover_node(t, n->slot);
	int32_t was = backing_id;

	if (r != NULL) /* the next open may have another one already */
		atomic_compare_exchange_strong(&r->backing_id, &was, 0);
}
