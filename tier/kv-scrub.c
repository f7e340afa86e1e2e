/*
 * The KV store's part of a scrub. A damaged record leaves NVMe where another copy serves: one in
 * DRAM, which then is written anew, or one on the remote. The last copy stays where it is, damaged
 * as it may be, and is told.
 */
#include "tier/kv-impl.h"
#include "tier/kv-remote.h"
#include "tier/store-scrub.h"

#include "tier/block-cache.h"
#include "tier/digest.h"

#include <stdio.h>
#include <string.h>

#define TELL_NS UINT64_C(62500000) /* between lines about lost objects */

struct mc_kv_scrub {
	struct mc_kv *kv;
	struct mc_kv_log_check *check;  /* owned */
	struct mc_scrub_counts *counts; /* the caller's, during a call */
};

void kv_tell_lost(struct mc_kv *kv, const char *key)
{
	uint64_t now = mc_now_ns(), next = atomic_load(&kv->tell_lost_ns), left_out;
	char text[KV_KEY_MAX + 300], more[64] = "";

	if (now < next ||
		!atomic_compare_exchange_strong(&kv->tell_lost_ns, &next, now + TELL_NS)) {
		atomic_fetch_add(&kv->lost_untold, 1);
		return;
	}
	left_out = atomic_exchange(&kv->lost_untold, 0);
	if (left_out > 0)
		snprintf(more, sizeof(more), " (%llu more left out)", (unsigned long long)left_out);
	snprintf(text, sizeof(text),
		"tier=nvme dir=%s key=\"%s\" the last copy does not match its checksum; put the "
		"object again, or remove it%s",
		kv->opts.device != NULL ? kv->opts.device : kv->opts.nvme_dir, key, more);
	kv_event(kv, "kv-object-lost", text);
}

static bool lies_at(const struct kv_object *obj, const struct mc_kv_loc *loc)
{
	return obj->loc.segment == loc->segment && obj->loc.generation == loc->generation &&
		obj->loc.off == loc->off;
}

/* Whether DRAM has the object, whole and right. The gate is closed. */
static bool good_in_dram(struct mc_kv *kv, struct kv_object *obj) MC_REQUIRES(kv->lock)
{
	struct kv_res *res = obj->res;
	bool good;
	char *p;

	if (res == NULL || !res->ready || obj->state != MC_KV_CLEAN)
		return false;
	res->pins++;
	mc_mutex_unlock(&kv->lock);
	good = kv_res_map(kv, res, obj->size, &p) == 0;
	if (good) {
		for (uint64_t b = 0; b < mc_block_count(obj->size) && good; b++)
			good = mc_crc32c(0, p + (b << MC_BLOCK_SHIFT),
				       mc_block_len(obj->size, b)) == kv_crcs(obj)[b];
		kv_res_unmap(kv, res, obj->size);
	}
	mc_mutex_lock(&kv->lock);
	res->pins--;
	return good;
}

enum end { ELSEWHERE, LOST, REPAIRED, DROPPED };

/* The object, which the caller has a reference of, has a damaged record at loc. */
static enum end settle_locked(struct mc_kv *kv, const char *key, struct kv_object *obj,
	const struct mc_kv_loc *loc) MC_REQUIRES(kv->lock)
{
	struct kv_gate gate;
	enum end end = ELSEWHERE;

	if (kv_drop_enter_locked(kv, key, obj, &gate) < 0)
		return ELSEWHERE;
	if (lies_at(obj, loc)) {
		end = obj->remotes > 0 ? DROPPED : good_in_dram(kv, obj) ? REPAIRED : LOST;
		/* Should that fail, the next pass tries again. */
		if (end != LOST && kv_drop_record_locked(kv, key, obj) != 0)
			end = ELSEWHERE;
	}
	kv_gate_leave_locked(kv, &gate);
	return end;
}

/* A block of a file: the remote has it. */
static void on_bad_block(
	struct mc_kv_scrub *s, const struct mc_kv_meta *meta, const struct mc_kv_loc *loc)
{
	mc_block_cache_evicted(s->kv->opts.blocks, meta->key, meta->version);
	if (mc_kv_log_evict(s->kv->log, meta->key, meta->version, loc) != 0)
		return; /* already gone, or the next pass tries again */
	s->counts->bad++;
	s->counts->dropped++;
}

static void on_bad(void *ctx, const struct mc_kv_meta *meta, const struct mc_kv_loc *loc)
{
	struct mc_kv_scrub *s = ctx;
	struct mc_kv *kv = s->kv;
	struct kv_object *obj;
	enum end end = ELSEWHERE;

	if (mc_block_cache_owns(meta->key)) {
		on_bad_block(s, meta, loc);
		return;
	}
	mc_mutex_lock(&kv->lock);
	obj = kv_index_find(kv->index, meta->key);
	if (obj != NULL && (memcmp(obj->version, meta->version, 16) != 0 || !lies_at(obj, loc)))
		obj = NULL;
	if (obj != NULL) {
		obj->refs++;
		end = settle_locked(kv, meta->key, obj, loc);
	}
	mc_mutex_unlock(&kv->lock);
	if (end == LOST)
		kv_tell_lost(kv, meta->key);
	else if (end != ELSEWHERE)
		kv_tell_bad(kv, obj, false);
	s->counts->bad += end != ELSEWHERE;
	s->counts->lost += end == LOST;
	s->counts->repaired += end == REPAIRED;
	s->counts->dropped += end == DROPPED;
	if (obj == NULL)
		return;
	mc_mutex_lock(&kv->lock);
	kv_object_drop_locked(kv, obj);
	mc_mutex_unlock(&kv->lock);
	kv_reap(kv);
}

int mc_kv_scrub_open(struct mc_kv *kv, const struct mc_kv_log_mark *from, struct mc_kv_scrub **ret)
{
	struct mc_kv_scrub *s;
	int r;

	if (kv->log == NULL)
		return -ENODEV;
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return -ENOMEM;
	s->kv = kv;
	r = mc_kv_log_check_open(kv->log, from, on_bad, s, &s->check);
	if (r < 0)
		free(s);
	else
		*ret = s;
	return r;
}

void mc_kv_scrub_close(struct mc_kv_scrub *s)
{
	if (s == NULL)
		return;
	mc_kv_log_check_close(s->check);
	free(s);
}

int mc_kv_scrub_next(struct mc_kv_scrub *s, struct mc_scrub_counts *counts)
{
	struct mc_kv_log_checked sum = {0};
	bool recovering;
	int r;

	mc_mutex_lock(&s->kv->lock);
	recovering = s->kv->recovering;
	mc_mutex_unlock(&s->kv->lock);
	s->counts = counts;
	r = recovering ? -EAGAIN : mc_kv_log_check_next(s->check, &sum);
	counts->bytes += sum.bytes;
	counts->checked += sum.records;
	counts->failed += sum.failed;
	return r;
}

void mc_kv_scrub_mark(const struct mc_kv_scrub *s, struct mc_kv_log_mark *ret)
{
	mc_kv_log_check_mark(s->check, ret);
}
