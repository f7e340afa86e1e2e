/*
 * The mesh: base axes, outermost first, whose product is the number of participants, and derived
 * axes, which are coordinates computed from others (ep = dp × tp; ep inside tp).
 */
#include "manifest/layout-build.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int mc_ly_mesh_find(const struct mesh *m, const char *name, uint32_t *ret)
{
	for (uint32_t i = 0; i < m->n; i++)
		if (strcmp(m->axis[i].name, name) == 0) {
			*ret = i;
			return 0;
		}
	return -ENOENT;
}

int mc_ly_get_axis(const json_t *o, const char *key, const struct mesh *m, uint32_t *ret,
	const struct pointer *p)
{
	const char *name = NULL;
	int r = mc_ly_get_string(o, key, &name, p);

	if (r < 0)
		return r;
	if (name == NULL)
		return mc_ly_bad_at(p, "\"%s\" is missing", key);
	if (mc_ly_mesh_find(m, name, ret) < 0)
		return mc_ly_bad_at(p, "the mesh has no axis \"%s\"", name);
	return 0;
}

static int axis_name(struct mesh *m, const char *name, const struct pointer *p)
{
	struct axis *a = &m->axis[m->n];
	uint32_t other;

	if (m->n == MAX_AXES)
		return mc_ly_bad_at(p, "more than %d axes", MAX_AXES);
	if (name == NULL || name[0] == 0 || strlen(name) >= sizeof(a->name))
		return mc_ly_bad_at(p, "an axis needs a name of 1 to 31 bytes");
	if (mc_ly_mesh_find(m, name, &other) == 0)
		return mc_ly_bad_at(p, "axis \"%s\" is there twice", name);
	*a = (struct axis){.size = 1, .div = 1};
	memcpy(a->name, name, strlen(name) + 1);
	return 0;
}

static int base_axes(const json_t *axes, struct mesh *m, const struct pointer *p)
{
	uint64_t world = 1;

	for (size_t i = 0; i < json_array_size(axes); i++) {
		const json_t *v = json_array_get(axes, i), *size = json_array_get(v, 1);
		struct pointer q = mc_ly_deeper(p, NULL, i);
		int r;

		if (!json_is_array(v) || json_array_size(v) != 2 || !json_is_integer(size))
			return mc_ly_bad_at(&q, "an axis is [\"name\", size]");
		r = axis_name(m, json_string_value(json_array_get(v, 0)), &q);
		if (r < 0)
			return r;
		if (json_integer_value(size) < 1 || json_integer_value(size) > MC_LAYOUT_MAX_WORLD)
			return mc_ly_bad_at(&q, "a size from 1 to %d", MC_LAYOUT_MAX_WORLD);
		m->axis[m->n++].size = (uint32_t)json_integer_value(size);
	}
	for (uint32_t i = m->n; i-- > 0;) {
		m->axis[i].stride = (uint32_t)world;
		world *= m->axis[i].size;
		if (world > MC_LAYOUT_MAX_WORLD)
			return mc_ly_bad_at(p, "more than %d participants", MC_LAYOUT_MAX_WORLD);
	}
	m->world = (uint32_t)world;
	return 0;
}

/* Reads one derived axis when all it is made from is known; 1 when something is not known yet. */
static int derive(const char *name, const json_t *v, struct mesh *m, const struct pointer *p)
{
	static const char *const keys[] = {"from", "mod", "div", NULL};
	struct axis a = {.size = 1, .div = 1, .derived = true};
	const json_t *from = NULL;
	uint64_t size = 1;
	uint32_t div = 1, mod = 0;
	int r = json_is_object(v) ? mc_ly_only_keys(v, keys, p) : mc_ly_bad_at(p, "not an object");

	if (r == 0)
		r = mc_ly_get_array(v, "from", MAX_AXES, &from, p);
	if (r == 0)
		r = mc_ly_get_uint(v, "div", MC_LAYOUT_MAX_WORLD, &div, p);
	if (r == 0)
		r = mc_ly_get_uint(v, "mod", MC_LAYOUT_MAX_WORLD, &mod, p);
	if (r == 0 && from == NULL)
		r = mc_ly_bad_at(p, "\"from\" is missing");
	if (r < 0)
		return r;
	for (size_t i = 0; i < json_array_size(from); i++) {
		const char *f = json_string_value(json_array_get(from, i));

		if (f == NULL)
			return mc_ly_bad_at(p, "\"from\" lists names of axes");
		if (mc_ly_mesh_find(m, f, &a.from[i]) < 0)
			return 1;
		size *= m->axis[a.from[i]].size;
		if (size > MC_LAYOUT_MAX_WORLD)
			return mc_ly_bad_at(p, "more than %d coordinates", MC_LAYOUT_MAX_WORLD);
	}
	a.n_from = (uint32_t)json_array_size(from);
	if (div == 0 || size % div != 0)
		return mc_ly_bad_at(
			p, "%u coordinates cannot be divided by %u", (unsigned)size, div);
	size /= div;
	if (mod > 0 && size % mod != 0)
		return mc_ly_bad_at(p, "%u coordinates are no multiple of %u", (unsigned)size, mod);
	r = axis_name(m, name, p);
	if (r < 0)
		return r;
	a.size = mod > 0 ? mod : (uint32_t)size;
	a.div = div;
	a.mod = mod;
	memcpy(a.name, name, strlen(name) + 1); /* axis_name checked its length */
	m->axis[m->n++] = a;
	return 0;
}

static int derived_axes(json_t *derived, struct mesh *m, const struct pointer *p)
{
	size_t left = json_object_size(derived);
	const char *name, *stuck = NULL;
	json_t *v;

	while (left > 0) {
		size_t before = left;

		json_object_foreach(derived, name, v)
		{
			struct pointer q = mc_ly_deeper(p, name, 0);
			uint32_t i;
			int r;

			if (mc_ly_mesh_find(m, name, &i) == 0) {
				if (!m->axis[i].derived)
					return mc_ly_bad_at(&q, "this is a base axis already");
				continue;
			}
			r = derive(name, v, m, &q);
			if (r < 0)
				return r;
			left -= r == 0;
			if (r == 1)
				stuck = name;
		}
		if (left == before) {
			struct pointer q = mc_ly_deeper(p, stuck, 0);

			return mc_ly_bad_at(
				&q, "made from an axis that is unknown or made from this one");
		}
	}
	return 0;
}

/* Axes are in an order in which each is made from earlier ones only. */
static int fill_coordinates(struct mesh *m)
{
	m->at = malloc((size_t)m->n * m->world * sizeof(*m->at));
	if (m->at == NULL)
		return -ENOMEM;
	for (uint32_t k = 0; k < m->n; k++) {
		const struct axis *a = &m->axis[k];

		for (uint32_t rank = 0; rank < m->world; rank++) {
			uint32_t v = 0;

			for (uint32_t i = 0; i < a->n_from; i++)
				v = v * m->axis[a->from[i]].size +
					mc_ly_mesh_at(m, a->from[i], rank);
			v = a->derived ? v / a->div : rank / a->stride % a->size;
			m->at[(size_t)k * m->world + rank] = a->mod > 0 ? v % a->mod : v;
		}
	}
	return 0;
}

int mc_ly_mesh_parse(const json_t *mesh, struct mesh *ret, const struct pointer *p)
{
	static const char *const keys[] = {"axes", "derived", NULL};
	const json_t *axes = NULL;
	json_t *derived;
	struct pointer q = mc_ly_deeper(p, "axes", 0);
	int r = json_is_object(mesh) ? mc_ly_only_keys(mesh, keys, p)
				     : mc_ly_bad_at(p, "not an object");

	memset(ret, 0, sizeof(*ret));
	if (r == 0)
		r = mc_ly_get_array(mesh, "axes", MAX_AXES, &axes, p);
	if (r == 0 && (axes == NULL || json_array_size(axes) == 0))
		r = mc_ly_bad_at(p, "\"axes\" is missing or empty");
	if (r == 0)
		r = base_axes(axes, ret, &q);
	derived = json_object_get(mesh, "derived");
	q = mc_ly_deeper(p, "derived", 0);
	if (r == 0 && derived != NULL)
		r = json_is_object(derived) ? derived_axes(derived, ret, &q)
					    : mc_ly_bad_at(&q, "not an object");
	return r < 0 ? r : fill_coordinates(ret);
}

uint32_t mc_ly_mesh_at(const struct mesh *m, uint32_t axis, uint32_t rank)
{
	return m->at[(size_t)axis * m->world + rank];
}

void mc_ly_mesh_done(struct mesh *m)
{
	free(m->at);
	m->at = NULL;
}
