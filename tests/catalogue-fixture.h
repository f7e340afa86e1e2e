/* A catalogue on a directory of its own, behind a remote that misbehaves on order. */
#pragma once

#include "manifest/catalogue.h"
#include "tests/sample-manifest.h"
#include "tier/remote-fault.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <unistd.h>

static char root[64], idx[80];
static struct mc_remote *remote;
static struct mc_fault *fault;
static struct mc_catalogue *cat;

static inline int rm(const char *path, const struct stat *st, int flag, struct FTW *f)
{
	(void)st;
	(void)flag;
	(void)f;
	return remove(path);
}

static inline void open_catalogue(void)
{
	struct mc_err err = {0};
	char url[80];

	snprintf(root, sizeof(root), "/tmp/mc-catalogue-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(root));
	snprintf(idx, sizeof(idx), "%s.idx", root);
	snprintf(url, sizeof(url), "dir:%s", root);
	ck_assert_msg(mc_remote_open(url, NULL, &remote, &err) == 0, "%s", err.text);
	ck_assert_int_eq(mc_remote_fault_open(remote, &fault, &remote), 0);
	ck_assert_msg(mc_catalogue_open(remote, idx, &cat, &err) == 0, "%s", err.text);
}

static inline void close_catalogue(void)
{
	mc_catalogue_close(cat);
	mc_remote_close(remote);
	nftw(root, rm, 16, FTW_DEPTH | FTW_PHYS);
	nftw(idx, rm, 16, FTW_DEPTH | FTW_PHYS);
}

static inline struct mc_rev_name name(const char *text)
{
	struct mc_rev_name n;
	struct mc_err err = {0};

	ck_assert_msg(mc_rev_name_parse(text, &n, &err) == 0, "%s", err.text);
	return n;
}

/* The JSON of the sample manifest, with the root's mode to tell versions apart. */
static inline char *json(uint32_t mode, size_t *len)
{
	struct mc_writer *w = sample_writer();
	char *text;

	mc_writer_root(w, &(struct mc_new_meta){.mode = mode});
	ck_assert_int_eq(mc_writer_finish(w, &text, len, NULL, NULL), 0);
	mc_writer_close(w);
	return text;
}

static inline int publish(const char *rev, uint32_t mode, struct mc_err *err)
{
	struct mc_rev_name n = name(rev);
	size_t len;
	char *text = json(mode, &len);
	int r = mc_catalogue_publish(cat, &n, text, len, err);

	free(text);
	return r;
}

static inline void write_file(const char *path, const char *text)
{
	char full[400];
	FILE *f;

	snprintf(full, sizeof(full), "%s/%s", root, path);
	f = fopen(full, "we");
	ck_assert_ptr_nonnull(f);
	ck_assert_int_ge(fputs(text, f), 0);
	fclose(f);
}
