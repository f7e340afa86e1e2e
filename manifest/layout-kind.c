/* Tables of a compilation: names by offset, tensors by name, kinds by content. */
#include "manifest/layout-build.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tier/array.h"

int mc_ly_names_add(struct mc_sharding *s, const char *name, uint32_t *ret)
{
	size_t len = strlen(name) + 1;

	if (s->names_len + len > s->names_cap) {
		size_t cap = s->names_cap * 2 + len + 4096;
		char *v = cap <= UINT32_MAX ? realloc(s->names, cap) : NULL;

		if (v == NULL)
			return -ENOMEM;
		s->names = v;
		s->names_cap = cap;
	}
	memcpy(s->names + s->names_len, name, len);
	*ret = (uint32_t)s->names_len;
	s->names_len += len;
	return 0;
}

static uint64_t hash_bytes(const void *p, size_t len)
{
	const uint8_t *b = p;
	uint64_t h = len;

	for (; len >= 8; len -= 8, b += 8) {
		uint64_t w;

		memcpy(&w, b, 8);
		h = (h ^ w) * UINT64_C(0x9e3779b97f4a7c15);
		h ^= h >> 29;
	}
	for (; len > 0; len--)
		h = (h ^ *b++) * UINT64_C(0x100000001b3);
	return h ^ h >> 32;
}

int mc_ly_names_index(struct mc_sharding *s)
{
	uint32_t size = 64;

	while (size < s->n_tensors * 2u)
		size *= 2;
	s->name_hash = calloc(size, sizeof(*s->name_hash));
	if (s->name_hash == NULL)
		return -ENOMEM;
	s->name_hash_size = size;
	for (uint32_t i = 0; i < s->n_tensors; i++) {
		uint64_t h = hash_bytes(s->tensor[i].name, strlen(s->tensor[i].name));

		while (s->name_hash[h & (size - 1)] != 0)
			h++;
		s->name_hash[h & (size - 1)] = i + 1;
	}
	return 0;
}

uint32_t mc_ly_tensor_find(struct mc_sharding *s, const char *name, size_t len)
{
	uint32_t mask = s->name_hash_size - 1;

	for (uint64_t h = hash_bytes(name, len); s->name_hash[h & mask] != 0; h++) {
		uint32_t i = s->name_hash[h & mask] - 1;

		if (strncmp(s->tensor[i].name, name, len) == 0 && s->tensor[i].name[len] == 0)
			return i;
	}
	return UINT32_MAX;
}

/* What makes two tensors the same kind, and nothing else: compared as bytes. */
struct kind_key {
	uint32_t rule, stage, follows, owner[MAX_OWNS];
	uint8_t dtype, rank;
	uint8_t zero[2];
	uint64_t shape[MC_BOX_RANK];
};

static void kind_key(const struct kind *k, struct kind_key *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->rule = k->rule;
	ret->stage = k->stage;
	ret->follows = k->follows;
	memcpy(ret->owner, k->owner, sizeof(ret->owner));
	ret->dtype = k->dtype;
	ret->rank = k->rank;
	memcpy(ret->shape, k->shape, k->rank * sizeof(*k->shape));
}

static int rehash_kinds(struct mc_sharding *s)
{
	uint32_t size = s->hash_size > 0 ? s->hash_size * 2 : 256;
	uint32_t *t = calloc(size, sizeof(*t));

	if (t == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < s->n_kinds; i++) {
		struct kind_key key;
		uint64_t h;

		kind_key(&s->kind[i], &key);
		h = hash_bytes(&key, sizeof(key));
		while (t[h & (size - 1)] != 0)
			h++;
		t[h & (size - 1)] = i + 1;
	}
	free(s->kind_hash);
	s->kind_hash = t;
	s->hash_size = size;
	return 0;
}

int mc_ly_kind_intern(struct mc_sharding *s, struct kind *k, uint32_t *ret, struct mc_err *err)
{
	struct kind_key key, other;
	uint64_t h;
	int r = s->n_kinds * 2 >= s->hash_size ? rehash_kinds(s) : 0;

	if (r < 0)
		return r;
	kind_key(k, &key);
	for (h = hash_bytes(&key, sizeof(key)); s->kind_hash[h & (s->hash_size - 1)] != 0; h++) {
		uint32_t i = s->kind_hash[h & (s->hash_size - 1)] - 1;

		kind_key(&s->kind[i], &other);
		if (memcmp(&key, &other, sizeof(key)) == 0) {
			*ret = i;
			return 0;
		}
	}
	r = mc_array_room(&s->kind, &s->cap_kinds, s->n_kinds + 1);
	if (r == 0)
		r = mc_ly_kind_numbers(s, k, err);
	if (r < 0) {
		mc_ly_kind_done(k);
		return r;
	}
	s->kind[s->n_kinds] = *k;
	s->kind_hash[h & (s->hash_size - 1)] = ++s->n_kinds;
	*ret = s->n_kinds - 1;
	return 0;
}
