/* Traces: the Mooncake JSON lines, and a made-up one. */
#include "tests/replay/replay.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tier/cleanup.h"

/* Open addressing from the trace's ids to dense numbers; grows at half full. */
struct numbers {
	uint64_t *keys;    /* owned */
	uint32_t *numbers; /* owned; number + 1, 0 = free */
	size_t size;       /* a power of two */
	uint32_t n;
};

static void numbers_done(struct numbers *m)
{
	free(m->keys);
	free(m->numbers);
}

static size_t numbers_slot(const struct numbers *m, uint64_t key)
{
	size_t i = (key * UINT64_C(0x9e3779b97f4a7c15)) >> 20 & (m->size - 1);

	while (m->numbers[i] != 0 && m->keys[i] != key)
		i = (i + 1) & (m->size - 1);
	return i;
}

static int numbers_grow(struct numbers *m)
{
	struct numbers n = {.size = m->size == 0 ? 1024 : 2 * m->size, .n = m->n};

	n.keys = calloc(n.size, sizeof(*n.keys));
	n.numbers = calloc(n.size, sizeof(*n.numbers));
	if (n.keys == NULL || n.numbers == NULL) {
		numbers_done(&n);
		return -ENOMEM;
	}
	for (size_t i = 0; i < m->size; i++) {
		if (m->numbers[i] != 0) {
			size_t j = numbers_slot(&n, m->keys[i]);

			n.keys[j] = m->keys[i];
			n.numbers[j] = m->numbers[i];
		}
	}
	numbers_done(m);
	*m = n;
	return 0;
}

static int numbers_get(struct numbers *m, uint64_t key, uint32_t *ret)
{
	size_t i;

	if (2 * (size_t)m->n >= m->size && numbers_grow(m) < 0)
		return -ENOMEM;
	i = numbers_slot(m, key);
	if (m->numbers[i] == 0) {
		m->keys[i] = key;
		m->numbers[i] = ++m->n;
	}
	*ret = m->numbers[i] - 1;
	return 0;
}

static int append(struct replay_trace *t, size_t *room, struct numbers *m, uint64_t key)
{
	uint32_t b;

	if (numbers_get(m, key, &b) < 0)
		return -ENOMEM;
	if (t->n == *room) {
		size_t bigger = *room == 0 ? 4096 : 2 * *room;
		uint32_t *ids = realloc(t->ids, bigger * sizeof(*ids));

		if (ids == NULL)
			return -ENOMEM;
		t->ids = ids;
		*room = bigger;
	}
	t->ids[t->n++] = b;
	t->n_ids = m->n;
	return 0;
}

static int append_line(struct replay_trace *t, size_t *room, struct numbers *m, const char *line)
{
	const char *at = strstr(line, "\"hash_ids\"");
	char *end;

	at = at ? strchr(at, '[') : NULL;
	if (at == NULL)
		return -EBADMSG;
	for (at++; at[strspn(at, " ")] != ']'; at = end + (*end == ',')) {
		uint64_t key;
		int r;

		errno = 0;
		key = strtoull(at, &end, 10);
		if (errno != 0 || end == at || (*end != ',' && *end != ']'))
			return -EBADMSG;
		r = append(t, room, m, key);
		if (r < 0)
			return r;
	}
	return 0;
}

void replay_trace_done(struct replay_trace *t)
{
	free(t->ids);
	*t = (struct replay_trace){0};
}

int replay_trace_read(const char *path, struct replay_trace *ret)
{
	FILE *f = fopen(path, "re");
	struct replay_trace t = {0};
	struct numbers m = {0};
	cleanup_free char *line = NULL;
	size_t size = 0, room = 0;
	int r = 0;

	if (f == NULL)
		return -errno;
	while (r == 0 && getline(&line, &size, f) > 0)
		r = append_line(&t, &room, &m, line);
	if (r == 0 && ferror(f))
		r = -EIO;
	fclose(f);
	numbers_done(&m);
	if (r < 0)
		replay_trace_done(&t);
	else
		*ret = t;
	return r;
}
