/* kv/ from the start of the mount to its end. */
#include "fs/kv-state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/admin.h"
#include "fs/charge.h"
#include "fs/log.h"

/* Each thread is in at most one call that waits for a disk or the remote. */
#define WORK_THREADS 8
#define WORK_QUEUE 65536

int mc_kvfs_errno(int r)
{
	switch (-r) {
	case ENOENT:
	case EEXIST:
	case ENOTDIR:
	case EISDIR:
	case ENOTEMPTY:
	case EXDEV:
	case EPERM:
	case EBUSY:
	case EINVAL:
	case ENAMETOOLONG:
	case ENODATA:
	case ENXIO:
	case ERANGE:
	case ESTALE:
	case ENFILE:
	case ENOMEM:
	case ENOSPC:
	case EDQUOT:
	case EFBIG:
	case EOPNOTSUPP:
		return -r;
	default:
		return EIO;
	}
}

void mc_kvfs_failed(struct mc_kvfs *k, const char *key, int r, const char *what)
{
	static struct mc_log_limit limit;
	struct mc_kv_stats s;
	uint64_t suppressed;
	char text[sizeof(k->error)];

	mc_kv_stats(k->kv, &s);
	snprintf(text, sizeof(text),
		"%s: %s; %s; %llu of %llu bytes wait to be flushed, "
		"%llu are written, %llu open, %llu pinned",
		what, strerror(-r), mc_kv_why(k->kv, r), (unsigned long long)s.dirty_bytes,
		(unsigned long long)s.dirty_bound, (unsigned long long)s.written_bytes,
		(unsigned long long)(s.open_bytes + s.held_bytes),
		(unsigned long long)s.pinned_bytes);
	mc_mutex_lock(&k->lock);
	memcpy(k->error, text, sizeof(text));
	mc_mutex_unlock(&k->lock);
	if (key != NULL)
		mc_admin_put_ended(k->fs, key, text);
	if (mc_log_allowed(&limit, &suppressed))
		mc_log(MC_LOG_ERROR, "kv-put-failed", "key=\"%s\" error=\"%s\" suppressed=%llu",
			key != NULL ? key : "", text, (unsigned long long)suppressed);
}

void mc_kvfs_told(struct mc_kvfs *k, const char *key, int r)
{
	static struct mc_log_limit limit;
	uint64_t suppressed;

	if (mc_log_allowed(&limit, &suppressed))
		mc_log(MC_LOG_ERROR, "kv-failed",
			"key=\"%s\" error=\"%s\" why=\"%s\" suppressed=%llu",
			key != NULL ? key : "", strerror(-r), mc_kv_why(k->kv, r),
			(unsigned long long)suppressed);
}

int mc_kvfs_open(struct mc_fs *fs, struct mc_kv *kv, struct mc_kvfs **ret)
{
	struct mc_kvfs *k = calloc(1, sizeof(*k));
	int r;

	if (k == NULL)
		return -ENOMEM;
	k->fs = fs;
	k->kv = kv;
	k->flushes = 1; /* the number of what is restored */
	mc_mutex_init(&k->lock);
	mc_cond_init(&k->timer);
	r = mc_knodes_open(k);
	if (r == 0)
		r = mc_charges_open("", &k->charges);
	if (r == 0)
		r = mc_work_open(WORK_THREADS, WORK_QUEUE, &k->work);
	if (r == 0)
		r = mc_kwait_open(k);
	if (r < 0) {
		mc_kvfs_stop(k, UINT64_MAX);
		mc_kvfs_close(k);
		return r;
	}
	*ret = k;
	return 0;
}

int mc_kvfs_stop(struct mc_kvfs *k, uint64_t deadline_ns)
{
	int r;

	if (k == NULL)
		return 0;
	mc_kv_leave(k->kv);
	mc_kwait_close(k);
	mc_kstages_end(k);
	for (uint32_t i = 0; i < k->n_slots; i++) {
		struct mc_knode *n = k->slots[i].node;

		if (n != NULL)
			mc_kopen_end(k, n);
	}
	r = mc_work_close(k->work, deadline_ns);
	if (r == 0)
		k->work = NULL;
	return r;
}

void mc_kvfs_close(struct mc_kvfs *k)
{
	if (k == NULL)
		return;
	mc_knodes_close(k);
	mc_charges_close(k->charges);
	mc_cond_done(&k->timer);
	mc_mutex_done(&k->lock);
	free(k);
}
