/* Carrying out the requests of the control socket. */
#include "fs/control-request.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "fs/admin.h"
#include "fs/log.h"
#include "fs/status.h"
#include "tier/store-warm.h"

#define PROGRESS_NS UINT64_C(250000000)

bool mc_control_send(const struct mc_control_peer *peer, json_t *obj)
{
	char *line = obj != NULL ? json_dumps(obj, JSON_COMPACT) : NULL;
	bool sent = line != NULL && peer->send(peer->ctx, line, strlen(line));

	free(line);
	json_decref(obj);
	return sent;
}

static json_t *text_of(const char *s)
{
	json_t *j = json_string(s);

	return j != NULL ? j : json_string("?"); /* not UTF-8 */
}

void mc_control_refuse(const struct mc_control_peer *peer, int error, const char *text)
{
	const char *name = strerrorname_np(-error);

	mc_control_send(peer,
		json_pack("{s:b, s:s, s:o}", "ok", 0, "error", name != NULL ? name : "EIO", "text",
			text_of(text)));
}

void mc_control_accept(const struct mc_control_peer *peer, json_t *result)
{
	mc_control_send(peer, json_pack("{s:b, s:o}", "ok", 1, "result", result));
}

/* What the daemon says about itself: as JSON where it is, else as a text. */
static void tell(struct mc_fs *fs, enum mc_control_command what, const struct mc_control_peer *peer)
{
	static int (*const render[])(struct mc_fs *, FILE *) = {
		[MC_CONTROL_STATUS] = mc_status_json,
		[MC_CONTROL_CONFIG] = mc_status_config,
		[MC_CONTROL_METRICS] = mc_status_metrics,
		[MC_CONTROL_EVENTS] = mc_status_events};
	bool is_json = what == MC_CONTROL_STATUS || what == MC_CONTROL_CONFIG;
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);
	int r = out == NULL ? -ENOMEM : render[what](fs, out);
	json_t *result = NULL;

	if (out != NULL && fclose(out) != 0)
		r = -ENOMEM;
	if (r == 0)
		result = is_json ? json_loadb(text, size, 0, NULL) : json_stringn(text, size);
	free(text);
	if (result == NULL)
		mc_control_refuse(peer, -ENOMEM, "out of memory");
	else
		mc_control_accept(peer, result);
}

/* One command over its paths. */
struct walk {
	struct mc_fs *fs;
	const struct mc_control_request *q;
	const struct mc_control_peer *peer;
	uint64_t done_before; /* bytes of the paths dealt with */
	size_t items;         /* paths dealt with */
	uint64_t told_ns;     /* when the last progress was sent */
	uint64_t next_ns;     /* when the rate allows the next read */
	bool unsettled;       /* WARM below DRAM: the first time over the paths */
	bool settling;        /* the second: all bytes were counted before */
	bool gone;
	bool *failed;     /* owned: paths that are not tried a second time */
	json_t *failures; /* owned array of {"path", "error", "text"} */
	json_t *figures;  /* owned array, RESIDENCY */
};

static bool tell_progress(struct walk *w, uint64_t bytes)
{
	uint64_t now = mc_now_ns();

	if (now - w->told_ns < PROGRESS_NS)
		return true;
	w->told_ns = now;
	return mc_control_send(w->peer,
		json_pack("{s:{s:I, s:I}}", "progress", "bytes", (json_int_t)bytes, "paths",
			(json_int_t)w->items));
}

static bool keep_on(void *ctx, uint64_t bytes_done)
{
	struct walk *w = ctx;

	w->gone = w->gone || !w->peer->waits(w->peer->ctx) ||
		!tell_progress(w, w->done_before + (w->settling ? 0 : bytes_done));
	return !w->gone;
}

static int warm(struct walk *w, const struct mc_admin_file *f)
{
	struct mc_warm_opts opts = {.tier = w->q->tier,
		.bytes_per_second = w->q->bytes_per_second,
		.next_ns = &w->next_ns,
		.unsettled = w->unsettled,
		.keep_on = keep_on,
		.ctx = w};

	return mc_admin_warm(w->fs, f, &opts);
}

/* From DRAM last: what is dirty may go through the others before. */
static int evict(struct walk *w, const struct mc_admin_file *f, const char **ret_why)
{
	int r;

	if (!w->q->all_tiers)
		return mc_admin_evict(w->fs, f, w->q->tier, ret_why);
	r = mc_admin_evict(w->fs, f, MC_TIER_NVME, ret_why);
	if (r == 0)
		r = mc_admin_evict(w->fs, f, MC_TIER_BLOCK, ret_why);
	return r < 0 ? r : mc_admin_evict(w->fs, f, MC_TIER_DRAM, ret_why);
}

static int residency(struct walk *w, const char *path, const struct mc_admin_file *f)
{
	struct mc_admin_residency res;
	int r = mc_admin_residency(w->fs, f, &res);

	if (r < 0)
		return r;
	return json_array_append_new(w->figures,
		json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:b}", "path", text_of(path), "size",
			(json_int_t)res.size, "dram", (json_int_t)res.dram, "nvme",
			(json_int_t)res.nvme, "block", (json_int_t)res.block, "remote",
			(json_int_t)res.remote, "pinned", res.pinned));
}

static const char *explain(int r, const char *why)
{
	switch (r) {
	case -ENOSPC:
		return "it does not fit the tier, or did not stay there; give the tier more room";
	case -ENODEV:
		return "the mount has no such tier";
	case -EOPNOTSUPP:
		return "a KV object reaches NVMe only from DRAM, when it is put; the block tier "
		       "below "
		       "NVMe takes what leaves that";
	case -EISDIR:
		return "it is a directory; the command line program names the files in it";
	case -EIO:
	case -ETIMEDOUT:
		return "the remote did not give all of it; the log says which object";
	default:
		return why != NULL ? why : strerror(-r);
	}
}

static int act(struct walk *w, const char *path, const char **ret_why)
{
	struct mc_admin_file f;
	int r = mc_admin_open(w->fs, path, &f);

	if (r < 0)
		return r;
	switch (w->q->command) {
	case MC_CONTROL_WARM:
		r = warm(w, &f);
		break;
	case MC_CONTROL_EVICT:
		r = evict(w, &f, ret_why);
		break;
	case MC_CONTROL_PIN:
	case MC_CONTROL_UNPIN:
		r = mc_admin_pin(w->fs, &f, w->q->command == MC_CONTROL_PIN);
		break;
	default:
		r = residency(w, path, &f);
		break;
	}
	w->done_before += w->settling ? 0 : f.size - f.holes;
	mc_admin_close(&f);
	return r;
}

static void add_failure(struct walk *w, const char *path, int r, const char *why)
{
	const char *name = strerrorname_np(-r);

	json_array_append_new(w->failures,
		json_pack("{s:o, s:s, s:o}", "path", text_of(path), "error",
			name != NULL ? name : "EIO", "text", text_of(explain(r, why))));
}

/* Once over the paths. A failure is told and the others go on. */
static void each_path(struct walk *w)
{
	for (w->items = 0; w->items < w->q->n_paths && !w->gone; w->items++) {
		const char *why = NULL;
		int r = w->failed[w->items] ? 0 : act(w, w->q->paths[w->items], &why);

		if (r < 0 && !w->gone) {
			add_failure(w, w->q->paths[w->items], r, why);
			w->failed[w->items] = true;
		}
		keep_on(w, 0);
	}
}

/* What goes below DRAM is read first and waited for afterwards, so that many small files share a
 * sync.
 */
static void walk_paths(
	struct mc_fs *fs, const struct mc_control_request *q, const struct mc_control_peer *peer)
{
	struct walk w = {.fs = fs,
		.q = q,
		.peer = peer,
		.failed = calloc(q->n_paths, sizeof(*w.failed)),
		.failures = json_array(),
		.figures = json_array()};

	if (w.failed == NULL) {
		mc_control_refuse(peer, -ENOMEM, "out of memory");
	} else {
		w.unsettled = q->command == MC_CONTROL_WARM && q->tier != MC_TIER_DRAM;
		if (w.unsettled)
			each_path(&w);
		w.settling = w.unsettled;
		w.unsettled = false;
		each_path(&w);
		if (!w.gone)
			mc_control_accept(peer,
				json_pack(
					"{s:O, s:O}", "files", w.figures, "failures", w.failures));
	}
	free(w.failed);
	json_decref(w.figures);
	json_decref(w.failures);
}

void mc_control_run(
	struct mc_fs *fs, const struct mc_control_request *q, const struct mc_control_peer *peer)
{
	switch (q->command) {
	case MC_CONTROL_STATUS:
	case MC_CONTROL_CONFIG:
	case MC_CONTROL_METRICS:
	case MC_CONTROL_EVENTS:
		tell(fs, q->command, peer);
		break;
	case MC_CONTROL_REFRESH:
		mc_admin_refresh(fs);
		mc_control_accept(peer, json_null());
		break;
	case MC_CONTROL_SCRUB:
		mc_control_scrub(fs, q, peer);
		break;
	default:
		walk_paths(fs, q, peer);
		break;
	}
}
