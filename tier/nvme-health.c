/*
 * The error budget of the NVMe tier: too many failed I/Os within a minute and the tier is bypassed,
 * so that a dying disk costs nobody time; a probe brings it back.
 */
#include "tier/nvme-impl.h"

#include "tier/cleanup.h"
#include "tier/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_BUDGET 16
#define ERROR_WINDOW_NS (UINT64_C(60) * 1000000000)

void mc_nvme_failed(struct mc_nvme *n)
{
	uint64_t now = mc_now_ns();

	mc_mutex_lock(&n->lock);
	n->stats.errors++;
	if (now - n->window_ns > ERROR_WINDOW_NS) {
		n->window_ns = now;
		n->errors_in_window = 0;
	}
	if (++n->errors_in_window >= ERROR_BUDGET && !n->bypassed && !n->checking) {
		n->bypassed = true;
		n->probe_at_ns = now + n->probe_ms * UINT64_C(1000000);
		mc_cond_signal(&n->work);
	}
	mc_mutex_unlock(&n->lock);
}

/* Writes, syncs and reads back a page in the tier's directory. */
static int probe_file(struct mc_nvme *n)
{
	cleanup_free char *path = NULL;
	char out[512], in[512];
	int fd, r;

	memset(out, 0x5a, sizeof(out));
	if (asprintf(&path, "%s/PROBE", n->dir) < 0)
		return -ENOMEM;
	fd = n->io->open(n->io, path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (fd < 0)
		return fd;
	r = mc_io_write_full(n->io, fd, out, sizeof(out), 0);
	if (r == 0)
		r = n->io->fdatasync(n->io, fd);
	if (r == 0)
		r = mc_io_read_full(n->io, fd, in, sizeof(in), 0);
	if (r == 0 && memcmp(out, in, sizeof(in)) != 0)
		r = -EIO;
	n->io->close(n->io, fd);
	n->io->unlink(n->io, path);
	return r;
}

void mc_nvme_probe(struct mc_nvme *n)
{
	int r = probe_file(n);

	if (r == 0 && mc_journal_snapshot_due(n->journal))
		r = mc_nvme_snapshot(n);
	mc_mutex_lock(&n->lock);
	n->probe_at_ns = mc_now_ns() + n->probe_ms * UINT64_C(1000000);
	if (r == 0) {
		n->bypassed = false;
		n->errors_in_window = 0;
	}
	mc_mutex_unlock(&n->lock);
}
