/*
 * Whether a disk is worth asking. Errors: too many failed I/Os within a minute and the disk is
 * bypassed, so that a dying one costs nobody time. Latency: several writes or syncs within a minute
 * that took long and it counts as slow. A probe ends either. The owner decides what it leaves out
 * meanwhile, and its lock guards everything but mc_disk_is_slow and mc_disk_probe.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct mc_io;
struct mc_shared_sync;

struct mc_disk_health {
	uint64_t probe_ns; /* between probes */
	uint64_t slow_ns;  /* what takes longer, beside its bytes, is slow */
	bool bypassed, slow;
	unsigned n_errors, n_slow;         /* in the windows that began */
	uint64_t errors_at_ns, slow_at_ns; /* then */
	uint64_t counted_ns;               /* the last slow I/O that counted ended */
	uint64_t probe_at_ns;
};

/* Milliseconds; 0 = 10,000 and 4,000. */
void mc_disk_health_init(struct mc_disk_health *h, unsigned probe_ms, unsigned slow_ms);
/* An I/O failed. Whether that begins a bypass: the prober has to be woken. */
bool mc_disk_failed(struct mc_disk_health *h);
/* A write or sync of bytes (0 = unknown) that began then has ended. Whether the disk is slow from
 * now on: the prober has to be woken.
 */
bool mc_disk_took(struct mc_disk_health *h, uint64_t begun_ns, uint64_t bytes);
/* An I/O was given up on before it ended: slow, until a probe is quick. To be said again while it
 * has not ended: a probe would hang, too, and with it who probes. As above. */
bool mc_disk_hangs(struct mc_disk_health *h);
/* An I/O of so many bytes that takes longer is slow. */
uint64_t mc_disk_patience_ns(const struct mc_disk_health *h, uint64_t bytes);
/* Whether an I/O that took so long was slow: others need not be counted. */
bool mc_disk_is_slow(const struct mc_disk_health *h, uint64_t ns, uint64_t bytes);

/* Whether probes are wanted; the next one at probe_at_ns. */
static inline bool mc_disk_ails(const struct mc_disk_health *h)
{
	return h->bypassed || h->slow;
}

bool mc_disk_probe_due(const struct mc_disk_health *h);
/* What a probe and what the owner tried besides came to, and how long the probe took. */
void mc_disk_probed(struct mc_disk_health *h, int res, uint64_t took_ns);

#define MC_DISK_PROBE_BYTES (UINT32_C(256) << 10)
/* Writes, syncs and reads back that many bytes, or len; a quick disk is done with them in no time,
 * a slow one is not. path: a file, which is made and removed. shared: of fd, NULL =
 * nobody else writes to it. off, len: multiples of 4096.
 */
int mc_disk_probe(const struct mc_io *io, const char *path);
int mc_disk_probe_at(
	struct mc_shared_sync *shared, const struct mc_io *io, int fd, uint64_t off, uint32_t len);
