/* Steps on a KV log and the model of what it may hold: see kv-log-crash-model.h. */
#include "tests/kv-log-crash-model.h"

const char *const crash_step_names[STEPS] = {"put a", "put b", "rename a b", "rename b a",
	"remove a", "remove b", "sync", "evict a", "evict b", "seal", "reclaim", "restart"};
const char *const crash_keys[2] = {"a", "b"};

/* 0: absent. Even contents lie in parts. */
static uint64_t crash_size(unsigned content)
{
	return content % 2 != 0 ? 5000 + content : 20000 + content;
}

uint64_t crash_space(unsigned content)
{
	uint64_t size = crash_size(content);

	return content % 2 != 0 ? (128 + size + 4 + 63) / 64 * 64 : (size + 4095) / 4096 * 4096;
}

static void allow(struct crash_model *m)
{
	for (unsigned i = 0; i < 9; i++) {
		unsigned a[3] = {m->held[0], m->queued[0], m->evicted[0]};
		unsigned b[3] = {m->held[1], m->queued[1], m->evicted[1]};
		unsigned x = i % 3, y = i / 3;

		if ((x == 0 || a[x] != 0) && (y == 0 || b[y] != 0))
			m->allowed[a[x]][b[y]] = true;
	}
}

void crash_model_allow_only(struct crash_model *m)
{
	memset(m->allowed, 0, sizeof(m->allowed));
	allow(m);
}

int crash_log_open(struct crash_log *r)
{
	struct mc_kv_log_opts o = {.dir = r->device == NULL || r->below ? r->dir : NULL,
		.device = r->device,
		.capacity = CRASH_CAPACITY,
		.segment_bytes = CRASH_SEGMENT,
		.journal_bytes = 12288, /* a snapshot every few commits */
		.io = io_fault_table(r->fault),
		.commit_ms = 1000000,
		.probe_ms = 1000000};
	int res = kv_try_open(&o, &r->owner, &r->log);

	if (res == 0)
		return 0;
	if (r->log != NULL)
		mc_kv_log_close(r->log);
	kv_forget(&r->owner);
	r->log = NULL;
	return res;
}

/* All items are done: nothing is queued. */
static void end_puts(struct crash_log *r)
{
	for (unsigned i = 0; i < r->n_puts; i++) {
		ck_assert_int_ne(r->puts[i]->res, 1);
		kv_put_free(r->puts[i]);
	}
	r->n_puts = 0;
}

void crash_log_close(struct crash_log *r)
{
	if (r->log == NULL)
		return;
	mc_kv_log_close(r->log);
	r->log = NULL;
	end_puts(r);
	kv_forget(&r->owner);
}

/* What a successful sync makes of the model. */
static void settle(struct crash_model *m)
{
	for (unsigned k = 0; k < 2; k++) {
		if (m->queued[k] != 0)
			m->held[k] = m->queued[k];
		m->queued[k] = 0;
	}
}

static void do_put(struct crash_log *r, unsigned k)
{
	struct kv_put *p = kv_put_make(NULL, crash_keys[k], r->m.next, crash_size(r->m.next));
	struct mc_kv_item *item = &p->item;

	r->m.queued[k] = r->m.next++;
	allow(&r->m);
	r->puts[r->n_puts++] = p;
	mc_kv_log_put(r->log, &item, 1);
}

static int do_sync(struct crash_log *r)
{
	int res;

	settle(&r->m);
	allow(&r->m);
	res = mc_kv_log_sync(r->log);
	end_puts(r);
	return res;
}

/* Every call that waits for the journal makes evictions durable, too. */
static void forget_evicted(struct crash_model *m)
{
	m->evicted[0] = m->evicted[1] = 0;
}

static int do_remove(struct crash_log *r, unsigned k)
{
	r->m.held[k] = r->m.queued[k] = 0;
	allow(&r->m);
	forget_evicted(&r->m);
	return mc_kv_log_remove(r->log, crash_keys[k], (uint8_t[16]){0}, NULL);
}

static int do_rename(struct crash_log *r, unsigned k)
{
	struct crash_model *m = &r->m;

	if (m->held[k] != 0)
		m->held[!k] = m->held[k];
	m->queued[!k] = m->queued[k];
	m->held[k] = m->queued[k] = 0;
	allow(m);
	forget_evicted(m);
	return mc_kv_log_rename(r->log, crash_keys[k], crash_keys[!k]);
}

static int do_evict(struct crash_log *r, unsigned k)
{
	unsigned content = r->m.held[k];
	uint8_t version[16];
	int res;

	kv_version(content, version);
	if (content != 0)
		r->m.held[k] = 0;
	allow(&r->m);
	res = mc_kv_log_evict(r->log, crash_keys[k], version, NULL);
	if (content == 0) {
		ck_assert_int_eq(res, -ENOENT);
		return 0;
	}
	forget_evicted(&r->m);
	return res;
}

static int do_reclaim(struct crash_log *r)
{
	int res;

	settle(&r->m);
	allow(&r->m);
	r->m.evicted[1] = r->m.held[1];
	r->m.held[1] = 0;
	allow(&r->m);
	r->m.held[1] = r->m.evicted[1];
	r->m.evicted[1] = 0;
	res = mc_kv_log_reclaim(r->log);
	end_puts(r);
	if (r->owner.evicted > 0) {
		r->m.evicted[1] = r->m.held[1];
		r->m.held[1] = 0;
		r->owner.evicted = 0;
	}
	return res == -ENOENT ? 0 : res;
}

/* What the log told its owner at the start. */
unsigned crash_log_told(struct crash_log *r, unsigned k)
{
	const struct kv_known *known = kv_find_locked(&r->owner, crash_keys[k]);
	unsigned content = 0;

	if (known == NULL)
		return 0;
	memcpy(&content, known->version, sizeof(content));
	ck_assert_uint_lt(content, CONTENTS);
	ck_assert_uint_eq(known->size, crash_size(content));
	return content;
}

static int do_restart(struct crash_log *r)
{
	int res;

	settle(&r->m);
	allow(&r->m);
	crash_log_close(r);
	res = crash_log_open(r);
	if (res != 0)
		return res;
	/* Faults may have left the older state: the model goes on with what is there. */
	ck_assert(r->m.allowed[crash_log_told(r, 0)][crash_log_told(r, 1)]);
	r->m.held[0] = crash_log_told(r, 0);
	r->m.held[1] = crash_log_told(r, 1);
	forget_evicted(&r->m);
	return 0;
}

static int do_step(struct crash_log *r, enum crash_step s)
{
	switch (s) {
	case PUT_A:
	case PUT_B:
		do_put(r, s - PUT_A);
		return 0;
	case RENAME_AB:
	case RENAME_BA:
		return do_rename(r, s - RENAME_AB);
	case REMOVE_A:
	case REMOVE_B:
		return do_remove(r, s - REMOVE_A);
	case SYNC:
		return do_sync(r);
	case EVICT_A:
	case EVICT_B:
		return do_evict(r, s - EVICT_A);
	case SEAL:
		settle(&r->m);
		allow(&r->m);
		return mc_kv_log_seal(r->log);
	case RECLAIM:
		return do_reclaim(r);
	case RESTART:
	case STEPS:
		break;
	}
	return do_restart(r);
}

void crash_log_step(struct crash_log *r, enum crash_step s)
{
	int res;

	if (r->failed)
		return;
	res = do_step(r, s);
	/* After a failure either state is right, and the sequence is over. */
	if (res != 0)
		r->failed = true;
	else
		crash_model_allow_only(&r->m);
}
