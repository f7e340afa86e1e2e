/*
 * Objects of kv/ that are open for reading: their ends.
 *
 * Invariants: 1. node->opened is set exactly while opens or reads > 0. 2. In PASSTHROUGH it owns
 * one backing id and, where it has an object, one mc_kv_object_backing_get.
 */
#include "fs/kv-state.h"

#include <stdlib.h>

#include "fs/mode.h"

void mc_kopen_free(struct mc_kvfs *k, struct mc_kopen *o)
{
	if (o == NULL)
		return;
	if (o->mode == MC_MODE_PASSTHROUGH)
		mc_mode_backing_close(k->fs, o->backing_id);
	if (o->mode == MC_MODE_PASSTHROUGH && o->obj != NULL)
		mc_kv_object_backing_put(o->obj);
	if (o->obj != NULL)
		mc_kv_object_put(o->obj);
	free(o);
}

/* One of the two counts is less by so many. */
static void less(struct mc_kvfs *k, struct mc_knode *n, uint64_t opens, uint64_t reads)
{
	struct mc_kopen *o;
	int id = 0;

	mc_mutex_lock(&k->lock);
	o = n->opened;
	if (o != NULL) {
		o->opens -= opens < o->opens ? opens : o->opens;
		o->reads -= reads;
		mc_knode_record_opens_locked(k, n);
	}
	if (o != NULL && o->opens == 0 && o->reads == 0)
		n->opened = NULL;
	else
		o = NULL;
	mc_mutex_unlock(&k->lock);
	if (o != NULL)
		id = o->backing_id;
	mc_kopen_free(k, o);
	if (id > 0)
		mc_knode_record_closed(k, n, id);
}

void mc_kopen_release(struct mc_kvfs *k, struct mc_knode *n)
{
	less(k, n, 1, 0);
}

void mc_kopen_read_end(struct mc_kvfs *k, struct mc_knode *n)
{
	less(k, n, 0, 1);
}

void mc_kopen_end(struct mc_kvfs *k, struct mc_knode *n)
{
	uint64_t puts;

	less(k, n, UINT64_MAX, 0);
	mc_mutex_lock(&k->lock);
	puts = n->stage != NULL ? n->stage->opens : 0;
	mc_mutex_unlock(&k->lock);
	while (puts-- > 0)
		mc_kstage_leave(k, n);
}
