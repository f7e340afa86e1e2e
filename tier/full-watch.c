/*
 * Was a tmpfs full?
 *
 * Between two times that memory is given back what is left only becomes less. So a look right after
 * the second one shows that there was some left all the while, if there is more now than what was
 * given back since the look before. A look that does not show it counts.
 *
 * Invariants
 * 1. begun is raised before memory is given back, ended after it: what was given back between two
 * looks is at most begun at the later one less ended before the earlier one.
 * 2. An allocation that fails takes all that is left and gives it back: while it runs it is begun,
 * in pieces, and what succeeded is taken off again.
 * 3. The state lies in the tmpfs. A process may be killed at any instruction: the next one takes
 * what was begun and not ended for given back.
 */
#include "tier/full-watch.h"

#include "tier/cleanup.h"
#include "tier/io.h"
#include "tier/lock.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#define MAGIC "MCFULL1"
#define PAGE UINT64_C(4096)
/* Bytes that count as nothing left: the kernel takes the holes of a huge page that it makes in the
 * background, and gives them back if it does not come to it. */
#define NOTHING (UINT64_C(2) << 20)
#define PIECE (UINT64_C(2) << 20) /* of an allocation: a huge page */

struct shared {
	char magic[8];
	_Atomic uint64_t count;
	_Atomic uint64_t begun, ended; /* bytes given back */
	_Atomic uint64_t since;        /* ended before the last look */
	_Atomic uint64_t total;        /* bytes of the file system at the last look */
};

struct mc_full_watch {
	int fd;
	struct shared *s;     /* owned mapping, a page */
	struct mc_mutex lock; /* one look at a time */
};

static uint64_t pages(uint64_t bytes)
{
	return (bytes + PAGE - 1) / PAGE * PAGE;
}

static void count(struct mc_full_watch *w)
{
	atomic_fetch_add(&w->s->count, 1);
}

/* Bytes that are left, 0 where that is not known, and that there are. */
static uint64_t left(const struct mc_full_watch *w, uint64_t *ret_total)
{
	struct statvfs v;

	if (fstatvfs(w->fd, &v) != 0)
		v = (struct statvfs){0};
	*ret_total = (uint64_t)v.f_blocks * v.f_frsize;
	return (uint64_t)v.f_bavail * v.f_frsize;
}

static void look(struct mc_full_watch *w)
{
	struct shared *s = w->s;
	uint64_t since, total, now, was, given;

	mc_mutex_lock(&w->lock);
	since = atomic_load(&s->ended);
	now = left(w, &total);
	was = atomic_load(&s->total);
	given = atomic_load(&s->begun) - atomic_load(&s->since);
	if (total > was)
		given += total - was;
	if (now <= given + NOTHING)
		count(w);
	atomic_store(&s->total, total);
	atomic_store(&s->since, since);
	mc_mutex_unlock(&w->lock);
}

uint64_t mc_full_watch_count(struct mc_full_watch *w)
{
	look(w);
	return atomic_load(&w->s->count);
}

void mc_full_watch_begin(struct mc_full_watch *w, uint64_t bytes)
{
	if (w != NULL)
		atomic_fetch_add(&w->s->begun, bytes);
}

void mc_full_watch_end(struct mc_full_watch *w, uint64_t bytes)
{
	if (w == NULL)
		return;
	atomic_fetch_add(&w->s->ended, bytes);
	look(w);
}

void mc_full_watch_missed(struct mc_full_watch *w)
{
	if (w != NULL)
		count(w);
}

/* Bytes a file may have; through a mapping its holes may be filled right now. */
static uint64_t bytes_of(int fd)
{
	struct stat st;
	uint64_t has;

	if (fstat(fd, &st) != 0)
		return UINT64_MAX / 2;
	has = (uint64_t)st.st_blocks * 512;
	return has > pages((uint64_t)st.st_size) ? has : pages((uint64_t)st.st_size);
}

int mc_full_watch_truncate(struct mc_full_watch *w, int fd, uint64_t size)
{
	uint64_t has = bytes_of(fd), given = has > pages(size) ? has - pages(size) : 0;
	int r;

	if (given > 0)
		mc_full_watch_begin(w, given);
	r = ftruncate(fd, (off_t)size) == 0 ? 0 : -errno;
	if (given > 0)
		mc_full_watch_end(w, given);
	return r;
}

static int punch(struct mc_full_watch *w, int fd, int mode, uint64_t off, uint64_t len)
{
	uint64_t has = bytes_of(fd), given = len < has ? len : has;
	int r;

	mc_full_watch_begin(w, given);
	r = mc_io_allocate(fd, mode, off, len);
	mc_full_watch_end(w, given);
	return r;
}

/* Whether there is no room for so much, which is not tried then. */
static bool is_too_much(const struct mc_full_watch *w, int fd, uint64_t len)
{
	uint64_t total, now = left(w, &total);
	struct stat st;

	return fstat(fd, &st) == 0 && len > now + (uint64_t)st.st_blocks * 512;
}

static int allocate_piece(struct mc_full_watch *w, int fd, int mode, uint64_t off, uint64_t len)
{
	int r;

	mc_full_watch_begin(w, len);
	r = mc_io_allocate(fd, mode, off, len);
	if (r == 0 || r == -EOPNOTSUPP || r == -EINVAL || r == -EFBIG) {
		atomic_fetch_sub(&w->s->begun, len);
	} else {
		count(w);
		atomic_fetch_add(&w->s->ended, len);
	}
	return r;
}

int mc_full_watch_allocate(struct mc_full_watch *w, int fd, int mode, uint64_t off, uint64_t len)
{
	int r = 0;

	if ((mode & FALLOC_FL_PUNCH_HOLE) != 0)
		return punch(w, fd, mode, off, len);
	if (w == NULL)
		return mc_io_allocate(fd, mode, off, len);
	if (is_too_much(w, fd, len))
		return -ENOSPC;
	for (uint64_t at = off, next; at < off + len && r == 0; at = next) {
		next = (at / PIECE + 1) * PIECE;
		if (next < off + len) { /* the last one sets the end */
			r = allocate_piece(w, fd, mode | FALLOC_FL_KEEP_SIZE, at, next - at);
		} else {
			next = off + len;
			r = allocate_piece(w, fd, mode, at, next - at);
		}
	}
	return r;
}

void mc_full_watch_remove(struct mc_full_watch *w, int fd, const char *path)
{
	uint64_t has = bytes_of(fd);

	mc_full_watch_begin(w, has);
	unlink(path);
	close(fd);
	mc_full_watch_end(w, has);
}

/* ---- open */

static int map_file(struct mc_full_watch *w)
{
	struct stat st;
	bool fresh;
	int r;

	if (fstat(w->fd, &st) != 0)
		return -errno;
	fresh = st.st_size != (off_t)PAGE;
	r = ftruncate(w->fd, (off_t)PAGE) == 0 ? mc_io_allocate(w->fd, 0, 0, PAGE) : -errno;
	if (r < 0)
		return r;
	w->s = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, w->fd, 0);
	if (w->s == MAP_FAILED) {
		w->s = NULL;
		return -errno;
	}
	if (fresh || memcmp(w->s->magic, MAGIC, sizeof(MAGIC)) != 0) {
		memset(w->s, 0, sizeof(*w->s));
		memcpy(w->s->magic, MAGIC, sizeof(MAGIC));
	}
	return 0;
}

int mc_full_watch_open(const char *path, struct mc_full_watch **ret)
{
	struct mc_full_watch *w = calloc(1, sizeof(*w));
	int r;

	if (w == NULL)
		return -ENOMEM;
	mc_mutex_init(&w->lock);
	w->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	r = w->fd < 0 ? -errno : map_file(w);
	if (r < 0) {
		mc_full_watch_close(w);
		return r;
	}
	look(w);
	/* What was begun by a process that is gone has ended with it. */
	atomic_store(&w->s->ended, atomic_load(&w->s->begun));
	atomic_store(&w->s->since, atomic_load(&w->s->begun));
	*ret = w;
	return 0;
}

void mc_full_watch_close(struct mc_full_watch *w)
{
	if (w == NULL)
		return;
	if (w->s != NULL)
		munmap(w->s, PAGE);
	if (w->fd >= 0)
		close(w->fd);
	mc_mutex_done(&w->lock);
	free(w);
}
