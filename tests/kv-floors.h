/* A KV log in a directory with a device below it, small ones. Devices are files. */
#pragma once

#include "tests/kv-log-fixture.h"
#include "tier/block-super.h"

#define SEGMENT (256u << 10)
#define UPPER (8 * SEGMENT)
#define DEVICE_BYTES (8 * MIB)
#define OBJECT 20000u

static char *dir, kv_dir[4096], device[4096];
static struct kv_owner owner;
static struct mc_kv_log_opts opts;

static inline void format(const char *path)
{
	const struct mc_block_format f = {
		.path = path, .bytes = DEVICE_BYTES, .segment_bytes = SEGMENT, .force = true};
	struct mc_err err = {0};

	ck_assert_msg(mc_block_format(&f, &err) == 0, "%s", err.text);
}

static inline void make(void)
{
	dir = tier_dir_make("/dev/shm");
	snprintf(kv_dir, sizeof(kv_dir), "%s/kv", dir);
	snprintf(device, sizeof(device), "%s/device", dir);
	format(device);
	owner = (struct kv_owner){0};
	opts = (struct mc_kv_log_opts){.dir = kv_dir,
		.device = device,
		.capacity = UPPER,
		.segment_bytes = SEGMENT,
		.commit_ms = 1000000,
		.probe_ms = 10};
}

static inline struct mc_kv_log *start(void)
{
	return kv_open_with(&opts, &owner, 0);
}

static inline void stop(struct mc_kv_log *log)
{
	mc_kv_log_close(log);
	kv_forget(&owner);
}

static inline const char *key_of(unsigned i)
{
	static _Thread_local char key[32];

	snprintf(key, sizeof(key), "k%u", i);
	return key;
}

/* Objects [from, to): each content is the key's number + 1. */
static inline void put_all(struct mc_kv_log *log, unsigned from, unsigned to, uint64_t size)
{
	for (unsigned i = from; i < to; i++)
		ck_assert_msg(kv_put(log, &owner, key_of(i), i + 1, size) == 0, "%u", i);
}

static inline void check_all(struct mc_kv_log *log, unsigned from, unsigned to)
{
	for (unsigned i = from; i < to; i++)
		ck_assert_msg(kv_check(log, &owner, key_of(i), i + 1) == 0, "%u", i);
}

static inline bool is_below(const char *key)
{
	return (kv_find_locked(&owner, key)->loc.segment & MC_KV_BELOW) != 0;
}

static inline unsigned count_below(unsigned n)
{
	unsigned below = 0;

	for (unsigned i = 0; i < n; i++)
		below += is_below(key_of(i));
	return below;
}

static inline bool keep_none(const char *key)
{
	(void)key;
	return false;
}

static inline void finish(void)
{
	tier_dir_remove(dir);
}
