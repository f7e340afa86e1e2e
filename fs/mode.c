/*
 * How an open file is served.
 *
 * Invariants:
 * 1. node->opened is set exactly while opens > 0; it changes under the node's stripe.
 * 2. In PASSTHROUGH the inode owns one backing id and one mc_file_backing_get of its file, from the
 * first open to the last release (fi->backing_id is empty at RELEASE). A process that took the
 * mount over may lack the latter: then a lease alone keeps the image's bytes in place.
 * 3. Neither the store nor the kernel is called with a stripe locked: a first open prepares both
 * modes' needs before, and gives them back when another thread was first.
 * 4. opens is never less than what the kernel has open, and may be more after a takeover, until the
 * kernel forgets the inode.
 */
#include "fs/mode.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include "fs/log.h"
#include "tier/cleanup.h"

/* The kernel's interface since 6.9, linux/fuse.h; older headers do not have it. */
struct backing_map {
	int32_t fd;
	uint32_t flags;
	uint64_t padding;
};
#define BACKING_OPEN _IOW(229, 1, struct backing_map)
#define BACKING_CLOSE _IOW(229, 2, uint32_t)

/*
 * Smaller files stay with the page cache: 64 KiB open-read-close 20 to 26 thousand times a second
 * there, 7 to 12 in passthrough, where each open and close also registers and drops the backing
 * file.
 */
#define PASSTHROUGH_MIN MC_BLOCK_SIZE /* bytes */

static struct mc_mutex *stripe(struct mc_fs *fs, const struct mc_node *n)
{
	return &fs->stripes[n->slot % MC_STRIPES];
}

static bool may_admin(void)
{
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct d[_LINUX_CAPABILITY_U32S_3] = {0};

	return syscall(SYS_capget, &h, d) == 0 && (d[0].effective & (1u << CAP_SYS_ADMIN)) != 0;
}

static void set_passthrough(struct mc_fs *fs, const char *reason)
{
	atomic_store(&fs->features.passthrough_reason, reason);
	atomic_store(&fs->features.passthrough, reason == NULL);
}

void mc_mode_init(struct mc_fs *fs, bool offered)
{
	const char *reason = NULL;

	if (fs->opts->no_passthrough)
		reason = "turned off by option";
	else if (!MC_FUSE_PASSTHROUGH)
		reason = "built with libfuse before 3.17";
	else if (!offered)
		reason = "the kernel does not offer it (6.9 or later does)";
	else if (!may_admin())
		reason = "needs CAP_SYS_ADMIN";
	set_passthrough(fs, reason);
}

int mc_mode_entry_file(
	struct mc_fs *fs, struct mc_place *place, uint32_t entry, struct mc_file **ret)
{
	struct mc_source *src;
	int r;

	if (place->view != NULL)
		r = mc_view_source(place->view, entry, fs->opts->store, &src);
	else
		r = mc_manifest_source(place->manifest, entry, &src);
	return r < 0 ? r : mc_store_file_get(fs->opts->store, src, ret);
}

static int node_file(struct mc_fs *fs, const struct mc_node *n, struct mc_file **ret)
{
	return mc_mode_entry_file(fs, n->place, n->entry, ret);
}

static void backing_refused(struct mc_fs *fs, int error)
{
	static struct mc_log_limit limit = {.interval_ns = UINT64_C(60000000000)};
	uint64_t suppressed;

	/* Without the right it will not work for any file; other errors are about this one. */
	if (error == EPERM)
		set_passthrough(fs, "the kernel refused it: needs CAP_SYS_ADMIN");
	if (mc_log_allowed(&limit, &suppressed))
		mc_log(MC_LOG_WARNING, "passthrough-refused", "error=\"%s\" suppressed=%llu",
			strerror(error), (unsigned long long)suppressed);
}

/* The next worker closes those that nobody wrote down. */
static void note_id(struct mc_fs *fs, uint32_t id)
{
	struct mc_takeover *t = fs->opts->takeover;
	_Atomic(uint32_t) *last;
	uint32_t was;

	if (t == NULL)
		return;
	last = &mc_takeover_head(t)->backing_id;
	was = atomic_load(last);
	while (was < id && !atomic_compare_exchange_weak(last, &was, id))
		;
}

int mc_mode_backing_open(struct mc_fs *fs, int fd)
{
	struct backing_map map = {.fd = fd};
	int id;

	if (!atomic_load(&fs->features.passthrough))
		return -EOPNOTSUPP;
	id = ioctl(fuse_session_fd(fs->se), BACKING_OPEN, &map);
	if (id > 0) {
		note_id(fs, (uint32_t)id);
		return id;
	}
	backing_refused(fs, id < 0 ? errno : ERANGE);
	return -EOPNOTSUPP;
}

void mc_mode_backing_close(struct mc_fs *fs, int id)
{
	uint32_t arg = (uint32_t)id;

	if (id > 0)
		ioctl(fuse_session_fd(fs->se), BACKING_CLOSE, &arg);
}

/* Tries to make o a passthrough open; leaves it cached otherwise. */
static void prepare_passthrough(struct mc_fs *fs, struct mc_opened *o)
{
	cleanup_close int fd = -1;
	int id;

	if (o->size < PASSTHROUGH_MIN || !atomic_load(&fs->features.passthrough))
		return;
	if (mc_file_backing_get(o->file, &fd, &o->tier) < 0)
		return;
	id = mc_mode_backing_open(fs, fd);
	if (id <= 0) {
		mc_file_backing_put(o->file, o->tier);
		return;
	}
	o->backing_id = id;
	o->kept = true;
	o->mode = MC_MODE_PASSTHROUGH;
}

void mc_mode_end(struct mc_fs *fs, struct mc_opened *o)
{
	if (o == NULL)
		return;
	if (o->mode == MC_MODE_PASSTHROUGH)
		mc_mode_backing_close(fs, o->backing_id);
	if (o->kept)
		mc_file_backing_put(o->file, o->tier);
	if (o->file != NULL)
		mc_file_put(o->file);
	free(o);
}

static int prepare(struct mc_fs *fs, struct mc_node *n, struct mc_opened **ret)
{
	struct mc_opened *o = calloc(1, sizeof(*o));
	struct mc_entry e;
	int r = 0;

	if (o == NULL)
		return -ENOMEM;
	mc_manifest_entry(n->place->manifest, n->entry, &e);
	o->mode = MC_MODE_CACHED;
	o->size = e.size;
	if (e.size > 0)
		r = node_file(fs, n, &o->file);
	if (r < 0) {
		free(o);
		return r;
	}
	prepare_passthrough(fs, o);
	*ret = o;
	return 0;
}

/* One more open when the mode is fixed already, or by making o the one. NULL: nothing fixed, no o.
 */
static struct mc_opened *join(
	struct mc_fs *fs, struct mc_node *n, struct mc_opened *o, enum mc_open_mode *ret_last)
{
	struct mc_opened *now;

	mc_mutex_lock(stripe(fs, n));
	now = atomic_load_explicit(&n->opened, memory_order_relaxed);
	*ret_last = n->last_mode;
	if (now == NULL && o != NULL) {
		now = o;
		atomic_store_explicit(&n->opened, o, memory_order_release);
		mc_node_record_mode(fs->opts->takeover, n, o->mode, o->backing_id, (int)o->tier);
	}
	if (now != NULL) {
		now->opens++;
		mc_node_record_opens(fs->opts->takeover, n, now->opens);
		n->last_mode = now->mode;
	}
	mc_mutex_unlock(stripe(fs, n));
	return now;
}

static void fill_info(struct mc_fs *fs, struct mc_node *n, const struct mc_opened *o,
	enum mc_open_mode last, struct fuse_file_info *fi)
{
	bool passthrough = o->mode == MC_MODE_PASSTHROUGH;

	/* The content never changes, so pages of an earlier open stay good; only what could remain
	 * from before a passthrough phase is not worth keeping. */
	fi->keep_cache = !passthrough && last != MC_MODE_PASSTHROUGH;
	fi->noflush = 1;
#if MC_FUSE_PASSTHROUGH
	fi->backing_id = o->backing_id;
#endif
	if (passthrough && last == MC_MODE_CACHED)
		mc_notify_drop_pages(fs->notify, mc_node_id(n));
	atomic_fetch_add_explicit(
		passthrough ? &fs->counters.opens_passthrough : &fs->counters.opens_cached, 1,
		memory_order_relaxed);
}

int mc_mode_open(struct mc_fs *fs, struct mc_node *n, struct fuse_file_info *fi)
{
	enum mc_open_mode last;
	struct mc_opened *mine = NULL;
	struct mc_opened *o = join(fs, n, NULL, &last);

	if (o == NULL) {
		int r = prepare(fs, n, &mine);

		if (r < 0)
			return r;
		o = join(fs, n, mine, &last);
		if (o != mine)
			mc_mode_end(fs, mine);
	}
	fill_info(fs, n, o, last, fi);
	return 0;
}

void mc_mode_release(struct mc_fs *fs, struct mc_node *n)
{
	struct mc_opened *o;
	int id;

	mc_mutex_lock(stripe(fs, n));
	o = atomic_load_explicit(&n->opened, memory_order_relaxed);
	if (o != NULL) {
		o->opens--;
		mc_node_record_opens(fs->opts->takeover, n, o->opens);
	}
	if (o != NULL && o->opens == 0)
		atomic_store_explicit(&n->opened, NULL, memory_order_relaxed);
	else
		o = NULL;
	mc_mutex_unlock(stripe(fs, n));
	id = o != NULL ? o->backing_id : 0;
	mc_mode_end(fs, o);
	if (id > 0)
		mc_node_record_closed(fs->opts->takeover, n, id);
}

enum mc_open_mode mc_mode_now(struct mc_fs *fs, struct mc_node *n)
{
	enum mc_open_mode mode = MC_MODE_NONE;
	struct mc_opened *o;
	struct mc_file *file;
	struct mc_entry e;

	mc_mutex_lock(stripe(fs, n));
	o = atomic_load_explicit(&n->opened, memory_order_relaxed);
	if (o != NULL)
		mode = o->mode;
	mc_mutex_unlock(stripe(fs, n));
	if (mode != MC_MODE_NONE)
		return mode;
	mc_manifest_entry(n->place->manifest, n->entry, &e);
	if (e.size < PASSTHROUGH_MIN || !atomic_load(&fs->features.passthrough) ||
		node_file(fs, n, &file) < 0)
		return MC_MODE_CACHED;
	mode = mc_file_backing_ready(file) ? MC_MODE_PASSTHROUGH : MC_MODE_CACHED;
	mc_file_put(file);
	return mode;
}

void mc_mode_drop(struct mc_fs *fs, struct mc_node *n)
{
	mc_mode_end(fs, atomic_exchange(&n->opened, NULL));
}

/* The hold on the image that the kernel reads, where it is still to be had. */
static void keep_again(struct mc_opened *o, enum mc_tier tier)
{
	cleanup_close int fd = -1;

	if (o->file == NULL || mc_file_backing_get(o->file, &fd, &o->tier) < 0)
		return;
	o->kept = o->tier == tier;
	if (!o->kept)
		mc_file_backing_put(o->file, o->tier);
}

void mc_mode_restore(struct mc_fs *fs, struct mc_node *n, const struct mc_node_record *was)
{
	struct mc_opened *o = calloc(1, sizeof(*o));
	struct mc_entry e;

	if (o == NULL)
		return; /* reads get EBADF, and the kernel its RELEASEs answered */
	mc_manifest_entry(n->place->manifest, n->entry, &e);
	o->mode = was->mode == MC_MODE_PASSTHROUGH ? MC_MODE_PASSTHROUGH : MC_MODE_CACHED;
	o->size = e.size;
	o->opens = atomic_load(&was->opens);
	if (o->size > 0 && node_file(fs, n, &o->file) < 0) {
		free(o);
		return;
	}
	if (o->mode == MC_MODE_PASSTHROUGH) {
		o->backing_id = atomic_load(&was->backing_id);
		keep_again(o, (enum mc_tier)was->tier);
	}
	n->last_mode = o->mode;
	atomic_store(&n->opened, o);
}
