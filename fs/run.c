/*
 * From mounting to unmounting.
 *
 * Order of the end: (0) the control socket, whose commands use everything else; (1) unanswered
 * requests get until half of the stop deadline, then EIO, and from then on every read does; (2) the
 * notifier is joined: it may wait for a page whose read is still in the kernel's queue, so the loop
 * threads must be there to answer it; (3) the loop threads are joined, once they have taken what
 * clients had sent; (4) what came in meanwhile gets EIO; (5) unmount and close the device; (6) wait
 * for reads and catalogue calls still under way; (7) free.
 *
 * A process that another one is to follow (SIGUSR2) stops taking requests and leaves the mount and
 * its tiers as they are: fs/resume.c is the other end.
 */
#include "fs/fs.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fs/attach.h"
#include "fs/draft.h"
#include "fs/control.h"
#include "fs/kv.h"
#include "fs/figures.h"
#include "fs/log.h"
#include "fs/metrics-http.h"
#include "fs/mode.h"
#include "fs/mountpoint.h"
#include "fs/ops.h"
#include "fs/reason.h"
#include "fs/resume.h"
#include "fs/session.h"
#include "fs/signals.h"
#include "fs/status.h"
#include "manifest/views.h"
#include "tier/cleanup.h"

#define MS UINT64_C(1000000)
#define TICK_MS 250
#define END_MS 1000
#define MAX_THREADS 4u
#define WORK_THREADS 2
/*
 * One request of 1 MiB ahead. Resident, through the daemon: 4.3 GB/s read and mmap, against 2.9
 * and 3.4 with 16 MiB (the copies no longer fit the CPU's cache); from a server at 300 MB/s both
 * reach the link's rate, since the store reads ahead itself. And a random fault fetches what lies
 * in 1 MiB around it.
 */
#define READAHEAD_KB 1024
#define WORK_QUEUE 256
#define ADMIN_THREADS 4
#define ADMIN_QUEUE 4096
/* What is under way when another process is to follow gets so long; what is not answered then is
 * sent to it again. */
#define DRAIN_MS 1000
/* A loop thread that is at one request for so long hangs. */
#define STUCK_NS (5000 * MS)

/* Tells the caller how the mount is. */
static void tell(struct mc_fs *fs, enum mc_fs_news news)
{
	if (fs->opts->news != NULL)
		fs->opts->news(fs->opts->ctx, news);
}

static void warn_short_disk(struct mc_fs *fs)
{
	struct mc_figures f;
	uint64_t given;

	mc_figures_take(fs, &f);
	if (mc_figures_nvme_short(&f, &given))
		mc_log(MC_LOG_WARNING, "nvme-larger-than-disk",
			"nvme_bytes=%llu disk_bytes=%llu text=\"what fits is kept; give --nvme "
			"less, "
			"or a larger disk\"",
			(unsigned long long)given, (unsigned long long)f.store.nvme.disk_bytes);
}

/* A loop thread finished a request; after the first one, INIT, the tree answers. */
static void served(void *ctx)
{
	struct mc_fs *fs = ctx;
	const struct mc_features *f = &fs->features;
	const char *reason;

	if (!atomic_load_explicit(&fs->inited, memory_order_acquire) ||
		atomic_load_explicit(&fs->announced, memory_order_relaxed) ||
		atomic_exchange(&fs->announced, true))
		return;
	fs->features.readahead_kb = mc_mountpoint_set_readahead(fs->mountpoint,
		fs->opts->readahead_kb != 0 ? fs->opts->readahead_kb : READAHEAD_KB);
	if (f->readahead_kb < 0)
		mc_log(MC_LOG_WARNING, "readahead-not-raised", "error=\"%s\"",
			strerror(-f->readahead_kb));
	reason = atomic_load(&f->passthrough_reason);
	mc_log(MC_LOG_INFO, fs->opts->device < 0 ? "mounted" : "taken-over",
		"mountpoint=\"%s\" passthrough=%s reason=\"%s\" max_request=%u readahead_kb=%d "
		"threads=%u",
		fs->mountpoint, atomic_load(&f->passthrough) ? "on" : "off",
		reason != NULL ? reason : "", f->max_request, f->readahead_kb, f->threads);
	warn_short_disk(fs);
	mc_space_refresh(fs);
	tell(fs, MC_FS_READY);
}

static unsigned loop_threads(const struct mc_fs_opts *o)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned n = o->loop_threads != 0 ? o->loop_threads : (unsigned)(cpus > 0 ? cpus : 1);

	return n < MAX_THREADS ? n : MAX_THREADS;
}

static int open_names(struct mc_fs *fs)
{
	struct mc_names_sources from = {
		.catalogue = fs->opts->catalogue, .remote = fs->opts->remote};
	int r = mc_views_open(from.catalogue, from.remote, &fs->views);

	from.views = fs->views;
	return r < 0 ? r : mc_names_open(&from, fs->work, mc_now_ns, &fs->names);
}

static int fs_open(struct mc_fs *fs, struct mc_err *err)
{
	const struct mc_fs_opts *o = fs->opts;
	unsigned deadline_ms = o->request_deadline_ms != 0 ? o->request_deadline_ms : 60000;
	int r;

	fs->start_s = mc_resume_start(fs);
	fs->uid = geteuid();
	fs->gid = getegid();
	mc_calls_init(&fs->calls, deadline_ms * MS);
	mc_mutex_init(&fs->space.lock);
	for (int i = 0; i < MC_STRIPES; i++)
		mc_mutex_init(&fs->stripes[i]);
	r = mc_nodes_open(&fs->nodes);
	if (r == 0 && o->device < 0)
		mc_nodes_record(fs->nodes, o->takeover);
	if (r == 0)
		r = mc_handles_open(&fs->handles);
	if (r == 0)
		r = mc_reasons_open(&fs->reasons);
	if (r == 0)
		r = mc_work_open(WORK_THREADS, WORK_QUEUE, &fs->work);
	if (r == 0)
		r = mc_work_open(ADMIN_THREADS, ADMIN_QUEUE, &fs->admin);
	if (r == 0)
		r = mc_work_open(1, WORK_QUEUE, &fs->warm);
	if (r == 0)
		r = open_names(fs);
	if (r == 0)
		r = mc_drafts_open(&fs->drafts);
	if (r == 0 && o->kv != NULL)
		r = mc_kvfs_open(fs, o->kv, &fs->kvfs);
	if (r < 0)
		mc_err_set(err, r, "starting: %s", strerror(-r));
	return r;
}

static void drop_opened(void *ctx, struct mc_node *n)
{
	mc_mode_drop(ctx, n);
}

static void fs_close(struct mc_fs *fs)
{
	mc_notify_free(fs->notify);
	if (fs->se != NULL)
		fuse_session_destroy(fs->se);
	mc_handles_close(fs->handles);
	mc_reasons_close(fs->reasons);
	mc_names_close(fs->names);
	mc_drafts_close(fs->drafts);
	mc_kvfs_close(fs->kvfs);
	mc_nodes_close(fs->nodes);
	mc_views_close(fs->views);
	for (int i = 0; i < MC_STRIPES; i++)
		mc_mutex_done(&fs->stripes[i]);
	mc_mutex_done(&fs->space.lock);
	mc_calls_done(&fs->calls);
	free(fs->mountpoint);
	free(fs);
}

static unsigned long long get(_Atomic uint64_t *counter)
{
	return (unsigned long long)atomic_load(counter);
}

static const char DRAINED[] = "another process follows";

/* Does what signals ask for; why to stop, NULL = not. */
static const char *obey(struct mc_fs *fs, unsigned signals)
{
	if (signals & MC_SIGNAL_RELOAD)
		tell(fs, MC_FS_RELOAD);
	if (signals & MC_SIGNAL_DUMP)
		mc_status_log(fs);
	if (signals & MC_SIGNAL_STOP)
		return "signal";
	return signals & MC_SIGNAL_DRAIN && mc_takeover_on(fs->opts->takeover) ? DRAINED : NULL;
}

/* Until a reason to stop: a signal, the caller's descriptor, or the kernel. Returns it. */
static const char *serve(struct mc_fs *fs, struct mc_signals *s, const struct mc_loop *loop)
{
	struct pollfd p[3] = {{.fd = s->fd, .events = POLLIN},
		{.fd = fs->opts->stop_fd, .events = POLLIN},
		{.fd = mc_loop_ended_fd(loop), .events = POLLIN}};
	struct mc_log_limit limit = {0};
	const char *why = NULL;
	uint64_t suppressed;

	while (why == NULL) {
		int r = poll(p, 3, TICK_MS);
		uint64_t now = mc_now_ns();

		if (mc_calls_expire(&fs->calls, now) > 0 && mc_log_allowed(&limit, &suppressed))
			mc_log(MC_LOG_ERROR, "requests-expired", "total=%llu",
				get(&fs->calls.expired));
		mc_names_tick(fs->names, now);
		if (mc_loop_busy_ns(loop, now) < STUCK_NS)
			tell(fs, MC_FS_TICK);
		if (r > 0 && p[0].revents != 0)
			why = obey(fs, mc_signals_take(s));
		if (why != NULL)
			break;
		if (r > 0 && p[1].revents != 0)
			why = "request";
		else if (r > 0 && p[2].revents != 0)
			why = "unmounted";
	}
	mc_log(MC_LOG_INFO, "stopping", "reason=\"%s\"", why);
	if (why != DRAINED)
		tell(fs, MC_FS_STOPPING);
	return why;
}

/* Takes no more requests, and gives those under way a moment. */
static void drain(struct mc_fs *fs, struct mc_loop *loop)
{
	mc_loop_close(loop);
	mc_calls_wait_answered(&fs->calls, mc_now_ns() + DRAIN_MS * MS);
	tell(fs, MC_FS_DRAINED);
}

/* Gives requests under way a while, then EIO. */
static void answer_all(struct mc_fs *fs, uint64_t until_ns)
{
	unsigned expired;

	mc_calls_wait_answered(&fs->calls, until_ns);
	atomic_store(&fs->stopping, true);
	expired = mc_calls_expire(&fs->calls, UINT64_MAX);
	if (expired > 0)
		mc_log(MC_LOG_WARNING, "requests-given-up", "count=%u", expired);
}

static void log_end(struct mc_fs *fs, bool clean)
{
	struct mc_fs_counters *c = &fs->counters;

	mc_log(clean ? MC_LOG_INFO : MC_LOG_WARNING, "unmounted",
		"mountpoint=\"%s\" clean=%s reads=%llu read_bytes=%llu read_errors=%llu "
		"opens_cached=%llu opens_passthrough=%llu expired=%llu",
		fs->mountpoint, clean ? "yes" : "no", get(&c->reads), get(&c->read_bytes),
		get(&c->read_errors), get(&c->opens_cached), get(&c->opens_passthrough),
		get(&fs->calls.expired));
}

/* Without it the mount serves all the same. */
static void open_control(struct mc_fs *fs)
{
	struct mc_mount m;
	char path[PATH_MAX];
	int r;

	if (fs->opts->control_dir == NULL)
		return;
	r = mc_mountpoint_device(fs->mountpoint, &m);
	if (r == 0) {
		snprintf(path, sizeof(path), "%.4000s/" MC_CONTROL_NAME, fs->opts->control_dir,
			m.minor);
		r = mc_control_open(fs, path, &fs->control);
	}
	if (r < 0)
		mc_log(MC_LOG_WARNING, "no-control-socket", "dir=\"%s\" error=\"%s\"",
			fs->opts->control_dir, strerror(-r));
}

/* The others ask what runs on fs->work. */
static int close_pools(struct mc_fs *fs, uint64_t deadline_ns)
{
	struct mc_work *const pools[] = {fs->warm, fs->admin, fs->work};
	int r = 0;

	for (size_t i = 0; i < sizeof(pools) / sizeof(*pools); i++) {
		int r2 = mc_work_close(pools[i], deadline_ns);

		r = r < 0 ? r : r2;
	}
	return r;
}

/* Steps 1 to 6 of the order above. */
static int stop(struct mc_fs *fs, struct mc_loop *loop)
{
	unsigned ms = fs->opts->stop_deadline_ms != 0 ? fs->opts->stop_deadline_ms : 10000;
	uint64_t now = mc_now_ns(), deadline = now + ms * MS;
	int r, r2, kv, control;

	control = mc_control_close(fs->control, deadline);
	mc_metrics_http_close(fs->metrics);
	answer_all(fs, now + ms * MS / 2);
	mc_notify_stop(fs->notify);
	mc_loop_finish(loop);
	mc_calls_expire(&fs->calls, UINT64_MAX);
	mc_nodes_each(fs->nodes, drop_opened, fs);
	kv = mc_kvfs_stop(fs->kvfs, deadline);
	mc_detach(fs);
	/* The kernel may have had a million inodes to drop; threads that only have to end may. */
	now = mc_now_ns();
	deadline = deadline > now + END_MS * MS ? deadline : now + END_MS * MS;
	r = mc_calls_wait(&fs->calls, deadline);
	r = kv < 0 ? kv : control < 0 ? control : r;
	r2 = close_pools(fs, deadline);
	r = r < 0 ? r : r2;
	log_end(fs, r == 0);
	return r;
}

/* Mounted: serves and stops. 0, -ETIMEDOUT, or a failure to start. */
static int run(struct mc_fs *fs, struct mc_signals *s, struct mc_err *err)
{
	const struct mc_loop_calls calls = {
		.received = mc_resume_received, .served = served, .ctx = fs};
	struct mc_loop *loop = NULL;
	const char *why = NULL;
	int r = mc_notify_open(fs->se, &fs->notify);

	fs->features.threads = loop_threads(fs->opts);
	if (r < 0)
		mc_err_set(err, r, "starting threads: %s", strerror(-r));
	else if (fs->opts->metrics != NULL)
		r = mc_metrics_http_open(fs, fs->opts->metrics, &fs->metrics, err);
	/* Before the loop: whoever was told that the mount is ready finds the socket. */
	if (r == 0)
		open_control(fs);
	if (r == 0 && fs->opts->device < 0 && fs->opts->mounted != NULL)
		fs->opts->mounted(fs->opts->ctx, fuse_session_fd(fs->se));
	if (r == 0 && fs->opts->device >= 0)
		r = mc_resume(fs);
	if (r == 0)
		r = mc_loop_open(fs->se, fs->features.threads, &calls, &loop);
	if (r < 0) {
		mc_err_set(err, r, "starting threads: %s", strerror(-r));
		if (fs->opts->device >= 0)
			return r; /* the next process may take it over */
	} else {
		served(fs); /* what was taken over has had its INIT */
		why = serve(fs, s, loop);
	}
	if (why == DRAINED)
		drain(fs, loop);
	return r < 0 ? (stop(fs, loop), r) : stop(fs, loop);
}

int mc_fs_check_mountpoint(const char *mountpoint, struct mc_err *err)
{
	cleanup_free char *path = NULL;

	return mc_mountpoint_prepare(mountpoint, &path, err);
}

int mc_fs_run(const struct mc_fs_opts *opts, struct mc_err *err)
{
	struct mc_fs *fs = calloc(1, sizeof(*fs));
	struct mc_signals s;
	int r;

	if (fs == NULL)
		return mc_err_set(err, -ENOMEM, "starting: %s", strerror(ENOMEM));
	fs->opts = opts;
	r = fs_open(fs, err);
	if (r == 0)
		r = mc_attach_prepare(fs, err);
	if (r == 0)
		r = mc_signals_open(&s);
	if (r < 0) {
		mc_kvfs_stop(fs->kvfs, UINT64_MAX);
		close_pools(fs, UINT64_MAX);
		fs_close(fs);
		return r;
	}
	r = mc_attach(fs, err);
	if (r == 0)
		r = run(fs, &s, err);
	else if (opts->device < 0 && mc_kvfs_stop(fs->kvfs, UINT64_MAX) == 0)
		close_pools(fs, UINT64_MAX);
	mc_signals_close(&s);
	if (r != -ETIMEDOUT && (r == 0 || opts->device < 0))
		fs_close(fs);
	return r;
}
