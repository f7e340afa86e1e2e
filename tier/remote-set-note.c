/*
 * What a member of a set still has to get: notes in memory, and their markers on other members,
 * missed/<id of the member>/<SHA-256 of the path>, by which other nodes and later processes know.
 *
 * A member never has more than SET_NOTES of them; when there are more, overflow says that nothing
 * but chunks is to be believed there, until a look finds no marker left.
 */
#include "tier/remote-set-impl.h"

#include "tier/cleanup.h"
#include "tier/digest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_MAX 1000 /* markers read at once */

static const char *const kinds[] = {[SET_MISSED] = "missed ", [SET_GONE] = "gone "};

static int marker_path(const struct set_member *m, const char *path, char ret[128])
{
	uint8_t digest[MC_SHA256_SIZE];
	char hex[MC_SHA256_HEX + 1];
	int r = mc_sha256(path, strlen(path), digest);

	if (r < 0)
		return r;
	mc_hex_encode(digest, sizeof(digest), hex);
	snprintf(ret, 128, "missed/%s/%s", m->id, hex);
	return 0;
}

struct set_note *set_note_find_locked(struct mc_set *s, struct set_member *m, const char *path)
{
	return m->notes.n == 0 ? NULL : mc_lru_find(&m->notes, path);
}

bool set_is_stale_locked(struct mc_set *s, struct set_member *m, const char *path)
{
	const struct set_note *n = set_note_find_locked(s, m, path);

	return n != NULL ? n->kind != SET_CHECK : m->overflow && !set_is_content_named(path);
}

void set_note_add_locked(struct mc_set *s, struct set_member *m, const char *path,
	enum set_note_kind kind, bool marked)
{
	struct set_note *n = set_note_find_locked(s, m, path);

	if (kind == SET_CHECK && (n != NULL || !s->opts.tend || !set_is_ours(path)))
		return;
	if (n == NULL) {
		n = m->notes.n < SET_NOTES ? calloc(1, sizeof(*n)) : NULL;
		if (n == NULL || mc_lru_insert(&m->notes, &n->node, path) < 0) {
			free(n);
			m->overflow |= kind != SET_CHECK;
			return;
		}
	}
	n->kind = kind;
	n->marked |= marked;
	n->due_ns = 0;
	mc_cond_signal(&m->wake);
}

void set_note_add(struct set_member *m, const char *path, enum set_note_kind kind, bool marked)
{
	struct mc_set *s = m->set;

	mc_mutex_lock(&s->lock);
	set_note_add_locked(s, m, path, kind, marked);
	mc_mutex_unlock(&s->lock);
}

/* Takes the markers about m and path from every member that is up. */
static void unmark(struct set_member *m, const char *path)
{
	unsigned up = set_up(m->set);
	char marker[128];

	if (marker_path(m, path, marker) < 0)
		return;
	for (unsigned i = 0; i < m->set->n; i++)
		if ((up & 1u << i) != 0 && i != m->index)
			mc_remote_unlink(atomic_load(&m->set->members[i].remote), marker, NULL);
}

void set_note_settle(struct set_member *m, const char *path)
{
	struct mc_set *s = m->set;
	struct set_note *n;
	bool marked = false;

	mc_mutex_lock(&s->lock);
	n = set_note_find_locked(s, m, path);
	if (n != NULL) {
		marked = n->marked;
		mc_lru_remove(&m->notes, &n->node);
		mc_cond_broadcast(&s->change);
	}
	mc_mutex_unlock(&s->lock);
	free(n);
	if (marked)
		unmark(m, path);
}

void set_notes_done(struct set_member *m)
{
	struct set_note *n;

	while ((n = mc_lru_oldest(&m->notes)) != NULL) {
		mc_lru_remove(&m->notes, &n->node);
		free(n);
	}
	mc_lru_done(&m->notes);
}

void set_mark(struct set_member *m, const char *path, enum set_note_kind kind, unsigned holders)
{
	char marker[128], text[MC_REMOTE_PATH_MAX + 16];
	int n = snprintf(text, sizeof(text), "%s%s\n", kinds[kind], path);

	if (marker_path(m, path, marker) < 0)
		return;
	for (unsigned i = 0; i < m->set->n; i++)
		if ((holders & 1u << i) != 0 && i != m->index)
			mc_remote_put(atomic_load(&m->set->members[i].remote), marker, text,
				(size_t)n, 0, NULL);
}

/* ---- what others say */

struct look {
	char *names[LOOK_MAX]; /* owned */
	unsigned n;
	bool more;
};

static int look_each(void *ctx, const char *name, const struct mc_remote_attr *attr)
{
	struct look *l = ctx;

	if (attr->type != MC_REMOTE_FILE || strlen(name) != MC_SHA256_HEX)
		return 0;
	if (l->n == LOOK_MAX) {
		l->more = true;
		return 1;
	}
	l->names[l->n] = strdup(name);
	if (l->names[l->n] == NULL)
		return -ENOMEM;
	l->n++;
	return 0;
}

/* Reads one marker of m that `from` holds; what is not one is left alone. */
static void look_at(struct set_member *m, struct mc_remote *from, const char *name)
{
	char path[128], expect[128], *text;
	cleanup_free void *buf = NULL;
	size_t len;

	snprintf(path, sizeof(path), "missed/%s/%s", m->id, name);
	if (mc_remote_get(from, path, MC_REMOTE_PATH_MAX + 16, &buf, &len, NULL) < 0 || len == 0)
		return;
	text = buf;
	text[len - 1] = '\0'; /* the newline */
	for (int k = SET_MISSED; k <= SET_GONE; k++) {
		size_t n = strlen(kinds[k]);

		if (strncmp(text, kinds[k], n) == 0 && mc_remote_path_check(text + n, false) == 0 &&
			marker_path(m, text + n, expect) == 0 && strcmp(path, expect) == 0)
			set_note_add(m, text + n, (enum set_note_kind)k, true);
	}
}

/* What `o` says that m missed. *l is scratch; its n and more are the outcome. */
static int ask_about(struct set_member *m, struct set_member *o, struct look *l)
{
	struct mc_remote *from = atomic_load(&o->remote);
	char dir[64];
	int r;

	*l = (struct look){0};
	snprintf(dir, sizeof(dir), "missed/%s", m->id);
	r = mc_remote_list(from, dir, look_each, l, NULL);
	set_outcome(o, r);
	for (unsigned k = 0; k < l->n; k++) {
		look_at(m, from, l->names[k]);
		free(l->names[k]);
	}
	return r == -ENOENT ? 0 : r;
}

int set_look(struct set_member *m)
{
	struct mc_set *s = m->set;
	struct look *l = calloc(1, sizeof(*l));
	unsigned up = set_up(s), found = 0;
	bool more = false;
	int res = 0;

	if (l == NULL)
		return -ENOMEM;
	for (unsigned i = 0; i < s->n; i++) {
		int r;

		if ((up & 1u << i) == 0 || i == m->index)
			continue;
		r = ask_about(m, &s->members[i], l);
		found += l->n;
		more |= l->more;
		if (r < 0)
			res = r;
	}
	free(l);
	mc_mutex_lock(&s->lock);
	m->overflow = more || (m->overflow && (found > 0 || res < 0 || m->notes.n > 0));
	mc_mutex_unlock(&s->lock);
	return res;
}

void set_look_there(struct set_member *m)
{
	struct mc_set *s = m->set;
	struct look *l = calloc(1, sizeof(*l));

	for (unsigned i = 0; i < s->n && l != NULL; i++)
		if (i != m->index)
			ask_about(&s->members[i], m, l);
	free(l);
}
