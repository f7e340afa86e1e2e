/* The one door to the places of a KV log: what holds for all kinds is asserted here. */
#include "tier/kv-store.h"

#include "tier/digest.h"
#include "tier/io.h"
#include "tier/journal.h"

#include <assert.h>
#include <errno.h>
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

bool mc_kv_store_is_bound(const struct mc_kv_store *s)
{
	static const uint8_t none[16];

	return memcmp(s->bound, none, sizeof(none)) != 0;
}

static bool is_bound_to(const struct mc_kv_store *s, const struct mc_kv_store *other)
{
	return memcmp(s->bound, other->uuid, sizeof(s->bound)) == 0;
}

static int check_alone(const struct mc_kv_store *s, struct mc_err *err)
{
	char uuid[33];

	if (!mc_kv_store_is_bound(s))
		return 0;
	mc_hex_encode(s->bound, sizeof(s->bound), uuid);
	if (s->journal_dir == NULL)
		return mc_err_set(err, -ESTALE,
			"%s: lies below an NVMe directory (KV log %s), where its journal is: give "
			"--nvme (to fsck its directory), too, or --format --force",
			s->name, uuid);
	return mc_err_set(err, -ESTALE,
		"%s: data of it lies on the block tier %s: give --block; if that is lost for good, "
		"remove %s/KVBELOW, and what was there is given up",
		s->name, uuid, s->name);
}

static int bind(struct mc_kv_store *s, const struct mc_kv_store *to)
{
	int r = is_bound_to(s, to) ? 0 : s->ops->bind(s, to->uuid);

	if (r == 0)
		memcpy(s->bound, to->uuid, sizeof(s->bound));
	return r;
}

int mc_kv_store_together(
	const struct mc_kv_store *upper, const struct mc_kv_store *lower, struct mc_err *err)
{
	bool bound = mc_kv_store_is_bound(upper);

	if (lower == NULL)
		return check_alone(upper, err);
	if ((bound && !is_bound_to(upper, lower)) ||
		(mc_kv_store_is_bound(lower) && !is_bound_to(lower, upper)))
		return mc_err_set(err, -ESTALE, "%s and %s do not belong together: %s", upper->name,
			lower->name,
			bound ? "data of the directory lies on another block tier"
			      : "the block tier is that of another directory");
	return 0;
}

int mc_kv_store_bind(struct mc_kv_store *upper, struct mc_kv_store *lower, struct mc_err *err)
{
	int r = mc_kv_store_together(upper, lower, err);

	if (r != 0 || lower == NULL)
		return r;
	if (!mc_kv_store_is_bound(lower) && lower->used)
		return mc_err_set(err, -EEXIST,
			"%s: has been used without an NVMe directory: do so again, or --format "
			"--force",
			lower->name);
	r = bind(lower, upper);
	return r == 0 ? bind(upper, lower) : r;
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
