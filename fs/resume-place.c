/*
 * Places loaded again: revisions from the local index where it is there, without the remote; the
 * rest by questions to the catalogue, asked at once.
 *
 * Invariants: 1. refs are sorted and unique from load on. 2. A place counts as found when its hash,
 * which covers manifest and layout, is the one it had. 3. A question that was given up belongs to
 * its callback alone.
 */
#include "fs/resume-place.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/node-record.h"
#include "fs/texts.h"
#include "manifest/catalogue.h"

#define QUESTION_BYTES 1024 /* "<model>@<rev>/<layout>", "<layout>/<rank>" */
#define TICK_NS UINT64_C(100000000)
#define MS UINT64_C(1000000)

struct question {
	struct mc_ask ask;
	struct mc_mutex lock;
	struct mc_cond answered;
	struct mc_answer *answer; /* owned reference */
	bool given_up;
};

struct wanted {
	uint32_t ref;
	struct mc_place *place;    /* owned reference */
	struct question *question; /* owned while it is waited for */
};

struct mc_places {
	struct mc_fs *fs;
	struct wanted *v; /* owned */
	size_t n, cap;
};

static void question_free(struct question *q)
{
	mc_answer_unref(q->answer);
	mc_cond_done(&q->answered);
	mc_mutex_done(&q->lock);
	free(q);
}

static void on_answer(struct mc_ask *ask, struct mc_answer *a)
{
	struct question *q = (struct question *)((char *)ask - offsetof(struct question, ask));
	bool given_up;

	mc_mutex_lock(&q->lock);
	q->answer = mc_answer_ref(a);
	given_up = q->given_up;
	mc_cond_signal(&q->answered);
	mc_mutex_unlock(&q->lock);
	if (given_up)
		question_free(q);
}

int mc_places_open(struct mc_fs *fs, struct mc_places **ret)
{
	struct mc_places *ps = calloc(1, sizeof(*ps));

	if (ps == NULL)
		return -ENOMEM;
	ps->fs = fs;
	*ret = ps;
	return 0;
}

bool mc_places_want(struct mc_places *ps, uint32_t ref)
{
	/* Nodes of one place mostly follow each other. */
	if (ps->n > 0 && ps->v[ps->n - 1].ref == ref)
		return true;
	if (!mc_texts_claim(mc_takeover_texts(ps->fs->opts->takeover), ref))
		return false;
	if (ps->n == ps->cap) {
		size_t cap = ps->cap != 0 ? 2 * ps->cap : 64;
		struct wanted *p = reallocarray(ps->v, cap, sizeof(*p));

		if (p == NULL)
			return false;
		ps->v = p;
		ps->cap = cap;
	}
	ps->v[ps->n++] = (struct wanted){.ref = ref};
	return true;
}

static int by_ref(const void *a, const void *b)
{
	uint32_t x = ((const struct wanted *)a)->ref, y = ((const struct wanted *)b)->ref;

	return (x > y) - (x < y);
}

static void sort(struct mc_places *ps)
{
	size_t n = 0;

	if (ps->n > 1)
		qsort(ps->v, ps->n, sizeof(*ps->v), by_ref);
	for (size_t i = 0; i < ps->n; i++)
		if (n == 0 || ps->v[n - 1].ref != ps->v[i].ref)
			ps->v[n++] = ps->v[i];
	ps->n = n;
}

/* A revision whose manifest lies here. */
static struct mc_place *load_local(struct mc_fs *fs, const struct mc_place_was *was)
{
	struct mc_place *p = NULL;
	struct mc_manifest *m;

	if (mc_catalogue_load_local(fs->opts->catalogue, was->manifest, &m) < 0)
		return NULL;
	if (mc_place_open(was->org, was->model, was->rev, m, &p) < 0)
		p = NULL;
	mc_manifest_unref(m);
	return p;
}

static void ask(struct mc_fs *fs, struct wanted *w, const struct mc_place_was *was)
{
	struct mc_question q = {.topic = MC_TOPIC_REV, .org = was->org};
	struct question *x = calloc(1, sizeof(*x));
	char name[QUESTION_BYTES];

	if (x == NULL)
		return;
	if (was->is_document) {
		q.topic = MC_TOPIC_DOC;
		snprintf(name, sizeof(name), "%s", was->rev);
	} else if (was->layout != NULL) {
		q.topic = MC_TOPIC_VIEW;
		snprintf(name, sizeof(name), "%s@%s/%s", was->model, was->rev, was->layout);
	} else {
		snprintf(name, sizeof(name), "%s@%s", was->model, was->rev);
	}
	q.name = name;
	mc_mutex_init(&x->lock);
	mc_cond_init(&x->answered);
	x->ask.done = on_answer;
	w->question = x;
	mc_names_ask(fs->names, &q, false, &x->ask);
}

static void begin(struct mc_places *ps, struct wanted *w)
{
	struct mc_place_was was;

	if (!mc_place_was(ps->fs->opts->takeover, w->ref, &was))
		return;
	if (was.rev == NULL) { /* an organisation, or a link: names only */
		if (mc_place_open(was.org, was.model, NULL, NULL, &w->place) < 0)
			w->place = NULL;
		return;
	}
	if (was.model == NULL && !was.is_document)
		return;
	if (was.manifest != NULL && was.layout == NULL && !was.is_document)
		w->place = load_local(ps->fs, &was);
	if (w->place == NULL)
		ask(ps->fs, w, &was);
}

/* Waits for the answer until then. */
static void await(struct mc_fs *fs, struct wanted *w, uint64_t until_ns)
{
	struct question *q = w->question;
	uint64_t now = mc_now_ns();
	bool answered;

	mc_mutex_lock(&q->lock);
	while (q->answer == NULL && now < until_ns) {
		mc_cond_wait_until(&q->answered, &q->lock, now + TICK_NS);
		mc_mutex_unlock(&q->lock);
		now = mc_now_ns();
		mc_names_tick(fs->names, now);
		mc_mutex_lock(&q->lock);
	}
	answered = q->answer != NULL;
	q->given_up = !answered;
	mc_mutex_unlock(&q->lock);
	w->question = NULL;
	if (!answered)
		return;
	if (q->answer->res == 0)
		w->place = mc_place_ref(q->answer->place);
	question_free(q);
}

void mc_places_load(struct mc_places *ps, unsigned ms)
{
	uint64_t until_ns = mc_now_ns() + ms * MS;
	struct mc_place_was was;

	sort(ps);
	for (size_t i = 0; i < ps->n; i++)
		begin(ps, &ps->v[i]);
	for (size_t i = 0; i < ps->n; i++) {
		struct wanted *w = &ps->v[i];

		if (w->question != NULL)
			await(ps->fs, w, until_ns);
		if (w->place == NULL)
			continue;
		if (!mc_place_was(ps->fs->opts->takeover, w->ref, &was) ||
			was.hash != w->place->hash) {
			mc_place_unref(w->place);
			w->place = NULL;
		} else if (w->place->record == 0) {
			w->place->record = w->ref;
		}
	}
}

struct mc_place *mc_places_find(const struct mc_places *ps, uint32_t ref)
{
	const struct wanted key = {.ref = ref};
	const struct wanted *w =
		ps->n > 0 ? bsearch(&key, ps->v, ps->n, sizeof(*ps->v), by_ref) : NULL;

	return w != NULL ? w->place : NULL;
}

uint64_t mc_places_missing(const struct mc_places *ps)
{
	uint64_t n = 0;

	for (size_t i = 0; i < ps->n; i++)
		n += ps->v[i].place == NULL;
	return n;
}

void mc_places_close(struct mc_places *ps)
{
	if (ps == NULL)
		return;
	for (size_t i = 0; i < ps->n; i++) {
		struct wanted *w = &ps->v[i];
		bool in_use = w->place != NULL && w->place->record == w->ref &&
			w->place->record_users > 0;

		if (!in_use)
			mc_texts_drop(mc_takeover_texts(ps->fs->opts->takeover), w->ref);
		if (!in_use && w->place != NULL && w->place->record == w->ref)
			w->place->record = 0;
		mc_place_unref(w->place);
	}
	free(ps->v);
	free(ps);
}
