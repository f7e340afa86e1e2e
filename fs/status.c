/* status, config and events as text. */
#include "fs/status.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "fs/figures.h"
#include "fs/log.h"
#include "fs/scrub-json.h"
#include "fs/takeover.h"

#define INDENT JSON_INDENT(2)

/* Prints obj with a newline and drops it. */
static int print(json_t *obj, size_t flags, FILE *out)
{
	int r = obj != NULL ? json_dumpf(obj, out, flags) : -1;

	json_decref(obj);
	fputc('\n', out);
	return r == 0 ? 0 : -ENOMEM;
}

static json_t *number(uint64_t v)
{
	return json_integer(v <= INT64_MAX ? (json_int_t)v : INT64_MAX);
}

/* Text that may be NULL and need not be UTF-8. */
static json_t *words(const char *s)
{
	json_t *j = json_string(s != NULL ? s : "");

	return j != NULL ? j : json_string("?");
}

/* Sets members of obj; what memory was missing for shows as obj being NULL in the end. */
struct member {
	const char *name;
	json_t *value; /* taken */
};

static json_t *object(const struct member *m, size_t n)
{
	json_t *obj = json_object();

	for (size_t i = 0; i < n; i++) {
		if (json_object_set_new(obj, m[i].name, m[i].value) < 0) {
			json_decref(obj);
			obj = NULL;
		}
	}
	return obj;
}
#define OBJECT(...)                                                                                \
	object((const struct member[]){__VA_ARGS__},                                               \
		sizeof((const struct member[]){__VA_ARGS__}) / sizeof(struct member))

static json_t *moment(uint64_t s)
{
	time_t t = (time_t)s;
	char text[32] = "";
	struct tm tm;

	if (gmtime_r(&t, &tm) != NULL)
		strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm);
	return json_string(text);
}

static json_t *build(const struct mc_fs *fs)
{
	struct utsname u;

	return OBJECT({"version", words(fs->opts->version)}, {"libfuse", words(fuse_pkgversion())},
		{"kernel", words(uname(&u) == 0 ? u.release : "")});
}

static json_t *mount_part(const struct mc_fs *fs, const struct mc_figures *f)
{
	struct mc_takeover *t = fs->opts->takeover;
	pid_t worker = getpid();

	return OBJECT({"mountpoint", words(fs->mountpoint)},
		{"pid", number((uint64_t)(t != NULL ? getppid() : worker))},
		{"worker_pid", number((uint64_t)worker)},
		{"workers_started", number(t != NULL ? mc_takeover_head(t)->workers : 1)},
		{"started", moment(f->started_s)}, {"uptime_seconds", number(f->uptime_seconds)},
		{"stopping", json_boolean(!f->up)}, {"memory_bytes", number(f->resident_bytes)});
}

/* A mode that is on or off, and why. */
static json_t *mode(bool on, const char *why)
{
	return OBJECT({"on", json_boolean(on)}, {"why", words(why)});
}

/* Why a feature of the NVMe tier is off. */
static json_t *nvme_mode(const struct mc_figures *f, bool on, const char *why_not)
{
	return mode(on, !f->has_nvme ? "no NVMe tier" : on ? "" : why_not);
}

static json_t *modes(const struct mc_fs *fs, const struct mc_figures *f)
{
	const struct mc_features *x = &fs->features;
	const struct mc_store_stats *s = &f->store;

	const char *why = fs->opts->takeover_why;

	if (fs->opts->takeover != NULL)
		why = mc_takeover_why_not(fs->opts->takeover);
	return OBJECT({"takeover", mode(why == NULL, why)},
		{"fuse_io_uring",
			mode(false, "not used: a mount that it serves cannot be taken over")},
		{"passthrough", mode(f->passthrough, atomic_load(&x->passthrough_reason))},
		{"dram_own_tmpfs", mode(s->dram.mounted, s->dram.mounted ? "" : "needs root")},
		{"dram_huge_pages",
			mode(s->dram.huge, s->dram.huge ? "" : "not offered by this kernel")},
		{"nvme_io_uring",
			nvme_mode(f, s->nvme.uring, "refused by the kernel: threads instead")},
		{"nvme_o_direct", nvme_mode(f, s->nvme.direct, "not offered by the file system")},
		{"max_request_bytes", number(x->max_request)},
		{"readahead_kib", json_integer(x->readahead_kb)},
		{"max_background_requests", number(x->max_background)},
		{"threads", number(x->threads)});
}

static json_t *tier(const char *name, const char *data, uint64_t capacity, uint64_t used)
{
	return OBJECT({"tier", words(name)}, {"data", words(data)},
		{"capacity_bytes", number(capacity)}, {"used_bytes", number(used)});
}

static void add_tier(json_t *list, json_t *t, uint64_t held, bool has_held)
{
	if (has_held)
		json_object_set_new(t, "held_bytes", number(held));
	json_array_append_new(list, t);
}

static json_t *tiers(const struct mc_figures *f)
{
	const struct mc_store_stats *s = &f->store;
	json_t *list = json_array();

	add_tier(list, tier("dram", "checkpoints", s->dram.capacity, s->dram.used), s->dram.held,
		true);
	if (f->has_nvme)
		add_tier(list, tier("nvme", "checkpoints", s->nvme.capacity, s->nvme.used),
			s->nvme.held, true);
	if (s->device.capacity > 0)
		add_tier(list, tier("block", "checkpoints", s->device.capacity, s->device.used), 0,
			false);
	if (f->has_kv)
		add_tier(list, tier("dram", "kv", f->kv.dram_capacity, f->kv.dram_used), 0, false);
	if (f->kv.nvme_capacity > 0)
		add_tier(list, tier("nvme", "kv", f->kv.nvme_capacity, f->kv.nvme_used), 0, false);
	if (f->kv.block_capacity > 0)
		add_tier(list, tier("block", "kv", f->kv.block_capacity, f->kv.block_used), 0,
			false);
	return list;
}

/* The remotes that hold copies of each other's data; none when there is one only. */
static json_t *members(const struct mc_set_status *s)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < s->n; i++) {
		const struct mc_set_member_status *m = &s->members[i];

		json_array_append_new(list,
			OBJECT({"url", words(m->url)}, {"reachable", json_boolean(m->up)},
				{"copies_missing", number(m->notes)},
				{"copies_brought", number(m->caught_up)},
				{"reads", number(m->reads)}, {"times_left_out", number(m->fenced)},
				{"answer_microseconds", number(m->latency_ns / 1000)}));
	}
	return list;
}

static json_t *remotes(struct mc_fs *fs, const struct mc_figures *f)
{
	const struct mc_remote_stats *r = &f->remote;
	struct mc_remote_space space = {0};
	json_t *list = json_array();

	mc_mutex_lock(&fs->space.lock);
	if (fs->space.known)
		space = fs->space.remote;
	mc_mutex_unlock(&fs->space.lock);
	json_array_append_new(list,
		OBJECT({"url", words(mc_remote_url(fs->opts->remote))},
			{"reachable", json_boolean(r->connected)},
			{"total_bytes", number(space.total)}, {"free_bytes", number(space.avail)},
			{"read_bytes", number(r->bytes_read)},
			{"written_bytes", number(r->bytes_written)},
			{"requests", number(r->requests)},
			{"requests_in_flight", number(r->in_flight)}, {"errors", number(r->errors)},
			{"reconnects", number(r->reconnects)},
			{"hedged_reads", number(f->set.hedges)}, {"members", members(&f->set)}));
	return list;
}

static json_t *checkpoints(const struct mc_figures *f)
{
	const struct mc_store_stats *s = &f->store;

	return OBJECT({"cached_files", number(s->files)}, {"read_bytes", number(s->read_bytes)},
		{"hit_blocks_dram", number(s->hits_dram)},
		{"hit_blocks_nvme", number(s->hits_nvme)},
		{"hit_blocks_block", number(s->hits_block)}, {"fetched_blocks", number(s->fetches)},
		{"fetched_bytes", number(s->fetched_bytes)}, {"bad_blocks", number(s->bad_blocks)},
		{"evicted_bytes_dram", number(s->evicted_dram)},
		{"evicted_bytes_nvme", number(s->evicted_nvme)},
		{"fetches_running", number(s->in_flight)}, {"fetches_waiting", number(s->queued)},
		{"fetches_without_memory", number(s->no_room)},
		{"read_errors", number(s->read_errors)},
		{"opens_passthrough", number(f->opens_passthrough)},
		{"opens_cached", number(f->opens_cached)});
}

static json_t *kv(const struct mc_figures *f)
{
	const struct mc_kv_stats *k = &f->kv;

	if (!f->has_kv)
		return json_null();
	return OBJECT({"objects", number(k->objects)}, {"bytes", number(k->bytes)},
		{"puts", number(k->puts)}, {"puts_failed", number(f->puts_failed)},
		{"puts_copied_limit", number(f->puts_limited)},
		{"puts_copied_unknown", number(f->puts_unknown)}, {"gets", number(k->gets)},
		{"hits_dram", number(k->hits_dram)}, {"hits_nvme", number(k->hits_nvme)},
		{"hits_block", number(k->hits_block)}, {"hits_remote", number(k->hits_remote)},
		{"misses", number(k->misses)}, {"dirty_bytes", number(k->dirty_bytes)},
		{"dirty_bound", number(k->dirty_bound)},
		{"dram_written_bytes", number(k->written_bytes)},
		{"dram_open_bytes", number(k->open_bytes)},
		{"dram_held_bytes", number(k->held_bytes)},
		{"pinned_bytes", number(k->pinned_bytes)},
		{"flushed_bytes", number(k->flushed_bytes)},
		{"evicted_objects", number(k->evicted_objects)},
		{"nvme_unreadable_objects", number(k->nvme_unreadable)},
		{"index_bytes", number(k->index_bytes)});
}

/* What a start leaves to be done in the background. */
static json_t *recovery(const struct mc_figures *f)
{
	bool done = !f->kv.recovering && f->store.unverified == 0;

	return OBJECT({"done", json_boolean(done)},
		{"kv_index_complete", json_boolean(!f->kv.recovering)},
		{"kv_index_percent", number(f->has_kv ? f->kv.recovered_percent : 100)},
		{"kv_objects", number(f->kv.objects)},
		{"nvme_verified_percent", number(f->store.verified_percent)},
		{"nvme_files_to_verify", number(f->store.unverified)});
}

static json_t *scrub(const struct mc_figures *f)
{
	const struct mc_scrub_status *s = &f->scrub;

	if (!f->has_scrub)
		return json_null();
	return OBJECT({"bytes_per_second", number(s->rate)}, {"running", json_boolean(s->running)},
		{"ordered", json_boolean(s->ordered)}, {"total_bytes", number(s->total)},
		{"passes", number(s->passes)},
		{"last_ended", s->ended_s > 0 ? moment((uint64_t)s->ended_s) : json_null()},
		{"pass", mc_scrub_counts_json(&s->now)}, {"last", mc_scrub_counts_json(&s->last)},
		{"since_start", mc_scrub_counts_json(&s->ever)},
		{"repaired_blocks", number(f->store.repaired_blocks)},
		{"unrepaired_blocks", number(f->store.unrepaired_blocks)},
		{"lost_objects", number(f->scrub_lost)});
}

static void add_text(void *ctx, const char *text)
{
	json_array_append_new(ctx, words(text));
}

int mc_status_json(struct mc_fs *fs, FILE *out)
{
	json_t *degraded = json_array();
	struct mc_figures f;

	mc_figures_take(fs, &f);
	mc_figures_degraded(fs, &f, add_text, degraded);
	return print(
		OBJECT({"build", build(fs)}, {"mount", mount_part(fs, &f)},
			{"modes", modes(fs, &f)}, {"degraded", degraded}, {"tiers", tiers(&f)},
			{"remotes", remotes(fs, &f)}, {"dirty_bytes", number(f.kv.dirty_bytes)},
			{"recovery", recovery(&f)}, {"scrub", scrub(&f)},
			{"requests",
				OBJECT({"waiting", number(f.requests_waiting)},
					{"expired", number(f.requests_expired)})},
			{"checkpoints", checkpoints(&f)}, {"kv", kv(&f)}),
		INDENT, out);
}

int mc_status_config(struct mc_fs *fs, FILE *out)
{
	json_t *obj = json_object();
	struct mc_fs_setting s;

	for (unsigned i = 0; fs->opts->setting != NULL && fs->opts->setting(fs->opts->ctx, i, &s);
		i++) {
		json_t *value = s.value[0] != '\0' ? words(s.value) : json_null();

		if (json_object_set_new(obj, s.name,
			    OBJECT({"value", value}, {"origin", words(s.origin)})) < 0) {
			json_decref(obj);
			return -ENOMEM;
		}
	}
	return print(obj, INDENT, out);
}

int mc_status_events(struct mc_fs *fs, FILE *out)
{
	(void)fs; /* the log is the process's */
	return mc_log_recent(out);
}
