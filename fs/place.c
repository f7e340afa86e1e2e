/* Places: organisation, model link, loaded revision or layout, shared by the nodes in them. */
#include "fs/place.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

uint64_t mc_hash_bytes(uint64_t h, const void *p, size_t len)
{
	const uint8_t *b = p;

	for (size_t i = 0; i < len; i++)
		h = (h ^ b[i]) * UINT64_C(0x100000001b3);
	return h;
}

uint64_t mc_hash_mix(uint64_t h)
{
	h ^= h >> 33;
	h *= UINT64_C(0xff51afd7ed558ccd);
	h ^= h >> 33;
	h *= UINT64_C(0xc4ceb9fe1a85ec53);
	return h ^ (h >> 33);
}

static void place_free(struct mc_place *p)
{
	mc_manifest_unref(p->manifest);
	mc_view_unref(p->view);
	mc_view_layout_unref(p->view_layout);
	free(p->org);
	free(p->model);
	free(p->rev);
	free(p->layout);
	free(p);
}

static int copy(const char *s, char **ret)
{
	if (s == NULL)
		return 0;
	*ret = strdup(s);
	return *ret != NULL ? 0 : -ENOMEM;
}

static uint64_t hash_str(uint64_t h, const char *s)
{
	/* The NUL counts: ("a", "bc") differs from ("ab", "c"). */
	return s != NULL ? mc_hash_bytes(h, s, strlen(s) + 1) : mc_hash_bytes(h, "\xff", 1);
}

uint64_t mc_place_name_hash(const char *org, const char *model, const char *rev)
{
	return mc_hash_mix(hash_str(hash_str(hash_str(MC_HASH_SEED, org), model), rev));
}

int mc_place_open(const char *org, const char *model, const char *rev, struct mc_manifest *manifest,
	struct mc_place **ret)
{
	struct mc_place *p = calloc(1, sizeof(*p));
	uint64_t h;

	if (p == NULL)
		return -ENOMEM;
	atomic_init(&p->refs, 1);
	if (copy(org, &p->org) < 0 || copy(model, &p->model) < 0 || copy(rev, &p->rev) < 0) {
		place_free(p);
		return -ENOMEM;
	}
	p->name_hash = mc_place_name_hash(org, model, rev);
	h = p->name_hash;
	if (manifest != NULL) {
		p->manifest = mc_manifest_ref(manifest);
		h = mc_hash_bytes(h, mc_manifest_id(manifest), MC_SHA256_SIZE);
	}
	p->hash = mc_hash_mix(h);
	*ret = p;
	return 0;
}

uint64_t mc_place_layout_hash(uint64_t revision, const char *layout)
{
	return mc_hash_mix(hash_str(revision, layout));
}

int mc_place_open_view(const struct mc_rev_name *rev, const char *layout,
	struct mc_view_layout *view_layout, struct mc_view *view, struct mc_place **ret)
{
	struct mc_place *p;
	int r = mc_place_open(
		rev->org, rev->model, rev->rev, view != NULL ? mc_view_tree(view) : NULL, &p);

	if (r == 0 && copy(layout, &p->layout) < 0) {
		place_free(p);
		r = -ENOMEM;
	}
	if (r < 0)
		return r;
	p->view_layout = mc_view_layout_ref(view_layout);
	p->view = view != NULL ? mc_view_ref(view) : NULL;
	p->name_hash = mc_place_layout_hash(p->name_hash, layout);
	p->hash = mc_hash_bytes(mc_hash_mix(p->hash ^ p->name_hash),
		mc_view_layout_digest(view_layout), MC_SHA256_SIZE);
	*ret = p;
	return 0;
}

int mc_place_open_document(const char *name, struct mc_view *view, struct mc_place **ret)
{
	int r = mc_place_open("", NULL, name, mc_view_tree(view), ret);

	if (r == 0)
		(*ret)->view = mc_view_ref(view);
	return r;
}

/* Both NULL, or the same layout of the same checkpoint. */
static bool same_layout(const struct mc_view_layout *a, const struct mc_view_layout *b)
{
	if (a == b)
		return true;
	return a != NULL && b != NULL &&
		memcmp(mc_view_layout_digest(a), mc_view_layout_digest(b), MC_SHA256_SIZE) == 0 &&
		memcmp(mc_manifest_id(mc_view_layout_manifest(a)),
			mc_manifest_id(mc_view_layout_manifest(b)), MC_SHA256_SIZE) == 0;
}

struct mc_place *mc_place_ref(struct mc_place *p)
{
	if (p != NULL)
		atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
	return p;
}

void mc_place_unref(struct mc_place *p)
{
	if (p != NULL && atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) == 1)
		place_free(p);
}

static bool same(const char *a, const char *b)
{
	return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

bool mc_place_equal(const struct mc_place *a, const struct mc_place *b)
{
	if (a == b)
		return true;
	if (a == NULL || b == NULL || a->hash != b->hash)
		return false;
	if (!same(a->org, b->org) || !same(a->model, b->model) || !same(a->rev, b->rev) ||
		!same(a->layout, b->layout) || !same_layout(a->view_layout, b->view_layout))
		return false;
	if (a->manifest == NULL || b->manifest == NULL)
		return a->manifest == b->manifest;
	return memcmp(mc_manifest_id(a->manifest), mc_manifest_id(b->manifest), MC_SHA256_SIZE) ==
		0;
}
