/*
 * Watching the worker. It counts the turns of its main loop, in which no thread hangs that answers
 * the kernel, in the shared table. The keeper counts its own looks, not time: a machine that stood
 * still, or had no time for either of them, is no hang.
 *
 * Invariants: 1. A worker is killed before a service manager would end the service: half of its
 * interval has passed then, and the manager goes on hearing that all is well. 2. It hears nothing
 * while a worker hangs that cannot be followed by another one, or does not die.
 */
#include "tools/keeper.h"
#include "tools/keeper-watch.h"

#include "fs/log.h"
#include "fs/takeover.h"
#include "tier/lock.h"

#include <signal.h>

#define SECOND_NS UINT64_C(1000000000)
#define HANG_NS (60 * SECOND_NS) /* where no manager says how long */
#define HANG_MIN_NS (3 * SECOND_NS)
#define START_NS (120 * SECOND_NS) /* takeovers wait 10 s for places, 30 s for a remote */
#define LOOKS 8                    /* in which a worker that works has counted */
#define HANGS 5                    /* within as many times */
#define HANGS_NS (600 * SECOND_NS)

void mc_watch_open(struct mc_keeper *k)
{
	struct mc_watch *w = &k->watch;
	uint64_t ns;

	*w = (struct mc_watch){0};
	mc_watchdog_open(&w->manager);
	ns = w->manager.interval_ns != 0 ? w->manager.interval_ns : HANG_NS;
	w->turn_ns = (ns > HANG_MIN_NS ? ns : HANG_MIN_NS) / LOOKS;
	w->next_ns = mc_now_ns();
}

void mc_watch_begin(struct mc_keeper *k)
{
	k->watch.silent = 0;
	k->watch.killed = false;
}

int mc_watch_wait_ms(const struct mc_keeper *k)
{
	uint64_t now = mc_now_ns();

	return k->watch.next_ns <= now ? 0 : (int)((k->watch.next_ns - now) / 1000000) + 1;
}

/* How many looks without a sign are too many; 0 = it is not to be judged now. */
static unsigned bound(const struct mc_keeper *k)
{
	if (k->worker == 0 || k->stopping || k->device < 0)
		return 0;
	return k->ready || START_NS / k->watch.turn_ns < LOOKS
		? LOOKS
		: (unsigned)(START_NS / k->watch.turn_ns);
}

void mc_watch_look(struct mc_keeper *k)
{
	struct mc_watch *w = &k->watch;
	uint32_t beats = atomic_load(&mc_takeover_head(k->takeover)->beats);
	uint64_t now = mc_now_ns();
	unsigned most = bound(k);

	if (now < w->next_ns)
		return;
	w->next_ns = now + w->turn_ns;
	w->silent = beats != w->beats || most == 0 ? 0 : w->silent + 1;
	w->beats = beats;
	if (most == 0 || w->silent < most) {
		mc_watchdog_tick(&w->manager);
		return;
	}
	if (w->silent > most || w->killed)
		return;
	w->killed = mc_takeover_on(k->takeover);
	mc_log(MC_LOG_ERROR, "worker-hangs", "pid=%d ready=%s text=\"%s\"", (int)k->worker,
		k->ready ? "yes" : "no",
		w->killed ? "it is killed, and another one goes on"
			  : "it cannot be followed by another one: mount anew");
	if (w->killed)
		kill(k->worker, SIGKILL);
}

const char *mc_watch_judge(struct mc_keeper *k)
{
	struct mc_watch *w = &k->watch;
	uint64_t now = mc_now_ns();

	if (!w->killed)
		return NULL;
	w->hangs = now - w->last_hang_ns < HANGS_NS ? w->hangs + 1 : 1;
	w->last_hang_ns = now;
	return w->hangs < HANGS ? NULL : "workers hang again and again";
}

void mc_keeper_beat(struct mc_keeper *k)
{
	if (k->line >= 0)
		atomic_fetch_add_explicit(
			&mc_takeover_head(k->takeover)->beats, 1, memory_order_relaxed);
}
