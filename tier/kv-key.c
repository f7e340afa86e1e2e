/* Keys: what one may be, its hash, and the key of an object or a directory. */
#include "tier/kv-impl.h"

#include <string.h>

__extension__ typedef unsigned __int128 uint128;

int kv_key_check(const char *key)
{
	const char *p = key;

	for (;;) {
		size_t n = strcspn(p, "/");

		if (n == 0)
			return -EINVAL;
		if (n > 255)
			return -ENAMETOOLONG;
		if (p[0] == '.' && (n == 1 || (n == 2 && p[1] == '.')))
			return -EINVAL;
		p += n;
		if (p - key > KV_KEY_MAX)
			return -ENAMETOOLONG;
		if (*p == '\0')
			return 0;
		p++;
	}
}

/* Eight bytes a step, multiply and fold; the directory's hash is the seed. */
uint64_t kv_hash(uint64_t dir_hash, const char *name, size_t len)
{
	uint64_t h = dir_hash ^ (len * UINT64_C(0x9e3779b97f4a7c15));

	while (len > 0) {
		uint64_t w = 0;
		size_t n = len < 8 ? len : 8;
		uint128 m;

		memcpy(&w, name, n);
		m = (uint128)(h ^ w ^ UINT64_C(0xa0761d6478bd642f)) * UINT64_C(0xe7037ed1a0b428db);
		h = (uint64_t)(m >> 64) ^ (uint64_t)m;
		name += n;
		len -= n;
	}
	return h ^ h >> 29;
}

uint64_t kv_key_hash(const char *key)
{
	uint64_t h = 0;

	for (;;) {
		size_t n = strcspn(key, "/");

		h = kv_hash(h, key, n);
		if (key[n] == '\0')
			return h;
		key += n + 1;
	}
}

size_t kv_dir_key_of(const struct kv_dir *d, char key[KV_KEY_MAX + 1])
{
	size_t len = 0, at;

	for (const struct kv_dir *p = d; p->parent != NULL; p = p->parent)
		len += p->name_len + (p != d ? 1u : 0u);
	assert(len <= KV_KEY_MAX);
	key[len] = '\0';
	at = len;
	for (const struct kv_dir *p = d; p->parent != NULL; p = p->parent) {
		if (p != d)
			key[--at] = '/';
		at -= p->name_len;
		memcpy(key + at, p->name, p->name_len);
	}
	return len;
}

size_t kv_key_of(const struct kv_object *obj, char key[KV_KEY_MAX + 1])
{
	size_t len = kv_dir_key_of(obj->dir, key);

	if (len > 0)
		key[len++] = '/';
	memcpy(key + len, obj->name, obj->name_len + 1u);
	return len + obj->name_len;
}
