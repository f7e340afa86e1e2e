/* The planner's tests: shards of one tensor under construction. */
#pragma once

#include <string.h>

#include "manifest/planner.h"

struct list {
	struct mc_shard v[4096];
	uint32_t n;
};

/* Appends box, which lies densely at byte 0 of what participant holds. */
static inline void add(struct list *l, uint32_t participant, const struct mc_box *box)
{
	struct mc_shard *s = &l->v[l->n++];

	memset(s, 0, sizeof(*s));
	s->participant = participant;
	s->box = *box;
	mc_address_dense(box, 0, &s->place);
}
