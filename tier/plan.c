/* Plans: building and owning the pieces of a file range. */
#include "tier/plan.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tier/array.h"

void mc_plan_init(struct mc_plan *p)
{
	*p = (struct mc_plan){0};
}

void mc_plan_done(struct mc_plan *p)
{
	for (size_t i = 0; i < p->n_owned; i++)
		free(p->owned[i]);
	free(p->owned);
	free(p->pieces);
	*p = (struct mc_plan){0};
}

static int add_piece(struct mc_plan *p, const struct mc_piece *piece)
{
	int r = mc_array_room(&p->pieces, &p->cap, p->n + 1);

	if (r == 0)
		p->pieces[p->n++] = *piece;
	return r;
}

/* Copies len bytes into memory the plan frees at done. */
static int keep(struct mc_plan *p, const void *data, size_t len, char **ret)
{
	char *copy;
	int r = mc_array_room(&p->owned, &p->cap_owned, p->n_owned + 1);

	if (r < 0)
		return r;
	copy = malloc(len);
	if (copy == NULL)
		return -ENOMEM;
	memcpy(copy, data, len);
	p->owned[p->n_owned++] = copy;
	*ret = copy;
	return 0;
}

int mc_plan_add_hole(struct mc_plan *p, uint32_t len)
{
	struct mc_piece *last = p->n > 0 ? &p->pieces[p->n - 1] : NULL;

	if (last != NULL && last->kind == MC_PIECE_HOLE && last->len <= UINT32_MAX - len) {
		last->len += len;
		return 0;
	}
	return add_piece(p, &(struct mc_piece){.kind = MC_PIECE_HOLE, .len = len});
}

int mc_plan_add_inline(struct mc_plan *p, const void *data, uint32_t len)
{
	char *copy;
	int r = keep(p, data, len, &copy);

	if (r < 0)
		return r;
	return add_piece(p, &(struct mc_piece){.kind = MC_PIECE_INLINE, .len = len, .data = copy});
}

int mc_plan_add_object(struct mc_plan *p, const char *path, uint64_t off, uint32_t len,
	const struct mc_guard *guard)
{
	struct mc_piece piece = {.kind = MC_PIECE_OBJECT, .len = len, .off = off};
	char *copy;
	int r = keep(p, path, strlen(path) + 1, &copy);

	if (r < 0)
		return r;
	piece.path = copy;
	if (guard != NULL)
		piece.guard = *guard;
	return add_piece(p, &piece);
}

int mc_plan_add_file(
	struct mc_plan *p, struct mc_file *file, uint64_t off, const struct mc_strides *strides)
{
	uint64_t len = strides->inner;

	assert(strides->rank <= MC_PLAN_DIMS);
	for (unsigned d = 0; d < strides->rank; d++)
		len *= strides->count[d];
	assert(len > 0 && len <= UINT32_MAX);
	return add_piece(p,
		&(struct mc_piece){.kind = MC_PIECE_FILE,
			.len = (uint32_t)len,
			.off = off,
			.file = file,
			.strides = *strides});
}

uint64_t mc_plan_len(const struct mc_plan *p)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < p->n; i++)
		sum += p->pieces[i].len;
	return sum;
}

bool mc_plan_is_hole(const struct mc_plan *p)
{
	for (size_t i = 0; i < p->n; i++)
		if (p->pieces[i].kind != MC_PIECE_HOLE)
			return false;
	return true;
}
