/*
 * Clients of a KV store that loses power: see crash-kv.h.
 *
 * I1 an object that is there has the bytes of one put, whole. I2 what was synced is there, or what
 * replaced it. I3 what was removed or renamed away is not, nor what was replaced by what was
 * synced. I4 the store's use of the disk is what its files take, and it works.
 */
#include "tests/crash-kv.h"

#include "tests/crash-history.h"
#include "tests/kv-fixture.h"
#include "tests/kv-judge.h"
#include "tier/block-super.h"
#include "tier/kv-impl.h"
#include "tier/kv-remote.h"
#include "tier/lock.h"

#include <dirent.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CLIENTS 3
#define KEYS 4 /* of each */
#define OPS 40 /* of each */

struct op {
	struct crash_span span;
	struct kv_deed deed; /* KV_OTHER: an eviction from DRAM */
};

struct crash_kv {
	enum crash_below below;
	struct op ops[CLIENTS][OPS];
};

const char *const crash_below_names[CRASH_BELOW] = {
	"NVMe", "remote", "NVMe and remote", "a block tier"};

struct client {
	struct crash_kv *h;
	const struct disk *disk;
	struct mc_kv *kv;
	unsigned number;
	uint64_t rng;
	bool there[KEYS];
};

static size_t size_of(uint32_t content)
{
	uint64_t rng = crash_rng(content);
	unsigned kind = (unsigned)(crash_random(&rng) % 10);

	if (kind < 5)
		return 16 + crash_random(&rng) % 9000;
	if (kind < 9)
		return 16 + crash_random(&rng) % 300000;
	return crash_random(&rng) % 1200000; /* in parts */
}

static void key_name(unsigned client, unsigned key, char out[32])
{
	snprintf(out, 32, "client%u/k%u", client, key);
}

/* What the store said last, for whoever looks at a failure. */
static char last_event[512];

static void note_event(void *ctx, const char *event, const char *text)
{
	(void)ctx;
	snprintf(last_event, sizeof(last_event), "%s: %s", event, text);
}

static bool has_remote(const struct crash_kv *h)
{
	return h->below == CRASH_REMOTE || h->below == CRASH_BOTH;
}

static void open_store(
	struct kv_fixture *x, const struct crash_kv *h, const char *dir, const char *dram)
{
	/* A file, for want of a device beside the file system. Never formatted, or not to the end:
	 * then nothing was acknowledged yet. */
	const struct mc_block_format block = {
		.path = x->nvme, .bytes = UINT64_C(24) << 20, .force = true};
	struct mc_err err = {0};
	int r;

	memset(x, 0, sizeof(*x));
	snprintf(x->dram, sizeof(x->dram), "%s", dram);
	snprintf(x->nvme, sizeof(x->nvme), "%s/kv", dir);
	snprintf(x->remote_dir, sizeof(x->remote_dir), "%s/remote", dir);
	x->opts = (struct mc_kv_opts){.dram_dir = x->dram,
		.dram_capacity = UINT64_C(16) << 20,
		.node = "00c0ffee",
		.event = note_event};
	if (h->below == CRASH_BLOCK) {
		x->opts.device = x->nvme;
	} else if (h->below != CRASH_REMOTE) {
		x->opts.nvme_dir = x->nvme;
		x->opts.nvme_capacity = UINT64_C(24) << 20;
	}
	if (has_remote(h)) {
		kv_fixture_remote(x);
		x->opts.ack = MC_KV_ACK_REMOTE;
	}
	last_event[0] = '\0';
	r = mc_kv_open(&x->opts, &x->kv, &err);
	if (h->below == CRASH_BLOCK && (r == -ENOENT || r == -EMEDIUMTYPE)) {
		err.text[0] = '\0';
		r = mc_block_format(&block, &err);
		if (r == 0)
			r = mc_kv_open(&x->opts, &x->kv, &err);
	}
	if (r != 0)
		crash_die("the KV store does not open: %d %s", r, err.text);
}

/* Where nothing becomes durable for 10 s the store says so and goes on trying: a busy machine is no
 * failure. */
static int sync_object(struct mc_kv *kv, const char *key)
{
	uint64_t deadline = mc_now_ns() + UINT64_C(300000000000);
	int r;

	do {
		r = mc_kv_sync(kv, key);
	} while (r == -ETIMEDOUT && mc_now_ns() < deadline);
	return r;
}

/* ---- the clients */

static enum kv_deed_kind choose(struct client *c, unsigned key)
{
	static const enum kv_deed_kind kinds[] = {KV_PUT, KV_PUT, KV_PUT, KV_SYNC, KV_SYNC, KV_SYNC,
		KV_RENAME, KV_RENAME, KV_UNLINK, KV_OTHER};

	enum kv_deed_kind kind = kinds[crash_random(&c->rng) % (sizeof(kinds) / sizeof(*kinds))];

	/* Without a journal both names of what is renamed may be found. */
	return !c->there[key] || (kind == KV_RENAME && c->h->below == CRASH_REMOTE) ? KV_PUT : kind;
}

/* What is on the remote alone is copied, as between file systems: or it is brought here first. */
static int rename_here(struct mc_kv *kv, const char *key, const char *to)
{
	int r;

	while ((r = mc_kv_rename(kv, key, to, 0)) == -EXDEV) {
		struct mc_kv_object *obj;

		r = kv_open_object(kv, key, &obj);
		if (r != 0)
			return r;
		mc_kv_object_put(obj);
	}
	return r;
}

/* What was put is there to be read at once; nobody else changes the key. */
static int put(struct client *c, const char *key, uint32_t content)
{
	struct mc_kv_object *obj;
	bool same = false;
	int r = kv_put_wait(c->kv, key, size_of(content), content);

	if (r == 0)
		r = kv_open_object(c->kv, key, &obj);
	if (r != 0)
		return r;
	r = kv_check_object(obj, size_of(content), content, &same);
	mc_kv_object_put(obj);
	return r == 0 && !same ? -EBADMSG : r;
}

static int do_deed(struct client *c, const struct kv_deed *d)
{
	char key[32], to[32];
	int r;

	key_name(c->number, d->key, key);
	key_name(c->number, d->to, to);
	switch (d->kind) {
	case KV_PUT:
		return put(c, key, d->content);
	case KV_SYNC:
		return sync_object(c->kv, key);
	case KV_RENAME:
		return rename_here(c->kv, key, to);
	case KV_UNLINK:
		return mc_kv_unlink(c->kv, key);
	case KV_OTHER:
		break;
	}
	r = mc_kv_evict(c->kv, key);
	return r == -EBUSY || r == -EAGAIN || r == -ENOENT ? 0 : r;
}

static void *client_main(void *arg)
{
	struct client *c = arg;

	for (unsigned i = 0; i < OPS; i++) {
		struct op *op = &c->h->ops[c->number][i];
		struct kv_deed *d = &op->deed;
		int r;

		d->key = (unsigned)(crash_random(&c->rng) % KEYS);
		d->kind = choose(c, d->key);
		d->to = (d->key + 1 + (unsigned)(crash_random(&c->rng) % (KEYS - 1))) % KEYS;
		d->content = (c->number << 16) + i + 1;
		op->span.begun = disk_position(c->disk) + 1;
		r = do_deed(c, d);
		op->span.acknowledged = disk_position(c->disk) + 1;
		if (r != 0)
			crash_die("client %u deed %u of kind %d: %d", c->number, i, d->kind, r);
		if (d->kind == KV_RENAME)
			c->there[d->to] = true;
		c->there[d->key] = d->kind != KV_UNLINK && d->kind != KV_RENAME;
	}
	return NULL;
}

struct crash_kv *crash_kv_new(enum crash_below below)
{
	struct crash_kv *h =
		mmap(NULL, sizeof(*h), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (h == MAP_FAILED)
		crash_die("no memory");
	h->below = below;
	return h;
}

void crash_kv_free(struct crash_kv *h)
{
	munmap(h, sizeof(*h));
}

void crash_kv_work(
	struct crash_kv *h, const struct disk *d, const char *dir, const char *dram, uint64_t seed)
{
	struct client clients[CLIENTS] = {0};
	pthread_t threads[CLIENTS];
	struct kv_fixture x;

	open_store(&x, h, dir, dram);
	for (unsigned i = 0; i < CLIENTS; i++) {
		char key[32];

		snprintf(key, sizeof(key), "client%u", i);
		if (mc_kv_mkdir(x.kv, key) != 0)
			crash_die("mkdir %s", key);
		clients[i] = (struct client){.h = h,
			.disk = d,
			.kv = x.kv,
			.number = i,
			.rng = crash_rng(seed * CLIENTS + i)};
		if (pthread_create(&threads[i], NULL, client_main, &clients[i]) != 0)
			crash_die("no thread");
	}
	for (unsigned i = 0; i < CLIENTS; i++)
		pthread_join(threads[i], NULL);
}

size_t crash_kv_acks(const struct crash_kv *h, uint64_t *ret, size_t max)
{
	size_t n = 0;

	for (unsigned c = 0; c < CLIENTS; c++)
		for (unsigned i = 0; i < OPS && n < max; i++) {
			const struct op *op = &h->ops[c][i];

			if (op->span.acknowledged != 0 && op->deed.kind != KV_OTHER &&
				(op->deed.kind != KV_PUT || has_remote(h)))
				ret[n++] = op->span.acknowledged - 1;
		}
	return n;
}

/* ---- the judgement */

/* What a client had been told of its keys by then. The operation that was not answered, or NULL. */
static const struct kv_deed *recall(
	const struct crash_kv *h, unsigned client, uint64_t cut, struct kv_held keys[KEYS])
{
	unsigned i;

	for (i = 0; i < KEYS; i++)
		kv_make_sure(&keys[i], 0);
	for (i = 0; i < OPS && crash_acknowledged(&h->ops[client][i].span, cut); i++) {
		const struct kv_deed *d = &h->ops[client][i].deed;

		kv_acknowledge(keys, d);
		if (d->kind == KV_PUT && has_remote(h))
			kv_make_sure(&keys[d->key], d->content);
	}
	return i < OPS && crash_begun(&h->ops[client][i].span, cut) ? &h->ops[client][i].deed
								    : NULL;
}

static void judge_client(
	const struct crash_kv *h, unsigned client, uint64_t cut, const uint32_t found[KEYS])
{
	struct kv_held keys[KEYS] = {{0}};
	const struct kv_deed *open = recall(h, client, cut, keys);
	char text[512];

	if (!kv_judge(keys, KEYS, open, found, false, text))
		crash_die("client %u: %s", client, text);
}

/* mc_kv_ask. Who waited a second for the remote is told what is known here, and later nobody waits:
 * on a busy machine that is not the answer yet, as long as the remote has something. */
static int ask(struct kv_fixture *x, const char *key, struct mc_kv_attr *ret)
{
	uint64_t deadline = mc_now_ns() + UINT64_C(300000000000);
	struct mc_remote_attr attr;
	char path[KV_REMOTE_PATH];
	int r = kv_remote_path(key, path);

	if (r != 0)
		return r;
	while ((r = kv_ask(x->kv, key, ret)) == -ENOENT && x->remote != NULL &&
		mc_remote_stat(x->remote, path, &attr, NULL) == 0 && mc_now_ns() < deadline)
		usleep(200);
	return r;
}

/* The content a key holds: one that was ever put by that client, whole. */
static uint32_t content_of(struct crash_kv *h, struct kv_fixture *x, unsigned client, unsigned key)
{
	struct mc_kv_object *obj;
	struct mc_kv_attr attr;
	uint32_t content = 0;
	char name[32];
	int r;

	key_name(client, key, name);
	r = ask(x, name, &attr);
	if (r == -ENOENT)
		return 0;
	if (r == 0)
		r = kv_open_object(x->kv, name, &obj);
	if (r != 0)
		crash_die("%s: does not open: %d; the store said: %s", name, r, last_event);
	mc_kv_object_attr(obj, &attr);
	for (unsigned i = 0; i < OPS && content == 0; i++) {
		const struct op *op = &h->ops[client][i];
		bool same = false;

		if (op->deed.kind != KV_PUT || op->span.begun == 0 ||
			size_of(op->deed.content) != attr.size)
			continue;
		r = kv_check_object(obj, attr.size, op->deed.content, &same);
		if (r != 0)
			crash_die("%s: reads %d", name, r);
		if (same)
			content = op->deed.content;
	}
	if (content == 0)
		crash_die("%s: %llu bytes that nobody put", name, (unsigned long long)attr.size);
	mc_kv_object_put(obj);
	return content;
}

static uint64_t disk_bytes(const char *path)
{
	uint64_t bytes = 0;
	DIR *d = opendir(path);
	struct dirent *e;

	while (d != NULL && (e = readdir(d)) != NULL) {
		char sub[4096];
		struct stat st;

		if (e->d_name[0] == '.')
			continue;
		snprintf(sub, sizeof(sub), "%s/%s", path, e->d_name);
		if (stat(sub, &st) != 0)
			crash_die("%s", sub);
		bytes += S_ISDIR(st.st_mode) ? disk_bytes(sub) : (uint64_t)st.st_size;
	}
	if (d != NULL)
		closedir(d);
	return bytes;
}

static void check_space(struct kv_fixture *x)
{
	uint64_t deadline = mc_now_ns() + UINT64_C(120000000000);
	char segments[128];
	struct mc_kv_stats s;
	uint64_t bytes;

	snprintf(segments, sizeof(segments), "%s/segments", x->nvme);
	do { /* a segment may be reclaimed at this moment */
		bytes = disk_bytes(segments);
		mc_kv_stats(x->kv, &s);
	} while (s.nvme_used != bytes && mc_now_ns() < deadline);
	if (s.nvme_used != bytes || bytes > x->opts.nvme_capacity)
		crash_die("%llu bytes are in use, the files have %llu",
			(unsigned long long)s.nvme_used, (unsigned long long)bytes);
}

static void wait_recovered(struct mc_kv *kv)
{
	struct mc_kv_stats s;

	do {
		usleep(200);
		mc_kv_stats(kv, &s);
	} while (s.recovering);
}

/* What the last put of a key left on the remote before it was acknowledged, 0 = nothing is known: a
 * rename takes the copy away, and another one is made later. */
static uint32_t put_there(const struct crash_kv *h, unsigned client, uint64_t cut, unsigned key)
{
	uint32_t content = 0;

	for (unsigned i = 0; i < OPS && crash_begun(&h->ops[client][i].span, cut); i++) {
		const struct op *op = &h->ops[client][i];
		bool renamed =
			op->deed.kind == KV_RENAME && (op->deed.key == key || op->deed.to == key);

		if (op->deed.kind == KV_PUT && op->deed.key == key)
			content = crash_acknowledged(&op->span, cut) ? op->deed.content : 0;
		else if (renamed || (op->deed.kind == KV_UNLINK && op->deed.key == key))
			content = 0;
	}
	return content;
}

/* It is there for a node that has nothing else. */
static void check_remote_alone(struct crash_kv *h, const char *dir, const char *dram, uint64_t cut)
{
	enum crash_below below = h->below;
	struct kv_fixture x;

	h->below = CRASH_REMOTE;
	open_store(&x, h, dir, dram);
	h->below = below;
	for (unsigned c = 0; c < CLIENTS; c++)
		for (unsigned k = 0; k < KEYS; k++) {
			uint32_t want = put_there(h, c, cut, k);

			if (want != 0 && content_of(h, &x, c, k) != want)
				crash_die("client %u key %u: %x is not on the remote", c, k, want);
		}
	if (mc_kv_close(x.kv, 20000) != 0)
		crash_die("it does not close");
	mc_remote_close(x.remote);
}

void crash_kv_check(struct crash_kv *h, const char *dir, const char *dram, uint64_t cut)
{
	uint64_t n = 0;
	struct mc_kv_stats s;
	struct kv_fixture x;
	int r;

	if (h->below == CRASH_BOTH)
		check_remote_alone(h, dir, dram, cut);
	open_store(&x, h, dir, dram);
	wait_recovered(x.kv);
	if (h->below == CRASH_NVME || h->below == CRASH_BOTH)
		check_space(&x);
	for (unsigned c = 0; c < CLIENTS; c++) {
		uint32_t found[KEYS];

		for (unsigned k = 0; k < KEYS; k++) {
			found[k] = content_of(h, &x, c, k);
			n += found[k] != 0;
		}
		judge_client(h, c, cut, found);
	}
	mc_kv_stats(x.kv, &s);
	/* "usable": of an earlier check, before a second failure. */
	if (s.objects != n && s.objects != n + 1)
		crash_die("%llu objects, not %llu", (unsigned long long)s.objects,
			(unsigned long long)n);
	r = kv_put_wait(x.kv, "usable", 100000, 7);
	if (r == 0)
		r = sync_object(x.kv, "usable");
	if (r != 0)
		crash_die("nothing can be put: %d; the store said: %s", r, last_event);
	if (mc_kv_evict(x.kv, "usable") != 0)
		crash_die("it cannot be evicted");
	kv_expect(x.kv, "usable", 100000, 7);
	if (mc_kv_close(x.kv, 20000) != 0)
		crash_die("it does not close");
}
