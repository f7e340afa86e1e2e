/*
 * Publishing in remote kind "dir": temporary file, data durable, size checked, rename.
 *
 * 1. A name appears in its directory only by rename or link of a file whose data is durable.
 * 2. Before an operation that made a name returns, the name's directory stands in `touched` or has
 * been synced. It leaves `touched` for an fsync that begins later, and comes back when that fails.
 * One sync runs at a time; another waits for it, so that none returns while what it owes is on the
 * way.
 * 3. Parents are made when their absence is met, not looked for before: the usual put finds them.
 */
#include "tier/remote-dir.h"

#include "tier/cleanup.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define WRITE_MAX ((size_t)8 << 20) /* bytes of one pwrite */
#define DIRECT_ALIGN 4096
#define DIRECT_MIN ((size_t)1 << 20) /* smaller objects gain nothing from O_DIRECT */
#define TMP_MODE 0644

int mc_dir_puts_init(struct mc_dir *d)
{
	struct mc_dir_puts *ps = &d->puts;
	int r = mc_lru_init(&ps->touched, 1024);

	if (r < 0)
		return r;
	if (getrandom(&ps->salt, sizeof(ps->salt), 0) != (ssize_t)sizeof(ps->salt)) {
		mc_lru_done(&ps->touched);
		return -EIO;
	}
	mc_mutex_init(&ps->lock);
	mc_cond_init(&ps->synced);
	return 0;
}

static void clear_set(struct mc_lru *l)
{
	struct mc_lru_node *n;

	while ((n = mc_lru_oldest(l)) != NULL) {
		mc_lru_remove(l, n);
		free(n);
	}
}

void mc_dir_puts_done(struct mc_dir *d)
{
	struct mc_dir_puts *ps = &d->puts;

	clear_set(&ps->touched);
	mc_lru_done(&ps->touched);
	mc_cond_done(&ps->synced);
	mc_mutex_done(&ps->lock);
}

static int sync_one(struct mc_dir *d, const char *path)
{
	cleanup_close int fd = mc_dir_open_at(d, path, O_RDONLY | O_DIRECTORY, 0);

	if (fd == -ENOENT) /* removed since: nothing to keep */
		return 0;
	if (fd < 0)
		return fd;
	atomic_fetch_add(&d->counters->requests, 1);
	return fsync(fd) < 0 ? -errno : 0;
}

static int touched_add(struct mc_dir *d, const char *dir)
{
	struct mc_dir_puts *ps = &d->puts;
	struct mc_lru_node *n;
	int r = 0;

	mc_mutex_lock(&ps->lock);
	if (mc_lru_find(&ps->touched, dir) == NULL) {
		n = calloc(1, sizeof(*n));
		r = n == NULL ? -ENOMEM : mc_lru_insert(&ps->touched, n, dir);
		if (r < 0)
			free(n);
	}
	mc_mutex_unlock(&ps->lock);
	return r;
}

int mc_dir_name_made(struct mc_dir *d, const char *path)
{
	const char *slash = strrchr(path, '/');
	char parent[MC_REMOTE_PATH_MAX];
	size_t len = slash == NULL ? 0 : (size_t)(slash - path);

	memcpy(parent, path, len);
	parent[len] = '\0';
	return touched_add(d, parent) < 0 ? sync_one(d, parent) : 0;
}

static int make_one(struct mc_dir *d, const char *path)
{
	const char *name;
	cleanup_close int fd = mc_dir_open_parent(d, path, &name);

	if (fd < 0)
		return fd;
	if (mkdirat(fd, name, 0755) < 0)
		return errno == EEXIST ? 0 : -errno;
	return mc_dir_name_made(d, path);
}

/* mkdir of every directory on the way to path; path itself only when self. */
static int make_dirs(struct mc_dir *d, const char *path, bool self)
{
	char prefix[MC_REMOTE_PATH_MAX];

	for (const char *p = path;;) {
		size_t n = strcspn(p, "/");
		int r;

		if (p[n] == '\0' && !self)
			return 0;
		memcpy(prefix, path, (size_t)(p - path) + n);
		prefix[(size_t)(p - path) + n] = '\0';
		r = make_one(d, prefix);
		if (r < 0 || p[n] == '\0')
			return r;
		p += n + 1;
	}
}

int mc_dir_mkdir(struct mc_backend *b, const struct mc_remote_call *c)
{
	struct mc_dir *d = (struct mc_dir *)b;
	cleanup_close int fd = -1;
	int r = mc_dir_check(d, c);

	if (r == 0)
		r = make_dirs(d, c->path, true);
	if (r < 0)
		return r;
	fd = mc_dir_open_at(d, c->path, O_PATH | O_DIRECTORY, 0);
	return fd == -ENOTDIR ? -EEXIST : fd < 0 ? fd : 0;
}

static int set_direct(int fd, bool on)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0)
		return -errno;
	flags = on ? flags | O_DIRECT : flags & ~O_DIRECT;
	return fcntl(fd, F_SETFL, flags) < 0 ? -errno : 0;
}

static int write_range(struct mc_dir *d, int fd, const char *buf, size_t off, size_t end)
{
	while (off < end) {
		size_t n = end - off < WRITE_MAX ? end - off : WRITE_MAX;
		ssize_t w = pwrite(fd, buf + off, n, (off_t)off);

		if (w < 0 && errno != EINTR)
			return -errno;
		if (w == 0)
			return -EIO;
		if (w > 0)
			off += (size_t)w;
		atomic_fetch_add(&d->counters->requests, 1);
		if (atomic_load(&d->stopping))
			return -ESHUTDOWN;
	}
	return 0;
}

/* The aligned front past the page cache where the file system takes it, the tail through it. */
static int write_all(struct mc_dir *d, int fd, const char *buf, size_t len)
{
	size_t front = len - len % DIRECT_ALIGN;
	struct stat st;
	int r;

	if ((uintptr_t)buf % DIRECT_ALIGN != 0 || len < DIRECT_MIN || set_direct(fd, true) < 0)
		front = 0;
	if (front > 0) {
		r = write_range(d, fd, buf, 0, front);
		if (r == -EINVAL)
			front = 0; /* taken by fcntl, refused by write */
		else if (r < 0)
			return r;
		r = set_direct(fd, false);
		if (r < 0)
			return r;
	}
	r = write_range(d, fd, buf, front, len);
	if (r < 0)
		return r;
	if (fdatasync(fd) < 0)
		return -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	return (uint64_t)st.st_size == len ? 0 : -EIO;
}

static int create_tmp(struct mc_dir *d, const char *tmp)
{
	int fd = mc_dir_open_at(d, tmp, O_WRONLY | O_CREAT | O_EXCL, TMP_MODE);

	if (fd == -ENOENT) {
		int r = make_dirs(d, tmp, false);

		if (r < 0)
			return r;
		fd = mc_dir_open_at(d, tmp, O_WRONLY | O_CREAT | O_EXCL, TMP_MODE);
	}
	return fd;
}

/* from and to are open directories. */
static int move(int from, const char *tmp, int to, const char *name, unsigned flags)
{
	if (!(flags & MC_PUT_EXCL))
		return renameat(from, tmp, to, name) < 0 ? -errno : 0;
	if (renameat2(from, tmp, to, name, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP)
		return -errno;
	if (linkat(from, tmp, to, name, 0) < 0)
		return -errno;
	return unlinkat(from, tmp, 0) < 0 ? -errno : 0;
}

static int publish(struct mc_dir *d, const char *tmp, const char *path, unsigned flags)
{
	const char *tmp_name, *name;
	cleanup_close int from = mc_dir_open_parent(d, tmp, &tmp_name);
	cleanup_close int to = mc_dir_open_parent(d, path, &name);
	int r;

	if (from < 0)
		return from;
	if (to == -ENOENT) {
		r = make_dirs(d, path, false);
		if (r < 0)
			return r;
		to = mc_dir_open_parent(d, path, &name);
	}
	if (to < 0)
		return to;
	r = move(from, tmp_name, to, name, flags);
	mc_dir_reads_forget(d, path, NULL);
	return r < 0 ? r : mc_dir_name_made(d, path);
}

static void discard(struct mc_dir *d, const char *tmp)
{
	const char *name;
	cleanup_close int fd = mc_dir_open_parent(d, tmp, &name);

	if (fd >= 0)
		unlinkat(fd, name, 0);
}

int mc_dir_put(struct mc_backend *b, const struct mc_remote_call *c, const void *buf, size_t len,
	unsigned flags)
{
	struct mc_dir *d = (struct mc_dir *)b;
	uint64_t serial = atomic_fetch_add(&d->puts.serial, 1);
	cleanup_free char *tmp = NULL;
	cleanup_close int fd = -1;
	int r = mc_dir_check(d, c);

	if (r < 0)
		return r;
	if (asprintf(&tmp, "%s/%016llx-%llx", d->tmp, (unsigned long long)d->puts.salt,
		    (unsigned long long)serial) < 0) {
		tmp = NULL;
		return -ENOMEM;
	}
	fd = create_tmp(d, tmp);
	if (fd < 0)
		return fd;
	r = write_all(d, fd, buf, len);
	if (r == 0 && mc_now_ns() >= c->deadline_ns)
		r = -ETIMEDOUT;
	if (r == 0)
		r = publish(d, tmp, c->path, flags);
	if (r < 0)
		discard(d, tmp);
	return r == 0 && (flags & MC_PUT_DURABLE) != 0 ? mc_dir_sync(b, c) : r;
}

/* Everything on the list now, as owned strings in *ret. */
static int touched_take(struct mc_dir_puts *ps, char ***ret, size_t *ret_n)
{
	struct mc_lru_node *n;
	char **dirs;
	size_t count = 0;

	mc_mutex_lock(&ps->lock);
	dirs = calloc(ps->touched.n + 1, sizeof(*dirs));
	while (dirs != NULL && (n = mc_lru_oldest(&ps->touched)) != NULL) {
		dirs[count++] = mc_lru_take(&ps->touched, n);
		free(n);
	}
	mc_mutex_unlock(&ps->lock);
	*ret = dirs;
	*ret_n = count;
	return dirs == NULL ? -ENOMEM : 0;
}

static int sync_all(struct mc_dir *d, const struct mc_remote_call *c)
{
	char **dirs;
	size_t n;
	int r = touched_take(&d->puts, &dirs, &n);

	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++) {
		int one = mc_now_ns() >= c->deadline_ns ? -ETIMEDOUT : sync_one(d, dirs[i]);

		if (one < 0) {
			r = r < 0 ? r : one;
			touched_add(d, dirs[i]);
		}
		free(dirs[i]);
	}
	free(dirs);
	return r;
}

int mc_dir_sync(struct mc_backend *b, const struct mc_remote_call *c)
{
	struct mc_dir *d = (struct mc_dir *)b;
	struct mc_dir_puts *ps = &d->puts;
	int r = mc_dir_check(d, c);

	if (r < 0)
		return r;
	mc_mutex_lock(&ps->lock);
	while (ps->syncing)
		mc_cond_wait(&ps->synced, &ps->lock);
	ps->syncing = true;
	mc_mutex_unlock(&ps->lock);
	r = sync_all(d, c);
	mc_mutex_lock(&ps->lock);
	ps->syncing = false;
	mc_cond_broadcast(&ps->synced);
	mc_mutex_unlock(&ps->lock);
	return r;
}

int mc_dir_name_sync(struct mc_dir *d, const struct mc_remote_call *c)
{
	int r = mc_dir_name_made(d, c->path);

	return r < 0 ? r : mc_dir_sync(&d->base, c);
}
