/*
 * The scrubber: one thread that walks the cache of checkpoints, then the KV log, piece by piece, at
 * the pace that pace.h allows.
 *
 * Invariants: 1. `pass` is the thread's alone; what others see of it is copied to `st` under the
 * lock after each piece; 2. a pass that was ordered begins at the beginning, every other one where
 * the last daemon left off; 3. no store is called with the lock held.
 */
#include "tier/scrub.h"

#include "tier/cleanup.h"
#include "tier/image-name.h"
#include "tier/lock.h"
#include "tier/pace.h"
#include "tier/small-file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NAME "scrub"
#define MAGIC "mooncakefs scrub 1\n"
#define SECOND UINT64_C(1000000000)
#define SAVE_NS (30 * SECOND) /* so much is read again after a crash */
#define RETRY_NS (SECOND / 10)
#define PAUSE_S 3600
#define PAGE 4096u

struct pass {
	bool on;
	bool in_kv; /* the second half */
	struct mc_scrub_file file;
	struct mc_kv_log_mark mark;
	struct mc_kv_scrub *kv; /* owned, while in_kv */
	struct mc_scrub_counts counts;
	int64_t began_s; /* since the epoch; 0 = never */
	struct mc_pace pace;
	uint64_t saved_ns;
	void *buf; /* owned */
};

struct mc_scrub {
	struct mc_scrub_opts opts;
	pthread_t thread;
	struct pass pass;     /* the thread's */
	struct mc_mutex lock; /* all below */
	struct mc_cond change;
	bool stopping;
	uint64_t rate;
	unsigned waiters; /* of the pass on order */
	bool restart;     /* it has not begun */
	uint64_t order_rate;
	uint64_t order,
		ended; /* numbers of passes on order: the last one, and the last that ended */
	int64_t ended_s;
	struct mc_scrub_status st;
};

/* ---- where it is, on disk */

static int print_place(const struct pass *p, int64_t ended_s, char *out, size_t size)
{
	char image[MC_IMAGE_NAME_MAX] = "-";
	const struct mc_scrub_counts *c = &p->counts;

	if (p->file.begun)
		mc_image_name(&p->file.id, image);
	return snprintf(out, size,
		MAGIC "began %" PRId64 " ended %" PRId64 " on %d kv %d\n"
		      "file %s %" PRIu64 "\nlog %" PRIu32 " %" PRIu64 "\n"
		      "counts %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
		      " %" PRIu64 " %" PRIu64 "\n",
		p->began_s, ended_s, p->on, p->in_kv, image, p->file.block, p->mark.segment,
		p->mark.off, c->bytes, c->checked, c->bad, c->repaired, c->dropped, c->waiting,
		c->lost, c->failed);
}

static bool parse_place(const char *text, struct pass *p, int64_t *ret_ended_s)
{
	char image[MC_IMAGE_NAME_MAX];
	struct mc_scrub_counts *c = &p->counts;
	int on, in_kv;

	if (strncmp(text, MAGIC, strlen(MAGIC)) != 0 ||
		sscanf(text + strlen(MAGIC),
			"began %" SCNd64 " ended %" SCNd64 " on %d kv %d file %85s %" SCNu64
			" log %" SCNu32 " %" SCNu64 " counts %" SCNu64 " %" SCNu64 " %" SCNu64
			" %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64,
			&p->began_s, ret_ended_s, &on, &in_kv, image, &p->file.block,
			&p->mark.segment, &p->mark.off, &c->bytes, &c->checked, &c->bad,
			&c->repaired, &c->dropped, &c->waiting, &c->lost, &c->failed) != 16)
		return false;
	p->file.begun = mc_image_name_parse(image, &p->file.id) == 0;
	p->on = on != 0;
	p->in_kv = in_kv != 0;
	return p->file.begun || strcmp(image, "-") == 0;
}

static void load(struct mc_scrub *s)
{
	char text[1024];
	struct pass p = {0};
	int64_t ended_s = 0;

	if (s->opts.dir == NULL || mc_small_file_read(s->opts.dir, NAME, text, sizeof(text)) < 0 ||
		!parse_place(text, &p, &ended_s))
		return; /* from the beginning */
	p.buf = s->pass.buf;
	s->pass = p;
	s->ended_s = ended_s;
}

/* A place that cannot be kept costs reading, nothing else. */
static void save(struct mc_scrub *s)
{
	struct pass *p = &s->pass;
	char text[1024];
	int64_t ended_s;
	int n;

	p->saved_ns = mc_now_ns();
	if (s->opts.dir == NULL)
		return;
	if (p->kv != NULL)
		mc_kv_scrub_mark(p->kv, &p->mark);
	mc_mutex_lock(&s->lock);
	ended_s = s->ended_s;
	mc_mutex_unlock(&s->lock);
	n = print_place(p, ended_s, text, sizeof(text));
	mc_small_file_write(s->opts.dir, NAME, text, (size_t)n);
}

/* ---- a pass */

static void begin(struct mc_scrub *s)
{
	struct pass *p = &s->pass;

	mc_kv_scrub_close(p->kv);
	*p = (struct pass){.on = true, .began_s = time(NULL), .pace = p->pace, .buf = p->buf};
	save(s);
}

/* The next piece: 0, -ENOENT when the pass is through, or why it has to wait. */
static int piece(struct mc_scrub *s)
{
	struct pass *p = &s->pass;
	int r;

	if (!p->in_kv) {
		r = mc_store_scrub(s->opts.store, &p->file, p->buf, &p->counts);
		if (r != -ENOENT)
			return r;
		p->in_kv = true;
	}
	if (p->kv == NULL) {
		r = s->opts.kv != NULL ? mc_kv_scrub_open(s->opts.kv, &p->mark, &p->kv) : -ENODEV;
		if (r < 0)
			return r == -ENODEV ? -ENOENT : r;
	}
	return mc_kv_scrub_next(p->kv, &p->counts);
}

/* Adds what the piece brought to the sums since the start. */
static void add(struct mc_scrub_counts *to, const struct mc_scrub_counts *before,
	const struct mc_scrub_counts *now)
{
	to->bytes += now->bytes - before->bytes;
	to->checked += now->checked - before->checked;
	to->bad += now->bad - before->bad;
	to->repaired += now->repaired - before->repaired;
	to->dropped += now->dropped - before->dropped;
	to->waiting += now->waiting - before->waiting;
	to->lost += now->lost - before->lost;
	to->failed += now->failed - before->failed;
}

static void end_locked(struct mc_scrub *s) MC_REQUIRES(s->lock)
{
	s->pass.on = false;
	s->ended_s = time(NULL);
	s->st.last = s->pass.counts;
	s->st.passes++;
	if (!s->restart) /* one that was ordered meanwhile is to come */
		s->ended = s->order;
}

static bool is_busy(struct mc_scrub *s)
{
	struct mc_store_stats st;

	mc_store_stats(s->opts.store, &st);
	return st.in_flight + st.queued > 0;
}

/* Reads a piece; the time before which no other is read. */
static uint64_t work(struct mc_scrub *s, uint64_t rate)
{
	struct pass *p = &s->pass;
	const struct mc_scrub_counts before = p->counts;
	uint64_t start = mc_now_ns(), end, next;
	int r = piece(s);

	end = mc_now_ns();
	next = mc_pace_read(&p->pace, end, rate, p->counts.bytes - before.bytes, end - start,
		rate != 0 && is_busy(s));
	mc_mutex_lock(&s->lock);
	add(&s->st.ever, &before, &p->counts);
	if (r == -ENOENT)
		end_locked(s);
	s->st.now = p->counts;
	s->st.running = p->on;
	mc_cond_broadcast(&s->change);
	mc_mutex_unlock(&s->lock);
	if (r == -ENOENT || end - p->saved_ns > SAVE_NS)
		save(s);
	if (r == -ENOENT) {
		mc_kv_scrub_close(p->kv);
		p->kv = NULL;
	}
	return r < 0 && r != -ENOENT ? end + RETRY_NS : next;
}

/* When the next pass begins by itself. */
static uint64_t due_ns(const struct mc_scrub *s, uint64_t now_ns)
{
	int64_t wait = s->pass.began_s + s->opts.pause_s - time(NULL);

	if (wait > s->opts.pause_s) /* the clock was set back */
		wait = s->opts.pause_s;
	return now_ns + (wait > 0 ? (uint64_t)wait * SECOND : 0);
}

static void *scrub_main(void *arg)
{
	struct mc_scrub *s = arg;
	uint64_t next = mc_now_ns(), last_rate = 0;

	pthread_setname_np(pthread_self(), "mc-scrub");
	mc_mutex_lock(&s->lock);
	while (!s->stopping) {
		bool ordered = s->waiters > 0 && s->order != s->ended, fresh = s->restart;
		uint64_t rate = ordered ? s->order_rate : s->rate, now = mc_now_ns();

		if (!ordered && rate == 0) {
			mc_cond_wait(&s->change, &s->lock);
			continue;
		}
		if (!ordered && !s->pass.on)
			next = due_ns(s, now);
		else if (rate != last_rate) /* what was waited for at another rate */
			s->pass.pace.next_ns = next = now;
		last_rate = rate;
		if (!fresh && next > now) {
			mc_cond_wait_until(&s->change, &s->lock, next);
			continue;
		}
		s->restart = false;
		s->st.running = true;
		mc_mutex_unlock(&s->lock);
		if (fresh || !s->pass.on)
			begin(s);
		next = work(s, rate);
		mc_mutex_lock(&s->lock);
	}
	mc_mutex_unlock(&s->lock);
	save(s);
	return NULL;
}

/* ---- the door */

int mc_scrub_open(const struct mc_scrub_opts *opts, struct mc_scrub **ret)
{
	struct mc_scrub *s = calloc(1, sizeof(*s));
	int r;

	if (s == NULL)
		return -ENOMEM;
	s->opts = *opts;
	if (s->opts.pause_s == 0)
		s->opts.pause_s = PAUSE_S;
	s->rate = opts->rate;
	s->pass.buf = aligned_alloc(PAGE, MC_SCRUB_BUFFER);
	mc_mutex_init(&s->lock);
	mc_cond_init(&s->change);
	load(s);
	s->st.now = s->pass.counts;
	r = s->pass.buf == NULL ? -ENOMEM : -pthread_create(&s->thread, NULL, scrub_main, s);
	if (r == 0) {
		*ret = s;
		return 0;
	}
	mc_cond_done(&s->change);
	mc_mutex_done(&s->lock);
	free(s->pass.buf);
	free(s);
	return r;
}

void mc_scrub_close(struct mc_scrub *s)
{
	if (s == NULL)
		return;
	mc_mutex_lock(&s->lock);
	s->stopping = true;
	mc_cond_broadcast(&s->change);
	mc_mutex_unlock(&s->lock);
	pthread_join(s->thread, NULL);
	mc_kv_scrub_close(s->pass.kv);
	mc_cond_done(&s->change);
	mc_mutex_done(&s->lock);
	free(s->pass.buf);
	free(s);
}

void mc_scrub_set_rate(struct mc_scrub *s, uint64_t rate)
{
	mc_mutex_lock(&s->lock);
	s->rate = rate;
	mc_cond_broadcast(&s->change);
	mc_mutex_unlock(&s->lock);
}

void mc_scrub_status(struct mc_scrub *s, struct mc_scrub_status *ret)
{
	struct mc_store_stats store;
	struct mc_kv_stats kv = {0};

	mc_store_stats(s->opts.store, &store);
	if (s->opts.kv != NULL)
		mc_kv_stats(s->opts.kv, &kv);
	mc_mutex_lock(&s->lock);
	*ret = s->st;
	ret->ordered = s->waiters > 0 && s->order != s->ended;
	ret->rate = ret->ordered ? s->order_rate : s->rate;
	ret->running = ret->running && (ret->ordered || s->rate > 0);
	ret->ended_s = s->ended_s;
	mc_mutex_unlock(&s->lock);
	ret->total = store.nvme.used + kv.log_live;
}

uint64_t mc_scrub_start(struct mc_scrub *s, uint64_t rate)
{
	uint64_t pass;

	mc_mutex_lock(&s->lock);
	if (s->waiters == 0 || s->order == s->ended) {
		s->order++;
		s->restart = true;
	}
	s->waiters++;
	s->order_rate = rate;
	pass = s->order;
	mc_cond_broadcast(&s->change);
	mc_mutex_unlock(&s->lock);
	return pass;
}

bool mc_scrub_wait(struct mc_scrub *s, uint64_t pass, uint64_t until_ns)
{
	bool over;

	mc_mutex_lock(&s->lock);
	while (s->ended < pass && !s->stopping &&
		mc_cond_wait_until(&s->change, &s->lock, until_ns) == 0)
		;
	over = s->ended >= pass;
	mc_mutex_unlock(&s->lock);
	return over;
}

void mc_scrub_leave(struct mc_scrub *s, uint64_t pass)
{
	mc_mutex_lock(&s->lock);
	s->waiters--;
	if (s->waiters == 0 && s->ended < pass)
		s->ended = s->order; /* what is under way is nobody's order any more */
	mc_cond_broadcast(&s->change);
	mc_mutex_unlock(&s->lock);
}
