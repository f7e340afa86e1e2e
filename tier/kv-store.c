/* The one door to the places of a KV log: what holds for all kinds is asserted here. */
#include "tier/kv-store.h"

#include "tier/io.h"
#include "tier/journal.h"

#include <assert.h>
#include <string.h>

#define ALIGN 4096u
#define SEGMENT_BYTES (UINT64_C(128) << 20)
#define SEGMENT_LEAST (UINT64_C(1) << 20)

uint64_t mc_kv_store_segment_bytes(uint64_t capacity)
{
	uint64_t bytes = SEGMENT_BYTES;

	while (bytes > SEGMENT_LEAST && bytes * 32 > capacity)
		bytes /= 2;
	return bytes;
}

void mc_kv_store_close(struct mc_kv_store *s)
{
	if (s != NULL)
		s->ops->close(s);
}

int mc_kv_store_make(struct mc_kv_store *s, uint32_t id, struct mc_kv_place *ret)
{
	int r;

	assert(id != 0);
	r = s->ops->make(s, id, ret);
	assert(r <= 0 && (r < 0 || (ret->fd >= 0 && ret->at % ALIGN == 0)));
	return r;
}

int mc_kv_store_remove(struct mc_kv_store *s, uint32_t id, const struct mc_kv_place *p)
{
	assert(id != 0 && p->fd >= 0);
	return s->ops->remove(s, id, p);
}

void mc_kv_store_leave(struct mc_kv_store *s, const struct mc_kv_place *p)
{
	if (p->fd >= 0)
		s->ops->leave(s, p);
}

int mc_kv_store_sync(struct mc_kv_store *s, const struct mc_kv_place *p, bool made)
{
	assert(p->fd >= 0);
	return s->ops->sync(s, p, made);
}

void mc_kv_store_discard(struct mc_kv_store *s, const struct mc_kv_place *p)
{
	assert(p->fd >= 0);
	s->ops->discard(s, p);
}

int mc_kv_store_find(
	struct mc_kv_store *s, int (*each)(void *ctx, const struct mc_kv_found *f), void *ctx)
{
	return s->ops->find(s, each, ctx);
}

void mc_kv_store_journal(const struct mc_kv_store *s, struct mc_journal_opts *ret)
{
	ret->io = s->io;
	ret->dir = s->journal_dir;
	ret->area = (struct mc_journal_area){.name = s->name,
		.fd = s->journal_fd,
		.at = s->journal_at,
		.bytes = s->journal_bytes,
		.shared = s->journal_shared};
	memcpy(ret->uuid, s->uuid, sizeof(ret->uuid));
}

int mc_kv_store_probe(struct mc_kv_store *s)
{
	return s->ops->probe(s);
}
