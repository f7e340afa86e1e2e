/*
 * Metrics in Prometheus' text format. One table: rows of the same name follow each other, and the
 * first of them brings the help text.
 */
#include "fs/status.h"

#include <inttypes.h>
#include <stddef.h>

#include "fs/figures.h"

enum type { COUNTER, GAUGE };
enum when { ALWAYS, WITH_NVME, WITH_KV, WITH_KV_NVME, WITH_KV_LOG, WITH_BLOCK, WITH_SCRUB };

struct row {
	const char *name; /* after "mooncakefs_"; counters get "_total" */
	enum type type;
	enum when when;
	size_t at; /* of the uint64_t in struct mc_figures */
	const char *labels;
	const char *help; /* NULL: another row of the metric before */
};
#define AT(member) offsetof(struct mc_figures, member)

#define CHECKPOINTS_DRAM "tier=\"dram\",data=\"checkpoints\""
#define CHECKPOINTS_NVME "tier=\"nvme\",data=\"checkpoints\""
#define KV_DRAM "tier=\"dram\",data=\"kv\""
#define KV_NVME "tier=\"nvme\",data=\"kv\""
#define KV_BLOCK "tier=\"block\",data=\"kv\""
#define CHECKPOINTS_BLOCK "tier=\"block\",data=\"checkpoints\""

static const struct row rows[] = {
	{"up", GAUGE, ALWAYS, AT(up), NULL, "1 until the mount stops."},
	{"start_time_seconds", GAUGE, ALWAYS, AT(started_s), NULL,
		"When it was mounted, since the epoch."},
	{"memory_bytes", GAUGE, ALWAYS, AT(resident_bytes), NULL,
		"Memory of the daemon without the DRAM tiers."},
	{"passthrough_enabled", GAUGE, ALWAYS, AT(passthrough), NULL,
		"1 when resident files are read by the kernel alone."},

	{"tier_capacity_bytes", GAUGE, ALWAYS, AT(store.dram.capacity), CHECKPOINTS_DRAM,
		"What a tier may hold."},
	{"tier_capacity_bytes", GAUGE, WITH_NVME, AT(store.nvme.capacity), CHECKPOINTS_NVME, NULL},
	{"tier_capacity_bytes", GAUGE, WITH_KV, AT(kv.dram_capacity), KV_DRAM, NULL},
	{"tier_capacity_bytes", GAUGE, WITH_KV_NVME, AT(kv.nvme_capacity), KV_NVME, NULL},
	{"tier_capacity_bytes", GAUGE, WITH_BLOCK, AT(kv.block_capacity), KV_BLOCK, NULL},
	{"tier_used_bytes", GAUGE, ALWAYS, AT(store.dram.used), CHECKPOINTS_DRAM,
		"What a tier has allocated."},
	{"tier_used_bytes", GAUGE, WITH_NVME, AT(store.nvme.used), CHECKPOINTS_NVME, NULL},
	{"tier_used_bytes", GAUGE, WITH_KV, AT(kv.dram_used), KV_DRAM, NULL},
	{"tier_used_bytes", GAUGE, WITH_KV_NVME, AT(kv.nvme_used), KV_NVME, NULL},
	{"tier_used_bytes", GAUGE, WITH_BLOCK, AT(kv.block_used), KV_BLOCK, NULL},
	{"tier_used_bytes", GAUGE, WITH_BLOCK, AT(store.device.used), CHECKPOINTS_BLOCK, NULL},
	{"tier_held_bytes", GAUGE, ALWAYS, AT(store.dram.held), CHECKPOINTS_DRAM,
		"Evicted, but a client still reads or maps it."},
	{"tier_held_bytes", GAUGE, WITH_NVME, AT(store.nvme.held), CHECKPOINTS_NVME, NULL},
	{"tier_evicted_bytes", COUNTER, ALWAYS, AT(store.evicted_dram), CHECKPOINTS_DRAM,
		"Evicted from a tier."},
	{"tier_evicted_bytes", COUNTER, WITH_NVME, AT(store.evicted_nvme), CHECKPOINTS_NVME, NULL},

	{"opens", COUNTER, ALWAYS, AT(opens_passthrough), "mode=\"passthrough\"",
		"Opens of checkpoint files."},
	{"opens", COUNTER, ALWAYS, AT(opens_cached), "mode=\"cached\"", NULL},
	{"reads", COUNTER, ALWAYS, AT(reads), NULL, "Read requests served by the daemon."},
	{"read_bytes", COUNTER, ALWAYS, AT(read_bytes), NULL, "Bytes of these requests."},
	{"read_errors", COUNTER, ALWAYS, AT(read_errors), NULL, "Reads that failed."},
	{"requests_waiting", GAUGE, ALWAYS, AT(requests_waiting), NULL,
		"Requests that wait for a tier or the remote."},
	{"requests_expired", COUNTER, ALWAYS, AT(requests_expired), NULL,
		"Requests that were answered by their deadline."},
	{"nodes", GAUGE, ALWAYS, AT(nodes), NULL,
		"Files and directories the kernel knows, without kv/."},
	{"handles", GAUGE, ALWAYS, AT(handles), NULL, "Open directories and generated files."},

	{"block_hits", COUNTER, ALWAYS, AT(store.hits_dram), "tier=\"dram\"",
		"Blocks of 1 MiB that a reader found in a tier."},
	{"block_hits", COUNTER, WITH_NVME, AT(store.hits_nvme), "tier=\"nvme\"", NULL},
	{"block_hits", COUNTER, WITH_BLOCK, AT(store.hits_block), "tier=\"block\"", NULL},
	{"block_fetches", COUNTER, ALWAYS, AT(store.fetches), NULL, "Blocks from the remote."},
	{"block_prefetches", COUNTER, ALWAYS, AT(store.prefetched), NULL,
		"Blocks that were fetched ahead of a reader."},
	{"fetched_bytes", COUNTER, ALWAYS, AT(store.fetched_bytes), NULL,
		"Checkpoint bytes from the remote."},
	{"fetches_running", GAUGE, ALWAYS, AT(store.in_flight), NULL, "Fetches under way."},
	{"fetches_waiting", GAUGE, ALWAYS, AT(store.queued), NULL, "Fetches not yet begun."},
	{"fetches_without_memory", GAUGE, ALWAYS, AT(store.no_room), NULL,
		"Fetches that wait for room in the DRAM tier."},
	{"bad_blocks", COUNTER, ALWAYS, AT(store.bad_blocks), NULL,
		"Blocks whose bytes did not match their checksum, from any tier."},
	{"write_behind_skipped", COUNTER, WITH_NVME, AT(store.behind_skipped), NULL,
		"Blocks that did not get to NVMe."},
	{"cached_files", GAUGE, ALWAYS, AT(store.files), NULL,
		"Checkpoint files of which a tier holds something."},
	{"unverified_files", GAUGE, WITH_NVME, AT(store.unverified), NULL,
		"Files on NVMe that are still to be read through after the start."},
	{"verified_percent", GAUGE, WITH_NVME, AT(store.verified_percent), NULL,
		"How much of what was to be read through has been; 100 when nothing is left."},
	{"nvme_read_bytes", COUNTER, WITH_NVME, AT(store.nvme.bytes_read), NULL,
		"Checkpoint bytes read from NVMe by the daemon."},
	{"nvme_written_bytes", COUNTER, WITH_NVME, AT(store.nvme.bytes_written), NULL,
		"Checkpoint bytes written to NVMe."},
	{"nvme_flushes", COUNTER, WITH_NVME, AT(store.nvme.flushes), NULL,
		"Syncs of checkpoint data on NVMe."},
	{"nvme_errors", COUNTER, WITH_NVME, AT(store.nvme.errors), NULL,
		"Failed I/O on the NVMe tier."},
	{"nvme_bypassed", GAUGE, WITH_NVME, AT(nvme_bypassed), NULL,
		"1 while the NVMe tier is left out for its errors."},

	{"scrub_running", GAUGE, WITH_SCRUB, AT(scrub_running), NULL,
		"1 while what lies on NVMe is compared with its checksums."},
	{"scrub_passes", COUNTER, WITH_SCRUB, AT(scrub.passes), NULL, "Passes that ended."},
	{"scrub_read_bytes", COUNTER, WITH_SCRUB, AT(scrub.ever.bytes), NULL, "Bytes compared."},
	{"scrub_bad", COUNTER, WITH_SCRUB, AT(scrub.ever.bad), NULL,
		"Blocks and KV objects found damaged."},
	{"scrub_repaired", COUNTER, WITH_SCRUB, AT(scrub.ever.repaired), NULL,
		"Of them, made right again on NVMe at once."},
	{"scrub_dropped", COUNTER, WITH_SCRUB, AT(scrub.ever.dropped), NULL,
		"Of them, taken out of NVMe: another copy serves."},
	{"scrub_failed", COUNTER, WITH_SCRUB, AT(scrub.ever.failed), NULL,
		"Blocks and KV objects that could not be read."},
	{"scrub_lost_objects", GAUGE, WITH_SCRUB, AT(scrub_lost), NULL,
		"KV objects whose last copy was found damaged in this pass or the last one."},
	{"unrepaired_blocks", GAUGE, WITH_NVME, AT(store.unrepaired_blocks), NULL,
		"Damaged blocks that clients read past the daemon and no remote gives now."},
	{"repaired_blocks", COUNTER, WITH_NVME, AT(store.repaired_blocks), NULL,
		"Damaged blocks that were made right under such clients."},

	{"remote_up", GAUGE, ALWAYS, AT(remote_up), NULL, "0 while no connection works."},
	{"remote_read_bytes", COUNTER, ALWAYS, AT(remote.bytes_read), NULL,
		"Bytes read from the remote."},
	{"remote_written_bytes", COUNTER, ALWAYS, AT(remote.bytes_written), NULL,
		"Bytes written to the remote."},
	{"remote_requests", COUNTER, ALWAYS, AT(remote.requests), NULL,
		"Requests sent to the remote."},
	{"remote_errors", COUNTER, ALWAYS, AT(remote.errors), NULL,
		"Operations of the remote that failed for good."},
	{"remote_reconnects", COUNTER, ALWAYS, AT(remote.reconnects), NULL,
		"Connections that had to be made again."},
	{"remote_requests_in_flight", GAUGE, ALWAYS, AT(remote.in_flight), NULL,
		"Requests to the remote now."},

	{"kv_objects", GAUGE, WITH_KV, AT(kv.objects), NULL, "KV objects this node knows."},
	{"kv_object_bytes", GAUGE, WITH_KV, AT(kv.bytes), NULL, "Bytes of these objects."},
	{"kv_index_bytes", GAUGE, WITH_KV, AT(kv.index_bytes), NULL, "Memory of their index."},
	{"kv_puts", COUNTER, WITH_KV, AT(kv.puts), NULL, "KV objects published."},
	{"kv_puts_failed", COUNTER, WITH_KV, AT(puts_failed), NULL,
		"KV objects not published, as a write failed or memory was full meanwhile."},
	{"kv_puts_copied", COUNTER, WITH_KV, AT(puts_limited), "reason=\"limit\"",
		"Opens for writing without passthrough, as the client has a memory limit of its "
		"own, or is not known."},
	{"kv_puts_copied", COUNTER, WITH_KV, AT(puts_unknown), "reason=\"unknown\"", NULL},
	{"kv_gets", COUNTER, WITH_KV, AT(kv.gets), NULL, "KV objects opened for reading."},
	{"kv_hits", COUNTER, WITH_KV, AT(kv.hits_dram), "tier=\"dram\"",
		"KV objects found in a tier when they were opened."},
	{"kv_hits", COUNTER, WITH_KV, AT(kv.hits_nvme), "tier=\"nvme\"", NULL},
	{"kv_hits", COUNTER, WITH_BLOCK, AT(kv.hits_block), "tier=\"block\"", NULL},
	{"kv_hits", COUNTER, WITH_KV, AT(kv.hits_remote), "tier=\"remote\"", NULL},
	{"kv_misses", COUNTER, WITH_KV, AT(kv.misses), NULL, "Opens of keys that were nowhere."},
	{"kv_dirty_bytes", GAUGE, WITH_KV, AT(kv.dirty_bytes), NULL,
		"Bytes that are on no persistent tier yet."},
	{"kv_dirty_limit_bytes", GAUGE, WITH_KV, AT(kv.dirty_bound), NULL,
		"From here on writers wait."},
	{"kv_flushed_bytes", COUNTER, WITH_KV, AT(kv.flushed_bytes), NULL,
		"Bytes brought to a persistent tier."},
	{"kv_evicted_objects", COUNTER, WITH_KV, AT(kv.evicted_objects), NULL,
		"KV objects that left DRAM."},
	{"kv_nvme_written_bytes", COUNTER, WITH_KV_LOG, AT(kv.nvme_written_bytes), NULL,
		"Bytes the KV log wrote, reclaiming included."},
	{"kv_nvme_flushes", COUNTER, WITH_KV_LOG, AT(kv.nvme_syncs), NULL, "Syncs of the KV log."},
	{"kv_reclaimed_segments", COUNTER, WITH_KV_LOG, AT(kv.reclaimed_segments), NULL,
		"Segments of the KV log that were made free again."},
	{"kv_nvme_unreadable_objects", GAUGE, WITH_KV_NVME, AT(kv.nvme_unreadable), NULL,
		"KV objects on NVMe in files that could not be opened at the start."},
	{"kv_recovering", GAUGE, WITH_KV, AT(kv_recovering), NULL,
		"1 while the index of a start is incomplete."},
	{"kv_recovered_percent", GAUGE, WITH_KV, AT(kv.recovered_percent), NULL,
		"How much of the index of a start is there; 100 when it is complete."},
};

static bool applies(enum when w, const struct mc_figures *f)
{
	return w == ALWAYS || (w == WITH_NVME && f->has_nvme) || (w == WITH_KV && f->has_kv) ||
		(w == WITH_KV_NVME && f->kv.nvme_capacity > 0) ||
		(w == WITH_BLOCK && f->kv.block_capacity > 0) ||
		(w == WITH_KV_LOG && f->kv.nvme_capacity + f->kv.block_capacity > 0) ||
		(w == WITH_SCRUB && f->has_scrub);
}

static void print_row(const struct row *r, const struct mc_figures *f, FILE *out)
{
	const char *suffix = r->type == COUNTER ? "_total" : "";
	uint64_t value = *(const uint64_t *)(const void *)((const char *)f + r->at);

	if (r->help != NULL)
		fprintf(out, "# HELP mooncakefs_%s%s %s\n# TYPE mooncakefs_%s%s %s\n", r->name,
			suffix, r->help, r->name, suffix, r->type == COUNTER ? "counter" : "gauge");
	fprintf(out, "mooncakefs_%s%s", r->name, suffix);
	if (r->labels != NULL)
		fprintf(out, "{%s}", r->labels);
	fprintf(out, " %" PRIu64 "\n", value);
}

int mc_status_metrics(struct mc_fs *fs, FILE *out)
{
	struct mc_figures f;

	mc_figures_take(fs, &f);
	fprintf(out,
		"# HELP mooncakefs_build_info Which program this is; always 1.\n"
		"# TYPE mooncakefs_build_info gauge\n"
		"mooncakefs_build_info{version=\"%s\",libfuse=\"%s\"} 1\n",
		fs->opts->version != NULL ? fs->opts->version : "", fuse_pkgversion());
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		if (applies(rows[i].when, &f))
			print_row(&rows[i], &f, out);
	}
	return 0;
}
