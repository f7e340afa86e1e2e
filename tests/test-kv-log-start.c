/* The KV log: what it says of a start that is under way. */
#include "tests/kv-log-fixture.h"
#include "tests/suite.h"

/* Holds up recovery while it tells the n-th of some objects. */
struct halfway {
	struct mc_mutex lock;
	struct mc_cond change;
	unsigned told, stop_at;
	bool held, go;
	int done;
};

static void halfway_put(void *ctx, const struct mc_kv_meta *meta, const struct mc_kv_loc *loc)
{
	struct halfway *h = ctx;

	(void)meta;
	(void)loc;
	mc_mutex_lock(&h->lock);
	if (++h->told == h->stop_at) {
		h->held = true;
		mc_cond_broadcast(&h->change);
		while (!h->go)
			mc_cond_wait(&h->change, &h->lock);
	}
	mc_mutex_unlock(&h->lock);
}

static void halfway_done(void *ctx, int res)
{
	struct halfway *h = ctx;

	mc_mutex_lock(&h->lock);
	h->done = res;
	mc_cond_broadcast(&h->change);
	mc_mutex_unlock(&h->lock);
}

START_TEST(recovery_says_how_far_it_is)
{
	struct halfway h = {.stop_at = 200, .done = 1};
	struct mc_kv_log_replay replay = {.put = halfway_put, .done = halfway_done, .ctx = &h};
	char *dir = tier_dir_make("/var/tmp");
	struct mc_kv_log_opts o = {.dir = dir, .capacity = 32 * MIB};
	struct kv_owner owner = {0};
	struct mc_kv_log *log = kv_open_with(&o, &owner, 0);
	char key[32];
	uint64_t part;

	for (unsigned i = 0; i < 400; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		ck_assert_int_eq(kv_put(log, &owner, key, i, 100), 0);
	}
	mc_kv_log_close(log);
	mc_mutex_init(&h.lock);
	mc_cond_init(&h.change);
	ck_assert_int_eq(mc_kv_log_open(&o, &replay, &log, &(struct mc_err){0}), 0);
	mc_mutex_lock(&h.lock);
	while (!h.held)
		mc_cond_wait(&h.change, &h.lock);
	mc_mutex_unlock(&h.lock);
	/* The journal is read: a half. Of the table, of three passes the one over directories and
	 * 200 of 400 objects. */
	part = kv_stats(log).recovered_percent;
	ck_assert(kv_stats(log).recovering);
	ck_assert_uint_ge(part, 70);
	ck_assert_uint_le(part, 80);
	mc_mutex_lock(&h.lock);
	h.go = true;
	mc_cond_broadcast(&h.change);
	while (h.done == 1)
		mc_cond_wait(&h.change, &h.lock);
	mc_mutex_unlock(&h.lock);
	ck_assert_int_eq(h.done, 0);
	while (kv_stats(log).recovering)
		mc_kv_log_sync(log);
	ck_assert_uint_eq(kv_stats(log).recovered_percent, 100);
	mc_kv_log_close(log);
	kv_forget(&owner);
	tier_dir_remove(dir);
	mc_cond_done(&h.change);
	mc_mutex_done(&h.lock);
}
END_TEST

SUITE_MAIN("kv-log-start", recovery_says_how_far_it_is)
