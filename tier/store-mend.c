/*
 * Damaged blocks on NVMe that nobody was reading through the daemon when they were found. The tier
 * has taken such a block out of what is present, and the next reader fetches it again; but a client
 * that reads the image past us goes on seeing the damage. For it the block is written anew in its
 * place, with bytes that verify, now or once the remote gives them.
 *
 * Invariants: 1. a file is on s->mending exactly while hurt > 0, and referenced by that; 2. what is
 * to be mended are its blocks of data that are not present: while a client holds an image nothing
 * of it is evicted; 3. work here counts in s->mends, so that the workers outlive its reads.
 */
#include "tier/store-impl.h"

#include "tier/cleanup.h"
#include "tier/future.h"

#include <errno.h>
#include <string.h>

#define AGAIN_NS UINT64_C(1000000000) /* between tries */
#define PAGE 4096u

static void read_over(struct mc_file_read *r, int res)
{
	mc_future_set(r->ctx, res);
}

/* The block as every reader would get it, into buf. */
static int read_block(struct mc_file *f, uint64_t block, uint8_t *buf)
{
	struct mc_future over;
	struct mc_file_read read = {.file = f,
		.off = block << MC_BLOCK_SHIFT,
		.len = mc_block_len(f->id.size, block),
		.planned = true,
		.done = read_over,
		.ctx = &over};
	int r;

	mc_future_init(&over);
	mc_file_read(&read);
	r = (int)mc_future_wait(&over);
	for (unsigned i = 0; r == 0 && i < read.n_iov; i++) {
		memcpy(buf, read.iov[i].iov_base, read.iov[i].iov_len);
		buf += read.iov[i].iov_len;
	}
	if (r == 0)
		mc_file_read_end(&read);
	return r;
}

/* Writes the block where it was. -ESTALE: its place was given up meanwhile. */
static int write_block(struct mc_file *f, uint64_t block, uint8_t *buf)
{
	struct mc_store *s = f->store;
	const struct mc_source_ops *ops = f->src->ops;
	uint32_t crc = mc_crc32c(0, buf, mc_block_len(f->id.size, block));
	struct mc_run *run;
	int r;

	/* Memory of the DRAM tier is not checked each time it is read. */
	if (ops->block_crc != NULL && ops->block_crc(f->src, block) != crc)
		return -EBADMSG;
	run = mc_run_pin(f, block);
	if (run == NULL)
		return -ESTALE;
	r = mc_nvme_put(f->nvme, block, buf, crc);
	if (r == 0)
		r = mc_nvme_sync(s->nvme);
	mc_run_unpin(s, run);
	return r == 0 && !mc_nvme_present(f->nvme, block) ? -EIO : r;
}

/* -ENODATA: nobody has told where the file's bytes come from. */
static int mend(struct mc_file *f, uint64_t block, uint8_t *buf)
{
	struct mc_store *s = f->store;
	bool known;
	int r;

	mc_mutex_lock(&s->lock);
	known = f->src != NULL; /* and stays, as we have a reference */
	mc_mutex_unlock(&s->lock);
	r = known ? read_block(f, block, buf) : -ENODATA;
	return r == 0 ? write_block(f, block, buf) : r;
}

static bool is_held(struct mc_file *f)
{
	struct mc_store *s = f->store;
	bool open;

	mc_mutex_lock(&s->lock);
	open = f->backing[MC_TIER_NVME] > 0;
	mc_mutex_unlock(&s->lock);
	return open || mc_nvme_held(f->nvme);
}

/* False: the store closes. */
static bool begin(struct mc_store *s)
{
	bool may;

	mc_mutex_lock(&s->lock);
	may = !s->stopping;
	s->mends += may;
	mc_mutex_unlock(&s->lock);
	return may;
}

static void end(struct mc_store *s)
{
	mc_mutex_lock(&s->lock);
	s->mends--;
	if (s->stopping)
		mc_cond_broadcast(&s->wake);
	mc_mutex_unlock(&s->lock);
}

/* n more blocks of it are to be mended. */
static void hurt_locked(struct mc_store *s, struct mc_file *f, uint64_t n) MC_REQUIRES(s->lock)
{
	s->st.unrepaired_blocks += n;
	f->hurt += n;
	if (f->mend.on != NULL || s->stopping)
		return;
	mc_file_ref_locked(s, f);
	mc_queue_push(&s->mending, &f->mend);
	s->mend_ns = mc_now_ns() + AGAIN_NS;
	mc_cond_signal(&s->verify_more);
}

enum mc_mended mc_file_damaged(struct mc_file *f, uint64_t block)
{
	struct mc_store *s = f->store;
	cleanup_free uint8_t *buf = NULL;
	enum mc_mended what = MC_MEND_DROPPED;
	const char *text = "dropped, and fetched again when it is read";
	int r = -ENOMEM;

	mc_behind_forget(f, block);
	if (is_held(f)) {
		if (!begin(s))
			return MC_MEND_WAITS;
		buf = aligned_alloc(PAGE, MC_BLOCK_SIZE);
		r = buf != NULL ? mend(f, block, buf) : -ENOMEM;
		end(s);
		what = r == 0 ? MC_MEND_REPAIRED : MC_MEND_WAITS;
		text = r == 0 ? "a client reads it past the daemon: put right in its place"
			      : "a client reads it past the daemon, and it cannot be fetched now: "
				"it stays, and is put right as soon as it can be fetched";
	}
	mc_event_nvme(s, f, what == MC_MEND_WAITS ? "nvme-bad-block-kept" : "nvme-bad-block",
		"block=%llu: bytes do not match their checksum; %s", (unsigned long long)block,
		text);
	mc_mutex_lock(&s->lock);
	s->st.bad_blocks++;
	s->st.repaired_blocks += what == MC_MEND_REPAIRED;
	if (what == MC_MEND_WAITS)
		hurt_locked(s, f, 1);
	mc_mutex_unlock(&s->lock);
	return what;
}

/* One more try with the blocks that the file lacks, until one fails: the next try begins behind it.
 * How many it lacks still. */
static uint64_t try_again(struct mc_file *f, uint8_t *buf, uint64_t *ret_mended)
{
	struct mc_store *s = f->store;
	uint64_t lacking, from = f->mend_from;
	bool known;

	mc_mutex_lock(&s->lock);
	known = f->src != NULL;
	lacking = f->hurt;
	mc_mutex_unlock(&s->lock);
	if (!known)
		return lacking;
	lacking = 0;
	for (uint64_t i = 0; i < f->blocks; i++) {
		uint64_t b = (from + i) % f->blocks;

		if (mc_nvme_present(f->nvme, b) || mc_file_block_is_hole(f, b))
			continue;
		if (lacking == 0 && mend(f, b, buf) == 0)
			(*ret_mended)++;
		else if (lacking++ == 0)
			f->mend_from = (b + 1) % f->blocks;
	}
	return lacking;
}

void mc_mend_again(struct mc_store *s, struct mc_work *w)
{
	struct mc_file *f = (struct mc_file *)((char *)w - offsetof(struct mc_file, mend));
	cleanup_free uint8_t *buf = aligned_alloc(PAGE, MC_BLOCK_SIZE);
	bool held = is_held(f);
	uint64_t lacking = 0, mended = 0;

	if (held && (buf == NULL || !begin(s)))
		lacking = 1;
	else if (held) {
		lacking = try_again(f, buf, &mended);
		end(s);
	}
	if (mended > 0)
		mc_event_nvme(s, f, "nvme-repaired",
			"%llu damaged blocks that a client reads were put right in their place",
			(unsigned long long)mended);
	mc_mutex_lock(&s->lock);
	s->st.repaired_blocks += mended;
	s->st.unrepaired_blocks -= f->hurt;
	f->hurt = 0;
	if (lacking > 0)
		hurt_locked(s, f, lacking);
	mc_mutex_unlock(&s->lock);
	mc_file_put(f);
}

/* ---- who reads past us */

void mc_file_keep_mapped(struct mc_file *f)
{
	struct mc_store *s = f->store;

	if (!mc_nvme_held(f->nvme))
		return;
	mc_mutex_lock(&s->lock);
	if (f->mapped.on == NULL && !s->stopping) {
		mc_file_ref_locked(s, f);
		mc_queue_push(&s->mapped, &f->mapped);
	}
	mc_mutex_unlock(&s->lock);
}

void mc_mapped_look(struct mc_store *s, bool all)
{
	uint64_t n;

	mc_mutex_lock(&s->lock);
	n = s->mapped.n;
	while (n-- > 0 && s->mapped.head != NULL) {
		struct mc_work *w = s->mapped.head;
		struct mc_file *f =
			(struct mc_file *)((char *)w - offsetof(struct mc_file, mapped));
		bool held;

		mc_queue_take(&s->mapped, w);
		mc_mutex_unlock(&s->lock);
		held = !all && mc_nvme_held(f->nvme);
		mc_mutex_lock(&s->lock);
		if (held && f->mapped.on == NULL) {
			mc_queue_push(&s->mapped, w);
			continue;
		}
		mc_mutex_unlock(&s->lock);
		mc_file_put(f);
		mc_mutex_lock(&s->lock);
	}
	mc_mutex_unlock(&s->lock);
}

void mc_mend_leave(struct mc_store *s)
{
	struct mc_work *w;

	mc_mapped_look(s, true);
	mc_mutex_lock(&s->lock);
	while ((w = s->mending.head) != NULL) {
		mc_queue_take(&s->mending, w);
		mc_mutex_unlock(&s->lock);
		mc_file_put((struct mc_file *)((char *)w - offsetof(struct mc_file, mend)));
		mc_mutex_lock(&s->lock);
	}
	mc_mutex_unlock(&s->lock);
}
