/*
 * Random operations from several threads against a model: each thread owns some keys and knows what
 * they must hold, all threads share the store. Then a restart, with DRAM and without.
 *
 * MC_SEED, KV_OPS (for each thread) and KV_THREADS set it; the seed is printed.
 */
#include "tests/kv-fixture.h"
#include "tests/seed.h"
#include "tests/suite.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define KEYS 24 /* of each thread */
#define MIB (1u << 20)

struct key_model {
	bool there, synced;
	size_t size;
	uint32_t seed;
};

struct worker {
	struct kv_fixture *x;
	unsigned id, ops;
	uint64_t rng;
	uint32_t next_seed;
	struct key_model keys[KEYS];
	unsigned done[8];
};

static uint64_t next(struct worker *w)
{
	w->rng ^= w->rng << 13;
	w->rng ^= w->rng >> 7;
	w->rng ^= w->rng << 17;
	return w->rng;
}

static void key_name(const struct worker *w, unsigned k, char *out, size_t len)
{
	snprintf(out, len, k % 3 == 0 ? "t%u-%u" : "d%u/k%u", w->id, k);
}

static size_t any_size(struct worker *w)
{
	static const size_t edges[] = {0, 1, 4096, 65535, 65536, MIB, MIB + 1, 9 * MIB};

	if (next(w) % 40 == 0)
		return edges[next(w) % (sizeof(edges) / sizeof(*edges))];
	return (size_t)(next(w) % (next(w) % 4 == 0 ? 400000 : 9000));
}

static void do_put(struct worker *w, unsigned k)
{
	char key[32];
	size_t size = any_size(w);
	uint32_t seed = w->id << 24 | w->next_seed++;

	key_name(w, k, key, sizeof(key));
	ck_assert_int_eq(kv_put_wait(w->x->kv, key, size, seed), 0);
	w->keys[k] = (struct key_model){.there = true, .size = size, .seed = seed};
}

static void do_get(struct worker *w, unsigned k)
{
	struct mc_kv_object *obj;
	char key[32];
	int r;

	key_name(w, k, key, sizeof(key));
	r = kv_open_object(w->x->kv, key, &obj);
	if (!w->keys[k].there) {
		ck_assert_int_eq(r, -ENOENT);
		return;
	}
	ck_assert_msg(r == 0, "get %s: %d", key, r);
	kv_expect_object(obj, w->keys[k].size, w->keys[k].seed);
	mc_kv_object_put(obj);
}

static void do_rename(struct worker *w, unsigned k)
{
	unsigned to = (unsigned)(next(w) % KEYS);
	char from[32], name[32];
	int r;

	key_name(w, k, from, sizeof(from));
	key_name(w, to, name, sizeof(name));
	r = mc_kv_rename(w->x->kv, from, name, 0);
	if (r == -EXDEV) /* on the remote alone */
		return;
	ck_assert_int_eq(r, w->keys[k].there ? 0 : -ENOENT);
	if (r == 0 && to != k) {
		w->keys[to] = w->keys[k];
		w->keys[k].there = false;
	}
}

static void do_sync(struct worker *w, unsigned k)
{
	char key[32];

	key_name(w, k, key, sizeof(key));
	ck_assert_int_eq(mc_kv_sync(w->x->kv, key), w->keys[k].there ? 0 : -ENOENT);
	w->keys[k].synced = true;
}

/* A reader that holds on to a version while it is replaced and removed. */
static void do_hold(struct worker *w, unsigned k)
{
	struct key_model was = w->keys[k];
	struct mc_kv_object *obj;
	char key[32];

	key_name(w, k, key, sizeof(key));
	if (!was.there || was.size > 8 * MIB || kv_open_object(w->x->kv, key, &obj) != 0)
		return;
	do_put(w, k);
	ck_assert_int_eq(mc_kv_unlink(w->x->kv, key), 0);
	w->keys[k].there = false;
	kv_expect_object(obj, was.size, was.seed);
	mc_kv_object_put(obj);
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;

	for (unsigned i = 0; i < w->ops; i++) {
		unsigned k = (unsigned)(next(w) % KEYS), op = (unsigned)(next(w) % 100);
		char key[32];
		int r;

		key_name(w, k, key, sizeof(key));
		if (op < 30) {
			do_put(w, k);
		} else if (op < 62) {
			do_get(w, k);
		} else if (op < 70) {
			r = mc_kv_unlink(w->x->kv, key);
			ck_assert_int_eq(r, w->keys[k].there ? 0 : -ENOENT);
			w->keys[k].there = false;
		} else if (op < 80) {
			do_rename(w, k);
		} else if (op < 84) {
			do_sync(w, k);
		} else if (op < 96) {
			r = mc_kv_evict(w->x->kv, key);
			if (!w->keys[k].there)
				ck_assert_int_eq(r, -ENOENT);
			else
				ck_assert_msg(r == 0 || r == -EBUSY, "evict: %d", r);
		} else {
			do_hold(w, k);
		}
	}
	return NULL;
}

static void check_all(struct worker *workers, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		for (unsigned k = 0; k < KEYS; k++)
			do_get(&workers[i], k);
}

static void run(bool nvme, bool remote, unsigned replicas, uint64_t nvme_bytes)
{
	unsigned n = env_number("KV_THREADS", 4), ops = env_number("KV_OPS", 400);
	unsigned seed = seed_choose();
	struct worker *workers = calloc(n, sizeof(*workers));
	pthread_t threads[64];
	struct kv_fixture x;

	printf("nvme %d remote %d replicas %u\n", nvme, remote, replicas);
	fflush(stdout);
	ck_assert_uint_le(n, 64);
	kv_fixture_paths(&x, 48 * MIB);
	if (nvme) {
		x.opts.nvme_dir = x.nvme;
		x.opts.nvme_capacity = nvme_bytes;
	}
	if (remote)
		kv_fixture_remote(&x);
	x.opts.replicas = replicas;
	kv_fixture_start(&x);
	for (int round = 0; round < 3; round++) {
		for (unsigned i = 0; i < n; i++) {
			char dir[16];

			snprintf(dir, sizeof(dir), "d%u", i);
			if (round == 0)
				ck_assert_int_eq(mc_kv_mkdir(x.kv, dir), 0);
			workers[i].x = &x;
			workers[i].id = i;
			workers[i].ops = ops;
			workers[i].rng = (seed + i + 1) * UINT64_C(0x9e3779b97f4a7c15);
			workers[i].rng += (uint64_t)round;
			ck_assert_int_eq(
				pthread_create(&threads[i], NULL, worker_main, &workers[i]), 0);
		}
		for (unsigned i = 0; i < n; i++)
			pthread_join(threads[i], NULL);
		check_all(workers, n);
		if (round == 2)
			break;
		ck_assert_int_eq(mc_kv_close(x.kv, 30000), 0);
		x.kv = NULL;
		if (!nvme)
			break; /* on the remote alone, the index goes with DRAM */
		if (round == 0)
			kv_fixture_forget_dram(&x);
		kv_fixture_start(&x);
		check_all(workers, n);
	}
	kv_fixture_close(&x);
	free(workers);
}

START_TEST(threads_find_what_they_put_with_nvme)
{
	run(true, false, 0, UINT64_C(512) << 20);
}
END_TEST

START_TEST(threads_find_what_they_put_with_nvme_and_replicas)
{
	run(true, true, 1, UINT64_C(512) << 20);
}
END_TEST

START_TEST(threads_find_what_they_put_with_the_remote_alone)
{
	run(false, true, 0, 0);
}
END_TEST

/* So little NVMe that cold objects must go on to the remote. */
START_TEST(threads_find_what_they_put_with_small_nvme_above_a_remote)
{
	run(true, true, 0, UINT64_C(192) << 20);
}
END_TEST

SUITE_MAIN("kv-model", threads_find_what_they_put_with_small_nvme_above_a_remote,
	threads_find_what_they_put_with_nvme, threads_find_what_they_put_with_nvme_and_replicas,
	threads_find_what_they_put_with_the_remote_alone)
