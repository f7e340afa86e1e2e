/* The command scrub of the control socket, and what status says of the scrub. */
#include "fs/scrub-json.h"

#include <errno.h>
#include <jansson.h>

#include "fs/control-request.h"
#include "fs/state.h"
#include "tier/lock.h"

#define PROGRESS_NS UINT64_C(250000000)

static json_int_t number(uint64_t v)
{
	return v <= INT64_MAX ? (json_int_t)v : INT64_MAX;
}

json_t *mc_scrub_counts_json(const struct mc_scrub_counts *c)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "checked", number(c->checked),
		"bytes", number(c->bytes), "bad", number(c->bad), "repaired", number(c->repaired),
		"dropped", number(c->dropped), "waiting", number(c->waiting), "lost",
		number(c->lost), "failed", number(c->failed));
}

static bool tell_progress(const struct mc_control_peer *peer, const struct mc_scrub_status *st)
{
	return mc_control_send(peer,
		json_pack("{s:{s:I, s:I, s:I}}", "progress", "bytes", number(st->now.bytes),
			"total", number(st->total > st->now.bytes ? st->total : st->now.bytes),
			"bad", number(st->now.bad)));
}

void mc_control_scrub(
	struct mc_fs *fs, const struct mc_control_request *q, const struct mc_control_peer *peer)
{
	struct mc_scrub *s = fs->opts->scrub;
	struct mc_scrub_status st;
	bool over = false, waits = true;
	uint64_t pass;

	if (s == NULL) {
		mc_control_refuse(peer, -ENODEV, "the mount has no NVMe tier");
		return;
	}
	pass = mc_scrub_start(s, q->bytes_per_second);
	while (waits && !over) {
		over = mc_scrub_wait(s, pass, mc_now_ns() + PROGRESS_NS);
		mc_scrub_status(s, &st);
		if (!over)
			waits = peer->waits(peer->ctx) && tell_progress(peer, &st);
	}
	mc_scrub_leave(s, pass);
	if (over)
		mc_control_accept(peer, mc_scrub_counts_json(&st.last));
}
