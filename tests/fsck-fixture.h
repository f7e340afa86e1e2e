/*
 * A cache directory to be damaged: three images of the checkpoint cache and the objects of a KV
 * log, closed, or as a daemon leaves it that is killed.
 */
#pragma once

#include "tests/kv-log-fixture.h"
#include "tests/nvme-fixture.h"
#include "tier/fsck.h"

#define FSCK_SEGMENT (UINT64_C(128) << 10)
#define FSCK_OBJECTS 36u

/* Images: whole, with a tail; whole and small; with holes. */
static const uint64_t fsck_size[] = {2 * MIB + 5000, 777, 3 * MIB};
#define FSCK_IMAGES (sizeof(fsck_size) / sizeof(*fsck_size))
#define FSCK_BLOCKS 6u

/* In memory: a hundred directories are made, damaged and repaired, with their syncs. */
static inline const char *fsck_parent(void)
{
	return access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/var/tmp";
}

static inline bool fsck_has(unsigned image, uint64_t block)
{
	return image != 2 || block != 1;
}

static inline void fsck_key(unsigned i, char out[64])
{
	snprintf(out, 64, "dir/object-%u", i);
}

/* Small ones, such whose payload is aligned, and images. */
static inline uint64_t fsck_object_size(unsigned i)
{
	static const uint64_t sizes[] = {100, 5000, 65536, 33, 20000, 300000};

	return sizes[i % 6] + i;
}

static inline struct mc_kv_log *fsck_open_log(const char *dir, struct kv_owner *o)
{
	struct mc_kv_log_opts opts = {.dir = dir,
		.capacity = 64 * MIB,
		.segment_bytes = FSCK_SEGMENT,
		.journal_bytes = 65536};

	return kv_open_with(&opts, o, 0);
}

static inline void fsck_fill_images(struct mc_nvme *n)
{
	for (unsigned i = 0; i < FSCK_IMAGES; i++) {
		struct mc_nvme_image *img = nvme_image(n, i, fsck_size[i], true);

		for (uint64_t b = 0; b < mc_block_count(fsck_size[i]); b++)
			if (fsck_has(i, b))
				ck_assert_int_eq(nvme_put(img, i, fsck_size[i], b), 0);
		ck_assert_int_eq(mc_nvme_sync(n), 0);
		mc_nvme_image_put(img);
	}
}

/* Every third has a copy on a remote. */
static inline void fsck_fill_log(struct mc_kv_log *log, struct kv_owner *o)
{
	char key[64];
	uint8_t version[16];

	for (unsigned i = 0; i < FSCK_OBJECTS; i++) {
		fsck_key(i, key);
		ck_assert_int_eq(kv_put(log, o, key, i, fsck_object_size(i)), 0);
		kv_version(i, version);
		if (i % 3 == 0)
			ck_assert_int_eq(mc_kv_log_remote(log, key, version, 1), 0);
	}
}

static inline void fsck_copy(const char *from, const char *to)
{
	char line[9000];

	snprintf(line, sizeof(line), "cp -a '%s'/. '%s'", from, to);
	ck_assert_int_eq(system(line), 0);
}

static inline void fsck_flip(int fd, off_t at)
{
	unsigned char byte;

	ck_assert_int_eq(pread(fd, &byte, 1, at), 1);
	byte ^= 0x40;
	ck_assert_int_eq(pwrite(fd, &byte, 1, at), 1);
}

/* Fills dir; killed: it is what lies there while both are open. */
static inline void fsck_world(const char *dir, bool killed)
{
	char *live = tier_dir_make(fsck_parent());
	struct mc_nvme_opts opts = {
		.dir = live, .capacity = 64 * MIB, .commit_ms = 1000000, .journal_bytes = 65536};
	struct mc_nvme *n = nvme_open_with(&opts);
	struct kv_owner o = {0};
	struct mc_kv_log *log = fsck_open_log(live, &o);

	fsck_fill_images(n);
	fsck_fill_log(log, &o);
	if (killed)
		fsck_copy(live, dir);
	mc_nvme_close(n);
	mc_kv_log_close(log);
	kv_forget(&o);
	if (!killed)
		fsck_copy(live, dir);
	tier_dir_remove(live);
}

struct fsck_told {
	unsigned n[3]; /* by kind */
	char last[512];
	char all[65536];
};

static inline void fsck_tell(void *ctx, enum mc_fsck_kind kind, const char *text)
{
	struct fsck_told *t = ctx;
	size_t used = strlen(t->all);

	t->n[kind]++;
	snprintf(t->last, sizeof(t->last), "%s", text);
	snprintf(t->all + used, sizeof(t->all) - used, "%s\n", text);
}

static inline struct mc_fsck_result fsck_run_with(
	const char *dir, bool repair, const struct mc_io *io, struct fsck_told *told)
{
	struct mc_fsck_opts opts = {
		.dir = dir, .io = io, .repair = repair, .find = fsck_tell, .ctx = told};
	struct mc_fsck_result res;
	struct mc_err err = {0};
	int r;

	memset(told, 0, sizeof(*told));
	r = mc_fsck(&opts, &res, &err);
	ck_assert_msg(r == 0, "%d %s", r, err.text);
	ck_assert_uint_eq(res.damaged, told->n[MC_FSCK_DAMAGE] + told->n[MC_FSCK_LOST]);
	ck_assert_uint_eq(res.leftovers, told->n[MC_FSCK_LEFTOVER]);
	return res;
}

static inline struct mc_fsck_result fsck_run(const char *dir, bool repair, struct fsck_told *told)
{
	return fsck_run_with(dir, repair, NULL, told);
}

/* Names, sizes and contents of everything below dir, as one checksum. */
static inline uint32_t fsck_tree_crc(int dirfd, uint32_t crc)
{
	struct dirent **names;
	int n = scandirat(dirfd, ".", &names, NULL, alphasort);

	ck_assert_int_ge(n, 0);
	for (int i = 0; i < n; i++) {
		const char *name = names[i]->d_name;
		struct stat st;
		int fd = -1;

		if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0)
			fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
		if (fd >= 0) {
			ck_assert_int_eq(fstat(fd, &st), 0);
			crc = mc_crc32c(crc, name, strlen(name));
			crc = mc_crc32c(crc, &st.st_mtim, sizeof(st.st_mtim));
			crc = mc_crc32c(crc, &st.st_blocks, sizeof(st.st_blocks));
			crc = mc_crc32c(crc, &st.st_mode, sizeof(st.st_mode));
		}
		if (fd >= 0 && S_ISDIR(st.st_mode)) {
			crc = fsck_tree_crc(fd, crc);
		} else if (fd >= 0) {
			void *buf = malloc((size_t)st.st_size + 1);

			ck_assert_int_eq(pread(fd, buf, (size_t)st.st_size, 0), st.st_size);
			crc = mc_crc32c(crc, buf, (size_t)st.st_size);
			free(buf);
		}
		if (fd >= 0)
			close(fd);
		free(names[i]);
	}
	free(names);
	return crc;
}

static inline uint32_t fsck_tree(const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	uint32_t crc = fsck_tree_crc(fd, 0);

	close(fd);
	return crc;
}

/* What a daemon that starts here can serve; it aborts at a wrong byte. */
struct fsck_left {
	uint64_t blocks[FSCK_IMAGES];
	uint64_t all_blocks, objects;
	bool object[FSCK_OBJECTS];
};

static inline void fsck_count_blocks(const char *dir, struct fsck_left *left)
{
	struct mc_nvme *n = nvme_open(dir, 64 * MIB);

	for (unsigned i = 0; i < FSCK_IMAGES; i++) {
		struct mc_file_id id = tier_file_id(i, fsck_size[i]);
		struct mc_nvme_image *img;

		if (mc_nvme_image_get(n, &id, false, &img) != 0)
			continue;
		for (uint64_t b = 0; b < mc_block_count(fsck_size[i]); b++) {
			int r = nvme_get(img, i, fsck_size[i], b);

			ck_assert_msg(
				r == 0 || r == -ENOENT, "image %u block %u: %d", i, (unsigned)b, r);
			left->blocks[i] += r == 0;
			left->all_blocks += r == 0;
		}
		mc_nvme_image_put(img);
	}
	mc_nvme_close(n);
}

static inline void fsck_count_objects(const char *dir, struct fsck_left *left)
{
	struct kv_owner o = {0};
	struct mc_kv_log *log = fsck_open_log(dir, &o);
	char key[64];

	for (unsigned i = 0; i < FSCK_OBJECTS; i++) {
		int r;

		fsck_key(i, key);
		r = kv_check(log, &o, key, i);
		ck_assert_msg(r == 0 || r == -ENOENT, "%s: %d", key, r);
		left->object[i] = r == 0;
		left->objects += r == 0;
	}
	mc_kv_log_close(log);
	kv_forget(&o);
}

static inline struct fsck_left fsck_left(const char *dir)
{
	struct fsck_left left = {0};

	fsck_count_blocks(dir, &left);
	fsck_count_objects(dir, &left);
	return left;
}
