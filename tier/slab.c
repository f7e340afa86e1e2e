/*
 * The slab file: a head that says which size each piece holds, then the pieces.
 *
 * Invariants
 * 1. The head's class of a piece is written before a slot of it is handed out, and cleared before
 * its memory goes: a slot that can be named lies in a piece of its class.
 * 2. A piece with a class has memory (fallocated): storing into a slot never meets a full tmpfs.
 * 3. partial[class] lists exactly the pieces of the class that have a free slot.
 */
#include "tier/slab.h"

#include "tier/cleanup.h"
#include "tier/full-watch.h"
#include "tier/io.h"
#include "tier/lock.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define BOOT_ID_SIZE 36 /* text of /proc/sys/kernel/random/boot_id */
#define NO_PIECE UINT32_MAX
/* Empty pieces that stay: slots freed and taken in turn cost no system call. */
#define EMPTY_MAX 2

static const uint32_t sizes[] = {128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144,
	8192, 12288, 16384, 24576, 32768, 49152, 65536};
#define SIZES (sizeof(sizes) / sizeof(*sizes))
#define BLOCKS (SIZES * MC_SLAB_BLOCK) /* the class of blocks, the last one */
#define CLASSES (BLOCKS + 1)

struct head {
	char magic[8];
	char boot_id[BOOT_ID_SIZE];
	uint32_t n_pieces;
	uint8_t class[]; /* one for each piece: 0 = free, else index of the class + 1 */
};

struct piece {
	uint64_t *taken; /* owned bitmap; NULL while free */
	uint32_t n_taken;
	uint32_t hint;       /* word where the next search starts */
	uint32_t next, prev; /* in partial or in the free list (next only) */
};

struct mc_slab {
	int fd;
	struct mc_full_watch *watch; /* borrowed; NULL = nobody asks */
	char *base;                  /* the whole file */
	size_t len;
	struct head *head;
	uint64_t head_len; /* where the pieces start: aligned, so that they can be huge pages */
	uint64_t head_bytes;
	struct mc_mutex lock;
	struct piece *pieces MC_GUARDED_BY(lock);
	uint32_t n_pieces;
	uint32_t partial[CLASSES] MC_GUARDED_BY(lock);
	uint32_t free_pieces MC_GUARDED_BY(lock);
	uint64_t used MC_GUARDED_BY(lock);
	uint32_t n_empty MC_GUARDED_BY(lock); /* pieces with a class and no slot taken */
};

static uint32_t size_of(unsigned class)
{
	return class == BLOCKS ? MC_SLAB_BLOCK_SIZE : sizes[class % SIZES];
}

static uint32_t slots_of(unsigned class)
{
	return (uint32_t)(MC_SLAB_PIECE / size_of(class));
}

static unsigned class_of(enum mc_slab_kind kind, uint32_t size)
{
	unsigned c = 0;

	if (kind == MC_SLAB_BLOCK)
		return BLOCKS;
	assert(size > 0 && size <= MC_SLAB_SLOT_MAX);
	while (sizes[c] < size)
		c++;
	return (unsigned)kind * SIZES + c;
}

static uint64_t piece_off(const struct mc_slab *s, uint32_t p)
{
	return s->head_len + p * MC_SLAB_PIECE;
}

static void link_partial(struct mc_slab *s, unsigned class, uint32_t p) MC_REQUIRES(s->lock)
{
	s->pieces[p].prev = NO_PIECE;
	s->pieces[p].next = s->partial[class];
	if (s->partial[class] != NO_PIECE)
		s->pieces[s->partial[class]].prev = p;
	s->partial[class] = p;
}

static void unlink_partial(struct mc_slab *s, unsigned class, uint32_t p) MC_REQUIRES(s->lock)
{
	struct piece *x = &s->pieces[p];

	if (x->prev != NO_PIECE)
		s->pieces[x->prev].next = x->next;
	else
		s->partial[class] = x->next;
	if (x->next != NO_PIECE)
		s->pieces[x->next].prev = x->prev;
}

static int make_piece(struct mc_slab *s, unsigned class, uint32_t p) MC_REQUIRES(s->lock)
{
	struct piece *x = &s->pieces[p];

	x->taken = calloc((slots_of(class) + 63) / 64, sizeof(uint64_t));
	if (x->taken == NULL)
		return -ENOMEM;
	x->n_taken = x->hint = 0;
	s->used += MC_SLAB_PIECE;
	s->n_empty++;
	link_partial(s, class, p);
	return 0;
}

static void give_back(struct mc_slab *s, uint32_t p)
{
	mc_full_watch_allocate(s->watch, s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		piece_off(s, p), MC_SLAB_PIECE);
}

static int new_piece(struct mc_slab *s, unsigned class) MC_REQUIRES(s->lock)
{
	uint32_t p = s->free_pieces;
	uint32_t next;
	int r;

	if (p == NO_PIECE)
		return -ENOSPC;
	r = mc_full_watch_allocate(
		s->watch, s->fd, FALLOC_FL_KEEP_SIZE, piece_off(s, p), MC_SLAB_PIECE);
	if (r < 0)
		return r;
	next = s->pieces[p].next;
	r = make_piece(s, class, p);
	if (r < 0) {
		give_back(s, p);
		return r;
	}
	s->free_pieces = next;
	__atomic_store_n(&s->head->class[p], (uint8_t)(class + 1), __ATOMIC_RELEASE);
	return 0;
}

static void drop_piece(struct mc_slab *s, unsigned class, uint32_t p) MC_REQUIRES(s->lock)
{
	unlink_partial(s, class, p);
	__atomic_store_n(&s->head->class[p], 0, __ATOMIC_RELEASE);
	give_back(s, p);
	free(s->pieces[p].taken);
	s->pieces[p].taken = NULL;
	s->pieces[p].next = s->free_pieces;
	s->free_pieces = p;
	s->used -= MC_SLAB_PIECE;
}

int mc_slab_alloc(struct mc_slab *s, enum mc_slab_kind kind, uint32_t size, uint64_t *ret_off)
{
	unsigned class = class_of(kind, size);
	uint32_t n = slots_of(class), p, slot;
	struct piece *x;
	int r = 0;

	mc_mutex_lock(&s->lock);
	if (s->partial[class] == NO_PIECE)
		r = new_piece(s, class);
	if (r < 0) {
		mc_mutex_unlock(&s->lock);
		return r;
	}
	p = s->partial[class];
	x = &s->pieces[p];
	for (;;) {
		uint64_t free_bits = ~x->taken[x->hint];

		if (n - x->hint * 64 < 64)
			free_bits &= (UINT64_C(1) << (n - x->hint * 64)) - 1;
		if (free_bits != 0) {
			slot = x->hint * 64 + (uint32_t)__builtin_ctzll(free_bits);
			break;
		}
		x->hint = (x->hint + 1) % ((n + 63) / 64);
	}
	x->taken[slot / 64] |= UINT64_C(1) << slot % 64;
	if (x->n_taken++ == 0)
		s->n_empty--;
	if (x->n_taken == n)
		unlink_partial(s, class, p);
	mc_mutex_unlock(&s->lock);
	*ret_off = piece_off(s, p) + (uint64_t)slot * size_of(class);
	return 0;
}

void mc_slab_free(struct mc_slab *s, uint64_t off)
{
	uint32_t p = (uint32_t)((off - s->head_len) / MC_SLAB_PIECE), slot;
	struct piece *x = &s->pieces[p];
	unsigned class;

	mc_mutex_lock(&s->lock);
	assert(p < s->n_pieces && s->head->class[p] != 0);
	class = s->head->class[p] - 1u;
	slot = (uint32_t)((off - piece_off(s, p)) / size_of(class));
	assert((x->taken[slot / 64] >> slot % 64 & 1) != 0);
	x->taken[slot / 64] &= ~(UINT64_C(1) << slot % 64);
	if (x->n_taken-- == slots_of(class))
		link_partial(s, class, p);
	if (x->n_taken == 0 && s->n_empty < EMPTY_MAX)
		s->n_empty++;
	else if (x->n_taken == 0)
		drop_piece(s, class, p);
	mc_mutex_unlock(&s->lock);
}

bool mc_slab_has_block(struct mc_slab *s)
{
	bool has;

	mc_mutex_lock(&s->lock);
	has = s->partial[BLOCKS] != NO_PIECE;
	mc_mutex_unlock(&s->lock);
	return has;
}

void *mc_slab_ptr(struct mc_slab *s, uint64_t off)
{
	assert(off >= s->head_len && off < s->len);
	return s->base + off;
}

bool mc_slab_claim(struct mc_slab *s, enum mc_slab_kind kind, uint64_t off, uint32_t size)
{
	uint64_t p, slot;
	unsigned class;
	bool ok = false;

	if (off < s->head_len || off >= s->len || size == 0 || size > MC_SLAB_SLOT_MAX)
		return false;
	p = (off - s->head_len) / MC_SLAB_PIECE;
	mc_mutex_lock(&s->lock);
	class = s->head->class[p] - 1u;
	if (p < s->n_pieces && s->pieces[p].taken != NULL && class / SIZES == (unsigned)kind &&
		size_of(class) >= size && (off - piece_off(s, (uint32_t)p)) % size_of(class) == 0) {
		struct piece *x = &s->pieces[p];

		slot = (off - piece_off(s, (uint32_t)p)) / size_of(class);
		ok = slot < slots_of(class) && (x->taken[slot / 64] >> slot % 64 & 1) == 0;
		if (ok) {
			x->taken[slot / 64] |= UINT64_C(1) << slot % 64;
			if (x->n_taken++ == 0)
				s->n_empty--;
			if (x->n_taken == slots_of(class))
				unlink_partial(s, class, (uint32_t)p);
		}
	}
	mc_mutex_unlock(&s->lock);
	return ok;
}

void mc_slab_each(struct mc_slab *s, enum mc_slab_kind kind,
	void (*each)(void *ctx, uint64_t off, uint32_t slot_size), void *ctx)
{
	for (uint32_t p = 0; p < s->n_pieces; p++) {
		unsigned class = s->head->class[p] - 1u;

		if (s->head->class[p] == 0 || class / SIZES != (unsigned)kind)
			continue;
		for (uint32_t i = 0; i < slots_of(class); i++)
			each(ctx, piece_off(s, p) + (uint64_t)i * size_of(class), size_of(class));
	}
}

void mc_slab_trim(struct mc_slab *s)
{
	mc_mutex_lock(&s->lock);
	for (uint32_t p = 0; p < s->n_pieces; p++)
		if (s->pieces[p].taken != NULL && s->pieces[p].n_taken == 0) {
			s->n_empty--;
			drop_piece(s, s->head->class[p] - 1u, p);
		}
	mc_mutex_unlock(&s->lock);
}

uint64_t mc_slab_used(struct mc_slab *s)
{
	uint64_t used;

	mc_mutex_lock(&s->lock);
	used = s->used + s->head_bytes;
	mc_mutex_unlock(&s->lock);
	return used;
}

static int boot_id(char ret[BOOT_ID_SIZE])
{
	cleanup_close int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	return read(fd, ret, BOOT_ID_SIZE) == BOOT_ID_SIZE ? 0 : -EIO;
}

/* Makes the file as long as it must be and maps it; *adopt becomes false unless its head fits. */
static int map_file(struct mc_slab *s, bool *adopt)
{
	struct head want = {.magic = "MCSLAB1", .n_pieces = s->n_pieces};
	struct stat st;
	int r = boot_id(want.boot_id);

	if (r < 0)
		return r;
	if (fstat(s->fd, &st) != 0)
		return -errno;
	if ((uint64_t)st.st_size != s->len)
		*adopt = false;
	if (!*adopt && (ftruncate(s->fd, 0) != 0 || ftruncate(s->fd, (off_t)s->len) != 0))
		return -errno;
	if (!*adopt && (r = mc_io_allocate(s->fd, 0, 0, s->head_bytes)) < 0)
		return r;
	s->base = mmap(NULL, s->len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, s->fd, 0);
	if (s->base == MAP_FAILED) {
		s->base = NULL;
		return -errno;
	}
	s->head = (struct head *)(void *)s->base;
	if (*adopt && memcmp(s->head, &want, sizeof(want)) != 0) {
		*adopt = false;
		if (fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)s->head_len,
			    (off_t)(s->len - s->head_len)) != 0)
			return -errno;
		memset(s->base, 0, s->head_bytes);
	}
	memcpy(s->head, &want, sizeof(want));
	return 0;
}

static int init_pieces(struct mc_slab *s)
{
	int r = 0;

	mc_mutex_lock(&s->lock);
	for (unsigned c = 0; c < CLASSES; c++)
		s->partial[c] = NO_PIECE;
	s->free_pieces = NO_PIECE;
	for (uint32_t p = s->n_pieces; p-- > 0 && r == 0;) {
		unsigned class = s->head->class[p];

		if (class > CLASSES)
			class = s->head->class[p] = 0;
		if (class != 0) {
			r = make_piece(s, class - 1, p);
			continue;
		}
		s->pieces[p].next = s->free_pieces;
		s->free_pieces = p;
	}
	mc_mutex_unlock(&s->lock);
	return r;
}

int mc_slab_open(
	const char *path, uint64_t max_bytes, bool adopt, struct mc_slab **ret, bool *ret_adopted)
{
	struct mc_slab *s = calloc(1, sizeof(*s));
	uint64_t n = (max_bytes + MC_SLAB_PIECE - 1) / MC_SLAB_PIECE;
	int r;

	if (s == NULL)
		return -ENOMEM;
	mc_mutex_init(&s->lock);
	s->n_pieces = n < NO_PIECE - 1 ? (uint32_t)n : NO_PIECE - 1;
	s->head_bytes = (sizeof(struct head) + s->n_pieces + 4095) / 4096 * 4096;
	s->head_len = (s->head_bytes + MC_SLAB_PIECE - 1) / MC_SLAB_PIECE * MC_SLAB_PIECE;
	s->len = s->head_len + s->n_pieces * MC_SLAB_PIECE;
	s->pieces = calloc(s->n_pieces, sizeof(*s->pieces));
	s->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	r = s->fd < 0 ? -errno : s->pieces == NULL ? -ENOMEM : map_file(s, &adopt);
	if (r == 0)
		r = init_pieces(s);
	if (r < 0) {
		mc_slab_close(s);
		return r;
	}
	*ret = s;
	*ret_adopted = adopt;
	return 0;
}

void mc_slab_watch(struct mc_slab *s, struct mc_full_watch *w)
{
	s->watch = w;
}

void mc_slab_close(struct mc_slab *s)
{
	if (s == NULL)
		return;
	for (uint32_t p = 0; s->pieces != NULL && p < s->n_pieces; p++)
		free(s->pieces[p].taken);
	free(s->pieces);
	if (s->base != NULL)
		munmap(s->base, s->len);
	if (s->fd >= 0)
		close(s->fd);
	mc_mutex_done(&s->lock);
	free(s);
}
