/* The places of nodes that an earlier process had, loaded again. For fs/resume.c. */
#pragma once

#include "fs/state.h"

struct mc_places; /* by the references of their texts in the takeover's table */

int mc_places_open(struct mc_fs *fs, struct mc_places **ret);
/* A place that is wanted; any number of times. False: ref names none. -ENOMEM shows as that. */
bool mc_places_want(struct mc_places *ps, uint32_t ref);
/* Loads them all, for at most ms. */
void mc_places_load(struct mc_places *ps, unsigned ms);
/* Borrowed until close; NULL: it could not be loaded. */
struct mc_place *mc_places_find(const struct mc_places *ps, uint32_t ref);
/* How many could not. */
uint64_t mc_places_missing(const struct mc_places *ps);
/* Drops those that no node has. NULL allowed. */
void mc_places_close(struct mc_places *ps);
