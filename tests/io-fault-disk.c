/* What a power failure leaves of a directory: names, content, and the choice at a restart. */
#include "tests/io-fault-disk.h"

#include "tests/tier-dir.h"

#define PIECE 4096

struct io_change {
	struct io_change *next;
	enum io_change_kind kind;
	int mode; /* IO_ALLOCATE */
	uint64_t off, len;
	char data[];
};

struct io_name_change {
	struct io_name_change *next;
	enum io_name_kind kind;
	char *path, *to;
	struct io_node *node;
};

/* ---- names */

static struct io_name *find(struct io_names *s, const char *path)
{
	for (size_t i = 0; i < s->n; i++)
		if (strcmp(s->at[i].path, path) == 0)
			return &s->at[i];
	return NULL;
}

static void set(struct io_names *s, const char *path, struct io_node *node)
{
	struct io_name *e = find(s, path);

	if (e == NULL) {
		s->at = reallocarray(s->at, s->n + 1, sizeof(*s->at));
		ck_assert_ptr_nonnull(s->at);
		e = &s->at[s->n++];
		e->path = strdup(path);
	}
	e->node = node;
}

static void unset(struct io_names *s, const char *path, const struct io_node *node)
{
	struct io_name *e = find(s, path);

	if (e == NULL || e->node != node)
		return;
	free(e->path);
	*e = s->at[--s->n];
}

static void apply_name(struct io_names *s, const struct io_name_change *c)
{
	if (c->kind == IO_MAKE) {
		set(s, c->path, c->node);
	} else if (c->kind == IO_REMOVE) {
		unset(s, c->path, c->node);
	} else {
		unset(s, c->path, c->node);
		set(s, c->to, c->node);
	}
}

void io_disk_rename(struct io_disk *d, enum io_name_kind kind, const char *path, const char *to,
	struct io_node *node)
{
	struct io_name_change *c = calloc(1, sizeof(*c));

	*c = (struct io_name_change){.kind = kind,
		.path = strdup(path),
		.to = to != NULL ? strdup(to) : NULL,
		.node = node};
	*d->last = c;
	d->last = &c->next;
	apply_name(&d->live, c);
}

static bool lies_in(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return path != NULL && strncmp(path, dir, n) == 0 && path[n] == '/' &&
		strchr(path + n + 1, '/') == NULL;
}

static void free_name_change(struct io_name_change *c)
{
	free(c->path);
	free(c->to);
	free(c);
}

void io_disk_sync(struct io_disk *d, const char *dir)
{
	struct io_name_change **at = &d->first;

	while (*at != NULL) {
		struct io_name_change *c = *at;

		if (!lies_in(c->path, dir) && !lies_in(c->to, dir)) {
			at = &c->next;
			continue;
		}
		apply_name(&d->durable, c);
		*at = c->next;
		free_name_change(c);
	}
	d->last = at;
}

struct io_name *io_disk_find(struct io_disk *d, const char *path)
{
	return find(&d->live, path);
}

/* ---- content */

struct io_node *io_node_new(struct io_disk *d)
{
	struct io_node *n = calloc(1, sizeof(*n));
	char path[4096];

	snprintf(path, sizeof(path), "%s/%u", d->store, d->serial++);
	n->durable = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	ck_assert_int_ge(n->durable, 0);
	unlink(path);
	n->last = &n->first;
	d->nodes = reallocarray(d->nodes, d->n_nodes + 1, sizeof(*d->nodes));
	ck_assert_ptr_nonnull(d->nodes);
	d->nodes[d->n_nodes++] = n;
	return n;
}

void io_node_change(struct io_node *n, enum io_change_kind kind, int mode, uint64_t off,
	uint64_t len, const void *data)
{
	struct io_change *c = malloc(sizeof(*c) + (data != NULL ? len : 0));

	c->next = NULL;
	c->kind = kind;
	c->mode = mode;
	c->off = off;
	c->len = len;
	if (data != NULL)
		memcpy(c->data, data, len);
	*n->last = c;
	n->last = &c->next;
}

static void apply_piece(struct io_node *n, const struct io_change *c, uint64_t at, uint64_t len)
{
	ck_assert_int_eq(pwrite(n->durable, c->data + at, len, (off_t)(c->off + at)), (ssize_t)len);
}

static void apply_change(struct io_node *n, const struct io_change *c)
{
	if (c->kind == IO_WRITE)
		apply_piece(n, c, 0, c->len);
	else if (c->kind == IO_TRUNCATE)
		ck_assert_int_eq(ftruncate(n->durable, (off_t)c->len), 0);
	else
		ck_assert_int_eq(fallocate(n->durable, c->mode, (off_t)c->off, (off_t)c->len), 0);
}

void io_node_settle(struct io_disk *d, struct io_node *n, bool all)
{
	unsigned meta = all ? UINT32_MAX : (unsigned)rand_r(&d->seed) % 4;

	for (struct io_change *c = n->first, *next; c != NULL; c = next) {
		next = c->next;
		if (c->kind != IO_WRITE) {
			if (meta > 0)
				apply_change(n, c);
			meta -= meta > 0;
		} else if (all) {
			apply_change(n, c);
		} else {
			for (uint64_t at = 0; at < c->len; at += PIECE)
				if (rand_r(&d->seed) % 2 == 0)
					apply_piece(n, c, at,
						c->len - at < PIECE ? c->len - at : PIECE);
		}
		free(c);
	}
	n->first = NULL;
	n->last = &n->first;
}

/* ---- a restart */

static void copy_durable(const struct io_name *e)
{
	off_t size = lseek(e->node->durable, 0, SEEK_END), at = 0;
	int fd = open(e->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, size), 0);
	while ((at = lseek(e->node->durable, at, SEEK_DATA)) >= 0 && at < size) {
		off_t end = lseek(e->node->durable, at, SEEK_HOLE);

		while (at < end) {
			char buf[65536];
			ssize_t n = pread(e->node->durable, buf,
				(size_t)(end - at) < sizeof(buf) ? (size_t)(end - at) : sizeof(buf),
				at);

			ck_assert_int_gt(n, 0);
			ck_assert_int_eq(pwrite(fd, buf, (size_t)n, at), n);
			at += n;
		}
	}
	close(fd);
}

static int by_length(const void *a, const void *b)
{
	size_t x = strlen(((const struct io_name *)a)->path),
	       y = strlen(((const struct io_name *)b)->path);

	return x < y ? -1 : x > y;
}

static void forget(struct io_names *s)
{
	for (size_t i = 0; i < s->n; i++)
		free(s->at[i].path);
	free(s->at);
	*s = (struct io_names){0};
}

/* Files without a durable name are gone. */
static void free_unnamed(struct io_disk *d)
{
	size_t kept = 0;

	for (size_t i = 0; i < d->n_nodes; i++) {
		bool named = false;

		for (size_t k = 0; k < d->durable.n && !named; k++)
			named = d->durable.at[k].node == d->nodes[i];
		if (named) {
			d->nodes[kept++] = d->nodes[i];
			continue;
		}
		io_node_settle(d, d->nodes[i], false);
		close(d->nodes[i]->durable);
		free(d->nodes[i]);
	}
	d->n_nodes = kept;
}

/* Entries whose directory did not become durable are gone with it. */
static void keep_reachable(struct io_disk *d)
{
	size_t kept = 0;

	if (d->durable.n > 0)
		qsort(d->durable.at, d->durable.n, sizeof(*d->durable.at), by_length);
	for (size_t i = 0; i < d->durable.n; i++) {
		struct io_name e = d->durable.at[i];
		char *slash = strrchr(e.path, '/');
		bool known;

		*slash = '\0';
		known = strcmp(e.path, d->root) == 0;
		for (size_t k = 0; k < kept && !known; k++)
			known = strcmp(d->durable.at[k].path, e.path) == 0;
		*slash = '/';
		if (known)
			d->durable.at[kept++] = e;
		else
			free(e.path);
	}
	d->durable.n = kept;
}

void io_disk_restart(struct io_disk *d)
{
	struct io_name_change *c;
	size_t keep = 0;

	for (c = d->first; c != NULL; c = c->next)
		keep++;
	keep = keep > 0 ? (size_t)rand_r(&d->seed) % (keep + 1) : 0;
	while ((c = d->first) != NULL) {
		d->first = c->next;
		if (keep > 0) {
			apply_name(&d->durable, c);
			keep--;
		}
		free_name_change(c);
	}
	d->last = &d->first;
	keep_reachable(d);
	free_unnamed(d);
	tier_dir_empty(open(d->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	forget(&d->live);
	for (size_t i = 0; i < d->durable.n; i++) {
		struct io_name *e = &d->durable.at[i];

		if (e->node == NULL) {
			ck_assert_int_eq(mkdir(e->path, 0700), 0);
		} else {
			io_node_settle(d, e->node, false);
			copy_durable(e);
		}
		set(&d->live, e->path, e->node);
	}
}

void io_disk_init(struct io_disk *d, const char *root)
{
	*d = (struct io_disk){.root = root, .store = tier_dir_make("/dev/shm"), .last = &d->first};
}

void io_disk_done(struct io_disk *d)
{
	io_disk_restart(d);
	forget(&d->durable);
	forget(&d->live);
	free_unnamed(d);
	free(d->nodes);
	tier_dir_remove(d->store);
}
