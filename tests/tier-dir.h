/* A scratch directory for tier tests, and patterned blocks whose checksum and place can be checked.
 */
#pragma once

#include "tier/digest.h"
#include "tier/source.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* parent/mc-test-XXXXXX; the caller removes it with tier_dir_remove. */
static inline char *tier_dir_make(const char *parent)
{
	char *path;

	ck_assert_int_gt(asprintf(&path, "%s/mc-test-XXXXXX", parent), 0);
	ck_assert_ptr_nonnull(mkdtemp(path));
	return path;
}

static inline void tier_dir_empty(int dirfd)
{
	DIR *d = fdopendir(dirfd);
	struct dirent *e;

	ck_assert_ptr_nonnull(d);
	while ((e = readdir(d)) != NULL) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (unlinkat(dirfd, e->d_name, 0) == 0)
			continue;
		tier_dir_empty(openat(dirfd, e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
		unlinkat(dirfd, e->d_name, AT_REMOVEDIR);
	}
	closedir(d);
}

/* Removes the tree and frees path. */
static inline void tier_dir_remove(char *path)
{
	tier_dir_empty(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	rmdir(path);
	free(path);
}

static inline struct mc_file_id tier_file_id(unsigned n, uint64_t size)
{
	struct mc_file_id id = {.size = size};

	ck_assert_int_eq(mc_sha256(&n, sizeof(n), id.digest), 0);
	return id;
}

/* len bytes that name the file and their own offset. */
static inline void tier_fill(void *buf, uint32_t len, unsigned file, uint64_t off)
{
	unsigned char *p = buf;

	for (uint32_t i = 0; i < len; i++)
		p[i] = (unsigned char)((off + i) * 31 + ((off + i) >> 9) * 7 + file * 101);
}

static inline bool tier_matches(const void *buf, uint32_t len, unsigned file, uint64_t off)
{
	const unsigned char *p = buf;

	for (uint32_t i = 0; i < len; i++)
		if (p[i] != (unsigned char)((off + i) * 31 + ((off + i) >> 9) * 7 + file * 101))
			return false;
	return true;
}
