/*
 * Attributes of kv/. Owner and permissions are the same for all: whoever may use the mount may use
 * the cache, and chmod and chown are accepted without effect, so that cp -p and rsync are content.
 */
#include "fs/kv-state.h"

#include <errno.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "fs/ops.h"

#define FOREVER_S 86400.0
#define IO_SIZE (1 << 20) /* st_blksize: what cp and Python write at once */
#define UNIT 4096u        /* bytes, f_frsize */

static void staging_attr(struct mc_kvfs *k, struct mc_knode *n, struct stat *st)
{
	struct mc_kstage *s = mc_kstage_hold(k, n);
	struct stat file;

	st->st_ino = mc_knode_id(n);
	st->st_mtim.tv_sec = k->fs->start_s;
	if (s == NULL)
		return;
	if (fstat(s->fd, &file) == 0) {
		st->st_size = file.st_size;
		st->st_mtim = file.st_mtim;
	}
	mc_kstage_drop(s);
}

void mc_kvfs_attr(struct mc_kvfs *k, struct mc_knode *n, struct stat *st)
{
	struct mc_kv_attr a;
	enum mc_knode_kind kind;

	mc_mutex_lock(&k->lock);
	kind = n->kind;
	a = n->attr;
	mc_mutex_unlock(&k->lock);
	memset(st, 0, sizeof(*st));
	st->st_uid = k->fs->uid;
	st->st_gid = k->fs->gid;
	st->st_blksize = IO_SIZE;
	st->st_nlink = 1;
	st->st_mode = kind == MC_KNODE_DIR ? S_IFDIR | 0777 : S_IFREG | 0666;
	if (kind == MC_KNODE_DIR || kind == MC_KNODE_OBJECT) {
		st->st_ino = a.ino > 1 ? a.ino : mc_knode_id(n);
		st->st_size = (off_t)a.size;
		st->st_mtim.tv_sec = a.mtime_s;
		st->st_mtim.tv_nsec = (long)a.mtime_ns;
	} else {
		staging_attr(k, n, st);
	}
	if (kind == MC_KNODE_DIR && a.mtime_s == 0)
		st->st_mtim.tv_sec = k->fs->start_s;
	st->st_blocks = (st->st_size + 511) / 512;
	st->st_atim = st->st_mtim;
	st->st_ctim = st->st_mtim;
}

/* Of a sealed version nothing changes but the mtime, and that through this mount. */
static double attr_timeout(struct mc_kvfs *k, const struct mc_knode *n)
{
	double t;

	mc_mutex_lock(&k->lock);
	t = n->kind == MC_KNODE_DIR || n->kind == MC_KNODE_OBJECT ? FOREVER_S : 0;
	mc_mutex_unlock(&k->lock);
	return t;
}

void mc_kvfs_entry(
	struct mc_kvfs *k, struct mc_knode *n, double entry_timeout, struct fuse_entry_param *e)
{
	memset(e, 0, sizeof(*e));
	e->ino = mc_knode_id(n);
	e->generation = n->gen;
	e->attr_timeout = attr_timeout(k, n); /* before the attributes: sealing makes it longer */
	mc_kvfs_attr(k, n, &e->attr);
	e->entry_timeout = entry_timeout;
}

void mc_kvfs_reply_entry(
	struct mc_kvfs *k, fuse_req_t req, struct mc_knode *n, double entry_timeout)
{
	struct fuse_entry_param e;

	mc_kvfs_entry(k, n, entry_timeout, &e);
	mc_knode_given(k, n);
	if (fuse_reply_entry(req, &e) == -ENOENT)
		mc_knode_forget(k, n, 1); /* the request was aborted: no forget will come */
}

static void reply_attr(struct mc_kvfs *k, fuse_req_t req, struct mc_knode *n)
{
	double timeout = attr_timeout(k, n);
	struct stat st;

	mc_kvfs_attr(k, n, &st);
	fuse_reply_attr(req, &st, timeout);
}

void mc_kvop_getattr(fuse_req_t req, fuse_ino_t ino)
{
	struct mc_kvfs *k = mc_kvfs_of(req);
	struct mc_knode *n = mc_knode_find(k, ino);

	if (n == NULL)
		fuse_reply_err(req, ESTALE);
	else
		reply_attr(k, req, n);
}

static int set_mtime(struct mc_kvfs *k, struct mc_kstage *s, const struct timespec *t)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, *t};
	struct stat before, after;

	if (fstat(s->fd, &before) < 0 || futimens(s->fd, times) < 0 || fstat(s->fd, &after) < 0)
		return -errno;
	/* Set by name after a close: the close still saw all that was written. */
	mc_mutex_lock(&k->lock);
	if (s->sealable && s->mtime.tv_sec == before.st_mtim.tv_sec &&
		s->mtime.tv_nsec == before.st_mtim.tv_nsec)
		s->mtime = after.st_mtim;
	mc_knode_record_put_locked(k, s->node);
	mc_mutex_unlock(&k->lock);
	return 0;
}

static void set_on_object(struct mc_kreq *q)
{
	struct mc_kvfs *k = q->k;
	int r = mc_kv_set_mtime(k->kv, q->key, &q->mtime);
	fuse_req_t req;

	if (r < 0) {
		mc_kreq_err(q, r);
		return;
	}
	mc_mutex_lock(&k->lock);
	q->node->attr.mtime_s = q->mtime.tv_sec;
	q->node->attr.mtime_ns = (uint32_t)q->mtime.tv_nsec;
	mc_mutex_unlock(&k->lock);
	req = mc_call_take(&q->call);
	if (req != NULL)
		reply_attr(k, req, q->node);
	mc_kreq_end(q);
}

/* Size is set (flags) to q->read.off, or mtime to q->mtime. */
static void set_now(struct mc_kreq *q)
{
	struct mc_kvfs *k = q->k;
	struct mc_kstage *s = mc_kstage_hold(k, q->node);
	fuse_req_t req;
	int r = 0;

	if (s == NULL) {
		if ((q->flags & FUSE_SET_ATTR_SIZE) != 0)
			mc_kreq_err(q, -EPERM); /* sealed */
		else
			mc_kreq_work(q, set_on_object);
		return;
	}
	if ((q->flags & FUSE_SET_ATTR_SIZE) != 0)
		r = mc_kstage_truncate(s, q->read.off);
	if (r == 0 && (q->flags & FUSE_SET_ATTR_MTIME) != 0)
		r = set_mtime(k, s, &q->mtime);
	mc_kstage_drop(s);
	if (r < 0) {
		mc_kreq_err(q, r);
		return;
	}
	req = mc_call_take(&q->call);
	if (req != NULL)
		reply_attr(k, req, q->node);
	mc_kreq_end(q);
}

void mc_kvop_setattr(fuse_req_t req, fuse_ino_t ino, const struct stat *attr, int to_set)
{
	struct mc_kvfs *k = mc_kvfs_of(req);
	struct mc_knode *n = mc_knode_find(k, ino);
	struct mc_kreq *q;

	if (n == NULL) {
		fuse_reply_err(req, ESTALE);
		return;
	}
	if (n->kind == MC_KNODE_DIR || (to_set & (FUSE_SET_ATTR_SIZE | FUSE_SET_ATTR_MTIME)) == 0) {
		reply_attr(k, req, n);
		return;
	}
	q = mc_kreq_of_node(k, req, n);
	if (q == NULL)
		return;
	q->flags = (unsigned)to_set;
	q->read.off = (uint64_t)attr->st_size;
	q->mtime = mc_kv_time(attr->st_mtim);
	if ((to_set & FUSE_SET_ATTR_MTIME_NOW) != 0)
		clock_gettime(CLOCK_REALTIME, &q->mtime);
	/* By a descriptor that is open for writing there is no RELEASE to wait for, but the wait
	 * is short and rare: only after a close of a duplicate. */
	mc_kreq_gate(q, q->key, set_now);
}

/* The quota of the last persistent local tier: SGLang deletes by what is free there. The number of
 * objects has no bound of its own: as on other such file systems, f_files is 0. */
void mc_kvop_statfs(fuse_req_t req)
{
	struct mc_kvfs *k = mc_kvfs_of(req);
	struct mc_kv_stats s;
	struct statvfs st;
	uint64_t total, used;

	mc_kv_stats(k->kv, &s);
	total = s.nvme_capacity + s.block_capacity;
	used = s.nvme_used + s.block_used;
	if (total == 0) {
		total = s.dram_capacity;
		used = s.dram_used;
	}
	used = used < total ? used : total;
	memset(&st, 0, sizeof(st));
	st.f_bsize = UNIT;
	st.f_frsize = UNIT;
	st.f_blocks = total / UNIT;
	st.f_bfree = (total - used) / UNIT;
	st.f_bavail = st.f_bfree;
	st.f_namemax = 255;
	fuse_reply_statfs(req, &st);
}
