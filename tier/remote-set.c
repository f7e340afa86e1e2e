/* A set of remotes: what its members are called, opening and closing it, its state. */
#include "tier/remote-set-impl.h"

#include "tier/cleanup.h"
#include "tier/digest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPEN_WAIT_NS (3000 * SET_MS) /* for the others, once one member is there */

/* ---- names */

/* "name=NAME,weight=W" behind the last '#'. */
static int parse_fragment(char *text, const char *whole, struct mc_set_url *u, struct mc_err *err)
{
	char *rest = text, *word, *end;

	while ((word = strsep(&rest, ",")) != NULL) {
		if (strncmp(word, "name=", 5) == 0 && word[5] != '\0') {
			free(u->name);
			u->name = strdup(word + 5);
			if (u->name == NULL)
				return -ENOMEM;
		} else if (strncmp(word, "weight=", 7) == 0) {
			u->weight = strtod(word + 7, &end);
			if (end == word + 7 || *end != '\0' ||
				!(u->weight >= 0 && u->weight <= MC_SET_WEIGHT_MAX))
				return mc_err_set(err, -EINVAL,
					"%s: weight: \"%s\" is not a number "
					"from 0 (to be emptied) to a million",
					whole, word + 7);
		} else {
			return mc_err_set(err, -EINVAL, "%s: \"%s\" is not name=NAME or weight=W",
				whole, word);
		}
	}
	return 0;
}

int mc_set_url_parse(const char *text, struct mc_set_url *ret, struct mc_err *err)
{
	struct mc_set_url u = {.url = strdup(text), .weight = 1};
	char *hash = u.url == NULL ? NULL : strrchr(u.url, '#');
	int r = u.url == NULL ? -ENOMEM : 0;

	if (hash != NULL &&
		(strncmp(hash + 1, "name=", 5) == 0 || strncmp(hash + 1, "weight=", 7) == 0)) {
		*hash = '\0';
		r = parse_fragment(hash + 1, text, &u, err);
	}
	if (r == 0 && u.name == NULL) {
		u.name = strndup(u.url, strcspn(u.url, "?"));
		r = u.name == NULL ? -ENOMEM : 0;
	}
	if (r < 0) {
		mc_set_url_done(&u);
		return r;
	}
	*ret = u;
	return 0;
}

void mc_set_url_done(struct mc_set_url *u)
{
	free(u->url);
	free(u->name);
	*u = (struct mc_set_url){0};
}

/* ---- the backend */

static void set_stop(struct mc_backend *b)
{
	struct mc_set *s = (struct mc_set *)b;

	mc_mutex_lock(&s->lock);
	s->stopping = true;
	mc_cond_broadcast(&s->change);
	mc_cond_broadcast(&s->tick);
	mc_cond_broadcast(&s->gate);
	for (unsigned i = 0; i < s->n; i++)
		mc_cond_broadcast(&s->members[i].wake);
	mc_mutex_unlock(&s->lock);
	for (unsigned i = 0; i < s->n; i++)
		if (atomic_load(&s->members[i].remote) != NULL)
			mc_remote_stop(atomic_load(&s->members[i].remote));
}

static void set_free(struct mc_set *s)
{
	for (unsigned i = 0; i < s->n; i++) {
		struct set_member *m = &s->members[i];

		set_notes_done(m);
		mc_cond_done(&m->wake);
		mc_set_url_done(&m->url);
	}
	for (unsigned i = 0; i < s->n_spare; i++)
		free(s->spare[i]);
	mc_cond_done(&s->gate);
	mc_cond_done(&s->tick);
	mc_cond_done(&s->change);
	mc_mutex_done(&s->lock);
	free(s->members);
	free(s->node);
	free(s);
}

static void set_close(struct mc_backend *b)
{
	struct mc_set *s = (struct mc_set *)b;

	if (s->has_timer)
		pthread_join(s->timer, NULL);
	for (unsigned i = 0; i < s->n; i++)
		if (s->members[i].has_thread)
			pthread_join(s->members[i].thread, NULL);
	for (unsigned i = 0; i < s->n; i++)
		mc_remote_close(atomic_load(&s->members[i].remote));
	mc_mutex_lock(&s->lock);
	while (s->n_live > 0)
		mc_cond_wait(&s->change, &s->lock);
	mc_mutex_unlock(&s->lock);
	set_free(s);
}

static const struct mc_backend_ops set_ops = {
	.read = set_read,
	.stat = set_stat,
	.put = set_put,
	.sync = set_sync,
	.list = set_list,
	.mkdir = set_mkdir,
	.unlink = set_unlink,
	.rename = set_rename,
	.touch = set_touch,
	.space = set_space,
	.stop = set_stop,
	.close = set_close,
};

/* ---- opening */

static int member_init(struct mc_set *s, unsigned i, const struct mc_set_url *u)
{
	struct set_member *m = &s->members[i];
	uint8_t digest[MC_SHA256_SIZE];
	int r = mc_sha256(u->name, strlen(u->name), digest);

	m->set = s;
	m->index = i;
	mc_cond_init(&m->wake);
	if (r == 0)
		r = mc_lru_init(&m->notes, 1024);
	m->url = (struct mc_set_url){
		.url = strdup(u->url), .name = strdup(u->name), .weight = u->weight};
	if (r < 0 || m->url.url == NULL || m->url.name == NULL)
		return -ENOMEM;
	mc_hex_encode(digest, 8, m->id);
	m->backoff_ns = SET_PROBE_MIN_NS;
	return 0;
}

/* At most as many copies as members. */
static unsigned bounded(unsigned copies, unsigned other, unsigned n)
{
	if (copies == 0)
		copies = other;
	return copies < n ? copies : n;
}

static int set_new(const struct mc_set_url *urls, unsigned n, const struct mc_set_opts *opts,
	struct mc_set **ret)
{
	struct mc_set *s = calloc(1, sizeof(*s));
	int r = 0;

	if (s == NULL)
		return -ENOMEM;
	s->base.ops = &set_ops;
	s->opts = *opts;
	for (unsigned i = 0; i < n; i++)
		s->n_homes += urls[i].weight > 0;
	s->opts.copies = bounded(opts->copies, 2, s->n_homes);
	s->opts.kv_copies = bounded(opts->kv_copies, s->opts.copies, s->n_homes);
	if (opts->remote != NULL)
		s->remote_opts = *opts->remote;
	s->deadline_ns =
		(s->remote_opts.deadline_ms == 0 ? 30000 : s->remote_opts.deadline_ms) * SET_MS;
	mc_mutex_init(&s->lock);
	mc_cond_init(&s->change);
	mc_cond_init(&s->tick);
	mc_cond_init(&s->gate);
	s->hedge_tokens = SET_TOKENS_FIRST;
	s->members = calloc(n, sizeof(*s->members));
	if (s->remote_opts.node != NULL)
		s->remote_opts.node = s->node = strdup(s->remote_opts.node);
	if (s->members == NULL || (s->remote_opts.node == NULL && s->node != NULL))
		r = -ENOMEM;
	while (r == 0 && s->n < n) {
		r = member_init(s, s->n, &urls[s->n]);
		s->n++;
	}
	if (r < 0) {
		set_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

static int start_threads(struct mc_set *s)
{
	int r = -pthread_create(&s->timer, NULL, set_timer_main, s);

	s->has_timer = r == 0;
	for (unsigned i = 0; i < s->n && r == 0; i++) {
		r = -pthread_create(&s->members[i].thread, NULL, set_member_main, &s->members[i]);
		s->members[i].has_thread = r == 0;
	}
	return r;
}

/* Waits until every member was tried, or one is there and the others take long. */
static int wait_for_members(struct mc_set *s, struct mc_err *err)
{
	uint64_t until = mc_now_ns() + OPEN_WAIT_NS;
	unsigned tried, there;
	int res = 0;

	mc_mutex_lock(&s->lock);
	for (;;) {
		tried = there = 0;
		for (unsigned i = 0; i < s->n; i++) {
			tried += s->members[i].tried;
			there += s->members[i].up;
			if (s->members[i].tried && s->members[i].open_res == -EINVAL)
				res = mc_err_set(err, -EINVAL, "%s", s->members[i].open_err.text);
		}
		if (res < 0 || tried == s->n)
			break;
		if (there > 0 && mc_now_ns() >= until)
			break;
		mc_cond_wait_until(
			&s->change, &s->lock, there > 0 ? until : mc_now_ns() + OPEN_WAIT_NS);
	}
	if (res == 0 && there == 0)
		res = mc_err_set(err, s->members[0].open_res, "%s", s->members[0].open_err.text);
	mc_mutex_unlock(&s->lock);
	return res;
}

/* The members' URLs, for messages. */
static char *joined_urls(const struct mc_set *s)
{
	char *all = strdup("");

	for (unsigned i = 0; i < s->n && all != NULL; i++) {
		char *more;

		if (asprintf(&more, "%s%s%s", all, i > 0 ? " " : "", s->members[i].url.url) < 0)
			more = NULL;
		free(all);
		all = more;
	}
	return all;
}

static int check_names(const struct mc_set_url *urls, unsigned n, struct mc_err *err)
{
	unsigned n_homes = 0;

	for (unsigned i = 0; i < n; i++)
		n_homes += urls[i].weight > 0;
	if (n_homes == 0 && n > 0)
		return mc_err_set(err, -EINVAL, "one remote at least needs a weight above 0");
	if (n == 0 || n > MC_SET_MAX)
		return mc_err_set(err, -EINVAL, "1 to %u remotes can be used together", MC_SET_MAX);
	for (unsigned i = 0; i < n; i++)
		for (unsigned k = 0; k < i; k++)
			if (strcmp(urls[i].name, urls[k].name) == 0)
				return mc_err_set(err, -EINVAL,
					"two remotes are called %s; tell them apart with "
					"#name=NAME",
					urls[i].name);
	return 0;
}

/* The members' threads run: the door, and what is known of missed copies. */
static int open_door(struct mc_set *s, struct mc_remote **ret, struct mc_err *err)
{
	cleanup_free char *url = joined_urls(s);
	struct mc_remote_counters *counters = calloc(1, sizeof(*counters));
	int r = url == NULL || counters == NULL ? -ENOMEM : 0;

	s->counters = counters;
	if (r == 0)
		r = start_threads(s);
	if (r == 0)
		r = wait_for_members(s, err);
	for (unsigned i = 0; i < s->n && r == 0; i++)
		set_look(&s->members[i]);
	if (r == 0)
		r = mc_remote_from_backend(url, s->deadline_ns, &s->base, counters, ret);
	if (r < 0) {
		set_stop(&s->base);
		set_close(&s->base);
		free(counters);
	}
	return r;
}

int mc_remote_set_open(const struct mc_set_url *urls, unsigned n, const struct mc_set_opts *opts,
	struct mc_remote **ret, struct mc_err *err)
{
	struct mc_set *s;
	int r = check_names(urls, n, err);

	if (r < 0)
		return r;
	if (n == 1)
		return opts->open != NULL
			? opts->open(opts->ctx, urls[0].url, opts->remote, ret, err)
			: mc_remote_open(urls[0].url, opts->remote, ret, err);
	r = set_new(urls, n, opts, &s);
	if (r == 0)
		r = open_door(s, ret, err);
	return r < 0 ? mc_err_set(err, r, "%s", strerror(-r)) : 0;
}

struct mc_set *set_of(struct mc_remote *r)
{
	struct mc_backend *b = mc_remote_backend(r);

	return b->ops == &set_ops ? (struct mc_set *)b : NULL;
}

int mc_remote_get_good(
	struct mc_remote *r, const char *path, size_t max, void **ret_buf, size_t *ret_len)
{
	struct mc_set *s = set_of(r);
	cleanup_free void *buf = NULL;
	size_t len;
	int res = s == NULL ? -EBADMSG : set_fetch_good(s, path, set_up(s), &buf, &len);

	if (res == 0 && len > max)
		res = -EFBIG;
	if (res == 0) {
		*ret_buf = steal_ptr(buf);
		*ret_len = len;
	}
	return res;
}

void mc_remote_set_status(struct mc_remote *r, struct mc_set_status *ret)
{
	struct mc_set *s = set_of(r);

	*ret = (struct mc_set_status){.n = 0};
	if (s == NULL)
		return;
	mc_mutex_lock(&s->lock);
	ret->n = s->n;
	ret->hedges = s->n_hedges;
	for (unsigned i = 0; i < s->n; i++) {
		const struct set_member *m = &s->members[i];

		ret->members[i] = (struct mc_set_member_status){.url = m->url.url,
			.up = m->up,
			.notes = m->notes.n,
			.latency_ns = m->each_ns,
			.fenced = m->n_fenced,
			.reads = m->n_reads,
			.caught_up = m->n_caught_up};
	}
	mc_mutex_unlock(&s->lock);
}
