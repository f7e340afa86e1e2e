/*
 * statfs: the remote's space, from numbers that the work pool fetched earlier. The handler does no
 * I/O, so df answers while the remote is down.
 */
#include "fs/ops.h"

#include "fs/kv.h"

#include <string.h>
#include <sys/statvfs.h>

#define UNIT 4096u /* bytes, f_frsize */
#define REFRESH_NS UINT64_C(30000000000)

static void refresh(void *arg)
{
	struct mc_fs *fs = arg;
	struct mc_remote_space space;
	int r = mc_remote_space(fs->opts->remote, &space, NULL);

	if (r < 0)
		return; /* the old numbers stay; the next statfs after a while tries again */
	mc_mutex_lock(&fs->space.lock);
	fs->space.remote = space;
	fs->space.known = true;
	mc_mutex_unlock(&fs->space.lock);
}

void mc_space_refresh(struct mc_fs *fs)
{
	uint64_t now = mc_now_ns();
	bool due;

	mc_mutex_lock(&fs->space.lock);
	due = now >= fs->space.next_ns;
	if (due)
		fs->space.next_ns = now + REFRESH_NS;
	mc_mutex_unlock(&fs->space.lock);
	if (due)
		mc_work_submit(fs->work, refresh, fs);
}

void mc_op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct mc_fs *fs = mc_ops_fs(req);
	struct mc_remote_space space = {0};
	struct statvfs st;

	if (mc_kvfs_has(ino)) {
		mc_kvop_statfs(req);
		return;
	}
	mc_space_refresh(fs);
	mc_mutex_lock(&fs->space.lock);
	if (fs->space.known)
		space = fs->space.remote;
	mc_mutex_unlock(&fs->space.lock);
	memset(&st, 0, sizeof(st));
	st.f_bsize = UNIT;
	st.f_frsize = UNIT;
	st.f_blocks = space.total / UNIT;
	st.f_bfree = space.avail / UNIT;
	st.f_bavail = st.f_bfree;
	st.f_namemax = 255;
	fuse_reply_statfs(req, &st);
}
