/* A DRAM tier for a test: opened, filled, looked at, and a client with a descriptor of its own. */
#pragma once

#include "tests/tier-dir.h"
#include "tier/dram.h"
#include "tier/image-name.h"

#include <sys/mman.h>

#define MIB (UINT64_C(1) << 20)

static inline struct mc_dram *open_with(const struct mc_dram_opts *o)
{
	struct mc_err err = {0};
	struct mc_dram *d;
	int r = mc_dram_open(o, &d, &err);

	ck_assert_msg(r == 0, "%d %s", r, err.text);
	return d;
}

static inline struct mc_dram *open_tier(const char *dir, uint64_t capacity)
{
	struct mc_dram_opts o = {.dir = dir, .capacity = capacity};

	return open_with(&o);
}

static inline struct mc_dram_stats stats(struct mc_dram *d)
{
	struct mc_dram_stats s;

	mc_dram_stats(d, &s);
	return s;
}

static inline struct mc_dram_image *get(
	struct mc_dram *d, unsigned file, uint64_t size, bool create)
{
	struct mc_file_id id = tier_file_id(file, size);
	struct mc_dram_image *img;

	ck_assert_int_eq(mc_dram_image_get(d, &id, create, &img), 0);
	return img;
}

static inline void fill_block(
	struct mc_dram_image *img, unsigned file, uint64_t size, uint64_t block)
{
	ck_assert_int_eq(mc_dram_reserve(img, block), 0);
	tier_fill(mc_dram_ptr(img, block), mc_block_len(size, block), file, block * MIB);
	mc_dram_commit(img, block);
}

static inline struct mc_dram_image *fill_file(struct mc_dram *d, unsigned file, uint64_t size)
{
	struct mc_dram_image *img = get(d, file, size, true);

	for (uint64_t b = 0; b < mc_block_count(size); b++)
		fill_block(img, file, size, b);
	return img;
}

/* As the kernel does for a passthrough client: an open file description of its own. */
static inline int client_open(const char *dir, unsigned file, uint64_t size)
{
	struct mc_file_id id = tier_file_id(file, size);
	char name[MC_IMAGE_NAME_MAX], *path;
	int fd;

	mc_image_name(&id, name);
	ck_assert_int_gt(asprintf(&path, "%s/images/%s", dir, name), 0);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	free(path);
	return fd;
}

static inline const char *client_map(const char *dir, unsigned file, uint64_t size)
{
	int fd = client_open(dir, file, size);
	void *m = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);

	ck_assert_ptr_ne(m, MAP_FAILED);
	close(fd);
	return m;
}

static inline void close_and_remove(struct mc_dram *d, char *dir)
{
	mc_dram_close(d, false);
	tier_dir_remove(dir);
}
