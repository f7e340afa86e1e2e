/* The synchronous operations of a remote: each checks its paths, takes its time from the door, and
 * says in the caller's error what failed. */
#include "tier/remote-impl.h"

#include <errno.h>
#include <string.h>

enum {
	CALL_ROOT = 1,  /* the root will do */
	CALL_QUICK = 2, /* moves no data */
};

/* Starts a synchronous operation: 0 with *ret_call filled, or an error that is counted. */
static int call_begin(struct mc_remote *r, const char *path, unsigned flags, struct mc_err *err,
	struct mc_remote_call *ret_call)
{
	uint64_t ns = (flags & CALL_QUICK) != 0 ? atomic_load(&r->quick_ns) : mc_remote_patience(r);
	int res = mc_remote_path_check(path, (flags & CALL_ROOT) != 0);

	if (res == 0)
		res = mc_remote_enter(r);
	if (res < 0) {
		atomic_fetch_add(&r->errors, 1);
		return mc_err_set(err, res, "%s: %s: %s", r->url, path != NULL ? path : "(null)",
			res == -EINVAL ? "not a valid path" : strerror(-res));
	}
	*ret_call =
		(struct mc_remote_call){.path = path, .deadline_ns = mc_now_ns() + ns, .err = err};
	return 0;
}

static int call_end(struct mc_remote *r, const struct mc_remote_call *c, int res)
{
	assert(res > -4096);
	if (res < 0) {
		atomic_fetch_add(&r->errors, 1);
		mc_err_set(c->err, res, "%s: %s: %s%s", r->url, c->path, strerror(-res),
			mc_err_hint(res));
	}
	mc_remote_leave(r); /* last: r may be freed now */
	return res;
}

int mc_remote_stat(
	struct mc_remote *r, const char *path, struct mc_remote_attr *ret, struct mc_err *err)
{
	struct mc_remote_attr attr = {0};
	struct mc_remote_call c;
	int res = call_begin(r, path, CALL_ROOT | CALL_QUICK, err, &c);

	if (res < 0)
		return res;
	res = r->b->ops->stat(r->b, &c, &attr);
	if (res == 0)
		*ret = attr;
	return call_end(r, &c, res);
}

int mc_remote_get(struct mc_remote *r, const char *path, size_t max, void **ret_buf,
	size_t *ret_len, struct mc_err *err)
{
	struct mc_remote_call c;
	int res = call_begin(r, path, 0, err, &c);

	return res < 0 ? res : call_end(r, &c, mc_remote_get_whole(r, &c, max, ret_buf, ret_len));
}

int mc_remote_put(struct mc_remote *r, const char *path, const void *buf, size_t len,
	unsigned flags, struct mc_err *err)
{
	struct mc_remote_call c;
	int res = call_begin(r, path, 0, err, &c);

	assert((flags & ~(unsigned)(MC_PUT_EXCL | MC_PUT_DURABLE)) == 0 &&
		(buf != NULL || len == 0));
	if (res < 0)
		return res;
	res = r->b->ops->put(r->b, &c, buf, len, flags);
	if (res == 0)
		atomic_fetch_add(&r->bytes_written, len);
	return call_end(r, &c, res);
}

int mc_remote_sync(struct mc_remote *r, struct mc_err *err)
{
	struct mc_remote_call c;
	int res = call_begin(r, "", CALL_ROOT, err, &c);

	return res < 0 ? res : call_end(r, &c, r->b->ops->sync(r->b, &c));
}

/* Between a backend's list and the caller: what a careless or hostile server may name is stopped.
 */
struct list_filter {
	mc_remote_each *each;
	void *ctx;
};

static int list_each(void *ctx, const char *name, const struct mc_remote_attr *attr)
{
	struct list_filter *f = ctx;

	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return 0;
	if (mc_remote_path_check(name, false) < 0 || strchr(name, '/') != NULL)
		return -EBADMSG;
	return f->each(f->ctx, name, attr);
}

int mc_remote_list(struct mc_remote *r, const char *path,
	int (*each)(void *ctx, const char *name, const struct mc_remote_attr *attr), void *ctx,
	struct mc_err *err)
{
	struct list_filter f = {.each = each, .ctx = ctx};
	struct mc_remote_call c;
	int res = call_begin(r, path, CALL_ROOT, err, &c);

	return res < 0 ? res : call_end(r, &c, r->b->ops->list(r->b, &c, list_each, &f));
}

int mc_remote_mkdir(struct mc_remote *r, const char *path, struct mc_err *err)
{
	struct mc_remote_call c;
	int res = call_begin(r, path, CALL_ROOT | CALL_QUICK, err, &c);

	if (res < 0)
		return res;
	return call_end(r, &c, *path == '\0' ? 0 : r->b->ops->mkdir(r->b, &c));
}

int mc_remote_unlink(struct mc_remote *r, const char *path, struct mc_err *err)
{
	struct mc_remote_call c;
	int res = call_begin(r, path, CALL_QUICK, err, &c);

	return res < 0 ? res : call_end(r, &c, r->b->ops->unlink(r->b, &c));
}

int mc_remote_remove(struct mc_remote *r, const char *path, struct mc_err *err)
{
	struct mc_remote_call c;
	int res = call_begin(r, path, 0, err, &c);

	if (res < 0)
		return res;
	c.durable = true;
	return call_end(r, &c, r->b->ops->unlink(r->b, &c));
}

int mc_remote_rename(
	struct mc_remote *r, const char *path, const char *new_path, struct mc_err *err)
{
	struct mc_remote_call c;
	int res = call_begin(r, path, false, err, &c);

	if (res < 0)
		return res;
	c.new_path = new_path;
	res = mc_remote_path_check(new_path, false);
	return call_end(r, &c, res < 0 ? res : r->b->ops->rename(r->b, &c));
}

int mc_remote_touch(struct mc_remote *r, const char *path, struct mc_err *err)
{
	struct mc_remote_call c;
	int res = call_begin(r, path, CALL_QUICK, err, &c);

	return res < 0 ? res : call_end(r, &c, r->b->ops->touch(r->b, &c));
}

int mc_remote_space(struct mc_remote *r, struct mc_remote_space *ret, struct mc_err *err)
{
	struct mc_remote_space space = {0};
	struct mc_remote_call c;
	int res = call_begin(r, "", CALL_ROOT | CALL_QUICK, err, &c);

	if (res < 0)
		return res;
	res = r->b->ops->space(r->b, &c, &space);
	if (res == 0)
		*ret = space;
	return call_end(r, &c, res);
}
