/*
 * What the catalogue says, remembered.
 *
 * Invariants:
 * 1. One item per (topic, org, name), in the list ns->items, most recently used first.
 * 2. While item->pending exactly one job for it is queued or running; only that job clears pending.
 *    Pending items are never dropped.
 * 3. Waiters hang on pending items only, or are detached and answered by whoever detached them.
 * 4. No lock is held while a waiter is answered or the catalogue is asked.
 *
 * Life of an item: new → pending → known(answer) → (old) pending, answer kept → known …; dropped
 * when it is not pending and more than MAX_ITEMS are known, or, for loaded revisions that no node
 * uses, when more than MAX_LOADED are known, least recently used first.
 */
#include "fs/names.h"
#include "fs/names-load.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tier/lock.h"

#define SECOND UINT64_C(1000000000)
#define POSITIVE_NS                                                                                \
	(8 * SECOND) /* with the kernel's own caching new revisions appear within 10 s */
#define NEGATIVE_NS (1 * SECOND)
#define PATIENCE_NS (1 * SECOND) /* then the last known answer serves */
#define MAX_ITEMS 1024
#define MAX_LOADED                                                                                 \
	4 /* manifests of large models take tens of MB each, as do views, which views.c keeps too  \
	   */

struct item {
	struct item *prev, *next;
	struct mc_names *ns;
	enum mc_topic topic;
	char *org, *name;         /* owned, never NULL */
	struct mc_answer *answer; /* owned reference; NULL until the first */
	uint64_t at_ns;           /* when answer was asked for, or the last job failed */
	uint64_t pending_ns;      /* when the job was submitted */
	bool pending;
	bool outdated; /* the pending job may not have seen the last change */
	bool failed;   /* the last job did not reach the catalogue; answer is from before */
	struct mc_ask *waiters;
};

struct mc_names {
	struct mc_mutex lock;
	struct mc_names_sources sources;
	struct mc_work *work;    /* borrowed */
	uint64_t (*clock)(void); /* ns, monotonic */
	struct item *first, *last;
	size_t n_items;
};

static void list_remove(struct mc_names *ns, struct item *it)
{
	*(it->prev != NULL ? &it->prev->next : &ns->first) = it->next;
	*(it->next != NULL ? &it->next->prev : &ns->last) = it->prev;
}

static void list_push(struct mc_names *ns, struct item *it)
{
	it->prev = NULL;
	it->next = ns->first;
	*(ns->first != NULL ? &ns->first->prev : &ns->last) = it;
	ns->first = it;
}

static void item_free(struct item *it)
{
	mc_answer_unref(it->answer);
	free(it->org);
	free(it->name);
	free(it);
}

static struct item *item_new(struct mc_names *ns, const struct mc_question *q)
{
	struct item *it = calloc(1, sizeof(*it));

	if (it == NULL)
		return NULL;
	it->ns = ns;
	it->topic = q->topic;
	it->org = strdup(q->org);
	it->name = strdup(q->name);
	if (it->org == NULL || it->name == NULL) {
		item_free(it);
		return NULL;
	}
	return it;
}

/* Finds or makes the item and marks it used. */
static struct item *item_get_locked(struct mc_names *ns, const struct mc_question *q)
	MC_REQUIRES(ns->lock)
{
	struct item *it;

	for (it = ns->first; it != NULL; it = it->next) {
		if (it->topic == q->topic && strcmp(it->name, q->name) == 0 &&
			strcmp(it->org, q->org) == 0)
			break;
	}
	if (it != NULL) {
		list_remove(ns, it);
	} else {
		it = item_new(ns, q);
		if (it == NULL)
			return NULL;
		ns->n_items++;
	}
	list_push(ns, it);
	return it;
}

static bool loaded(const struct item *it)
{
	return it->answer != NULL && it->answer->place != NULL;
}

/* Nobody but this cache holds the loaded manifest. */
static bool idle(const struct item *it)
{
	return loaded(it) && atomic_load(&it->answer->refs) == 1 &&
		atomic_load(&it->answer->place->refs) == 1;
}

/* Takes what is too much off the list, for the caller to free after the lock is released. */
static struct item *trim_locked(struct mc_names *ns) MC_REQUIRES(ns->lock)
{
	struct item *dropped = NULL, *it, *prev;
	size_t n_loaded = 0;

	for (it = ns->first; it != NULL; it = it->next)
		n_loaded += idle(it);
	for (it = ns->last; it != NULL; it = prev) {
		bool is_idle = idle(it);

		prev = it->prev;
		if (it->pending || (loaded(it) && !is_idle))
			continue;
		if (!(is_idle && n_loaded > MAX_LOADED) && ns->n_items <= MAX_ITEMS)
			continue;
		n_loaded -= is_idle;
		list_remove(ns, it);
		ns->n_items--;
		it->next = dropped;
		dropped = it;
	}
	return dropped;
}

static void free_dropped(struct item *it)
{
	while (it != NULL) {
		struct item *next = it->next;

		item_free(it);
		it = next;
	}
}

static void answer_all(struct mc_ask *waiters, struct mc_answer *a)
{
	while (waiters != NULL) {
		struct mc_ask *next = waiters->next;

		waiters->done(waiters, a);
		waiters = next;
	}
}

static void refuse_all(struct mc_ask *waiters, int res)
{
	struct mc_answer *a = mc_answer_refusal(res);

	answer_all(waiters, a);
	mc_answer_unref(a);
}

/* Puts the job's result in; returns what the waiters get, with a reference of the caller's. */
static struct mc_answer *settle_locked(struct mc_names *ns, struct item *it, struct mc_answer *a,
	struct mc_answer **ret_old) MC_REQUIRES(ns->lock)
{
	bool known = it->answer != NULL && it->answer->res == 0;

	it->pending = false;
	it->failed = a == NULL || (a->res != 0 && a->res != -ENOENT);
	/* A failure counts from its end: it took until the deadline, and those who come next must
	 * not each wait as long again. */
	it->at_ns = it->failed ? ns->clock() : it->outdated ? 0 : it->pending_ns;
	it->outdated = false;
	if (it->failed && known) {
		*ret_old = a;
		return mc_answer_ref(it->answer);
	}
	*ret_old = it->answer;
	it->answer = a;
	return a != NULL ? mc_answer_ref(a) : NULL;
}

static void load_job(void *arg)
{
	struct item *it = arg; /* pending: nobody drops it */
	struct mc_names *ns = it->ns;
	struct mc_answer *a = NULL, *old, *give;
	struct mc_ask *waiters;
	struct item *dropped;
	struct mc_question q = {.topic = it->topic, .org = it->org, .name = it->name};
	/* Only this job changes the answer, so it may be looked at without the lock. */
	struct mc_place *known = it->answer != NULL ? it->answer->place : NULL;
	int r = mc_names_load(&ns->sources, &q, known, &a);

	mc_mutex_lock(&ns->lock);
	waiters = it->waiters;
	it->waiters = NULL;
	give = settle_locked(ns, it, a, &old);
	dropped = trim_locked(ns);
	mc_mutex_unlock(&ns->lock);
	if (give != NULL)
		answer_all(waiters, give);
	else
		refuse_all(waiters, r);
	mc_answer_unref(give);
	mc_answer_unref(old);
	free_dropped(dropped);
}

/* Whether the known answer may be given without asking again. */
static bool good_enough(const struct item *it, bool fresh, uint64_t now)
{
	uint64_t age = now - it->at_ns;

	if (it->answer == NULL)
		return false;
	if (it->answer->res != 0)
		return age <= NEGATIVE_NS;
	return age <= (fresh || it->failed ? NEGATIVE_NS : POSITIVE_NS);
}

/*
 * Whether an old answer serves rather than waiting: a loaded revision (metadata never waits for the
 * remote; should the revision be gone, the next to ask will know), or the remote is slow or down.
 */
static bool rather_old(const struct item *it, uint64_t now)
{
	return it->answer != NULL && it->answer->res == 0 &&
		(loaded(it) || it->failed || (it->pending && now - it->pending_ns > PATIENCE_NS));
}

void mc_names_ask(struct mc_names *ns, const struct mc_question *q, bool fresh, struct mc_ask *ask)
{
	struct mc_answer *give = NULL;
	uint64_t now = ns->clock();
	struct item *it, *refused = NULL;
	bool good;
	int r = 0;

	mc_mutex_lock(&ns->lock);
	it = item_get_locked(ns, q);
	good = it != NULL && good_enough(it, fresh, now);
	if (it != NULL && !good && !it->pending) {
		it->pending = true;
		it->pending_ns = now;
		r = mc_work_submit(ns->work, load_job, it);
		if (r < 0)
			it->pending = false;
	}
	if (it == NULL)
		r = -ENOMEM;
	else if (good || rather_old(it, now) || (r < 0 && it->answer != NULL))
		give = mc_answer_ref(it->answer);
	else if (r == 0) {
		ask->next = it->waiters;
		it->waiters = ask;
		ask = NULL;
	} else {
		list_remove(ns, it); /* nothing is known and nobody waits: not worth a place */
		ns->n_items--;
		refused = it;
	}
	mc_mutex_unlock(&ns->lock);
	if (ask == NULL)
		return;
	if (refused != NULL)
		item_free(refused);
	ask->next = NULL;
	if (give != NULL)
		answer_all(ask, give);
	else
		refuse_all(ask, r);
	mc_answer_unref(give);
}

/* Whether name is first, or goes on after it with sep. */
static bool begins(const char *name, const char *first, char sep)
{
	size_t len = strlen(first);

	return strncmp(name, first, len) == 0 && (name[len] == '\0' || name[len] == sep);
}

static bool tells_of(const struct item *it, const char *layout)
{
	const char *at;

	switch (it->topic) {
	case MC_TOPIC_DOCS:
	case MC_TOPIC_FITS:
		return true;
	case MC_TOPIC_DOC:
		return begins(it->name, layout, '.');
	case MC_TOPIC_VIEW:
		at = strchr(it->name, '/');
		return at != NULL && begins(at + 1, layout, '/');
	default:
		return false;
	}
}

void mc_names_layout_changed(struct mc_names *ns, const char *layout)
{
	struct item *dropped = NULL, *it, *next;

	mc_mutex_lock(&ns->lock);
	for (it = ns->first; it != NULL; it = next) {
		next = it->next;
		if (!tells_of(it, layout))
			continue;
		if (it->pending) {
			it->outdated = true;
			continue;
		}
		list_remove(ns, it);
		ns->n_items--;
		it->next = dropped;
		dropped = it;
	}
	mc_mutex_unlock(&ns->lock);
	free_dropped(dropped);
}

void mc_names_refresh(struct mc_names *ns)
{
	mc_mutex_lock(&ns->lock);
	for (struct item *it = ns->first; it != NULL; it = it->next) {
		it->at_ns = 0;
		it->failed = false;
		it->outdated = it->pending;
	}
	mc_mutex_unlock(&ns->lock);
}

void mc_names_misfit(struct mc_names *ns, const char *org, const char *rev, char *out, size_t size)
{
	size_t len = strlen(rev);

	out[0] = '\0';
	mc_mutex_lock(&ns->lock);
	for (struct item *it = ns->first; it != NULL && out[0] == '\0'; it = it->next) {
		if (it->topic == MC_TOPIC_VIEW && it->answer != NULL && it->answer->why != NULL &&
			strcmp(it->org, org) == 0 && begins(it->name, rev, '/'))
			snprintf(out, size, "%s: %s",
				it->name[len] != '\0' ? it->name + len + 1 : "", it->answer->why);
	}
	mc_mutex_unlock(&ns->lock);
}

void mc_names_tick(struct mc_names *ns, uint64_t now_ns)
{
	for (;;) {
		struct mc_answer *give = NULL;
		struct mc_ask *waiters = NULL;

		mc_mutex_lock(&ns->lock);
		for (struct item *it = ns->first; it != NULL && give == NULL; it = it->next) {
			if (it->waiters == NULL || !rather_old(it, now_ns))
				continue;
			give = mc_answer_ref(it->answer);
			waiters = it->waiters;
			it->waiters = NULL;
		}
		mc_mutex_unlock(&ns->lock);
		if (give == NULL)
			return;
		answer_all(waiters, give);
		mc_answer_unref(give);
	}
}

size_t mc_names_count(struct mc_names *ns)
{
	size_t n;

	mc_mutex_lock(&ns->lock);
	n = ns->n_items;
	mc_mutex_unlock(&ns->lock);
	return n;
}

int mc_names_open(const struct mc_names_sources *sources, struct mc_work *work,
	uint64_t (*clock)(void), struct mc_names **ret)
{
	struct mc_names *ns = calloc(1, sizeof(*ns));

	if (ns == NULL)
		return -ENOMEM;
	mc_mutex_init(&ns->lock);
	ns->sources = *sources;
	ns->work = work;
	ns->clock = clock;
	*ret = ns;
	return 0;
}

void mc_names_close(struct mc_names *ns)
{
	if (ns == NULL)
		return;
	free_dropped(ns->first);
	mc_mutex_done(&ns->lock);
	free(ns);
}
