/* DCP_SHARDING_INFO: reading it, and checking that the parts of each tensor make a whole. */
#include "manifest/dcp.h"

#include <string.h>

#include "manifest/json.h"
#include "tier/cleanup.h"

#define MAX_DEPTH 16

struct mc_dcp {
	json_t *root; /* owned */
};

static int check_numbers(const json_t *v, const char *name, const char *key, struct mc_err *err)
{
	uint64_t n;

	if (!json_is_array(v) || json_array_size(v) > MC_MAX_RANK)
		return mc_err_set(err, -EBADMSG,
			MC_DCP_KEY ": tensor \"%.200s\": %s must hold at most %d integers", name,
			key, MC_MAX_RANK);
	for (size_t i = 0; i < json_array_size(v); i++)
		if (mc_json_uint(json_array_get(v, i), MC_JSON_INT_MAX, &n) < 0)
			return mc_err_set(err, -EBADMSG,
				MC_DCP_KEY ": tensor \"%.200s\": %s must hold integers from 0",
				name, key);
	return 0;
}

static int check_entries(const json_t *root, struct mc_err *err)
{
	void *it = json_object_iter((json_t *)root);

	if (!json_is_object(root))
		return mc_err_set(err, -EBADMSG, MC_DCP_KEY ": not an object");
	for (; it != NULL; it = json_object_iter_next((json_t *)root, it)) {
		const json_t *v = json_object_iter_value(it);
		const json_t *global = json_object_get(v, "global_shape");
		const char *name = json_object_iter_key(it);
		int r = check_numbers(
			json_object_get(v, "saved_offsets"), name, "saved_offsets", err);

		if (r == 0 && global != NULL)
			r = check_numbers(global, name, "global_shape", err);
		if (r < 0)
			return r;
	}
	return 0;
}

int mc_dcp_parse(const char *text, struct mc_dcp **ret, struct mc_err *err)
{
	struct mc_dcp *d = calloc(1, sizeof(*d));
	int r;

	if (d == NULL)
		return -ENOMEM;
	r = mc_json_load(text, strlen(text), MAX_DEPTH, &d->root, err);
	if (r < 0)
		mc_err_prefix(err, r, MC_DCP_KEY);
	else
		r = check_entries(d->root, err);
	if (r < 0) {
		mc_dcp_close(d);
		return r;
	}
	*ret = d;
	return 0;
}

void mc_dcp_close(struct mc_dcp *d)
{
	if (d == NULL)
		return;
	json_decref(d->root);
	free(d);
}

int mc_dcp_box(const struct mc_dcp *d, const char *name, unsigned rank, uint64_t *ret_off,
	uint64_t *ret_global, bool *ret_has_global)
{
	const json_t *v = json_object_get(d->root, name);
	const json_t *off = json_object_get(v, "saved_offsets");
	const json_t *global = json_object_get(v, "global_shape");

	if (v == NULL)
		return -ENOENT;
	if (json_array_size(off) != rank || (global != NULL && json_array_size(global) != rank))
		return -EBADMSG;
	for (unsigned i = 0; i < rank; i++) {
		ret_off[i] = (uint64_t)json_integer_value(json_array_get(off, i));
		if (global != NULL)
			ret_global[i] = (uint64_t)json_integer_value(json_array_get(global, i));
	}
	*ret_has_global = global != NULL;
	return 0;
}

static int compare(const uint64_t *a, const uint64_t *b, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (a[i] != b[i])
			return a[i] < b[i] ? -1 : 1;
	return 0;
}

static int part_order(const void *va, const void *vb)
{
	const struct mc_dcp_part *a = va, *b = vb;
	int c = strcmp(a->name, b->name);

	if (c == 0 && a->rank != b->rank)
		c = a->rank < b->rank ? -1 : 1;
	if (c == 0)
		c = compare(a->off, b->off, a->rank);
	if (c == 0)
		c = compare(a->shape, b->shape, a->rank);
	return c == 0 ? strcmp(a->file, b->file) : c;
}

static int bad(struct mc_err *err, const struct mc_dcp_part *a, const struct mc_dcp_part *b,
	const char *rule)
{
	return mc_err_set(err, -EBADMSG, "tensor \"%.150s\": %s (%.120s, %.120s)", a->name, rule,
		a->file, b->file);
}

/* The whole's shape: what a file says, else the smallest that holds all parts. */
static int find_global(struct mc_dcp_part *p, size_t n, struct mc_err *err)
{
	uint64_t global[MC_MAX_RANK] = {0}, end;
	const struct mc_dcp_part *said = NULL;

	for (size_t i = 0; i < n; i++) {
		for (unsigned k = 0; k < p[i].rank; k++) {
			if (__builtin_add_overflow(p[i].off[k], p[i].shape[k], &end))
				return bad(err, &p[i], &p[i], "its box overflows");
			global[k] = end > global[k] ? end : global[k];
		}
		if (!p[i].has_global)
			continue;
		if (said != NULL && compare(said->global, p[i].global, p->rank) != 0)
			return bad(err, said, &p[i], "two files give different global shapes");
		said = &p[i];
	}
	for (unsigned k = 0; said != NULL && k < p->rank; k++)
		if (global[k] > said->global[k])
			return bad(err, said, said, "a part leaves the global shape");
	for (size_t i = 0; i < n; i++) {
		if (said != NULL && &p[i] != said)
			memcpy(p[i].global, said->global, sizeof(global));
		else if (said == NULL)
			memcpy(p[i].global, global, sizeof(global));
		p[i].has_global = true;
	}
	return 0;
}

static int volume(const uint64_t *shape, unsigned rank, uint64_t *ret)
{
	uint64_t v = 1;

	for (unsigned k = 0; k < rank; k++)
		if (__builtin_mul_overflow(v, shape[k], &v))
			return -EOVERFLOW;
	*ret = v;
	return 0;
}

/* An empty part overlaps nothing. */
static bool overlap(const struct mc_dcp_part *a, const struct mc_dcp_part *b)
{
	for (unsigned k = 0; k < a->rank; k++)
		if (a->shape[k] == 0 || b->shape[k] == 0)
			return false;
	for (unsigned k = 0; k < a->rank; k++)
		if (a->off[k] + a->shape[k] <= b->off[k] || b->off[k] + b->shape[k] <= a->off[k])
			return false;
	return true;
}

/* Parts are sorted by offset: after one that starts past i's end in dimension 0, none overlaps i.
 */
static int check_disjoint(const struct mc_dcp_part *p, size_t n, struct mc_err *err)
{
	for (size_t i = 0; i < n; i++) {
		if (p[i].replica)
			continue;
		for (size_t k = i + 1; k < n; k++) {
			if (p[i].rank > 0 && p[k].off[0] >= p[i].off[0] + p[i].shape[0])
				break;
			if (!p[k].replica && overlap(&p[i], &p[k]))
				return bad(err, &p[i], &p[k], "two parts overlap");
		}
	}
	return 0;
}

static int check_cover(struct mc_dcp_part *p, size_t n, struct mc_err *err)
{
	uint64_t sum = 0, v, whole;

	if (volume(p->global, p->rank, &whole) < 0)
		return bad(err, p, p, "its global shape overflows");
	for (size_t i = 0; i < n; i++) {
		p[i].replica = i > 0 && compare(p[i - 1].off, p[i].off, p->rank) == 0 &&
			compare(p[i - 1].shape, p[i].shape, p->rank) == 0;
		if (p[i].replica)
			continue;
		if (volume(p[i].shape, p->rank, &v) < 0 || __builtin_add_overflow(sum, v, &sum))
			return bad(err, &p[i], p, "two parts overlap");
	}
	/* Disjoint boxes inside the whole cover it exactly when their volumes add up to its own. */
	if (sum < whole)
		return mc_err_set(err, -EBADMSG,
			"tensor \"%.200s\": its parts hold %llu of %llu elements", p->name,
			(unsigned long long)sum, (unsigned long long)whole);
	return check_disjoint(p, n, err);
}

static int check_tensor(struct mc_dcp_part *p, size_t n, struct mc_err *err)
{
	int r;

	if (n == 1 && !p->boxed)
		return 0;
	if (n > MC_DCP_MAX_PARTS)
		return mc_err_set(err, -EBADMSG,
			"tensor \"%.200s\": %zu parts, at most %d are read", p->name, n,
			MC_DCP_MAX_PARTS);
	for (size_t i = 0; i < n; i++) {
		if (!p[i].boxed)
			return bad(err, &p[i], &p[i == 0 ? 1 : 0],
				"stands in two places without " MC_DCP_KEY);
		if (p[i].dtype != p->dtype || p[i].rank != p->rank)
			return bad(err, p, &p[i], "its parts differ in dtype or rank");
	}
	r = find_global(p, n, err);
	return r < 0 ? r : check_cover(p, n, err);
}

int mc_dcp_resolve(struct mc_dcp_part *parts, size_t n, struct mc_err *err)
{
	size_t end;

	if (n > 0)
		qsort(parts, n, sizeof(*parts), part_order);
	for (size_t i = 0; i < n; i = end) {
		int r;

		end = i + 1;
		while (end < n && strcmp(parts[i].name, parts[end].name) == 0)
			end++;
		r = check_tensor(&parts[i], end - i, err);
		if (r < 0)
			return r;
	}
	return 0;
}
