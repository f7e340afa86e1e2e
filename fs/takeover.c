/*
 * The table of a mount: a head, an array of records for each table of nodes, and texts, in one
 * sparse piece of shared memory. What was never used takes no memory.
 *
 * Invariant: the layout is the program's own, marked by MAGIC; another layout gets another mark.
 */
#include "fs/takeover.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/texts.h"

#define MAGIC "mooncakefs.tk.6"
/* About 48 and 136 bytes each: what a node costs beside its own memory. */
#define NODES (UINT32_C(1) << 22)
#define KNODES (UINT32_C(1) << 21)
#define HEAD_BYTES (UINT64_C(1) << 16)
#define NODE_BYTES (NODES * sizeof(struct mc_node_record))
#define KNODE_BYTES (KNODES * sizeof(struct mc_knode_record))
#define TEXT_BYTES (UINT64_C(1) << 29)
#define BYTES (HEAD_BYTES + NODE_BYTES + KNODE_BYTES + TEXT_BYTES)

_Static_assert(sizeof(struct mc_takeover_head) <= HEAD_BYTES, "the head has its room");
_Static_assert(sizeof(MAGIC) == sizeof(((struct mc_takeover_head *)0)->magic), "the mark fits");

struct mc_takeover {
	int fd;    /* owned */
	char *mem; /* owned mapping */
	struct mc_texts *texts;
};

static int map(int fd, struct mc_takeover **ret)
{
	struct mc_takeover *t = calloc(1, sizeof(*t));
	int r = t != NULL ? 0 : -ENOMEM;

	if (r < 0) {
		close(fd);
		return r;
	}
	t->fd = fd;
	t->mem = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (t->mem == MAP_FAILED) {
		r = -errno;
		t->mem = NULL;
	}
	if (r == 0)
		r = mc_texts_open(t->mem + (BYTES - TEXT_BYTES), TEXT_BYTES, &t->texts);
	if (r < 0) {
		mc_takeover_close(t);
		return r;
	}
	*ret = t;
	return 0;
}

int mc_takeover_open(struct mc_takeover **ret)
{
	int fd = memfd_create("mooncakefs-nodes", MFD_CLOEXEC), r;

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)BYTES) < 0) {
		r = -errno;
		close(fd);
		return r;
	}
	r = map(fd, ret);
	if (r == 0)
		memcpy(mc_takeover_head(*ret)->magic, MAGIC, sizeof(MAGIC));
	return r;
}

int mc_takeover_from(int fd, struct mc_takeover **ret)
{
	struct mc_takeover *t;
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0 || (uint64_t)st.st_size != BYTES) {
		close(fd);
		return -EPROTO;
	}
	r = map(fd, &t);
	if (r < 0)
		return r;
	if (memcmp(mc_takeover_head(t)->magic, MAGIC, sizeof(MAGIC)) != 0) {
		mc_takeover_close(t);
		return -EPROTO;
	}
	*ret = t;
	return 0;
}

void mc_takeover_close(struct mc_takeover *t)
{
	if (t == NULL)
		return;
	mc_texts_close(t->texts);
	if (t->mem != NULL)
		munmap(t->mem, BYTES);
	close(t->fd);
	free(t);
}

int mc_takeover_fd(const struct mc_takeover *t)
{
	return t->fd;
}

struct mc_takeover_head *mc_takeover_head(struct mc_takeover *t)
{
	return (struct mc_takeover_head *)(void *)t->mem;
}

static _Atomic(uint32_t) *off_of(const struct mc_takeover *t)
{
	return &((struct mc_takeover_head *)(void *)t->mem)->off;
}

bool mc_takeover_on(const struct mc_takeover *t)
{
	return t != NULL && atomic_load_explicit(off_of(t), memory_order_relaxed) == MC_TAKEOVER_ON;
}

void mc_takeover_end(struct mc_takeover *t, enum mc_takeover_off why)
{
	uint32_t on = MC_TAKEOVER_ON;

	if (t != NULL)
		atomic_compare_exchange_strong(off_of(t), &on, why);
}

const char *mc_takeover_why_not(const struct mc_takeover *t)
{
	switch (t != NULL ? atomic_load(off_of(t)) : MC_TAKEOVER_ON) {
	case MC_TAKEOVER_FULL:
		return "the kernel knows more names than the table of the keeper holds";
	case MC_TAKEOVER_OLD_KERNEL:
		return "the kernel cannot send requests again (6.9 and later can)";
	default:
		return NULL;
	}
}

/* Counts the slot; NULL when there is none. */
static void *record(
	struct mc_takeover *t, _Atomic(uint32_t) *slots, uint32_t slot, uint32_t max, size_t size)
{
	uint32_t n = atomic_load_explicit(slots, memory_order_relaxed);

	if (slot >= max) {
		mc_takeover_end(t, MC_TAKEOVER_FULL);
		return NULL;
	}
	while (slot >= n && !atomic_compare_exchange_weak(slots, &n, slot + 1))
		;
	return t->mem + HEAD_BYTES + slot * size;
}

struct mc_node_record *mc_takeover_node(struct mc_takeover *t, uint32_t slot)
{
	if (!mc_takeover_on(t))
		return NULL;
	return record(t, &mc_takeover_head(t)->nodes, slot, NODES, sizeof(struct mc_node_record));
}

struct mc_knode_record *mc_takeover_knode(struct mc_takeover *t, uint32_t slot)
{
	char *r;

	if (!mc_takeover_on(t))
		return NULL;
	r = record(t, &mc_takeover_head(t)->knodes, slot, KNODES, sizeof(struct mc_knode_record));
	return r != NULL ? (struct mc_knode_record *)(void *)(r + NODE_BYTES) : NULL;
}

int mc_takeover_puts(struct mc_takeover *t, uint64_t **ret, size_t *ret_n)
{
	uint32_t slots = atomic_load(&mc_takeover_head(t)->knodes);
	uint64_t *v = NULL;
	size_t n = 0, cap = 0;

	for (uint32_t slot = 1; slot < slots; slot++) {
		struct mc_knode_record *r = mc_takeover_knode(t, slot);

		if (r == NULL || atomic_load(&r->used) == 0 || atomic_load(&r->writing) == 0)
			continue;
		if (n == cap) {
			uint64_t *p = reallocarray(v, cap + 64, sizeof(*v));

			if (p == NULL) {
				free(v);
				return -ENOMEM;
			}
			v = p;
			cap += 64;
		}
		v[n++] = atomic_load(&r->file);
	}
	*ret = v;
	*ret_n = n;
	return 0;
}

struct mc_texts *mc_takeover_texts(struct mc_takeover *t)
{
	return t->texts;
}
