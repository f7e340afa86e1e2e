/*
 * The store: opening and closing, its threads, queues and figures.
 *
 * Workers run completions first, then jobs somebody waits for, then prefetch; jobs start only while
 * fewer than max_in_flight are under way. The keeper thread does what must not delay a reader:
 * looking at held images again and waking jobs that wait for memory.
 */
#include "tier/share.h"
#include "tier/store-through.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/mman.h>

#define DEFAULT_BUDGET (UINT64_C(256) << 20)
#define DEFAULT_DEPTH 16
#define DEFAULT_DEADLINE_MS 30000
#define TICK_NS 20000000u /* jobs without room try again at least this often */
#define REAP_NS 1000000000u
#define PATIENCE_MS 4000u

void mc_queue_push(struct mc_queue *q, struct mc_work *w)
{
	assert(w->on == NULL);
	w->on = q;
	w->next = NULL;
	w->prev = q->tail;
	if (q->tail != NULL)
		q->tail->next = w;
	else
		q->head = w;
	q->tail = w;
	q->n++;
}

void mc_queue_take(struct mc_queue *q, struct mc_work *w)
{
	assert(w->on == q);
	if (w->prev != NULL)
		w->prev->next = w->next;
	else
		q->head = w->next;
	if (w->next != NULL)
		w->next->prev = w->prev;
	else
		q->tail = w->prev;
	w->prev = w->next = NULL;
	w->on = NULL;
	q->n--;
}

/* The queue from which something may start now, or NULL. */
static struct mc_queue *startable_locked(struct mc_store *s) MC_REQUIRES(s->lock)
{
	bool place = s->in_flight < s->max_in_flight;

	if (s->ready.head != NULL)
		return &s->ready;
	if (s->demand.head != NULL && place)
		return &s->demand;
	if (s->derive.head != NULL && s->gathering < s->max_gathering)
		return &s->derive;
	return s->prefetch.head != NULL && place ? &s->prefetch : NULL;
}

void mc_store_wake_locked(struct mc_store *s)
{
	if (s->sleeping > 0 && startable_locked(s) != NULL)
		mc_cond_signal(&s->wake);
}

void mc_store_post(struct mc_store *s, struct mc_work *w)
{
	bool wake;

	mc_mutex_lock(&s->lock);
	mc_queue_push(&s->ready, w);
	wake = s->sleeping > 0;
	if (wake)
		atomic_fetch_add(&s->posting, 1);
	mc_mutex_unlock(&s->lock);
	/* Signalled under the lock, the worker would wake only to wait for it. The work may be done
	 * and the store closing by now: store_free waits. */
	if (wake) {
		mc_cond_signal(&s->wake);
		atomic_fetch_sub(&s->posting, 1);
	}
}

void mc_store_room_locked(struct mc_store *s)
{
	struct mc_work *w;

	if (s->no_room.head == NULL)
		return;
	while ((w = s->no_room.head) != NULL) {
		mc_queue_take(&s->no_room, w);
		mc_queue_push(w->home, w);
	}
	mc_cond_broadcast(&s->wake);
}

/* The next thing a worker should do, taken off its queue, or NULL. */
static struct mc_work *next_work_locked(struct mc_store *s) MC_REQUIRES(s->lock)
{
	struct mc_queue *q = startable_locked(s);
	struct mc_work *w;

	if (q == NULL)
		return NULL;
	if (q == &s->derive)
		s->gathering++;
	else if (q != &s->ready)
		s->in_flight++;
	w = q->head;
	mc_queue_take(q, w);
	return w;
}

static bool idle_locked(const struct mc_store *s)
{
	return s->in_flight == 0 && s->gathering == 0 && s->behind_blocks == 0 && s->sinking == 0 &&
		s->ready.head == NULL && s->demand.head == NULL && s->derive.head == NULL &&
		s->prefetch.head == NULL && s->no_room.head == NULL && s->mends == 0;
}

static void *worker(void *arg)
{
	struct mc_store *s = arg;
	struct mc_work *w;

	pthread_setname_np(pthread_self(), "mc-fetch");
	mc_mutex_lock(&s->lock);
	for (;;) {
		w = next_work_locked(s);
		if (w != NULL) {
			mc_mutex_unlock(&s->lock);
			w->run(s, w);
			mc_mutex_lock(&s->lock);
			continue;
		}
		if (s->stopping) {
			mc_store_room_locked(s);
			mc_sink_look_locked(s, true);
			if (idle_locked(s))
				break;
			if (s->ready.head != NULL ||
				(s->demand.head != NULL && s->in_flight < s->max_in_flight) ||
				(s->derive.head != NULL && s->gathering < s->max_gathering))
				continue;
		}
		s->sleeping++;
		mc_cond_wait(&s->wake, &s->lock);
		s->sleeping--;
	}
	mc_cond_broadcast(&s->wake);
	mc_mutex_unlock(&s->lock);
	return NULL;
}

uint64_t mc_store_patience_ns(const struct mc_store *s)
{
	unsigned ms = s->opts.deadline_ms / 4;

	return (ms < PATIENCE_MS ? ms : PATIENCE_MS) * UINT64_C(1000000);
}

static void *keeper(void *arg)
{
	struct mc_store *s = arg;
	uint64_t next_reap = mc_now_ns() + REAP_NS;

	pthread_setname_np(pthread_self(), "mc-keeper");
	mc_mutex_lock(&s->lock);
	while (!s->stopping) {
		mc_cond_wait_until(&s->tick, &s->lock,
			s->no_room.head != NULL ? mc_now_ns() + TICK_NS : next_reap);
		mc_store_room_locked(s);
		if (mc_now_ns() < next_reap)
			continue;
		mc_mutex_unlock(&s->lock);
		mc_dram_reap(s->dram);
		if (s->nvme != NULL)
			mc_nvme_reap(s->nvme);
		mc_mapped_look(s, false);
		if (s->opts.blocks != NULL)
			mc_block_cache_look(s->opts.blocks, mc_store_patience_ns(s));
		next_reap = mc_now_ns() + REAP_NS;
		mc_mutex_lock(&s->lock);
		mc_sink_look_locked(s, false);
	}
	while (s->opts.blocks != NULL && s->in_flight > 0) { /* no end waits for a device */
		mc_mutex_unlock(&s->lock);
		mc_block_cache_look(s->opts.blocks, 0);
		mc_mutex_lock(&s->lock);
		mc_cond_wait_until(&s->tick, &s->lock, mc_now_ns() + TICK_NS);
	}
	mc_mutex_unlock(&s->lock);
	return NULL;
}

static unsigned default_workers(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	return n < 2 ? 2 : n > 4 ? 4 : (unsigned)n;
}

/* Bounds that follow from the options; every queue of the store has one. */
static void set_bounds(struct mc_store *s)
{
	uint64_t pairs = s->opts.dram_capacity >> MC_PAIR_SHIFT;
	uint64_t eighth = pairs / 8 < 1 ? 1 : pairs / 8;

	if (s->opts.memory_budget == 0)
		s->opts.memory_budget = DEFAULT_BUDGET;
	if (s->opts.deadline_ms == 0)
		s->opts.deadline_ms = DEFAULT_DEADLINE_MS;
	s->max_in_flight = s->opts.fetch_depth > 0 ? s->opts.fetch_depth : DEFAULT_DEPTH;
	/* A fetch in flight costs its block in the client library's receive buffer. */
	if (s->max_in_flight > s->opts.memory_budget / (4 * MC_BLOCK_SIZE))
		s->max_in_flight = (unsigned)(s->opts.memory_budget / (4 * MC_BLOCK_SIZE));
	if (s->max_in_flight > pairs / 2)
		s->max_in_flight = (unsigned)(pairs / 2);
	if (s->max_in_flight < 1)
		s->max_in_flight = 1;
	s->turns = eighth / 2 < 1 ? 1 : (unsigned)(eighth / 2 > 16 ? 16 : eighth / 2);
	s->max_gathering = eighth < 2 ? 1 : eighth < 16 ? (unsigned)(eighth / 2) : 8;
	s->max_prefetch = 4 * s->max_in_flight;
	s->max_window = eighth < 2 * s->max_in_flight ? (unsigned)eighth : 2 * s->max_in_flight;
	s->max_behind = eighth < 4 ? 4 : eighth < 64 ? (unsigned)eighth : 64;
	s->max_sinking = 64; /* as many, and room for the runs that all workers send at once */
	if (s->max_sinking > s->opts.memory_budget / (4 * MC_BLOCK_SIZE))
		s->max_sinking = (unsigned)(s->opts.memory_budget / (4 * MC_BLOCK_SIZE));
	s->max_idle = mc_store_max_idle();
	s->n_workers = s->opts.workers > 0 ? s->opts.workers : default_workers();
	if (s->n_workers > MC_MAX_WORKERS)
		s->n_workers = MC_MAX_WORKERS;
}

static void adopt_dram(void *ctx, const struct mc_file_id *id)
{
	struct mc_store *s = ctx;
	int r = mc_file_adopt_dram(s, id);

	if (r < 0)
		mc_store_event(
			s, "adopt-failed", "tier=dram: an image was left out: %s", strerror(-r));
}

static void adopt_nvme(void *ctx, const struct mc_file_id *id)
{
	struct mc_store *s = ctx;
	int r = mc_file_adopt_nvme(s, id);

	if (r < 0)
		mc_store_event(
			s, "adopt-failed", "tier=nvme: an image was left out: %s", strerror(-r));
}

static int open_tiers(struct mc_store *s, struct mc_err *err)
{
	struct mc_dram_opts d = {.dir = s->opts.dram_dir,
		.capacity = s->opts.dram_capacity,
		.alone = s->opts.dram_alone};
	struct mc_nvme_stats ns;
	struct mc_nvme_opts n = {.dir = s->opts.nvme_dir,
		.capacity = s->opts.nvme_capacity,
		.commit_ms = s->opts.nvme_commit_ms};
	int r = mc_dram_open(&d, &s->dram, err);

	if (r < 0)
		return r;
	r = mc_policy_open(s->opts.dram_capacity, &s->dram_policy);
	if (r < 0)
		return r;
	s->capacity[MC_TIER_DRAM] = s->opts.dram_capacity;
	mc_dram_adopted(s->dram, adopt_dram, s);
	if (s->opts.nvme_dir == NULL)
		return 0;
	r = mc_nvme_open(&n, &s->nvme, err);
	if (r < 0)
		return r;
	mc_nvme_stats(s->nvme, &ns);
	r = mc_policy_open(ns.capacity > 0 ? ns.capacity : 1, &s->nvme_policy);
	if (r < 0)
		return r;
	mc_nvme_recovered(s->nvme, adopt_nvme, s);
	s->capacity[MC_TIER_NVME] = ns.capacity;
	r = mc_pins_load(s);
	if (r < 0)
		mc_store_event(s, "pins-lost", "tier=nvme: %s/pins: %s", mc_nvme_dir(s->nvme),
			strerror(-r));
	return 0;
}

static void store_free(struct mc_store *s, bool keep_dram)
{
	while (atomic_load(&s->posting) > 0)
		sched_yield();
	if (s->hash != NULL)
		mc_file_free_all(s);
	mc_through_free_all(s);
	if (s->nvme != NULL)
		mc_nvme_close(s->nvme);
	if (s->dram != NULL)
		mc_dram_close(s->dram, keep_dram);
	mc_policy_close(s->nvme_policy);
	mc_policy_close(s->dram_policy);
	free(s->hash);
	if (s->zeros != NULL)
		munmap(s->zeros, MC_BLOCK_SIZE);
	mc_cond_done(&s->verify_more);
	mc_cond_done(&s->left);
	mc_cond_done(&s->tick);
	mc_cond_done(&s->wake);
	mc_mutex_done(&s->lock);
	mc_mutex_done(&s->event_lock);
	mc_mutex_done(&s->pin_lock);
	free(s);
}

/* Also when not all were started. */
static void join_all(struct mc_store *s)
{
	mc_mutex_lock(&s->lock);
	s->stopping = true;
	mc_cond_broadcast(&s->wake);
	mc_cond_broadcast(&s->tick);
	mc_cond_broadcast(&s->verify_more);
	mc_mutex_unlock(&s->lock);
	if (s->nvme != NULL)
		mc_nvme_verify_stop(s->nvme);
	for (unsigned i = 0; i < s->n_threads; i++)
		pthread_join(s->threads[i], NULL);
}

static int start_threads(struct mc_store *s)
{
	int r = 0;

	for (unsigned i = 0; r == 0 && i < s->n_workers + 2; i++) {
		void *(*run)(void *) = i == 0 ? keeper : i == 1 ? mc_verify_main : worker;

		r = -pthread_create(&s->threads[i], NULL, run, s);
		s->n_threads += r == 0;
	}
	if (r < 0)
		join_all(s);
	return r;
}

int mc_store_open(const struct mc_store_opts *opts, struct mc_store **ret, struct mc_err *err)
{
	struct mc_store *s = calloc(1, sizeof(*s));
	int r = -ENOMEM;

	if (s == NULL)
		return mc_err_set(err, -ENOMEM, "no memory for the store");
	mc_mutex_init(&s->lock);
	mc_mutex_init(&s->event_lock);
	mc_mutex_init(&s->pin_lock);
	mc_cond_init(&s->wake);
	mc_cond_init(&s->tick);
	mc_cond_init(&s->left);
	mc_cond_init(&s->verify_more);
	s->opts = *opts;
	set_bounds(s);
	s->hash_size = 1024;
	s->hash = calloc(s->hash_size, sizeof(struct mc_file *));
	s->zeros = mmap(NULL, MC_BLOCK_SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (s->zeros == MAP_FAILED)
		s->zeros = NULL;
	if (s->hash == NULL || s->zeros == NULL)
		goto fail;
	r = open_tiers(s, err);
	if (r < 0)
		goto fail;
	r = start_threads(s);
	if (r < 0)
		goto fail;
	*ret = s;
	return 0;
fail:
	store_free(s, true);
	return mc_err_set(err, r, "cannot open the store: %s", strerror(-r));
}

void mc_store_close(struct mc_store *s, bool keep_dram)
{
	join_all(s);
	mc_mend_leave(s);
	store_free(s, keep_dram);
}

void mc_store_stats(struct mc_store *s, struct mc_store_stats *ret)
{
	struct mc_dram_stats d;
	struct mc_nvme_stats n = {0};
	struct mc_block_cache_stats b;

	mc_block_cache_stats(s->opts.blocks, &b);
	mc_dram_stats(s->dram, &d);
	if (s->nvme != NULL)
		mc_nvme_stats(s->nvme, &n);
	mc_mutex_lock(&s->lock);
	*ret = s->st;
	ret->in_flight = s->in_flight + s->gathering;
	ret->queued = s->demand.n + s->prefetch.n + s->derive.n;
	ret->no_room = s->no_room.n;
	ret->sinking = s->sinking;
	ret->files = s->n_files;
	ret->unverified = s->verify.n + s->verifying;
	ret->verified_percent =
		ret->unverified == 0 ? 100 : mc_share_percent(n.looked, s->verify_blocks);
	mc_mutex_unlock(&s->lock);
	ret->dram = d;
	ret->nvme = n;
	ret->device = b;
}
