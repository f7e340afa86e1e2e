/*
 * The error budget of the KV log: too many failed I/Os within a minute and puts fail at once, so
 * that a dying disk costs nobody time; a probe ends that. Reads go on: theirs may be the only copy.
 */
#include "tier/kv-log-impl.h"

#include "tier/cleanup.h"
#include "tier/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_BUDGET 16
#define ERROR_WINDOW_NS (UINT64_C(60) * 1000000000)

void mc_kv_failed(struct mc_kv_log *log, int res)
{
	uint64_t now = mc_now_ns();

	if (res == 0 || res == -ENOSPC || res == -EDQUOT || res == -ENOMEM || res == -EMFILE ||
		res == -ENFILE)
		return;
	mc_mutex_lock(&log->lock);
	log->stats.errors++;
	if (now - log->window_ns > ERROR_WINDOW_NS) {
		log->window_ns = now;
		log->errors_in_window = 0;
	}
	if (++log->errors_in_window >= ERROR_BUDGET && !log->bypassed) {
		log->bypassed = true;
		log->probe_at_ns = now + log->probe_ms * UINT64_C(1000000);
		mc_kv_poke_locked(log);
	}
	mc_mutex_unlock(&log->lock);
}

/* Writes, syncs and reads back a page in the log's directory. */
static int probe_file(struct mc_kv_log *log)
{
	cleanup_free char *path = NULL;
	char out[512], in[512];
	int fd, r;

	memset(out, 0x5a, sizeof(out));
	if (asprintf(&path, "%s/KVPROBE", log->dir) < 0)
		return -ENOMEM;
	fd = log->io->open(log->io, path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (fd < 0)
		return fd;
	r = mc_io_write_full(log->io, fd, out, sizeof(out), 0);
	if (r == 0)
		r = log->io->fdatasync(log->io, fd);
	if (r == 0)
		r = mc_io_read_full(log->io, fd, in, sizeof(in), 0);
	if (r == 0 && memcmp(out, in, sizeof(in)) != 0)
		r = -EIO;
	log->io->close(log->io, fd);
	log->io->unlink(log->io, path);
	return r;
}

void mc_kv_probe(struct mc_kv_log *log)
{
	int r = probe_file(log);

	if (r == 0 && mc_journal_snapshot_due(log->journal))
		r = mc_kv_snapshot(log);
	mc_mutex_lock(&log->lock);
	log->probe_at_ns = mc_now_ns() + log->probe_ms * UINT64_C(1000000);
	if (r == 0) {
		log->bypassed = false;
		log->errors_in_window = 0;
	}
	mc_mutex_unlock(&log->lock);
}
