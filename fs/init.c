/*
 * What is negotiated with the kernel, and why. The sizes: one read request is 1 MiB, the store's
 * block; the default of 12 background requests would throttle readahead, 64 keep a pool of that
 * many blocks busy. The kernel counts RELEASE among them too, and a put of kv/ ends with it: so
 * many reads that wait for a dead remote must not fill it.
 */
#include "fs/ops.h"

#include "fs/mode.h"

#define REQUEST_BYTES (UINT32_C(1) << 20)
#define BACKGROUND 512

static bool want(struct fuse_conn_info *conn, unsigned cap)
{
#if MC_FUSE_PASSTHROUGH
	return fuse_set_feature_flag(conn, cap);
#else
	if ((conn->capable & cap) == 0)
		return false;
	conn->want |= cap;
	return true;
#endif
}

static void refuse(struct fuse_conn_info *conn, unsigned cap)
{
#if MC_FUSE_PASSTHROUGH
	fuse_unset_feature_flag(conn, cap);
#else
	conn->want &= ~cap;
#endif
}

static bool offers_passthrough(struct fuse_conn_info *conn)
{
#if MC_FUSE_PASSTHROUGH
	return fuse_get_feature_flag(conn, FUSE_CAP_PASSTHROUGH);
#else
	(void)conn;
	return false;
#endif
}

void mc_op_init(void *userdata, struct fuse_conn_info *conn)
{
	struct mc_fs *fs = userdata;

	want(conn, FUSE_CAP_ASYNC_READ);
	want(conn, FUSE_CAP_ASYNC_DIO);
	want(conn, FUSE_CAP_PARALLEL_DIROPS);
	want(conn, FUSE_CAP_ATOMIC_O_TRUNC);
	/* Always plus, never by the kernel's guess: the handler decides by the directory's size. */
	want(conn, FUSE_CAP_READDIRPLUS);
	refuse(conn, FUSE_CAP_READDIRPLUS_AUTO);
	/* Contents never change, so no attribute may drop page cache. */
	refuse(conn, FUSE_CAP_AUTO_INVAL_DATA);
	/* Answers lie in memory: writev copies once, a pipe would not save that. */
	refuse(conn, FUSE_CAP_SPLICE_READ);
	refuse(conn, FUSE_CAP_SPLICE_WRITE);
	refuse(conn, FUSE_CAP_SPLICE_MOVE);
	refuse(conn, FUSE_CAP_WRITEBACK_CACHE);
#ifdef FUSE_CAP_OVER_IO_URING
	/* The kernel ties its queues to the process: another one could not take them over. */
	refuse(conn, FUSE_CAP_OVER_IO_URING);
#endif
	mc_mode_init(fs, offers_passthrough(conn));
#if MC_FUSE_PASSTHROUGH
	if (atomic_load(&fs->features.passthrough)) {
		want(conn, FUSE_CAP_PASSTHROUGH);
		conn->max_backing_stack_depth = 0; /* tmpfs, ext4, XFS: not stacked themselves */
	}
#endif
	conn->max_write = REQUEST_BYTES; /* sets max_pages, hence the size of reads too */
	conn->max_background = BACKGROUND;
	conn->congestion_threshold = BACKGROUND * 3 / 4;
	conn->time_gran = 1;
	fs->features.max_request = REQUEST_BYTES;
	fs->features.max_background = BACKGROUND;
	atomic_store(&fs->inited, true);
}
