/*
 * Bringing a member of a set what its notes say: a copy from another member, verified as far as the
 * path says what it must be, or the removal of one.
 *
 * 1. A copy is replaced only by one whose bytes were checked, or, where the path does not say what
 *    they must be, when the member missed a put, or has none.
 * 2. What is removed here was removed by a user: while another member has the object, or missed a
 *    put to this one, it is copied instead.
 * 3. Where every copy was missed by somebody, two sides of a partition wrote. All nodes choose the
 *    same of them, whatever has been mended so far: see is_better.
 */
#include "tier/remote-set-impl.h"

#include "tier/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define AGAIN_MIN_NS (250 * SET_MS) /* after a failure; doubled up to … */
#define AGAIN_MAX_NS (30000 * SET_MS)
#define OBJECT_MAX (UINT64_C(1) << 30) /* bytes brought in one piece; more is left to a person */

static struct set_gate *gate_of_locked(struct mc_set *s, const char *path)
{
	return &s->gates[mc_lru_hash(path, strlen(path)) % SET_GATES];
}

void set_gate_put(struct mc_set *s, const char *path)
{
	mc_mutex_lock(&s->lock);
	while (gate_of_locked(s, path)->mending)
		mc_cond_wait(&s->gate, &s->lock);
	gate_of_locked(s, path)->puts++;
	mc_mutex_unlock(&s->lock);
}

void set_gate_put_end(struct mc_set *s, const char *path)
{
	mc_mutex_lock(&s->lock);
	if (--gate_of_locked(s, path)->puts == 0)
		mc_cond_broadcast(&s->gate);
	mc_mutex_unlock(&s->lock);
}

void set_gate_mend(struct mc_set *s, const char *path)
{
	mc_mutex_lock(&s->lock);
	while (gate_of_locked(s, path)->mending || gate_of_locked(s, path)->puts > 0)
		mc_cond_wait(&s->gate, &s->lock);
	gate_of_locked(s, path)->mending = true;
	mc_mutex_unlock(&s->lock);
}

void set_gate_mend_end(struct mc_set *s, const char *path)
{
	mc_mutex_lock(&s->lock);
	gate_of_locked(s, path)->mending = false;
	mc_cond_broadcast(&s->gate);
	mc_mutex_unlock(&s->lock);
}

int set_fetch_good(
	struct mc_set *s, const char *path, unsigned from, void **ret_buf, size_t *ret_len)
{
	struct set_order order;
	int r = set_order(s, path, &order), res = -ENOENT;

	for (unsigned i = 0; r == 0 && i < s->n; i++) {
		struct set_member *m = &s->members[order.at[i]];
		cleanup_free void *buf = NULL;
		bool stale;
		size_t len;
		int got;

		mc_mutex_lock(&s->lock);
		stale = set_is_stale_locked(s, m, path);
		mc_mutex_unlock(&s->lock);
		if ((from & set_bit(m)) == 0 || stale)
			continue;
		got = mc_remote_get(atomic_load(&m->remote), path, OBJECT_MAX, &buf, &len, NULL);
		set_outcome(m, got);
		if (got == 0)
			got = set_check_bytes(path, buf, len);
		if (got >= 0) {
			*ret_buf = steal_ptr(buf);
			*ret_len = len;
			return 0;
		}
		if (got == -EBADMSG || got == -ENOENT)
			set_note_add(m, path, SET_CHECK, false);
		if (got != -ENOENT)
			res = got;
	}
	return r < 0 ? r : res;
}

/* Whether another member that is up has the object. */
static bool others_have(struct set_member *m, const char *path, unsigned others)
{
	struct mc_remote_attr attr;

	for (unsigned i = 0; i < m->set->n; i++)
		if ((others & 1u << i) != 0 &&
			mc_remote_stat(
				atomic_load(&m->set->members[i].remote), path, &attr, NULL) == 0)
			return true;
	return false;
}

/* The member's own copy: 0 with it, or why there is none. */
static int own_copy(struct set_member *m, const char *path, void **ret_buf, size_t *ret_len)
{
	return mc_remote_get(atomic_load(&m->remote), path, OBJECT_MAX, ret_buf, ret_len, NULL);
}

/* Whether the files of a path belong together with those of others beside it: a revision's. */
static bool is_of_revision(const char *path)
{
	const char *slash = strrchr(path, '/');

	return strncmp(path, "checkpoints/", 12) == 0 && slash != NULL &&
		strcmp(slash, "/latest") != 0;
}

/* A copy of what both sides of a partition wrote. */
struct side {
	struct set_member *member;
	struct mc_remote_attr attr;
};

/* The one that was written last; of a revision, whose parts must not be mixed, always that of the
 * same member. */
static bool is_better(const char *path, const struct side *a, const struct side *b)
{
	if (!is_of_revision(path) && set_is_newer(&a->attr, &b->attr))
		return true;
	if (!is_of_revision(path) && set_is_newer(&b->attr, &a->attr))
		return false;
	return strcmp(a->member->id, b->member->id) < 0;
}

/* The member of those in `from` whose copy is to stay, NULL: none has one. */
static struct set_member *choose_side(struct mc_set *s, const char *path, unsigned from)
{
	struct side best = {0};

	for (unsigned i = 0; i < s->n; i++) {
		struct side one = {.member = &s->members[i]};

		if ((from & 1u << i) != 0 &&
			mc_remote_stat(atomic_load(&one.member->remote), path, &one.attr, NULL) ==
				0 &&
			(best.member == NULL || is_better(path, &one, &best)))
			best = one;
	}
	return best.member;
}

/* Of what both sides of a partition wrote, what m is to have, unless that is bad. 0 with it,
 * -ENOENT: m has it, or none; -errno. All members must be up. */
static int fetch_side(
	struct set_member *m, const char *path, unsigned others, void **ret_buf, size_t *ret_len)
{
	unsigned from = others | set_bit(m);
	struct set_member *side;

	if (from != (1u << m->set->n) - 1)
		return -EAGAIN;
	while ((side = choose_side(m->set, path, from)) != NULL) {
		int r = own_copy(side, path, ret_buf, ret_len);

		if (r < 0)
			return r == -ENOENT ? -EAGAIN : r;
		if (set_check_bytes(path, *ret_buf, *ret_len) >= 0)
			return side == m ? -ENOENT : 0;
		free(*ret_buf);
		*ret_buf = NULL;
		from &= ~set_bit(side);
	}
	return -ENOENT;
}

int set_bring(struct set_member *m, const char *path, enum set_note_kind kind, unsigned others,
	uint64_t *ret_bytes)
{
	struct mc_set *s = m->set;
	cleanup_free void *own = NULL, *good = NULL;
	size_t own_len, good_len;
	int has = own_copy(m, path, &own, &own_len), own_is, r;

	*ret_bytes = 0;
	if (has < 0 && has != -ENOENT && has != -EBADMSG && has != -ESTALE)
		return has;
	own_is = has == 0 ? set_check_bytes(path, own, own_len) : has;
	if (own_is == 0 && (kind == SET_CHECK || set_is_content_named(path)))
		return 0;
	if (own_is == 1 && kind == SET_CHECK)
		return 0;
	r = set_fetch_good(s, path, others, &good, &good_len);
	if (r == -ENOENT && kind == SET_CHECK)
		return 0;
	if (r == -ENOENT) /* removed meanwhile, or only on a member that is away, or old, too */
		r = fetch_side(m, path, others, &good, &good_len);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	if (has == 0 && own_len == good_len && memcmp(own, good, own_len) == 0)
		return 0;
	r = mc_remote_put(atomic_load(&m->remote), path, good, good_len, 0, NULL);
	set_outcome(m, r);
	if (r < 0)
		return r;
	*ret_bytes = good_len;
	return 1;
}

int set_remove_copy(struct set_member *m, const char *path)
{
	int r = mc_remote_unlink(atomic_load(&m->remote), path, NULL);

	set_outcome(m, r);
	return r == -ENOENT ? 0 : r;
}

/*
 * A copy that only was made because no home could take it would grow old there: once every home is
 * right, it goes.
 */
static void tidy(struct mc_set *s, const char *path)
{
	struct set_order order;
	unsigned up = set_up(s);
	bool right = !set_is_content_named(path) && set_order(s, path, &order) == 0;

	for (unsigned i = 0; right && i < order.copies; i++) {
		struct set_member *m = &s->members[order.at[i]];

		mc_mutex_lock(&s->lock);
		right = m->up && set_note_find_locked(s, m, path) == NULL;
		mc_mutex_unlock(&s->lock);
	}
	for (unsigned i = order.copies; right && i < s->n; i++)
		if ((up & 1u << order.at[i]) != 0)
			set_remove_copy(&s->members[order.at[i]], path);
}

uint64_t set_next_mend_locked(struct mc_set *s, struct set_member *m)
{
	const struct set_note *n = s->opts.tend && m->up ? mc_lru_oldest(&m->notes) : NULL;

	if (n == NULL)
		return UINT64_MAX;
	return n->due_ns > m->mend_ns ? n->due_ns : m->mend_ns;
}

/* The note of m that is due, if any: a copy of its path. */
static char *take_due(struct set_member *m, enum set_note_kind *ret_kind)
{
	struct mc_set *s = m->set;
	char *path = NULL;

	mc_mutex_lock(&s->lock);
	if (!s->stopping && set_next_mend_locked(s, m) <= mc_now_ns()) {
		struct set_note *n = mc_lru_oldest(&m->notes);

		path = strdup(n->node.key);
		*ret_kind = n->kind;
	}
	mc_mutex_unlock(&s->lock);
	return path;
}

static void put_off(struct set_member *m, const char *path, int res)
{
	struct mc_set *s = m->set;
	struct set_note *n;

	mc_mutex_lock(&s->lock);
	m->again_ns = m->again_ns == 0 ? AGAIN_MIN_NS : 2 * m->again_ns;
	if (m->again_ns > AGAIN_MAX_NS)
		m->again_ns = AGAIN_MAX_NS;
	n = set_note_find_locked(s, m, path); /* which also makes it the youngest */
	if (n != NULL)
		n->due_ns = mc_now_ns() + m->again_ns;
	if (res == -ENOSPC || res == -EDQUOT || res == -EROFS || res == -EACCES)
		m->mend_ns = mc_now_ns() + m->again_ns; /* the others would end like this one */
	mc_cond_broadcast(&s->change);
	mc_mutex_unlock(&s->lock);
}

/* Whether another member missed a put of path, which m then has. */
static bool others_missed(struct set_member *m, const char *path)
{
	struct mc_set *s = m->set;
	bool found = false;

	mc_mutex_lock(&s->lock);
	for (unsigned i = 0; i < s->n; i++) {
		const struct set_note *n = set_note_find_locked(s, &s->members[i], path);

		found |= i != m->index && n != NULL && n->kind == SET_MISSED;
	}
	mc_mutex_unlock(&s->lock);
	return found;
}

bool set_mend_one(struct set_member *m)
{
	struct mc_set *s = m->set;
	enum set_note_kind kind;
	cleanup_free char *path = take_due(m, &kind);
	unsigned others;
	uint64_t bytes;
	int r;

	if (path == NULL)
		return false;
	set_gate_mend(s, path);
	others = set_up(s) & ~set_bit(m);
	if (kind == SET_GONE && others_missed(m, path))
		r = 0;
	else if (kind == SET_GONE && others != 0 && !others_have(m, path, others))
		r = set_remove_copy(m, path);
	else if (others != 0)
		r = set_bring(m, path, kind, others, &bytes);
	else
		r = -EAGAIN;
	if (r >= 0) {
		mc_mutex_lock(&s->lock);
		m->n_caught_up++;
		m->again_ns = 0;
		mc_mutex_unlock(&s->lock);
		set_note_settle(m, path);
	} else {
		put_off(m, path, r);
	}
	set_gate_mend_end(s, path);
	if (r >= 0 && kind == SET_MISSED)
		tidy(s, path);
	return true;
}
