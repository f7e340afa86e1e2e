/* What the tests of the NVMe tier share: opening it, and synchronous block transfers. */
#pragma once

#include "tests/tier-dir.h"
#include "tier/future.h"
#include "tier/image-name.h"
#include "tier/nvme.h"

#include <errno.h>
#include <sched.h>

#define MIB (UINT64_C(1) << 20)

static inline struct mc_nvme *nvme_open_with(const struct mc_nvme_opts *o)
{
	struct mc_err err = {0};
	struct mc_nvme *n;
	int r = mc_nvme_open(o, &n, &err);

	ck_assert_msg(r == 0, "%d %s", r, err.text);
	return n;
}

/* Groups wait for a sync, for ever. */
static inline struct mc_nvme *nvme_open(const char *dir, uint64_t capacity)
{
	struct mc_nvme_opts o = {.dir = dir, .capacity = capacity, .commit_ms = 1000000};

	return nvme_open_with(&o);
}

static inline struct mc_nvme_stats nvme_stats(struct mc_nvme *n)
{
	struct mc_nvme_stats s;

	mc_nvme_stats(n, &s);
	return s;
}

static inline void nvme_op_done(struct mc_nvme_op *op, int res)
{
	mc_future_set(op->ctx, res);
}

static inline int nvme_run(void (*start)(struct mc_nvme_op *op), struct mc_nvme_op *op)
{
	struct mc_future over;

	mc_future_init(&over);
	op->done = nvme_op_done;
	op->ctx = &over;
	start(op);
	return (int)mc_future_wait(&over);
}

/* Writes the block as tier_fill makes it. */
static inline int nvme_put(struct mc_nvme_image *img, unsigned file, uint64_t size, uint64_t block)
{
	void *buf = aligned_alloc(4096, MC_BLOCK_SIZE);
	uint32_t len = mc_block_len(size, block);
	struct mc_nvme_op op = {.img = img, .block = block, .buf = buf};
	int r;

	tier_fill(buf, len, file, block * MC_BLOCK_SIZE);
	op.crc = mc_crc32c(0, buf, len);
	r = nvme_run(mc_nvme_write, &op);
	free(buf);
	return r;
}

/* Reads the block; 0 only with the right bytes, -EILSEQ with wrong ones. */
static inline int nvme_get(struct mc_nvme_image *img, unsigned file, uint64_t size, uint64_t block)
{
	void *buf = aligned_alloc(4096, MC_BLOCK_SIZE);
	struct mc_nvme_op op = {.img = img, .block = block, .buf = buf};
	int r = nvme_run(mc_nvme_read, &op);

	if (r == 0 && !tier_matches(buf, mc_block_len(size, block), file, block * MC_BLOCK_SIZE))
		r = -EILSEQ;
	free(buf);
	return r;
}

static inline struct mc_nvme_image *nvme_image(
	struct mc_nvme *n, unsigned file, uint64_t size, bool create)
{
	struct mc_file_id id = tier_file_id(file, size);
	struct mc_nvme_image *img;

	ck_assert_int_eq(mc_nvme_image_get(n, &id, create, &img), 0);
	return img;
}

static inline struct mc_nvme_image *nvme_file(struct mc_nvme *n, unsigned file, uint64_t size)
{
	struct mc_nvme_image *img = nvme_image(n, file, size, true);

	for (uint64_t b = 0; b < mc_block_count(size); b++)
		ck_assert_int_eq(nvme_put(img, file, size, b), 0);
	return img;
}

static inline void nvme_path(const char *dir, unsigned file, uint64_t size, char *out, size_t len)
{
	struct mc_file_id id = tier_file_id(file, size);
	char name[MC_IMAGE_NAME_MAX];

	mc_image_name(&id, name);
	snprintf(out, len, "%s/images/%.2s/%s", dir, name, name);
}

/* Bytes the file system allocated to everything under images/ and held/. */
static inline uint64_t nvme_disk_bytes(const char *dir)
{
	uint64_t total = 0;

	for (unsigned i = 0; i < 257; i++) {
		char path[4096];
		struct dirent *e;
		DIR *d;

		if (i < 256)
			snprintf(path, sizeof(path), "%s/images/%02x", dir, i);
		else
			snprintf(path, sizeof(path), "%s/held", dir);
		d = opendir(path);
		ck_assert_ptr_nonnull(d);
		while ((e = readdir(d)) != NULL) {
			struct stat st;

			if (fstatat(dirfd(d), e->d_name, &st, 0) == 0 && S_ISREG(st.st_mode))
				total += (uint64_t)st.st_blocks * 512;
		}
		closedir(d);
	}
	return total;
}
