/*
 * Taking a mount over.
 *
 * Order: (1) the kernel's INIT is played back, so that this session has negotiated what the first
 * one did; the kernel drops the answer. (2) Records of nodes name the texts that are in use, then
 * places are loaded, then nodes get back their slots. (3) Open files and kv/. (4) Backing ids that
 * nobody owns are closed. (5) The kernel sends again what nobody answered: last, since what was
 * received before is sent again, too.
 */
#include "fs/resume.h"

#include <errno.h>
#include <linux/fuse.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fs/kv.h"
#include "fs/log.h"
#include "fs/mode.h"
#include "fs/resume-place.h"
#include "fs/texts.h"

#define PLACES_MS 10000 /* a client waits so long at most for a remote that is down */
/* An id is written down after the kernel gave it: so many threads at a time may have been killed
 * between the two. */
#define IDS_BEYOND 32
#define INIT_MIN 16      /* bytes of an INIT request: versions, readahead, flags */
#define HAS_RESEND 0x80u /* FUSE_HAS_RESEND of linux/fuse.h since 6.9, in flags2 */
#define NOTIFY_RESEND 7  /* FUSE_NOTIFY_RESEND of linux/fuse.h since 6.9 */

void mc_resume_received(void *ctx, const struct fuse_buf *buf)
{
	struct mc_fs *fs = ctx;
	struct mc_takeover_head *head;
	struct fuse_init_in in = {0};

	if (fs->opts->takeover == NULL || atomic_load_explicit(&fs->inited, memory_order_relaxed))
		return;
	head = mc_takeover_head(fs->opts->takeover);
	if (atomic_load(&head->init_len) != 0 || buf->size > sizeof(head->init) ||
		buf->size < sizeof(struct fuse_in_header) + INIT_MIN)
		return;
	memcpy(&in, (const char *)buf->mem + sizeof(struct fuse_in_header),
		buf->size - sizeof(struct fuse_in_header) < sizeof(in)
			? buf->size - sizeof(struct fuse_in_header)
			: sizeof(in));
	if ((in.flags2 & HAS_RESEND) == 0)
		mc_takeover_end(fs->opts->takeover, MC_TAKEOVER_OLD_KERNEL);
	memcpy(head->init, buf->mem, buf->size);
	atomic_store(&head->init_len, (uint32_t)buf->size);
}

int64_t mc_resume_start(struct mc_fs *fs)
{
	struct mc_takeover *t = fs->opts->takeover;
	int64_t now = time(NULL);

	if (t == NULL)
		return now;
	if (mc_takeover_head(t)->start_s == 0)
		mc_takeover_head(t)->start_s = now;
	return mc_takeover_head(t)->start_s;
}

static int play_init(struct mc_fs *fs)
{
	struct mc_takeover_head *head = mc_takeover_head(fs->opts->takeover);
	uint32_t len = atomic_load(&head->init_len);
	char copy[MC_TAKEOVER_INIT];
	struct fuse_buf buf = {.mem = copy, .size = len};

	if (len > sizeof(copy))
		return -EPROTO;
	memcpy(copy, head->init, len);
	fuse_session_process_buf(fs->se, &buf);
	return atomic_load(&fs->inited) ? 0 : -EPROTO;
}

static int ask_again(struct mc_fs *fs)
{
	const struct fuse_out_header h = {.len = sizeof(h), .error = NOTIFY_RESEND};

	return write(fuse_session_fd(fs->se), &h, sizeof(h)) == (ssize_t)sizeof(h) ? 0 : -errno;
}

/* ---- nodes */

static struct mc_texts *texts(struct mc_fs *fs)
{
	return mc_takeover_texts(fs->opts->takeover);
}

/* Names what the record's texts are; false: it cannot come back. */
static bool claim(struct mc_fs *fs, struct mc_places *ps, const struct mc_node_record *r)
{
	/* What a draft held is gone with the process. */
	return r->kind != MC_NODE_DRAFT && atomic_load(&r->refs) > 0 &&
		(r->place == 0 || mc_places_want(ps, r->place)) &&
		(r->key == 0 || mc_texts_claim(texts(fs), r->key));
}

static void claim_all(struct mc_fs *fs, struct mc_places *ps, uint32_t n)
{
	for (uint32_t slot = 1; slot < n; slot++) {
		struct mc_node_record *r = mc_takeover_node(fs->opts->takeover, slot);

		if (r != NULL && (atomic_load(&r->used) == 0 || !claim(fs, ps, r))) {
			atomic_store(&r->used, 0);
			r->key = 0;
		}
	}
}

/* The node in a slot of the earlier process, or a free slot. */
static int restore(struct mc_fs *fs, struct mc_places *ps, uint32_t slot, struct mc_node_record *r)
{
	struct mc_place *place = r->place != 0 ? mc_places_find(ps, r->place) : NULL;
	struct mc_node_was was = {.slot = slot, .gen = r->gen + 1};
	struct mc_node *n;
	size_t len;
	int res;

	if (atomic_load(&r->used) != 0 && (place != NULL || r->place == 0)) {
		was.gen = r->gen;
		was.refs = atomic_load(&r->refs);
		was.retired = r->retired != 0;
		was.spot = (struct mc_spot){.kind = (enum mc_node_kind)r->kind,
			.place = place,
			.entry = r->entry,
			.at = (enum mc_at)r->at,
			.key = r->key != 0 ? mc_texts_get(texts(fs), r->key, &len) : NULL};
	}
	res = mc_nodes_restore(fs->nodes, &was, &n);
	if (res < 0)
		return res;
	if (n == NULL) {
		atomic_store(&r->used, 0);
		mc_texts_drop(texts(fs), r->key);
		r->key = 0;
	} else if (place != NULL) {
		r->place = place->record;
		place->record_users++;
	}
	if (n != NULL && atomic_load(&r->opens) > 0)
		mc_mode_restore(fs, n, r);
	return 0;
}

/* Files of the kernel's that no open file uses. */
static void close_ids(struct mc_fs *fs, uint32_t n)
{
	struct mc_takeover *t = fs->opts->takeover;
	uint32_t last = atomic_load(&mc_takeover_head(t)->backing_id);

	for (uint32_t slot = 1; slot < n; slot++) {
		struct mc_node_record *r = mc_takeover_node(t, slot);

		if (r == NULL || (atomic_load(&r->used) != 0 && atomic_load(&r->opens) > 0))
			continue;
		mc_mode_backing_close(fs, atomic_exchange(&r->backing_id, 0));
	}
	for (uint32_t i = 1; i <= IDS_BEYOND; i++)
		mc_mode_backing_close(fs, (int)(last + i));
}

static int restore_nodes(struct mc_fs *fs, struct mc_places *ps)
{
	struct mc_takeover *t = fs->opts->takeover;
	uint32_t n = atomic_load(&mc_takeover_head(t)->nodes);
	uint64_t missing;
	int r = 0;

	claim_all(fs, ps, n);
	mc_kvfs_claim(fs->kvfs);
	mc_texts_ready(texts(fs));
	mc_places_load(ps, PLACES_MS);
	missing = mc_places_missing(ps);
	if (missing > 0)
		mc_log(MC_LOG_WARNING, "takeover-incomplete",
			"places=%llu text=\"they cannot be loaded now: their open files are "
			"stale\"",
			(unsigned long long)missing);
	for (uint32_t slot = 1; slot < n && r == 0; slot++) {
		struct mc_node_record *was = mc_takeover_node(t, slot);

		r = was != NULL ? restore(fs, ps, slot, was) : -ENOMEM;
	}
	if (r == 0)
		r = mc_kvfs_restore(fs->kvfs);
	if (r == 0)
		close_ids(fs, n);
	return r;
}

int mc_resume(struct mc_fs *fs)
{
	struct mc_places *ps;
	int r;

	/* Before its INIT a mount knows nothing. */
	if (atomic_load(&mc_takeover_head(fs->opts->takeover)->init_len) == 0)
		return ask_again(fs);
	r = play_init(fs);
	if (r == 0)
		r = mc_places_open(fs, &ps);
	if (r < 0)
		return r;
	r = restore_nodes(fs, ps);
	mc_places_close(ps);
	if (r == 0)
		mc_nodes_record(fs->nodes, fs->opts->takeover);
	return r == 0 ? ask_again(fs) : r;
}
