/* A KV store over temporary directories, and objects whose bytes follow from a seed. */
#pragma once

#include "tier/kv.h"
#include "tier/remote-fault.h"

#include <check.h>
#include <errno.h>
#include <sys/mman.h>

struct kv_fixture {
	struct mc_kv *kv;
	struct mc_kv_opts opts;
	char root[64], dram[80], nvme[80], remote_dir[80];
	struct mc_remote *remote;
};

/* Directories only; start opens the store with x->opts. */
void kv_fixture_paths(struct kv_fixture *x, uint64_t dram_capacity);
void kv_fixture_start(struct kv_fixture *x);
void kv_fixture_open(struct kv_fixture *x, uint64_t dram_capacity);
/* Closes the store and removes what it left. */
void kv_fixture_close(struct kv_fixture *x);
/* A directory as the remote below; before start. */
void kv_fixture_remote(struct kv_fixture *x);

void kv_fill_fd(int fd, size_t size, uint32_t seed);
int kv_put(struct mc_kv *kv, const char *key, size_t size, uint32_t seed, unsigned flags);
/* Waits for room as often as it takes. */
int kv_put_wait(struct mc_kv *kv, const char *key, size_t size, uint32_t seed);
/* Starts one on NVMe, and a remote that may be told to fail. */
void kv_fixture_faulty(struct kv_fixture *x, struct mc_fault **ret);
/* Closes the store; a reboot comes next. */
void kv_fixture_stop(struct kv_fixture *x);
/* In DRAM and on the remote, and not on NVMe. */
void kv_put_on_remote(struct mc_kv *kv, const char *key, size_t size, uint32_t seed);
/* What a reboot does to DRAM; the store is closed. */
void kv_fixture_forget_dram(struct kv_fixture *x);
/* mc_kv_ask, waiting for its answer. */
int kv_ask(struct mc_kv *kv, const char *key, struct mc_kv_attr *ret);
int kv_open_object(struct mc_kv *kv, const char *key, struct mc_kv_object **ret);
/* Reads len bytes and does not look at them: 0 or -errno. */
int kv_read_range(struct mc_kv_object *obj, uint64_t off, uint32_t len);
/* 0, or -errno of a read. *ret_same: whether the bytes are the seed's. */
int kv_check_object(struct mc_kv_object *obj, size_t size, uint32_t seed, bool *ret_same);
void kv_expect_object(struct mc_kv_object *obj, size_t size, uint32_t seed);
void kv_expect(struct mc_kv *kv, const char *key, size_t size, uint32_t seed);
