/*
 * The KV log: its directory, opening and closing.
 *
 * Layout of dir: KVLOCK (flock, pid), KVSTORE (format, uuid), kvjournal/, segments/<8 hex>,
 * kvimages/<2 hex>/<version>.<number>, KVPROBE (while the error budget is spent). Other names in
 * dir belong to others; inside our folders everything is ours.
 */
#include "tier/kv-log-impl.h"

#include "tier/cleanup.h"
#include "tier/digest.h"
#include "tier/io.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>

#define COMMIT_MS 500
#define PROBE_MS 10000
#define JOURNAL_BYTES (UINT64_C(32) << 20)
#define JOURNAL_LEAST (UINT64_C(1) << 20)
#define SEGMENT_BYTES (UINT64_C(128) << 20)
#define SEGMENT_LEAST (UINT64_C(1) << 20)
#define STORE_TEXT "mooncakefs kv format 1\nuuid "

static int make_dir(struct mc_kv_log *log, const char *sub)
{
	cleanup_free char *path = NULL;
	int r;

	if (asprintf(&path, "%s/%s", log->dir, sub) < 0)
		return -ENOMEM;
	r = log->io->mkdir(log->io, path, 0700);
	return r == -EEXIST ? 0 : r;
}

/* Our folders, durable before anything is put in them. */
static int make_layout(struct mc_kv_log *log)
{
	int r = make_dir(log, "segments");

	if (r == 0)
		r = make_dir(log, "kvimages");
	if (r == 0)
		r = make_dir(log, "kvjournal");
	return r == 0 ? mc_io_sync_dir(log->io, log->dir) : r;
}

static int take_lock(struct mc_kv_log *log, struct mc_err *err)
{
	cleanup_free char *path = NULL;
	char pid[32] = "";
	int len;

	if (asprintf(&path, "%s/KVLOCK", log->dir) < 0)
		return -ENOMEM;
	log->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (log->lock_fd < 0)
		return -errno;
	if (flock(log->lock_fd, LOCK_EX | LOCK_NB) != 0) {
		if (errno != EWOULDBLOCK)
			return -errno;
		if (pread(log->lock_fd, pid, sizeof(pid) - 1, 0) < 0)
			pid[0] = '\0';
		pid[strcspn(pid, "\n")] = '\0';
		return mc_err_set(err, -EBUSY,
			"KV log %s: in use by process %s; one daemon per directory", log->dir,
			pid[0] != '\0' ? pid : "unknown");
	}
	len = snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
	if (ftruncate(log->lock_fd, 0) != 0 || pwrite(log->lock_fd, pid, (size_t)len, 0) != len)
		return errno == ENOSPC ? 0 : -EIO; /* the text is a courtesy */
	return 0;
}

static int write_store(struct mc_kv_log *log, const char *path)
{
	cleanup_free char *tmp = NULL;
	char hex[33], text[128];
	int fd, r, len;

	if (getrandom(log->uuid, sizeof(log->uuid), 0) != (ssize_t)sizeof(log->uuid))
		return -EIO;
	mc_hex_encode(log->uuid, sizeof(log->uuid), hex);
	len = snprintf(text, sizeof(text), STORE_TEXT "%s\n", hex);
	if (asprintf(&tmp, "%s.tmp", path) < 0)
		return -ENOMEM;
	fd = log->io->open(log->io, tmp, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (fd < 0)
		return fd;
	r = mc_io_write_full(log->io, fd, text, (size_t)len, 0);
	if (r == 0)
		r = log->io->fsync(log->io, fd);
	log->io->close(log->io, fd);
	if (r == 0)
		r = log->io->rename(log->io, tmp, path);
	return r == 0 ? mc_io_sync_dir(log->io, log->dir) : r;
}

static int read_store(struct mc_kv_log *log, struct mc_err *err)
{
	static const size_t front = sizeof(STORE_TEXT) - 1;
	cleanup_free char *path = NULL;
	char text[128] = "";
	int fd, r;

	if (asprintf(&path, "%s/KVSTORE", log->dir) < 0)
		return -ENOMEM;
	fd = log->io->open(log->io, path, O_RDONLY, 0);
	if (fd == -ENOENT)
		return write_store(log, path);
	if (fd < 0)
		return fd;
	r = (int)log->io->pread(log->io, fd, text, sizeof(text) - 1, 0);
	log->io->close(log->io, fd);
	if (r < 0)
		return r;
	if (strncmp(text, STORE_TEXT, front) != 0 || strlen(text) != front + 33)
		return mc_err_set(err, -EPROTONOSUPPORT,
			"KV log %s: KVSTORE names a format this program does not know", log->dir);
	text[front + 32] = '\0';
	return mc_hex_decode(text + front, log->uuid, sizeof(log->uuid));
}

static void find_direct(struct mc_kv_log *log)
{
	cleanup_free char *path = NULL;
	int fd;

	if (asprintf(&path, "%s/KVLOCK", log->dir) < 0)
		return;
	fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	log->direct = fd >= 0;
	if (fd >= 0)
		close(fd);
}

/* A part of a small capacity, so that there are segments to choose from. */
static void choose_sizes(struct mc_kv_log *log, uint64_t segment_bytes, uint64_t journal_bytes)
{
	log->journal_bytes = JOURNAL_BYTES;
	while (log->journal_bytes > JOURNAL_LEAST && log->journal_bytes * 32 > log->capacity)
		log->journal_bytes /= 2;
	if (journal_bytes != 0)
		log->journal_bytes = journal_bytes;
	log->segment_bytes = SEGMENT_BYTES;
	while (log->segment_bytes > SEGMENT_LEAST && log->segment_bytes * 32 > log->capacity)
		log->segment_bytes /= 2;
	if (segment_bytes != 0)
		log->segment_bytes = mc_kv_up(segment_bytes, MC_KV_ALIGN);
	log->record_max = log->segment_bytes / 4;
	if (log->record_max > MC_KV_RECORD_MAX + 65536)
		log->record_max = MC_KV_RECORD_MAX + 65536;
}

static int make_packs(struct mc_kv_log *log)
{
	for (unsigned i = 0; i < MC_KV_PACKS; i++) {
		struct mc_kv_pack *p = &log->packs[i];

		p->log = log;
		p->buf = aligned_alloc(MC_KV_ALIGN, MC_KV_PACK_BYTES);
		if (p->buf == NULL)
			return -ENOMEM;
		p->next = log->free_packs;
		log->free_packs = p;
	}
	return 0;
}

static int bring_up(struct mc_kv_log *log, const struct mc_kv_log_opts *opts, struct mc_err *err)
{
	struct mc_uring_opts u = {.depth = 64, .io = opts->io};
	int r = log->io->mkdir(log->io, opts->dir, 0700);

	if (r != 0 && r != -EEXIST)
		return r;
	log->dir = realpath(opts->dir, NULL);
	if (log->dir == NULL)
		return -errno;
	r = take_lock(log, err);
	if (r == 0)
		r = read_store(log, err);
	if (r == 0)
		r = make_layout(log);
	if (r != 0)
		return r;
	find_direct(log);
	log->op_buckets = calloc(MC_KV_OP_BUCKETS, sizeof(struct mc_kv_op *));
	if (log->op_buckets == NULL)
		return -ENOMEM;
	r = make_packs(log);
	if (r == 0)
		r = mc_kv_table_init(&log->table);
	if (r == 0)
		r = mc_uring_open(&u, &log->uring);
	if (r == 0)
		r = mc_kv_packer_start(log);
	if (r == 0)
		r = mc_kv_committer_start(log);
	return r;
}

static void stop_threads(struct mc_kv_log *log)
{
	mc_mutex_lock(&log->lock);
	log->stopping = true;
	if (!log->committer_runs)
		log->recovering = false;
	mc_cond_signal(&log->work);
	mc_mutex_unlock(&log->lock);
	if (log->packer_runs)
		pthread_join(log->packer, NULL);
	mc_mutex_lock(&log->lock);
	log->packer_done = true;
	mc_kv_poke_locked(log);
	mc_mutex_unlock(&log->lock);
	if (log->committer_runs)
		pthread_join(log->committer, NULL);
}

static void free_log(struct mc_kv_log *log)
{
	stop_threads(log);
	mc_uring_close(log->uring);
	mc_journal_close(log->journal);
	for (uint32_t id = 1; id < log->n_segs; id++) {
		if (log->segs[id] != NULL && log->segs[id]->fd >= 0)
			log->io->close(log->io, log->segs[id]->fd);
		free(log->segs[id]);
	}
	free(log->segs);
	if (log->table.buckets != NULL)
		mc_kv_table_done(&log->table);
	for (unsigned i = 0; i < MC_KV_PACKS; i++)
		free(log->packs[i].buf);
	if (log->lock_fd >= 0)
		close(log->lock_fd);
	mc_cond_done(&log->work);
	mc_cond_done(&log->ready);
	mc_cond_done(&log->moved);
	mc_mutex_done(&log->lock);
	free(log->gone);
	free(log->held);
	free(log->op_buckets);
	free(log->dir);
	free(log);
}

int mc_kv_log_open(const struct mc_kv_log_opts *opts, const struct mc_kv_log_replay *replay,
	struct mc_kv_log **ret, struct mc_err *err)
{
	struct mc_kv_log *log = calloc(1, sizeof(*log));
	int r;

	if (log == NULL)
		return -ENOMEM;
	log->io = opts->io != NULL ? opts->io : mc_io_real();
	log->capacity = opts->capacity;
	log->commit_ms = opts->commit_ms != 0 ? opts->commit_ms : COMMIT_MS;
	log->probe_ms = opts->probe_ms != 0 ? opts->probe_ms : PROBE_MS;
	if (replay != NULL)
		log->replay = *replay;
	choose_sizes(log, opts->segment_bytes, opts->journal_bytes);
	log->lock_fd = -1;
	log->recovering = true;
	log->closed_last = &log->closed;
	mc_kv_list_init(&log->queue);
	mc_kv_list_init(&log->retry);
	mc_mutex_init(&log->lock);
	mc_cond_init(&log->work);
	mc_cond_init(&log->ready);
	mc_cond_init(&log->moved);
	r = bring_up(log, opts, err);
	if (r != 0) {
		free_log(log);
		return mc_err_set(err, r, "KV log %s: %s", opts->dir, strerror(-r));
	}
	*ret = log;
	return 0;
}

void mc_kv_log_close(struct mc_kv_log *log)
{
	mc_kv_log_sync(log);
	stop_threads(log);
	log->packer_runs = log->committer_runs = false;
	if (log->dead == 0)
		mc_kv_snapshot(log);
	free_log(log);
}

void mc_kv_log_set_owner(struct mc_kv_log *log, const struct mc_kv_log_owner *owner)
{
	mc_mutex_lock(&log->lock);
	log->owner = *owner;
	mc_mutex_unlock(&log->lock);
}

void mc_kv_log_stats(struct mc_kv_log *log, struct mc_kv_log_stats *ret)
{
	mc_mutex_lock(&log->lock);
	if (!log->replayed) { /* recovery fills the rest without the lock */
		*ret = (struct mc_kv_log_stats){.capacity = log->capacity, .recovering = true};
		mc_mutex_unlock(&log->lock);
		return;
	}
	*ret = log->stats;
	ret->capacity = log->capacity;
	ret->used = log->n_files * log->segment_bytes + log->image_bytes;
	/* Entry, its allocation's header, slot and bucket, checksums of one or two MiB, a key. */
	ret->index_bytes = log->table.n * (sizeof(struct mc_kv_entry) + 8 + 8 + 6 + 8 + 48);
	ret->bypassed = log->bypassed;
	ret->recovering = log->recovering;
	mc_mutex_unlock(&log->lock);
}
