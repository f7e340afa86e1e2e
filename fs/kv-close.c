/*
 * What a close says of a put: whether its task lives, and whether all that was written is there.
 *
 * A write through the daemon that fails fails the put. Of one past it only the client is told; it
 * can fail for want of memory alone, so a put fails that was under way when there was none left.
 *
 * Invariant: failed is set, and in the record, before the client hears of it, and stays until the
 * file is emptied: what is written from then on is another content.
 */
#include "fs/kv-state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fs/charge.h"
#include "tier/cleanup.h"

#define PF_SIGNALED 0x400u /* include/linux/sched.h: killed by a signal */

bool mc_kstage_may_pass(struct mc_kvfs *k, pid_t tid)
{
	enum mc_charge charge = MC_CHARGE_FREE;

	if (!atomic_load(&k->fs->features.passthrough) || !mc_kv_is_watched(k->kv))
		return false;
	charge = mc_charges_of(k->charges, tid);
	if (charge == MC_CHARGE_LIMITED)
		atomic_fetch_add_explicit(&k->fs->counters.puts_limited, 1, memory_order_relaxed);
	else if (charge == MC_CHARGE_UNKNOWN)
		atomic_fetch_add_explicit(&k->fs->counters.puts_unknown, 1, memory_order_relaxed);
	return charge == MC_CHARGE_FREE;
}

void mc_kstage_fail(struct mc_kstage *s, int r, const char *what)
{
	struct mc_kvfs *k = s->k;
	cleanup_free char *key = mc_knode_key(k, s->node);

	mc_mutex_lock(&k->lock);
	if (s->failed == 0)
		s->failed = r;
	mc_knode_record_put_locked(k, s->node);
	mc_mutex_unlock(&k->lock);
	mc_kvfs_failed(k, key, r, what);
}

int mc_kstage_check(struct mc_kstage *s)
{
	struct mc_kvfs *k = s->k;
	uint64_t count = s->backing_id != 0 ? mc_kv_full_count(k->kv) : 0;
	bool full;
	int r;

	mc_mutex_lock(&k->lock);
	r = s->failed;
	full = r == 0 && s->backing_id != 0 && count != s->born;
	mc_mutex_unlock(&k->lock);
	if (!full)
		return r;
	mc_kstage_fail(s, -ENOSPC, "written to when memory was full");
	return -ENOSPC;
}

int mc_kstage_truncate(struct mc_kstage *s, uint64_t size)
{
	struct mc_kvfs *k = s->k;
	int r = mc_kv_writer_truncate(s->writer, size);
	uint64_t count;

	if (r < 0 || size > 0)
		return r;
	count = mc_kv_full_count(k->kv);
	mc_mutex_lock(&k->lock);
	s->born = count;
	s->failed = 0;
	mc_knode_record_put_locked(k, s->node);
	mc_mutex_unlock(&k->lock);
	return 0;
}

/* Field 9 of /proc/<tid>/stat, counted after the name, which may hold anything. Unreadable (another
 * pid namespace): taken for alive. */
static bool task_is_dying(pid_t tid)
{
	char path[64], text[1024], *p;
	unsigned flags = 0;
	cleanup_close int fd = -1;
	ssize_t len;

	if (tid <= 0)
		return false;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	len = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
	if (len <= 0)
		return false;
	text[len] = '\0';
	p = strrchr(text, ')');
	/* ") state ppid pgrp session tty_nr tpgid flags" */
	if (p == NULL || sscanf(p + 1, " %*c %*d %*d %*d %*d %*d %u", &flags) != 1)
		return false;
	return (flags & PF_SIGNALED) != 0;
}

int mc_kstage_flush(struct mc_kstage *s, pid_t tid)
{
	struct mc_kvfs *k = s->k;
	bool alive = !task_is_dying(tid);
	int failed = mc_kstage_check(s);
	struct stat st;
	int r = fstat(s->fd, &st);

	mc_mutex_lock(&k->lock);
	s->flushed = ++k->flushes;
	if (alive && r == 0) {
		s->sealable = true;
		s->size = (uint64_t)st.st_size;
		s->mtime = st.st_mtim;
	}
	mc_knode_record_put_locked(k, s->node);
	mc_mutex_unlock(&k->lock);
	return failed;
}
