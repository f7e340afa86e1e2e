/* Error and latency budgets of a disk; see disk-health.h. */
#include "tier/disk-health.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "tier/cleanup.h"
#include "tier/io.h"
#include "tier/lock.h"
#include "tier/shared-sync.h"

#define PROBE_MS 10000
#define SLOW_MS 4000
#define ERROR_BUDGET 16
#define SLOW_BUDGET 3
#define WINDOW_NS (UINT64_C(60) * 1000000000)
#define LEAST_RATE (UINT64_C(16) << 20) /* bytes a second, beyond slow_ns */

void mc_disk_health_init(struct mc_disk_health *h, unsigned probe_ms, unsigned slow_ms)
{
	*h = (struct mc_disk_health){
		.probe_ns = (probe_ms != 0 ? probe_ms : PROBE_MS) * UINT64_C(1000000),
		.slow_ns = (slow_ms != 0 ? slow_ms : SLOW_MS) * UINT64_C(1000000)};
}

bool mc_disk_failed(struct mc_disk_health *h)
{
	uint64_t now = mc_now_ns();

	if (now - h->errors_at_ns > WINDOW_NS) {
		h->errors_at_ns = now;
		h->n_errors = 0;
	}
	if (++h->n_errors < ERROR_BUDGET || h->bypassed)
		return false;
	h->bypassed = true;
	h->probe_at_ns = now + h->probe_ns;
	return true;
}

uint64_t mc_disk_patience_ns(const struct mc_disk_health *h, uint64_t bytes)
{
	return h->slow_ns + bytes * 1000 / LEAST_RATE * 1000000;
}

bool mc_disk_is_slow(const struct mc_disk_health *h, uint64_t ns, uint64_t bytes)
{
	return ns >= mc_disk_patience_ns(h, bytes);
}

bool mc_disk_took(struct mc_disk_health *h, uint64_t begun_ns, uint64_t bytes)
{
	uint64_t now = mc_now_ns();

	if (!mc_disk_is_slow(h, now - begun_ns, bytes))
		return false;
	if (now - h->slow_at_ns > WINDOW_NS) {
		h->slow_at_ns = now;
		h->n_slow = 0;
	}
	/* What was under way at once waited for the same thing. */
	if (begun_ns >= h->counted_ns) {
		h->counted_ns = now;
		h->n_slow++;
	}
	if (h->n_slow < SLOW_BUDGET || h->slow)
		return false;
	h->slow = true;
	h->probe_at_ns = now + h->probe_ns;
	return true;
}

bool mc_disk_hangs(struct mc_disk_health *h)
{
	bool begins = !h->slow;

	h->slow = true;
	h->probe_at_ns = mc_now_ns() + h->probe_ns;
	return begins;
}

bool mc_disk_probe_due(const struct mc_disk_health *h)
{
	return mc_disk_ails(h) && mc_now_ns() >= h->probe_at_ns;
}

int mc_disk_probe_at(
	struct mc_shared_sync *shared, const struct mc_io *io, int fd, uint64_t off, uint32_t len)
{
	cleanup_free char *out = aligned_alloc(4096, len);
	cleanup_free char *in = aligned_alloc(4096, len);
	uint64_t seen;
	int r;

	if (out == NULL || in == NULL)
		return -ENOMEM;
	memset(out, 0x5a, len);
	mc_shared_sync_begin(shared, &seen);
	r = mc_io_write_full(io, fd, out, len, off);
	if (r == 0)
		r = mc_shared_sync(shared, io, fd, &seen);
	if (r == 0)
		r = mc_io_read_full(io, fd, in, len, off);
	if (r == 0 && memcmp(out, in, len) != 0)
		r = -EIO;
	return r;
}

int mc_disk_probe(const struct mc_io *io, const char *path)
{
	int fd = io->open(io, path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	int r;

	if (fd < 0)
		return fd;
	r = mc_disk_probe_at(NULL, io, fd, 0, MC_DISK_PROBE_BYTES);
	io->close(io, fd);
	io->unlink(io, path);
	return r;
}

void mc_disk_probed(struct mc_disk_health *h, int res, uint64_t took_ns)
{
	h->probe_at_ns = mc_now_ns() + h->probe_ns;
	if (res != 0)
		return;
	h->bypassed = false;
	h->n_errors = 0;
	if (!mc_disk_is_slow(h, took_ns, MC_DISK_PROBE_BYTES)) {
		h->slow = false;
		h->n_slow = 0;
	}
}
