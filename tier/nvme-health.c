/*
 * The error budget of the NVMe tier's disk: while it is bypassed nothing is read from it nor
 * written. A slow one holds up nobody, since what waits for it is dropped.
 */
#include "tier/nvme-impl.h"

#include <errno.h>
#include <stdio.h>

#include "tier/cleanup.h"

void mc_nvme_failed(struct mc_nvme *n)
{
	mc_mutex_lock(&n->lock);
	n->stats.errors++;
	if (!n->checking && mc_disk_failed(&n->health))
		mc_cond_signal(&n->work);
	mc_mutex_unlock(&n->lock);
}

void mc_nvme_probe(struct mc_nvme *n)
{
	cleanup_free char *path = NULL;
	uint64_t begun = mc_now_ns(), took;
	int r = -ENOMEM;

	if (asprintf(&path, "%s/PROBE", n->dir) >= 0)
		r = mc_disk_probe(n->io, path);
	took = mc_now_ns() - begun;
	if (r == 0 && mc_journal_snapshot_due(n->journal))
		r = mc_nvme_snapshot(n);
	mc_mutex_lock(&n->lock);
	mc_disk_probed(&n->health, r, took);
	mc_mutex_unlock(&n->lock);
}
