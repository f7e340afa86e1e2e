/* What the mount remembers of the catalogue: one question at a time, old answers while it is slow.
 */
#include "fs/names.h"
#include "fs/names-load.h"
#include "tests/suite.h"
#include "tier/lock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SECOND UINT64_C(1000000000)

/* The catalogue of these tests: its answer, how often it was asked, and whether it hangs. */
static struct {
	struct mc_mutex lock;
	struct mc_cond moved;
	int res;
	unsigned version; /* of the list it gives */
	unsigned asked;
	bool hang;
} remote;

static _Atomic uint64_t fake_ns;

static uint64_t fake_clock(void)
{
	return atomic_load(&fake_ns);
}

/* In place of the one that asks a real catalogue. */
int mc_names_load(const struct mc_names_sources *sources, const struct mc_question *q,
	struct mc_place *known, struct mc_answer **ret)
{
	struct mc_answer *a = calloc(1, sizeof(*a));
	char name[32];

	mc_mutex_lock(&remote.lock);
	remote.asked++;
	mc_cond_broadcast(&remote.moved);
	while (remote.hang)
		mc_cond_wait(&remote.moved, &remote.lock);
	a->res = remote.res;
	snprintf(name, sizeof(name), "v%u", remote.version);
	mc_mutex_unlock(&remote.lock);
	atomic_init(&a->refs, 1);
	if (a->res == 0) {
		a->items = calloc(1, sizeof(*a->items));
		a->items[0].name = strdup(name);
		a->n_items = 1;
	}
	*ret = a;
	return 0;
}

static void remote_set(int res, unsigned version, bool hang)
{
	mc_mutex_lock(&remote.lock);
	remote.res = res;
	remote.version = version;
	remote.hang = hang;
	mc_cond_broadcast(&remote.moved);
	mc_mutex_unlock(&remote.lock);
}

static unsigned remote_asked(void)
{
	unsigned n;

	mc_mutex_lock(&remote.lock);
	n = remote.asked;
	mc_mutex_unlock(&remote.lock);
	return n;
}

/* Waits until the catalogue was asked n times. */
static void wait_asked(unsigned n)
{
	mc_mutex_lock(&remote.lock);
	while (remote.asked < n)
		mc_cond_wait(&remote.moved, &remote.lock);
	mc_mutex_unlock(&remote.lock);
}

struct asked {
	struct mc_ask ask;
	struct mc_mutex lock;
	struct mc_cond moved;
	bool done;
	int res;
	char name[32];
};

static void done(struct mc_ask *ask, struct mc_answer *a)
{
	struct asked *k = (struct asked *)ask;

	mc_mutex_lock(&k->lock);
	k->done = true;
	k->res = a->res;
	snprintf(k->name, sizeof(k->name), "%s", a->n_items > 0 ? a->items[0].name : "");
	mc_cond_broadcast(&k->moved);
	mc_mutex_unlock(&k->lock);
}

static struct mc_work *work;
static struct mc_names *names;
static const struct mc_question orgs = {.topic = MC_TOPIC_ORGS, .org = "", .name = ""};

static void ask(struct asked *k, bool fresh)
{
	*k = (struct asked){.ask.done = done};
	mc_mutex_init(&k->lock);
	mc_cond_init(&k->moved);
	mc_names_ask(names, &orgs, fresh, &k->ask);
}

static bool answered(struct asked *k)
{
	bool r;

	mc_mutex_lock(&k->lock);
	r = k->done;
	mc_mutex_unlock(&k->lock);
	return r;
}

static const char *answer(struct asked *k)
{
	mc_mutex_lock(&k->lock);
	while (!k->done)
		mc_cond_wait(&k->moved, &k->lock);
	mc_mutex_unlock(&k->lock);
	return k->res == 0 ? k->name : strerror(-k->res);
}

static void begin(void)
{
	memset(&remote, 0, sizeof(remote));
	mc_mutex_init(&remote.lock);
	mc_cond_init(&remote.moved);
	atomic_store(&fake_ns, 100 * SECOND);
	ck_assert_int_eq(mc_work_open(2, 16, &work), 0);
	ck_assert_int_eq(mc_names_open(&(struct mc_names_sources){0}, work, fake_clock, &names), 0);
}

static void end(void)
{
	ck_assert_int_eq(mc_work_close(work, UINT64_MAX), 0);
	mc_names_close(names);
}

START_TEST(many_who_wait_are_one_question)
{
	struct asked k[10];

	begin();
	remote_set(0, 1, true);
	for (int i = 0; i < 10; i++) {
		ask(&k[i], false);
		ck_assert_int_eq(answered(&k[i]), false);
	}
	remote_set(0, 1, false);
	for (int i = 0; i < 10; i++)
		ck_assert_str_eq(answer(&k[i]), "v1");
	ck_assert_uint_eq(remote_asked(), 1);
	end();
}
END_TEST

START_TEST(a_list_serves_for_eight_seconds)
{
	struct asked k;

	begin();
	remote_set(0, 1, false);
	ask(&k, false);
	ck_assert_str_eq(answer(&k), "v1");
	remote_set(0, 2, false);
	atomic_fetch_add(&fake_ns, 7 * SECOND);
	ask(&k, false);
	ck_assert_str_eq(answer(&k), "v1");
	atomic_fetch_add(&fake_ns, 2 * SECOND);
	ask(&k, false);
	ck_assert_str_eq(answer(&k), "v2");
	ck_assert_uint_eq(remote_asked(), 2);
	end();
}
END_TEST

START_TEST(who_misses_something_gets_a_list_of_this_second)
{
	struct asked k;

	begin();
	remote_set(0, 1, false);
	ask(&k, false);
	ck_assert_str_eq(answer(&k), "v1");
	remote_set(0, 2, false);
	ask(&k, true);
	ck_assert_str_eq(answer(&k), "v1");
	atomic_fetch_add(&fake_ns, SECOND + 1);
	ask(&k, true);
	ck_assert_str_eq(answer(&k), "v2");
	end();
}
END_TEST

START_TEST(what_is_missing_is_asked_again_after_a_second)
{
	struct asked k;

	begin();
	remote_set(-ENOENT, 0, false);
	ask(&k, false);
	ck_assert_str_eq(answer(&k), strerror(ENOENT));
	remote_set(0, 1, false);
	ask(&k, false);
	ck_assert_str_eq(answer(&k), strerror(ENOENT));
	atomic_fetch_add(&fake_ns, SECOND + 1);
	ask(&k, false);
	ck_assert_str_eq(answer(&k), "v1");
	end();
}
END_TEST

START_TEST(a_failure_keeps_the_last_answer)
{
	struct asked k;

	begin();
	remote_set(0, 1, false);
	ask(&k, false);
	ck_assert_str_eq(answer(&k), "v1");
	remote_set(-ETIMEDOUT, 0, false);
	atomic_fetch_add(&fake_ns, 9 * SECOND);
	ask(&k, false);
	ck_assert_str_eq(answer(&k), "v1");
	/* Known to be down: no waiting, though it is asked again. */
	remote_set(-ETIMEDOUT, 0, true);
	atomic_fetch_add(&fake_ns, 2 * SECOND);
	ask(&k, false);
	ck_assert_int_eq(answered(&k), true);
	ck_assert_str_eq(answer(&k), "v1");
	wait_asked(3);
	remote_set(0, 2, false);
	end();
}
END_TEST

START_TEST(the_first_failure_is_told)
{
	struct asked k;

	begin();
	remote_set(-ETIMEDOUT, 0, false);
	ask(&k, false);
	ck_assert_str_eq(answer(&k), strerror(ETIMEDOUT));
	end();
}
END_TEST

START_TEST(a_failure_that_took_long_is_told_for_a_second_more)
{
	struct asked k, next;

	begin();
	remote_set(-ETIMEDOUT, 0, true);
	ask(&k, false);
	wait_asked(1);
	atomic_fetch_add(&fake_ns, 30 * SECOND);
	remote_set(-ETIMEDOUT, 0, false);
	ck_assert_str_eq(answer(&k), strerror(ETIMEDOUT));
	ask(&next, false);
	ck_assert_int_eq(answered(&next), true);
	ck_assert_str_eq(answer(&next), strerror(ETIMEDOUT));
	ck_assert_uint_eq(remote_asked(), 1);
	atomic_fetch_add(&fake_ns, SECOND + 1);
	remote_set(0, 1, false);
	ask(&next, false);
	ck_assert_str_eq(answer(&next), "v1");
	end();
}
END_TEST

START_TEST(a_slow_remote_costs_a_second_once)
{
	struct asked k, later;

	begin();
	remote_set(0, 1, false);
	ask(&k, false);
	ck_assert_str_eq(answer(&k), "v1");
	remote_set(0, 2, true);
	atomic_fetch_add(&fake_ns, 9 * SECOND);
	ask(&k, false);
	wait_asked(2);
	mc_names_tick(names, fake_clock() + SECOND / 2);
	ck_assert_int_eq(answered(&k), false);
	atomic_fetch_add(&fake_ns, SECOND + 1);
	mc_names_tick(names, fake_clock());
	ck_assert_int_eq(answered(&k), true);
	ck_assert_str_eq(answer(&k), "v1");
	ask(&later, false);
	ck_assert_int_eq(answered(&later), true);
	remote_set(0, 2, false);
	end();
}
END_TEST

static const char *view_answer(const char *name)
{
	static struct asked k;

	k = (struct asked){.ask.done = done};
	mc_mutex_init(&k.lock);
	mc_cond_init(&k.moved);
	mc_names_ask(names, &(struct mc_question){.topic = MC_TOPIC_VIEW, .org = "o", .name = name},
		false, &k.ask);
	return answer(&k);
}

START_TEST(what_a_changed_layout_made_is_asked_anew_and_nothing_else)
{
	static const char *const of[] = {"m@1/mine", "m@1/mine/rank-00000", "m@2/mine"};
	static const char *const other[] = {"m@1/mine2", "mine@1/x", "m@1/min"};

	begin();
	remote_set(0, 1, false);
	for (int i = 0; i < 3; i++) {
		ck_assert_str_eq(view_answer(of[i]), "v1");
		ck_assert_str_eq(view_answer(other[i]), "v1");
	}
	remote_set(0, 2, false);
	mc_names_layout_changed(names, "mine");
	for (int i = 0; i < 3; i++) {
		ck_assert_str_eq(view_answer(of[i]), "v2");
		ck_assert_str_eq(view_answer(other[i]), "v1");
	}
	end();
}
END_TEST

START_TEST(an_answer_that_was_on_its_way_when_a_layout_changed_is_old_at_once)
{
	struct asked k = {.ask.done = done};

	begin();
	mc_mutex_init(&k.lock);
	mc_cond_init(&k.moved);
	remote_set(-ENOENT, 0, true);
	mc_names_ask(names,
		&(struct mc_question){.topic = MC_TOPIC_VIEW, .org = "o", .name = "m@1/mine"},
		false, &k.ask);
	wait_asked(1);
	mc_names_layout_changed(names, "mine");
	remote_set(-ENOENT, 0, false);
	ck_assert_str_eq(answer(&k), strerror(ENOENT));
	remote_set(0, 2, false);
	ck_assert_str_eq(view_answer("m@1/mine"), "v2");
	end();
}
END_TEST

START_TEST(thousands_of_names_are_not_kept)
{
	begin();
	remote_set(-ENOENT, 0, false);
	for (int i = 0; i < 3000; i++) {
		struct mc_question q = {.topic = MC_TOPIC_LATEST, .org = "o"};
		struct asked k = {.ask.done = done};
		char name[32];

		mc_mutex_init(&k.lock);
		mc_cond_init(&k.moved);
		snprintf(name, sizeof(name), "m%d", i);
		q.name = name;
		mc_names_ask(names, &q, false, &k.ask);
		ck_assert_str_eq(answer(&k), strerror(ENOENT));
	}
	ck_assert_uint_le(mc_names_count(names), 1100);
	end();
}
END_TEST

/* Asks for n models; how many questions were refused. */
static int ask_many(struct asked *k, int n)
{
	int refused = 0;

	for (int i = 0; i < n; i++) {
		struct mc_question q = {.topic = MC_TOPIC_LATEST, .org = "o"};
		char name[32];

		k[i] = (struct asked){.ask.done = done};
		mc_mutex_init(&k[i].lock);
		mc_cond_init(&k[i].moved);
		snprintf(name, sizeof(name), "m%d", i);
		q.name = name;
		mc_names_ask(names, &q, false, &k[i].ask);
		if (!answered(&k[i]))
			continue;
		ck_assert_int_eq(k[i].res, -EBUSY);
		refused++;
	}
	return refused;
}

START_TEST(a_question_refused_while_the_remote_hangs_is_not_kept)
{
	enum { N = 3000 };
	static struct asked k[N];
	int refused;

	begin();
	remote_set(-ENOENT, 0, true);
	refused = ask_many(k, N);
	ck_assert_int_ge(refused, N - 18); /* two asked, 16 queued */
	ck_assert_uint_eq(mc_names_count(names), N - (unsigned)refused);
	remote_set(-ENOENT, 0, false);
	end();
}
END_TEST

START_TEST(who_waits_keeps_a_refusal_like_any_answer)
{
	static struct asked k[64];
	struct mc_answer *a;

	begin();
	remote_set(-ENOENT, 0, true);
	ck_assert_int_ge(ask_many(k, 64), 64 - 18);
	a = mc_names_wait(names, &orgs);
	remote_set(-ENOENT, 0, false);
	end();
	ck_assert_int_eq(a->res, -EBUSY);
	ck_assert_uint_eq(a->n_items, 0);
	mc_answer_unref(a);
}
END_TEST

SUITE_MAIN("names", who_waits_keeps_a_refusal_like_any_answer,
	a_question_refused_while_the_remote_hangs_is_not_kept, many_who_wait_are_one_question,
	a_list_serves_for_eight_seconds, who_misses_something_gets_a_list_of_this_second,
	what_is_missing_is_asked_again_after_a_second, a_failure_keeps_the_last_answer,
	the_first_failure_is_told, a_failure_that_took_long_is_told_for_a_second_more,
	a_slow_remote_costs_a_second_once,
	what_a_changed_layout_made_is_asked_anew_and_nothing_else,
	an_answer_that_was_on_its_way_when_a_layout_changed_is_old_at_once,
	thousands_of_names_are_not_kept)
