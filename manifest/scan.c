/* The list of entries that a scan makes: adding, sorting, comparing. */
#include "manifest/scan.h"

#include "manifest/path.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct mc_scan_entry *mc_scan_add(struct mc_scan *s, enum mc_entry_type type, const char *path)
{
	struct mc_scan_entry *e;
	char *copy;

	if (s->n == s->cap) {
		size_t cap = s->cap == 0 ? 64 : 2 * s->cap;

		e = reallocarray(s->entries, cap, sizeof(*e));
		if (e == NULL)
			return NULL;
		s->entries = e;
		s->cap = cap;
	}
	copy = strdup(path);
	if (copy == NULL)
		return NULL;
	e = &s->entries[s->n++];
	*e = (struct mc_scan_entry){.type = type, .path = copy};
	return e;
}

int mc_scan_add_data(struct mc_scan_entry *e, uint64_t off, uint64_t len)
{
	struct mc_extent *last = e->n_data == 0 ? NULL : &e->data[e->n_data - 1];

	if (len == 0)
		return 0;
	if (last != NULL && last->off + last->len == off) {
		last->len += len;
		return 0;
	}
	/* Grown by doubling: the capacity is the next power of two. */
	if ((e->n_data & (e->n_data - 1)) == 0) {
		size_t cap = e->n_data == 0 ? 1 : 2 * e->n_data;
		struct mc_extent *more = reallocarray(e->data, cap, sizeof(*more));

		if (more == NULL)
			return -ENOMEM;
		e->data = more;
	}
	e->data[e->n_data++] = (struct mc_extent){.off = off, .len = len};
	return 0;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(
		((const struct mc_scan_entry *)a)->path, ((const struct mc_scan_entry *)b)->path);
}

void mc_scan_finish(struct mc_scan *s)
{
	if (s->n > 1)
		qsort(s->entries, s->n, sizeof(*s->entries), by_path);
	for (size_t i = 0; i < s->n; i++) {
		const struct mc_scan_entry *e = &s->entries[i];

		if (e->type != MC_ENTRY_FILE)
			continue;
		s->files++;
		s->bytes += e->size;
		for (size_t j = 0; j < e->n_data; j++)
			s->data_bytes += e->data[j].len;
	}
}

void mc_scan_done(struct mc_scan *s)
{
	for (size_t i = 0; i < s->n; i++) {
		free(s->entries[i].path);
		free(s->entries[i].target);
		free(s->entries[i].outside);
		free(s->entries[i].data);
	}
	free(s->entries);
	free(s->root);
	*s = (struct mc_scan){0};
}

static bool same_text(const char *a, const char *b)
{
	return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

/* What differs between two entries of one path, or NULL. A directory's own size says nothing. */
static const char *difference(const struct mc_scan_entry *a, const struct mc_scan_entry *b)
{
	if (a->type != b->type)
		return "is of another type";
	if (!same_text(a->target, b->target) || !same_text(a->outside, b->outside))
		return "leads elsewhere";
	if (a->type == MC_ENTRY_FILE && a->size != b->size)
		return "changed its size";
	if (a->mtime_s != b->mtime_s || a->mtime_ns != b->mtime_ns)
		return "changed its modification time";
	if (a->mode != b->mode)
		return "changed its mode";
	if (a->dev != b->dev || a->ino != b->ino)
		return "was replaced";
	return NULL;
}

static int changed(const char *path, const char *how, struct mc_err *err)
{
	return mc_err_set(err, -ESTALE,
		"source: %s %s during the import; nothing was published, run the import again once "
		"it "
		"is at rest",
		*path == '\0' ? "the source directory" : path, how);
}

int mc_scan_compare(const struct mc_scan *before, const struct mc_scan *now, struct mc_err *err)
{
	const char *how;
	size_t i = 0, j = 0;

	/* Files first: a file added or removed changes its directory's time too, and says more. */
	while (i < before->n || j < now->n) {
		int c = i == before->n ? 1
			: j == now->n  ? -1
				       : strcmp(before->entries[i].path, now->entries[j].path);

		if (c < 0)
			return changed(before->entries[i].path, "disappeared", err);
		if (c > 0)
			return changed(now->entries[j].path, "appeared", err);
		how = difference(&before->entries[i], &now->entries[j]);
		if (how != NULL && before->entries[i].type != MC_ENTRY_DIR)
			return changed(before->entries[i].path, how, err);
		i++;
		j++;
	}
	for (i = 0; i < before->n; i++) {
		how = difference(&before->entries[i], &now->entries[i]);
		if (how != NULL)
			return changed(before->entries[i].path, how, err);
	}
	return 0;
}

int mc_scan_join(const char *dir, const char *name, char **ret)
{
	int n = asprintf(ret, "%s%s%s", dir, *dir == '\0' || *name == '\0' ? "" : "/", name);

	return n < 0 ? -ENOMEM : 0;
}

int mc_scan_open_path(const struct mc_scan *s, const struct mc_scan_entry *e, char **ret)
{
	if (e->outside != NULL) {
		*ret = strdup(e->outside);
		return *ret == NULL ? -ENOMEM : 0;
	}
	return mc_scan_join(s->root, e->path, ret);
}

int mc_scan_check_name(const char *path, struct mc_err *err)
{
	const char *fault = mc_path_fault(path);
	char shown[200];
	size_t n = 0;

	if (fault == NULL)
		return 0;
	/* What is wrong may be a byte that a terminal obeys. */
	for (const char *c = path; *c != '\0' && n + 5 < sizeof(shown); c++) {
		if ((unsigned char)*c < 0x20 || (unsigned char)*c >= 0x7f)
			n += (size_t)snprintf(
				shown + n, sizeof(shown) - n, "\\x%02x", (unsigned char)*c);
		else
			shown[n++] = *c;
	}
	shown[n] = '\0';
	return mc_err_set(err, -EINVAL,
		"source: the name \"%s\" cannot be kept in a manifest (%s); rename it or leave it "
		"out",
		shown, fault);
}
