/*
 * The index of a manifest: building, checking, saving and mapping the flat buffer.
 *
 * Invariants: 1. a manifest's buffer never changes after mc_index_open; 2. it was checked as a
 * whole (CRC32C) before any record is used, and what the records say was checked when they were
 * made from the JSON; 3. offset 0 of the strings is "".
 */
#include "manifest/manifest-index.h"

#include <assert.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "tier/cleanup.h"

#define INDEX_VERSION 1
#define INDEX_ALIGN 64 /* bytes; sections start at a cache line */
static const char index_magic[8] = "MCINDEX";

static const size_t record_size[MC_INDEX_SECTIONS] = {
	[MC_INDEX_ENTRIES] = sizeof(struct mc_index_entry),
	[MC_INDEX_SPANS] = sizeof(struct mc_index_span),
	[MC_INDEX_HOLES] = sizeof(struct mc_index_hole),
	[MC_INDEX_CRCS] = sizeof(uint32_t),
	[MC_INDEX_CHUNKS] = sizeof(struct mc_index_chunk),
	[MC_INDEX_EXTS] = sizeof(struct mc_index_ext),
	[MC_INDEX_DIGESTS] = MC_SHA256_SIZE,
	[MC_INDEX_TENSORS] = sizeof(struct mc_index_tensor),
	[MC_INDEX_NUMBERS] = sizeof(uint64_t),
	[MC_INDEX_STRINGS] = 1,
};

int mc_index_builder_init(struct mc_index_builder *b)
{
	*b = (struct mc_index_builder){0};
	return mc_buffer_append(&b->section[MC_INDEX_STRINGS], "", 1);
}

void mc_index_builder_done(struct mc_index_builder *b)
{
	for (int i = 0; i < MC_INDEX_SECTIONS; i++)
		mc_buffer_done(&b->section[i]);
}

int mc_index_add(struct mc_index_builder *b, enum mc_index_section s, const void *record,
	size_t size, uint32_t *ret)
{
	size_t number = b->section[s].len / record_size[s];
	int r;

	if (number + size / record_size[s] >= MC_INDEX_NONE)
		return -EOVERFLOW;
	r = mc_buffer_append(&b->section[s], record, size);
	if (r == 0 && ret != NULL)
		*ret = (uint32_t)number;
	return r;
}

int mc_index_add_string(struct mc_index_builder *b, const char *text, uint32_t *ret)
{
	if (text[0] == '\0') {
		*ret = 0;
		return 0;
	}
	return mc_index_add(b, MC_INDEX_STRINGS, text, strlen(text) + 1, ret);
}

static uint32_t index_crc(const uint8_t *base, size_t len)
{
	size_t at = offsetof(struct mc_index_header, crc);
	uint32_t crc = mc_crc32c(0, base, at);

	return mc_crc32c(crc, base + at + sizeof(uint32_t), len - at - sizeof(uint32_t));
}

static size_t aligned(size_t n)
{
	return (n + INDEX_ALIGN - 1) & ~(size_t)(INDEX_ALIGN - 1);
}

int mc_index_finish(
	struct mc_index_builder *b, const uint8_t id[MC_SHA256_SIZE], struct mc_manifest **ret)
{
	struct mc_index_header head = {.version = INDEX_VERSION,
		.byte_order = 0x01020304,
		.config_path = b->config_path,
		.architecture = b->architecture,
		.quantisation = b->quantisation};
	size_t total = aligned(sizeof(head));
	uint8_t *base;
	int r;

	memcpy(head.magic, index_magic, sizeof(head.magic));
	memcpy(head.id, id, MC_SHA256_SIZE);
	for (int i = 0; i < MC_INDEX_SECTIONS; i++) {
		head.section[i].off = total;
		head.section[i].len = b->section[i].len;
		total += aligned(b->section[i].len);
	}
	head.total = total;
	base = calloc(1, total);
	if (base == NULL)
		return -ENOMEM;
	memcpy(base, &head, sizeof(head));
	for (int i = 0; i < MC_INDEX_SECTIONS; i++) {
		if (b->section[i].len > 0)
			memcpy(base + head.section[i].off, b->section[i].p, b->section[i].len);
		mc_buffer_done(&b->section[i]);
	}
	head.crc = index_crc(base, total);
	memcpy(base, &head, sizeof(head));
	r = mc_index_open(base, total, false, id, ret);
	if (r < 0)
		free(base);
	return r;
}

/* The header's own fields and that every section lies inside, aligned, in whole records. */
static bool header_good(const struct mc_index_header *h, size_t len)
{
	if (memcmp(h->magic, index_magic, sizeof(h->magic)) != 0 || h->version != INDEX_VERSION ||
		h->byte_order != 0x01020304 || h->total != len)
		return false;
	for (int i = 0; i < MC_INDEX_SECTIONS; i++) {
		uint64_t end;

		if (__builtin_add_overflow(h->section[i].off, h->section[i].len, &end) ||
			end > len || h->section[i].off % INDEX_ALIGN != 0 ||
			h->section[i].len % record_size[i] != 0 ||
			h->section[i].len / record_size[i] >= MC_INDEX_NONE)
			return false;
	}
	return h->section[MC_INDEX_ENTRIES].len > 0 && h->section[MC_INDEX_STRINGS].len > 0;
}

int mc_index_open(
	const uint8_t *base, size_t len, bool mapped, const uint8_t *id, struct mc_manifest **ret)
{
	const struct mc_index_header *h = (const void *)base;
	const void *at[MC_INDEX_SECTIONS];
	struct mc_manifest *m;

	if (len < sizeof(*h) || !header_good(h, len) || index_crc(base, len) != h->crc)
		return -EBADMSG;
	if (id != NULL && memcmp(h->id, id, MC_SHA256_SIZE) != 0)
		return -EBADMSG;
	m = calloc(1, sizeof(*m));
	if (m == NULL)
		return -ENOMEM;
	for (int i = 0; i < MC_INDEX_SECTIONS; i++)
		at[i] = base + h->section[i].off;
	*m = (struct mc_manifest){.refs = 1,
		.mapped = mapped,
		.base = base,
		.len = len,
		.head = h,
		.entries = at[MC_INDEX_ENTRIES],
		.spans = at[MC_INDEX_SPANS],
		.holes = at[MC_INDEX_HOLES],
		.crcs = at[MC_INDEX_CRCS],
		.chunks = at[MC_INDEX_CHUNKS],
		.exts = at[MC_INDEX_EXTS],
		.digests = at[MC_INDEX_DIGESTS],
		.tensors = at[MC_INDEX_TENSORS],
		.numbers = at[MC_INDEX_NUMBERS],
		.strings = at[MC_INDEX_STRINGS],
		.n_entries = (uint32_t)(h->section[MC_INDEX_ENTRIES].len /
			record_size[MC_INDEX_ENTRIES]),
		.n_chunks =
			(uint32_t)(h->section[MC_INDEX_CHUNKS].len / record_size[MC_INDEX_CHUNKS]),
		.n_tensors = (uint32_t)(h->section[MC_INDEX_TENSORS].len /
			record_size[MC_INDEX_TENSORS])};
	*ret = m;
	return 0;
}

struct mc_manifest *mc_manifest_ref(struct mc_manifest *m)
{
	unsigned before = atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed);

	assert(before > 0);
	(void)before;
	return m;
}

/* Release, so that earlier uses by other threads happen before the memory goes away. */
void mc_manifest_unref(struct mc_manifest *m)
{
	unsigned before;

	if (m == NULL)
		return;
	before = atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel);
	assert(before > 0);
	if (before > 1)
		return;
	if (m->mapped)
		munmap((void *)m->base, m->len);
	else
		free((void *)m->base);
	free(m);
}

int mc_manifest_load_index(
	const char *path, const uint8_t id[MC_SHA256_SIZE], struct mc_manifest **ret)
{
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	void *base;
	int r;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof(struct mc_index_header))
		return -EBADMSG;
	base = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (base == MAP_FAILED)
		return -errno;
	r = mc_index_open(base, (size_t)st.st_size, true, id, ret);
	if (r < 0)
		munmap(base, (size_t)st.st_size);
	return r;
}

static int write_all(int fd, const uint8_t *p, size_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		len -= (size_t)n;
	}
	return fsync(fd) < 0 ? -errno : 0;
}

static int sync_parent(const char *path)
{
	cleanup_free char *copy = strdup(path);
	cleanup_close int fd = -1;

	if (copy == NULL)
		return -ENOMEM;
	fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	return fsync(fd) < 0 ? -errno : 0;
}

int mc_manifest_save_index(const struct mc_manifest *m, const char *path, struct mc_err *err)
{
	cleanup_free char *tmp = NULL;
	cleanup_close int fd = -1;
	int r;

	if (asprintf(&tmp, "%s.XXXXXX", path) < 0) {
		tmp = NULL;
		return -ENOMEM;
	}
	fd = mkostemp(tmp, O_CLOEXEC);
	if (fd < 0) {
		r = -errno;
		return mc_err_set(
			err, r, "cannot write the manifest index %s: %s", tmp, strerror(-r));
	}
	r = write_all(fd, m->base, m->len);
	if (r == 0 && rename(tmp, path) < 0)
		r = -errno;
	if (r < 0) {
		unlink(tmp);
		return mc_err_set(
			err, r, "cannot write the manifest index %s: %s", path, strerror(-r));
	}
	r = sync_parent(path);
	if (r < 0)
		return mc_err_set(
			err, r, "cannot sync the directory of %s: %s", path, strerror(-r));
	return 0;
}
