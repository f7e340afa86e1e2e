/* A KV store in trouble: its disk fails on order, its remote may, and what it tells the log is
 * counted. */
#pragma once

#include "tests/io-switch.h"
#include "tests/kv-fixture.h"
#include "tier/lock.h"
#include "tier/remote-fault.h"

#include <check.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MIB (1u << 20)

static struct io_switch disk;

/* What the store told the log. */
static struct {
	_Atomic unsigned degraded, restored;
	uint64_t since_ns;
	unsigned lives; /* of stores */
} told;

static inline void on_event(void *ctx, const char *event, const char *text)
{
	(void)ctx;
	ck_assert_int_gt((int)strlen(text), 10);
	atomic_fetch_add(strcmp(event, "kv-degraded") == 0 ? &told.degraded : &told.restored, 1);
}

/* However often it failed: once for each daemon, or once in 5 s. */
static inline void expect_told_rarely(void)
{
	uint64_t most = told.lives + (mc_now_ns() - told.since_ns) / UINT64_C(5000000000);

	ck_assert_uint_ge(told.degraded, 1);
	ck_assert_uint_le(told.degraded, most);
}

static inline void paths(struct kv_fixture *x)
{
	io_switch_init(&disk);
	told.degraded = told.restored = 0;
	told.since_ns = mc_now_ns();
	told.lives = 1;
	kv_fixture_paths(x, 64 * MIB);
	x->opts.retry_ms = 10;
	x->opts.io = &disk.io;
	x->opts.event = on_event;
}

static inline void with_nvme(struct kv_fixture *x)
{
	x->opts.nvme_dir = x->nvme;
	x->opts.nvme_capacity = UINT64_C(64) << 20;
}

static inline struct mc_fault *with_remote(struct kv_fixture *x)
{
	struct mc_fault *fault;

	kv_fixture_remote(x);
	ck_assert_int_eq(mc_remote_fault_open(x->remote, &fault, &x->remote), 0);
	x->opts.remote = x->remote;
	return fault;
}

static inline struct mc_kv_stats stats(struct mc_kv *kv)
{
	struct mc_kv_stats s;

	mc_kv_stats(kv, &s);
	return s;
}

static inline void wait_recovered(struct mc_kv *kv)
{
	while (stats(kv).recovering)
		usleep(200);
}

static inline void forget_dram_and_restart(struct kv_fixture *x)
{
	mc_kv_close(x->kv, 20000);
	x->kv = NULL;
	kv_fixture_forget_dram(x);
	kv_fixture_start(x);
	wait_recovered(x->kv);
}

/* As a daemon that follows finds it: what is dirty is adopted from DRAM. */
static inline void restart(struct kv_fixture *x, unsigned deadline_ms)
{
	mc_kv_close(x->kv, 0);
	told.lives++;
	x->opts.deadline_ms = deadline_ms;
	kv_fixture_start(x);
	wait_recovered(x->kv);
}

/* Puts 1 MiB each until there is no room. How many there were. */
static inline unsigned put_until_full(struct mc_kv *kv)
{
	char key[16];
	unsigned n = 0;
	int r = 0;

	while (r == 0 && n < 60) {
		snprintf(key, sizeof(key), "k%u", n);
		r = kv_put_wait(kv, key, MIB, n);
		n += r == 0;
	}
	ck_assert_int_eq(r, -ENOSPC);
	return n;
}

static inline void expect_all(struct mc_kv *kv, unsigned n)
{
	char key[16];

	for (unsigned i = 0; i < n; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		kv_expect(kv, key, MIB, i);
	}
}

/* Everything goes down once the trouble is over. */
static inline void drain(struct mc_kv *kv)
{
	uint64_t give_up = mc_now_ns() + UINT64_C(120000000000);

	while (stats(kv).dirty_bytes > 0) {
		ck_assert_msg(mc_now_ns() < give_up, "data stays dirty");
		usleep(200);
	}
}
