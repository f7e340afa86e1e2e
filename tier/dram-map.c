/* Map files: a checked header, then the bitmap. Format: docs/FORMAT.md, host byte order, same boot
 * only. */
#include "tier/dram-map.h"

#include "tier/bitmap.h"
#include "tier/cleanup.h"
#include "tier/image-name.h"
#include "tier/io.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define BOOT_ID_SIZE 36 /* text of /proc/sys/kernel/random/boot_id */

struct header {
	char magic[8];
	char boot_id[BOOT_ID_SIZE];
	uint8_t digest[MC_SHA256_SIZE];
	uint8_t reserved[4];
	uint64_t size;
	uint32_t reserved2;
	uint32_t crc; /* CRC32C of what stands before */
};
_Static_assert(sizeof(struct header) == 96, "no padding, and the bitmap behind it is aligned");

static int fill_header(const struct mc_file_id *id, struct header *ret)
{
	struct header h = {.magic = "MCDRAM1", .size = id->size};
	cleanup_close int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (read(fd, h.boot_id, sizeof(h.boot_id)) != (ssize_t)sizeof(h.boot_id))
		return -EIO;
	memcpy(h.digest, id->digest, sizeof(h.digest));
	h.crc = mc_crc32c(0, &h, offsetof(struct header, crc));
	*ret = h;
	return 0;
}

static size_t file_len(const struct mc_file_id *id)
{
	return sizeof(struct header) + mc_bitmap_words(mc_block_count(id->size)) * sizeof(uint64_t);
}

static int map_fd(int fd, const struct mc_file_id *id, struct mc_dram_map *ret)
{
	size_t len = file_len(id);
	void *base = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (base == MAP_FAILED)
		return -errno;
	ret->base = base;
	ret->len = len;
	ret->present = (uint64_t *)(void *)((char *)base + sizeof(struct header));
	return 0;
}

int mc_dram_map_create(const char *path, const struct mc_file_id *id, struct mc_dram_map *ret)
{
	cleanup_close int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	struct header h;
	int r;

	if (fd < 0)
		return -errno;
	r = fill_header(id, &h);
	if (r == 0)
		r = mc_io_allocate(fd, 0, 0, file_len(id));
	if (r == 0)
		r = map_fd(fd, id, ret);
	if (r != 0) {
		unlink(path);
		return r;
	}
	memcpy(ret->base, &h, sizeof(h));
	return 0;
}

int mc_dram_map_open(const char *path, const struct mc_file_id *id, struct mc_dram_map *ret)
{
	cleanup_close int fd = open(path, O_RDWR | O_CLOEXEC);
	struct header want, have;
	struct stat st;
	int r;

	if (fd < 0)
		return -errno;
	r = fill_header(id, &want);
	if (r != 0)
		return r;
	if (fstat(fd, &st) != 0)
		return -errno;
	if ((uint64_t)st.st_size != file_len(id) ||
		pread(fd, &have, sizeof(have), 0) != (ssize_t)sizeof(have) ||
		memcmp(&want, &have, sizeof(want)) != 0)
		return -EBADMSG;
	return map_fd(fd, id, ret);
}

void mc_dram_map_close(struct mc_dram_map *m)
{
	if (m->base != NULL)
		munmap(m->base, m->len);
	*m = (struct mc_dram_map){0};
}
