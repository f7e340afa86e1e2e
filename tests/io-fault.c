/* The crashing I/O table. Every file keeps a durable copy and the list of what happened since. */
#include "tests/io-fault.h"

#include "tests/tier-dir.h"
#include "tier/lock.h"

#include <errno.h>
#include <stddef.h>

#define MAX_FD 1024
#define PIECE 4096

enum change_kind { WRITE, TRUNCATE, ALLOCATE };

struct change {
	struct change *next;
	enum change_kind kind;
	int mode; /* ALLOCATE */
	uint64_t off, len;
	char data[];
};

struct node {
	int durable; /* descriptor of the durable copy */
	struct change *first, **last;
};

struct name {
	char *path;
	struct node *node; /* NULL = directory */
};

struct names {
	struct name *at;
	size_t n;
};

enum name_kind { MAKE, REMOVE, MOVE };

struct name_change {
	struct name_change *next;
	enum name_kind kind;
	char *path, *to;
	struct node *node;
};

struct io_fault {
	struct mc_io io; /* first */
	struct mc_mutex lock;
	const char *root;
	char *store; /* directory of durable copies */
	unsigned serial;
	struct node **nodes; /* all of them */
	size_t n_nodes;
	struct node *by_fd[MAX_FD];
	char *dir_by_fd[MAX_FD];
	struct names live, durable;
	struct name_change *first, **last;
	enum io_fault_kind kind;
	uint64_t at, calls;
	unsigned seed;
	bool crashed;
	void (*on_crash)(void *ctx);
	void *crash_ctx;
};

static struct io_fault *self(const struct mc_io *io)
{
	return (struct io_fault *)(uintptr_t)io;
}

/* ---- names */

static struct name *find(struct names *s, const char *path)
{
	for (size_t i = 0; i < s->n; i++)
		if (strcmp(s->at[i].path, path) == 0)
			return &s->at[i];
	return NULL;
}

static void set(struct names *s, const char *path, struct node *node)
{
	struct name *e = find(s, path);

	if (e == NULL) {
		s->at = reallocarray(s->at, s->n + 1, sizeof(*s->at));
		ck_assert_ptr_nonnull(s->at);
		e = &s->at[s->n++];
		e->path = strdup(path);
	}
	e->node = node;
}

static void unset(struct names *s, const char *path, const struct node *node)
{
	struct name *e = find(s, path);

	if (e == NULL || e->node != node)
		return;
	free(e->path);
	*e = s->at[--s->n];
}

static void apply_name(struct names *s, const struct name_change *c)
{
	if (c->kind == MAKE) {
		set(s, c->path, c->node);
	} else if (c->kind == REMOVE) {
		unset(s, c->path, c->node);
	} else {
		unset(s, c->path, c->node);
		set(s, c->to, c->node);
	}
}

static void change_name(struct io_fault *f, enum name_kind kind, const char *path, const char *to,
	struct node *node)
{
	struct name_change *c = calloc(1, sizeof(*c));

	*c = (struct name_change){.kind = kind,
		.path = strdup(path),
		.to = to != NULL ? strdup(to) : NULL,
		.node = node};
	*f->last = c;
	f->last = &c->next;
	apply_name(&f->live, c);
}

static bool lies_in(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return path != NULL && strncmp(path, dir, n) == 0 && path[n] == '/' &&
		strchr(path + n + 1, '/') == NULL;
}

static void free_name_change(struct name_change *c)
{
	free(c->path);
	free(c->to);
	free(c);
}

static void sync_names(struct io_fault *f, const char *dir)
{
	struct name_change **at = &f->first;

	while (*at != NULL) {
		struct name_change *c = *at;

		if (!lies_in(c->path, dir) && !lies_in(c->to, dir)) {
			at = &c->next;
			continue;
		}
		apply_name(&f->durable, c);
		*at = c->next;
		free_name_change(c);
	}
	f->last = at;
}

/* ---- content */

static struct node *new_node(struct io_fault *f)
{
	struct node *n = calloc(1, sizeof(*n));
	char path[4096];

	snprintf(path, sizeof(path), "%s/%u", f->store, f->serial++);
	n->durable = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	ck_assert_int_ge(n->durable, 0);
	unlink(path);
	n->last = &n->first;
	f->nodes = reallocarray(f->nodes, f->n_nodes + 1, sizeof(*f->nodes));
	ck_assert_ptr_nonnull(f->nodes);
	f->nodes[f->n_nodes++] = n;
	return n;
}

static void add_change(
	struct node *n, enum change_kind kind, uint64_t off, uint64_t len, const void *data)
{
	struct change *c = malloc(sizeof(*c) + (data != NULL ? len : 0));

	c->next = NULL;
	c->kind = kind;
	c->mode = 0;
	c->off = off;
	c->len = len;
	if (data != NULL)
		memcpy(c->data, data, len);
	*n->last = c;
	n->last = &c->next;
}

static void apply_piece(struct node *n, const struct change *c, uint64_t at, uint64_t len)
{
	ck_assert_int_eq(pwrite(n->durable, c->data + at, len, (off_t)(c->off + at)), (ssize_t)len);
}

static void apply_change(struct node *n, const struct change *c)
{
	if (c->kind == WRITE)
		apply_piece(n, c, 0, c->len);
	else if (c->kind == TRUNCATE)
		ck_assert_int_eq(ftruncate(n->durable, (off_t)c->len), 0);
	else
		ck_assert_int_eq(fallocate(n->durable, c->mode, (off_t)c->off, (off_t)c->len), 0);
}

/* All changes, or a choice of them, become durable; none is left. */
static void settle(struct io_fault *f, struct node *n, bool all)
{
	unsigned meta = all ? UINT32_MAX : (unsigned)rand_r(&f->seed) % 4;

	for (struct change *c = n->first, *next; c != NULL; c = next) {
		next = c->next;
		if (c->kind != WRITE) {
			if (meta > 0)
				apply_change(n, c);
			meta -= meta > 0;
		} else if (all) {
			apply_change(n, c);
		} else {
			for (uint64_t at = 0; at < c->len; at += PIECE)
				if (rand_r(&f->seed) % 2 == 0)
					apply_piece(n, c, at,
						c->len - at < PIECE ? c->len - at : PIECE);
		}
		free(c);
	}
	n->first = NULL;
	n->last = &n->first;
}

/* ---- the calls */

/* 0: go on; -EIO: this call goes wrong. *ret_tear: a write may be done in part first. */
static int enter(struct io_fault *f, bool *ret_tear)
{
	*ret_tear = false;
	if (f->crashed)
		return -EIO;
	f->calls++;
	if (f->kind == IO_FAULT_NONE || f->calls != f->at)
		return 0;
	if (f->kind != IO_FAULT_FAIL)
		f->crashed = true;
	if (f->crashed && f->on_crash != NULL)
		f->on_crash(f->crash_ctx);
	*ret_tear = f->kind == IO_FAULT_TEAR;
	return -EIO;
}

static const struct mc_io *real(void)
{
	return mc_io_real();
}

static int fault_open(const struct mc_io *io, const char *path, int flags, mode_t mode)
{
	struct io_fault *f = self(io);
	bool create, tear;
	struct name *e;
	int fd = 0;

	mc_mutex_lock(&f->lock);
	e = find(&f->live, path);
	create = (flags & O_CREAT) != 0 && e == NULL;
	if (f->crashed)
		fd = -EIO;
	else if (create || (flags & O_TRUNC) != 0)
		fd = enter(f, &tear);
	if (fd == 0)
		fd = real()->open(real(), path, flags, mode);
	if (fd < 0)
		goto out;
	ck_assert_int_lt(fd, MAX_FD);
	f->by_fd[fd] = NULL;
	f->dir_by_fd[fd] = NULL;
	if ((flags & O_DIRECTORY) != 0) {
		f->dir_by_fd[fd] = strdup(path);
	} else if (create) {
		f->by_fd[fd] = new_node(f);
		change_name(f, MAKE, path, NULL, f->by_fd[fd]);
	} else {
		ck_assert_msg(e != NULL, "%s is unknown", path);
		f->by_fd[fd] = e->node;
		if ((flags & O_TRUNC) != 0)
			add_change(e->node, TRUNCATE, 0, 0, NULL);
	}
out:
	mc_mutex_unlock(&f->lock);
	return fd;
}

static int fault_close(const struct mc_io *io, int fd)
{
	struct io_fault *f = self(io);

	mc_mutex_lock(&f->lock);
	f->by_fd[fd] = NULL;
	free(f->dir_by_fd[fd]);
	f->dir_by_fd[fd] = NULL;
	mc_mutex_unlock(&f->lock);
	return real()->close(real(), fd);
}

static int64_t fault_pread(const struct mc_io *io, int fd, void *buf, size_t len, uint64_t off)
{
	struct io_fault *f = self(io);
	bool crashed;

	mc_mutex_lock(&f->lock);
	crashed = f->crashed;
	mc_mutex_unlock(&f->lock);
	return crashed ? -EIO : real()->pread(real(), fd, buf, len, off);
}

static int64_t fault_pwrite(
	const struct mc_io *io, int fd, const void *buf, size_t len, uint64_t off)
{
	struct io_fault *f = self(io);
	int64_t r;
	bool tear;

	mc_mutex_lock(&f->lock);
	r = enter(f, &tear);
	if (tear && len > 512)
		add_change(f->by_fd[fd], WRITE, off,
			512 * (1 + (uint64_t)rand_r(&f->seed) % (len / 512 - (len % 512 == 0))),
			buf);
	if (r == 0)
		r = real()->pwrite(real(), fd, buf, len, off);
	if (r > 0)
		add_change(f->by_fd[fd], WRITE, off, (uint64_t)r, buf);
	mc_mutex_unlock(&f->lock);
	return r;
}

static int fault_fsync(const struct mc_io *io, int fd)
{
	struct io_fault *f = self(io);
	bool tear;
	int r;

	mc_mutex_lock(&f->lock);
	r = enter(f, &tear);
	if (f->dir_by_fd[fd] != NULL) {
		if (r == 0)
			sync_names(f, f->dir_by_fd[fd]);
	} else if (r == 0 || !f->crashed) {
		settle(f, f->by_fd[fd], r == 0);
	}
	mc_mutex_unlock(&f->lock);
	return r;
}

static int fault_ftruncate(const struct mc_io *io, int fd, uint64_t size)
{
	struct io_fault *f = self(io);
	bool tear;
	int r;

	mc_mutex_lock(&f->lock);
	r = enter(f, &tear);
	if (r == 0)
		r = real()->ftruncate(real(), fd, size);
	if (r == 0)
		add_change(f->by_fd[fd], TRUNCATE, 0, size, NULL);
	mc_mutex_unlock(&f->lock);
	return r;
}

static int fault_fallocate(const struct mc_io *io, int fd, int mode, uint64_t off, uint64_t len)
{
	struct io_fault *f = self(io);
	bool tear;
	int r;

	mc_mutex_lock(&f->lock);
	r = enter(f, &tear);
	if (r == 0)
		r = real()->fallocate(real(), fd, mode, off, len);
	if (r == 0) {
		struct node *n = f->by_fd[fd];
		struct change **at = n->last;

		add_change(n, ALLOCATE, off, len, NULL);
		(*at)->mode = mode;
	}
	mc_mutex_unlock(&f->lock);
	return r;
}

static int fault_fstat(const struct mc_io *io, int fd, struct stat *ret)
{
	(void)io;
	return real()->fstat(real(), fd, ret);
}

static int fault_rename(const struct mc_io *io, const char *from, const char *to)
{
	struct io_fault *f = self(io);
	struct name *e;
	bool tear;
	int r;

	mc_mutex_lock(&f->lock);
	r = enter(f, &tear);
	if (r == 0)
		r = real()->rename(real(), from, to);
	e = find(&f->live, from);
	if (r == 0 && e != NULL)
		change_name(f, MOVE, from, to, e->node);
	mc_mutex_unlock(&f->lock);
	return r;
}

static int fault_unlink(const struct mc_io *io, const char *path)
{
	struct io_fault *f = self(io);
	struct name *e;
	bool tear;
	int r;

	mc_mutex_lock(&f->lock);
	r = enter(f, &tear);
	if (r == 0)
		r = real()->unlink(real(), path);
	e = find(&f->live, path);
	if (r == 0 && e != NULL)
		change_name(f, REMOVE, path, NULL, e->node);
	mc_mutex_unlock(&f->lock);
	return r;
}

static int fault_mkdir(const struct mc_io *io, const char *path, mode_t mode)
{
	struct io_fault *f = self(io);
	bool tear;
	int r = 0;

	mc_mutex_lock(&f->lock);
	if (strcmp(path, f->root) == 0 || find(&f->live, path) != NULL)
		r = f->crashed ? -EIO : -EEXIST;
	if (r == 0)
		r = enter(f, &tear);
	if (r == 0)
		r = real()->mkdir(real(), path, mode);
	if (r == 0)
		change_name(f, MAKE, path, NULL, NULL);
	mc_mutex_unlock(&f->lock);
	return r;
}

/* ---- the test's side */

struct io_fault *io_fault_open(const char *root)
{
	struct io_fault *f = calloc(1, sizeof(*f));

	f->io = (struct mc_io){
		.open = fault_open,
		.close = fault_close,
		.pread = fault_pread,
		.pwrite = fault_pwrite,
		.fdatasync = fault_fsync,
		.fsync = fault_fsync,
		.ftruncate = fault_ftruncate,
		.fallocate = fault_fallocate,
		.fstat = fault_fstat,
		.rename = fault_rename,
		.unlink = fault_unlink,
		.mkdir = fault_mkdir,
	};
	mc_mutex_init(&f->lock);
	f->root = root;
	f->store = tier_dir_make("/dev/shm");
	f->last = &f->first;
	return f;
}

const struct mc_io *io_fault_table(struct io_fault *f)
{
	return &f->io;
}

void io_fault_arm(struct io_fault *f, enum io_fault_kind kind, uint64_t at, unsigned seed)
{
	mc_mutex_lock(&f->lock);
	f->kind = kind;
	f->at = at;
	f->calls = 0;
	f->seed = seed;
	mc_mutex_unlock(&f->lock);
}

void io_fault_tell(struct io_fault *f, void (*on_crash)(void *ctx), void *ctx)
{
	f->on_crash = on_crash;
	f->crash_ctx = ctx;
}

uint64_t io_fault_calls(struct io_fault *f)
{
	uint64_t calls;

	mc_mutex_lock(&f->lock);
	calls = f->calls;
	mc_mutex_unlock(&f->lock);
	return calls;
}

static void copy_durable(const struct name *e)
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
	size_t x = strlen(((const struct name *)a)->path),
	       y = strlen(((const struct name *)b)->path);

	return x < y ? -1 : x > y;
}

static void forget(struct names *s)
{
	for (size_t i = 0; i < s->n; i++)
		free(s->at[i].path);
	free(s->at);
	*s = (struct names){0};
}

/* Files without a durable name are gone. */
static void free_unnamed(struct io_fault *f)
{
	size_t kept = 0;

	for (size_t i = 0; i < f->n_nodes; i++) {
		bool named = false;

		for (size_t k = 0; k < f->durable.n && !named; k++)
			named = f->durable.at[k].node == f->nodes[i];
		if (named) {
			f->nodes[kept++] = f->nodes[i];
			continue;
		}
		settle(f, f->nodes[i], false);
		close(f->nodes[i]->durable);
		free(f->nodes[i]);
	}
	f->n_nodes = kept;
}

/* Entries whose directory did not become durable are gone with it. */
static void keep_reachable(struct io_fault *f)
{
	size_t kept = 0;

	if (f->durable.n > 0)
		qsort(f->durable.at, f->durable.n, sizeof(*f->durable.at), by_length);
	for (size_t i = 0; i < f->durable.n; i++) {
		struct name e = f->durable.at[i];
		char *slash = strrchr(e.path, '/');
		bool known;

		*slash = '\0';
		known = strcmp(e.path, f->root) == 0;
		for (size_t k = 0; k < kept && !known; k++)
			known = strcmp(f->durable.at[k].path, e.path) == 0;
		*slash = '/';
		if (known)
			f->durable.at[kept++] = e;
		else
			free(e.path);
	}
	f->durable.n = kept;
}

void io_fault_restart(struct io_fault *f)
{
	struct name_change *c;
	size_t keep = 0;

	for (c = f->first; c != NULL; c = c->next)
		keep++;
	keep = keep > 0 ? (size_t)rand_r(&f->seed) % (keep + 1) : 0;
	while ((c = f->first) != NULL) {
		f->first = c->next;
		if (keep > 0) {
			apply_name(&f->durable, c);
			keep--;
		}
		free_name_change(c);
	}
	f->last = &f->first;
	keep_reachable(f);
	free_unnamed(f);
	tier_dir_empty(open(f->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	forget(&f->live);
	for (size_t i = 0; i < f->durable.n; i++) {
		struct name *e = &f->durable.at[i];

		if (e->node == NULL) {
			ck_assert_int_eq(mkdir(e->path, 0700), 0);
		} else {
			settle(f, e->node, false);
			copy_durable(e);
		}
		set(&f->live, e->path, e->node);
	}
	f->kind = IO_FAULT_NONE;
	f->crashed = false;
}

void io_fault_close(struct io_fault *f)
{
	io_fault_restart(f);
	forget(&f->durable);
	forget(&f->live);
	free_unnamed(f);
	free(f->nodes);
	mc_mutex_done(&f->lock);
	tier_dir_remove(f->store);
	free(f);
}
