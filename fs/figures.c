/* Gathers the daemon's figures; each module's own lock is held for a moment, one after the other.
 */
#include "fs/figures.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fs/takeover.h"

/* Memory of the process without what it maps of the DRAM tier; 0 when it is not known. */
static uint64_t own_memory(void)
{
	unsigned long long size, resident, shared;
	FILE *f = fopen("/proc/self/statm", "re");
	int n = 0;

	if (f != NULL) {
		n = fscanf(f, "%llu %llu %llu", &size, &resident, &shared);
		fclose(f);
	}
	return n == 3 && resident > shared ? (resident - shared) * (uint64_t)sysconf(_SC_PAGESIZE)
					   : 0;
}

void mc_figures_take(struct mc_fs *fs, struct mc_figures *ret)
{
	struct mc_fs_counters *c = &fs->counters;
	int64_t now = time(NULL);

	memset(ret, 0, sizeof(*ret));
	mc_store_stats(fs->opts->store, &ret->store);
	if (fs->opts->kv != NULL)
		mc_kv_stats(fs->opts->kv, &ret->kv);
	ret->has_scrub = fs->opts->scrub != NULL;
	if (ret->has_scrub)
		mc_scrub_status(fs->opts->scrub, &ret->scrub);
	ret->scrub_running = ret->scrub.running;
	ret->scrub_lost = ret->scrub.now.lost > ret->scrub.last.lost ? ret->scrub.now.lost
								     : ret->scrub.last.lost;
	mc_remote_stats(fs->opts->remote, &ret->remote);
	mc_remote_set_status(fs->opts->remote, &ret->set);
	ret->has_nvme = ret->store.nvme.capacity > 0;
	ret->has_kv = fs->opts->kv != NULL;
	ret->opens_passthrough = atomic_load(&c->opens_passthrough);
	ret->opens_cached = atomic_load(&c->opens_cached);
	ret->reads = atomic_load(&c->reads);
	ret->read_bytes = atomic_load(&c->read_bytes);
	ret->read_errors = atomic_load(&c->read_errors);
	ret->puts_limited = atomic_load(&c->puts_limited);
	ret->puts_unknown = atomic_load(&c->puts_unknown);
	ret->puts_failed = atomic_load(&c->puts_failed);
	ret->requests_waiting = mc_calls_open(&fs->calls);
	ret->requests_expired = atomic_load(&fs->calls.expired);
	ret->nodes = mc_nodes_count(fs->nodes);
	ret->handles = mc_handles_count(fs->handles);
	ret->started_s = (uint64_t)fs->start_s;
	ret->uptime_seconds = now > fs->start_s ? (uint64_t)(now - fs->start_s) : 0;
	ret->resident_bytes = own_memory();
	ret->up = !atomic_load(&fs->stopping);
	ret->passthrough = atomic_load(&fs->features.passthrough);
	ret->remote_up = ret->remote.connected;
	ret->kv_recovering = ret->kv.recovering;
	ret->nvme_bypassed = ret->store.nvme.bypassed;
}

bool mc_figures_nvme_short(const struct mc_figures *f, uint64_t *ret_given)
{
	*ret_given = f->store.nvme.capacity + f->kv.nvme_capacity;
	return f->store.nvme.disk_bytes > 0 && *ret_given > f->store.nvme.disk_bytes;
}

void mc_figures_degraded(const struct mc_fs *fs, const struct mc_figures *f,
	void (*each)(void *ctx, const char *text), void *ctx)
{
	char text[256];
	uint64_t given;

	if (!f->remote.connected)
		each(ctx, "the remote does not answer; what is resident is served meanwhile");
	for (unsigned i = 0; i < f->set.n; i++) {
		const struct mc_set_member_status *m = &f->set.members[i];

		if (!m->up)
			snprintf(text, sizeof(text),
				"%.160s does not answer; its copies are read from other remotes",
				m->url);
		else if (m->notes > 0)
			snprintf(text, sizeof(text),
				"%.160s is being brought %llu copies that it missed", m->url,
				(unsigned long long)m->notes);
		if (!m->up || m->notes > 0)
			each(ctx, text);
	}
	if (f->store.nvme.bypassed)
		each(ctx, "the NVMe tier had too many I/O errors; it is left out and probed");
	if (mc_figures_nvme_short(f, &given)) {
		snprintf(text, sizeof(text),
			"the NVMe tier was given %llu bytes, but its file system has %llu: what "
			"fits is kept",
			(unsigned long long)given, (unsigned long long)f->store.nvme.disk_bytes);
		each(ctx, text);
	}
	if (fs->opts->takeover != NULL && mc_takeover_why_not(fs->opts->takeover) != NULL) {
		snprintf(text, sizeof(text), "no takeover: %s",
			mc_takeover_why_not(fs->opts->takeover));
		each(ctx, text);
	}
	if (f->has_kv && f->kv.degraded != NULL) {
		snprintf(text, sizeof(text), "KV store: %s", f->kv.degraded);
		each(ctx, text);
	}
	if (f->scrub_lost > 0) {
		snprintf(text, sizeof(text),
			"scrub: the last copies of %llu KV objects are damaged; the log names them",
			(unsigned long long)f->scrub_lost);
		each(ctx, text);
	}
	if (f->store.unrepaired_blocks > 0) {
		snprintf(text, sizeof(text),
			"scrub: clients read %llu damaged blocks on NVMe that the remote does not "
			"give",
			(unsigned long long)f->store.unrepaired_blocks);
		each(ctx, text);
	}
	if (!f->store.dram.mounted)
		each(ctx, "the DRAM tier is a plain directory: mounting a tmpfs needs root");
	if (fs->features.readahead_kb < 0) {
		snprintf(text, sizeof(text), "readahead could not be raised: %s",
			strerror(-fs->features.readahead_kb));
		each(ctx, text);
	}
}
