/* A byte buffer that doubles as it grows. */
#include "manifest/buffer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void mc_buffer_done(struct mc_buffer *b)
{
	free(b->p);
	*b = (struct mc_buffer){0};
}

void *mc_buffer_extend(struct mc_buffer *b, size_t len)
{
	size_t want;
	void *at;

	if (__builtin_add_overflow(b->len, len, &want))
		return NULL;
	if (want > b->cap || b->p == NULL) {
		size_t cap = b->cap < 64 ? 64 : b->cap;
		void *bigger;

		while (cap < want)
			if (__builtin_mul_overflow(cap, (size_t)2, &cap))
				return NULL;
		bigger = realloc(b->p, cap);
		if (bigger == NULL)
			return NULL;
		b->p = bigger;
		b->cap = cap;
	}
	at = b->p + b->len;
	b->len = want;
	return at;
}

int mc_buffer_append(struct mc_buffer *b, const void *data, size_t len)
{
	void *at = mc_buffer_extend(b, len);

	if (at == NULL)
		return -ENOMEM;
	if (len > 0)
		memcpy(at, data, len);
	return 0;
}
