/* Putting the parsed files into a tree: path order, parents, and directories' children in a row. */
#include "manifest/manifest-parse.h"

#include <errno.h>
#include <string.h>

/* The element of "files" with the path of len bytes: binary search, they are in byte order. */
static uint32_t find(const struct mc_parse *p, const char *path, size_t len)
{
	uint32_t lo = 0, hi = p->n_raw;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		int c = strncmp(p->raw[mid].path, path, len);

		if (c == 0 && p->raw[mid].path[len] != '\0')
			c = 1;
		if (c == 0)
			return mid;
		if (c < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return MC_INDEX_NONE;
}

static int check_order(struct mc_parse *p)
{
	p->kind = "file";
	for (uint32_t i = 1; i < p->n_raw; i++) {
		int c = strcmp(p->raw[i - 1].path, p->raw[i].path);

		p->name = p->raw[i].path;
		if (c == 0)
			return mc_parse_bad(p, "listed twice");
		if (c > 0)
			return mc_parse_bad(p, "not in byte order of the paths");
	}
	return 0;
}

static int find_parents(struct mc_parse *p)
{
	for (uint32_t i = 0; i < p->n_raw; i++) {
		struct mc_raw_entry *e = &p->raw[i];
		const char *slash = strrchr(e->path, '/');

		p->name = e->path;
		e->parent = MC_INDEX_NONE;
		if (slash == NULL)
			continue;
		e->parent = find(p, e->path, (size_t)(slash - e->path));
		if (e->parent == MC_INDEX_NONE)
			return mc_parse_bad(p, "its directory is not listed");
		if (p->raw[e->parent].e.type != MC_ENTRY_DIR)
			return mc_parse_bad(p, "lies under %.200s, which is not a directory",
				p->raw[e->parent].path);
	}
	return 0;
}

/*
 * Orders the elements by parent, keeping path order among siblings (which is their name order): a
 * counting sort over n + 1 parents, slot 0 for the root and i + 1 for element i. Afterwards
 * start[slot] .. start[slot + 1] are that directory's children in order[].
 */
static void sort_by_parent(const struct mc_parse *p, uint32_t *start, uint32_t *order)
{
	uint32_t n = p->n_raw;

	for (uint32_t i = 0; i < n; i++)
		start[p->raw[i].parent == MC_INDEX_NONE ? 1 : p->raw[i].parent + 2]++;
	for (uint32_t i = 1; i < n + 2; i++)
		start[i] += start[i - 1];
	for (uint32_t i = 0; i < n; i++) {
		uint32_t slot = p->raw[i].parent == MC_INDEX_NONE ? 0 : p->raw[i].parent + 1;

		order[start[slot]++] = i;
	}
	for (uint32_t i = n + 1; i > 0; i--)
		start[i] = start[i - 1];
	start[0] = 0;
}

static int add_entry(struct mc_parse *p, const struct mc_raw_entry *raw)
{
	const char *slash = strrchr(raw->path, '/');
	struct mc_index_entry e = raw->e;
	int r = mc_index_add_string(&p->b, slash != NULL ? slash + 1 : raw->path, &e.name);

	if (r < 0)
		return r;
	e.parent = raw->parent == MC_INDEX_NONE ? 0 : p->entry_of[raw->parent];
	return mc_index_add(&p->b, MC_INDEX_ENTRIES, &e, sizeof(e), NULL);
}

/* Breadth first: entry 0 is the root, and reaching a directory's entry appends all its children. */
static int add_entries(struct mc_parse *p, const struct mc_index_entry *root, const uint32_t *start,
	const uint32_t *order, uint32_t *raw_of)
{
	struct mc_index_entry top = *root;
	uint32_t next = 1;
	int r;

	top.type = MC_ENTRY_DIR;
	r = mc_index_add(&p->b, MC_INDEX_ENTRIES, &top, sizeof(top), NULL);
	for (uint32_t at = 0; r == 0 && at < next; at++) {
		uint32_t slot = at == 0 ? 0 : raw_of[at] + 1;
		struct mc_index_entry *e;

		if (at > 0 && p->raw[raw_of[at]].e.type != MC_ENTRY_DIR)
			continue;
		e = (struct mc_index_entry *)p->b.section[MC_INDEX_ENTRIES].p + at;
		e->first = next;
		e->count = start[slot + 1] - start[slot];
		for (uint32_t i = start[slot]; r == 0 && i < start[slot + 1]; i++) {
			raw_of[next] = order[i];
			p->entry_of[order[i]] = next++;
			r = add_entry(p, &p->raw[order[i]]);
		}
	}
	return r;
}

int mc_parse_tree(struct mc_parse *p, const struct mc_index_entry *root)
{
	size_t n = p->n_raw;
	uint32_t *scratch;
	int r = check_order(p);

	if (r == 0)
		r = find_parents(p);
	if (r < 0)
		return r;
	p->name = NULL;
	p->entry_of = calloc(n + 1, sizeof(*p->entry_of));
	scratch = calloc(3 * n + 3, sizeof(*scratch));
	r = -ENOMEM;
	if (p->entry_of != NULL && scratch != NULL) {
		uint32_t *start = scratch, *order = start + n + 2, *raw_of = order + n;

		sort_by_parent(p, start, order);
		r = add_entries(p, root, start, order, raw_of);
	}
	free(scratch);
	return r;
}
