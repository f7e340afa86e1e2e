/*
 * The NFSv3 procedures (RFC 1813) we use: how a call is encoded and what is kept of the answer.
 * libnfs encodes inside send, so arguments live on the stack; what it decoded lives until reply
 * returns.
 */
#include "tier/remote-nfs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#ifdef LIBNFS_API_V2
#define SEND(proc, rpc, cb, args, priv)                                                            \
	(rpc_nfs3_##proc##_task(rpc, cb, args, priv) == NULL ? -ENOMEM : 0)
#else
#define SEND(proc, rpc, cb, args, priv) rpc_nfs3_##proc##_async(rpc, cb, args, priv)
#endif

#define LIST_BYTES 65536 /* of one READDIRPLUS answer */

int mc_nfs_errno(int status)
{
	int r;

	switch (status) {
	case NFS3_OK:
		return 0;
	case NFS3ERR_STALE:
	case NFS3ERR_BADHANDLE:
		return -ESTALE;
	case NFS3ERR_NAMETOOLONG:
		return -ENAMETOOLONG;
	case NFS3ERR_NOTEMPTY:
		return -ENOTEMPTY;
	case NFS3ERR_DQUOT:
		return -EDQUOT;
	case NFS3ERR_NOTSUPP:
		return -EOPNOTSUPP;
	case NFS3ERR_PERM:
	case NFS3ERR_NOENT:
	case NFS3ERR_ACCES:
	case NFS3ERR_EXIST:
	case NFS3ERR_XDEV:
	case NFS3ERR_NOTDIR:
	case NFS3ERR_ISDIR:
	case NFS3ERR_INVAL:
	case NFS3ERR_FBIG:
	case NFS3ERR_NOSPC:
	case NFS3ERR_ROFS:
	case NFS3ERR_MLINK:
		r = nfsstat3_to_errno(status);
		return r < 0 ? r : -EIO;
	default:
		return -EIO;
	}
}

static void attr_from(const fattr3 *in, struct mc_remote_attr *out)
{
	*out = (struct mc_remote_attr){
		.type = in->type == NF3REG   ? MC_REMOTE_FILE
			: in->type == NF3DIR ? MC_REMOTE_DIR
			: in->type == NF3LNK ? MC_REMOTE_SYMLINK
					     : MC_REMOTE_OTHER,
		.size = in->size,
		.mode = in->mode & 07777,
		/* 32 bits on the wire; the server's are taken as signed, as Linux does. */
		.mtime_s = (int32_t)in->mtime.seconds,
		.mtime_ns = in->mtime.nseconds,
		.fileid = in->fileid,
	};
}

void mc_nfs_entries_free(struct mc_nfs_entry *e)
{
	while (e != NULL) {
		struct mc_nfs_entry *next = e->next;

		free(e);
		e = next;
	}
}

static nfs_fh3 fh_arg(struct mc_nfs_fh *fh)
{
	return (nfs_fh3){.data = {.data_len = fh->len, .data_val = fh->data}};
}

static diropargs3 dirop(struct mc_nfs_fh *fh, const char *name)
{
	return (diropargs3){.dir = fh_arg(fh), .name = (char *)(uintptr_t)name};
}

static int keep_fh(struct mc_nfs_call *c, const nfs_fh3 *fh)
{
	if (fh->data.data_len == 0 || fh->data.data_len > NFS3_FHSIZE)
		return -EBADMSG;
	c->ofh.len = fh->data.data_len;
	memcpy(c->ofh.data, fh->data.data_val, fh->data.data_len);
	c->has_fh = true;
	return 0;
}

static void keep_attr(struct mc_nfs_call *c, const post_op_attr *a)
{
	c->has_attr = a->attributes_follow != 0;
	if (c->has_attr)
		attr_from(&a->post_op_attr_u.attributes, &c->attr);
}

static int keep_new(struct mc_nfs_call *c, const post_op_fh3 *fh, const post_op_attr *a)
{
	keep_attr(c, a);
	c->has_fh = false;
	return fh->handle_follows ? keep_fh(c, &fh->post_op_fh3_u.handle) : 0;
}

static int keep_nothing(struct mc_nfs_call *c, const void *data)
{
	(void)c;
	(void)data;
	return 0;
}

static int getattr_send(struct rpc_context *rpc, rpc_cb cb, struct mc_nfs_call *c, void *priv)
{
	GETATTR3args a = {.object = fh_arg(&c->fh)};

	return SEND(getattr, rpc, cb, &a, priv);
}

static int getattr_reply(struct mc_nfs_call *c, const void *data)
{
	const GETATTR3res *res = data;

	attr_from(&res->GETATTR3res_u.resok.obj_attributes, &c->attr);
	c->has_attr = true;
	return 0;
}

static int lookup_send(struct rpc_context *rpc, rpc_cb cb, struct mc_nfs_call *c, void *priv)
{
	LOOKUP3args a = {.what = dirop(&c->fh, c->name)};

	return SEND(lookup, rpc, cb, &a, priv);
}

static int lookup_reply(struct mc_nfs_call *c, const void *data)
{
	const LOOKUP3resok *ok = &((const LOOKUP3res *)data)->LOOKUP3res_u.resok;

	keep_attr(c, &ok->obj_attributes);
	return keep_fh(c, &ok->object);
}

static int readlink_send(struct rpc_context *rpc, rpc_cb cb, struct mc_nfs_call *c, void *priv)
{
	READLINK3args a = {.symlink = fh_arg(&c->fh)};

	return SEND(readlink, rpc, cb, &a, priv);
}

static int readlink_reply(struct mc_nfs_call *c, const void *data)
{
	const READLINK3resok *ok = &((const READLINK3res *)data)->READLINK3res_u.resok;

	c->text = strdup(ok->data);
	return c->text == NULL ? -ENOMEM : 0;
}

static int read_send(struct rpc_context *rpc, rpc_cb cb, struct mc_nfs_call *c, void *priv)
{
	READ3args a = {.file = fh_arg(&c->fh), .offset = c->off, .count = c->len};

#ifdef LIBNFS_API_V2
	return rpc_nfs3_read_task(rpc, cb, c->buf, c->len, &a, priv) == NULL ? -ENOMEM : 0;
#else
	return SEND(read, rpc, cb, &a, priv);
#endif
}

static int read_reply(struct mc_nfs_call *c, const void *data)
{
	const READ3resok *ok = &((const READ3res *)data)->READ3res_u.resok;

	if (ok->count > c->len)
		return -EBADMSG;
#ifndef LIBNFS_API_V2
	if (ok->data.data_len != ok->count)
		return -EBADMSG;
	memcpy(c->buf, ok->data.data_val, ok->count);
#endif
	keep_attr(c, &ok->file_attributes);
	c->count = ok->count;
	c->eof = ok->eof != 0;
	return 0;
}

static int write_send(struct rpc_context *rpc, rpc_cb cb, struct mc_nfs_call *c, void *priv)
{
	WRITE3args a = {.file = fh_arg(&c->fh),
		.offset = c->off,
		.count = c->len,
		.stable = (stable_how)c->stable,
		.data = {.data_len = c->len, .data_val = c->buf}};

	return SEND(write, rpc, cb, &a, priv);
}

static int write_reply(struct mc_nfs_call *c, const void *data)
{
	const WRITE3resok *ok = &((const WRITE3res *)data)->WRITE3res_u.resok;

	if (ok->count > c->len)
		return -EBADMSG;
	keep_attr(c, &ok->file_wcc.after);
	c->count = ok->count;
	c->stable = ok->committed;
	memcpy(c->verf, ok->verf, sizeof(c->verf));
	return 0;
}

static int commit_send(struct rpc_context *rpc, rpc_cb cb, struct mc_nfs_call *c, void *priv)
{
	COMMIT3args a = {.file = fh_arg(&c->fh)}; /* 0, 0 = the whole file */

	return SEND(commit, rpc, cb, &a, priv);
}

static int commit_reply(struct mc_nfs_call *c, const void *data)
{
	const COMMIT3resok *ok = &((const COMMIT3res *)data)->COMMIT3res_u.resok;

	keep_attr(c, &ok->file_wcc.after);
	memcpy(c->verf, ok->verf, sizeof(c->verf));
	return 0;
}

/* UNCHECKED with size 0 and a name nobody else has: the same when it runs twice. */
static int create_send(struct rpc_context *rpc, rpc_cb cb, struct mc_nfs_call *c, void *priv)
{
	CREATE3args a = {.where = dirop(&c->fh, c->name), .how = {.mode = UNCHECKED}};
	sattr3 *s = &a.how.createhow3_u.obj_attributes;

	s->mode.set_it = 1;
	s->mode.set_mode3_u.mode = 0644;
	s->size.set_it = 1;
	return SEND(create, rpc, cb, &a, priv);
}

static int create_reply(struct mc_nfs_call *c, const void *data)
{
	const CREATE3resok *ok = &((const CREATE3res *)data)->CREATE3res_u.resok;

	return keep_new(c, &ok->obj, &ok->obj_attributes);
}

static int mkdir_send(struct rpc_context *rpc, rpc_cb cb, struct mc_nfs_call *c, void *priv)
{
	MKDIR3args a = {.where = dirop(&c->fh, c->name)};

	a.attributes.mode.set_it = 1;
	a.attributes.mode.set_mode3_u.mode = 0755;
	return SEND(mkdir, rpc, cb, &a, priv);
}

static int mkdir_reply(struct mc_nfs_call *c, const void *data)
{
	const MKDIR3resok *ok = &((const MKDIR3res *)data)->MKDIR3res_u.resok;

	return keep_new(c, &ok->obj, &ok->obj_attributes);
}

static int remove_send(struct rpc_context *rpc, rpc_cb cb, struct mc_nfs_call *c, void *priv)
{
	REMOVE3args a = {.object = dirop(&c->fh, c->name)};

	return SEND(remove, rpc, cb, &a, priv);
}

static int rmdir_send(struct rpc_context *rpc, rpc_cb cb, struct mc_nfs_call *c, void *priv)
{
	RMDIR3args a = {.object = dirop(&c->fh, c->name)};

	return SEND(rmdir, rpc, cb, &a, priv);
}

static int rename_send(struct rpc_context *rpc, rpc_cb cb, struct mc_nfs_call *c, void *priv)
{
	RENAME3args a = {.from = dirop(&c->fh, c->name), .to = dirop(&c->fh2, c->name2)};

	return SEND(rename, rpc, cb, &a, priv);
}

static int link_send(struct rpc_context *rpc, rpc_cb cb, struct mc_nfs_call *c, void *priv)
{
	LINK3args a = {.file = fh_arg(&c->fh), .link = dirop(&c->fh2, c->name2)};

	return SEND(link, rpc, cb, &a, priv);
}

static int settime_send(struct rpc_context *rpc, rpc_cb cb, struct mc_nfs_call *c, void *priv)
{
	SETATTR3args a = {.object = fh_arg(&c->fh)};

	a.new_attributes.atime.set_it = SET_TO_SERVER_TIME;
	a.new_attributes.mtime.set_it = SET_TO_SERVER_TIME;
	return SEND(setattr, rpc, cb, &a, priv);
}

static int fsstat_send(struct rpc_context *rpc, rpc_cb cb, struct mc_nfs_call *c, void *priv)
{
	FSSTAT3args a = {.fsroot = fh_arg(&c->fh)};

	return SEND(fsstat, rpc, cb, &a, priv);
}

static int fsstat_reply(struct mc_nfs_call *c, const void *data)
{
	const FSSTAT3resok *ok = &((const FSSTAT3res *)data)->FSSTAT3res_u.resok;

	c->total = ok->tbytes;
	c->avail = ok->abytes;
	return 0;
}

static int fsinfo_send(struct rpc_context *rpc, rpc_cb cb, struct mc_nfs_call *c, void *priv)
{
	FSINFO3args a = {.fsroot = fh_arg(&c->fh)};

	return SEND(fsinfo, rpc, cb, &a, priv);
}

static int fsinfo_reply(struct mc_nfs_call *c, const void *data)
{
	const FSINFO3resok *ok = &((const FSINFO3res *)data)->FSINFO3res_u.resok;

	c->count = ok->rtmax;
	c->count2 = ok->wtmax;
	return 0;
}

static int readdirplus_send(struct rpc_context *rpc, rpc_cb cb, struct mc_nfs_call *c, void *priv)
{
	READDIRPLUS3args a = {.dir = fh_arg(&c->fh),
		.cookie = c->off,
		.dircount = LIST_BYTES,
		.maxcount = LIST_BYTES};

	memcpy(a.cookieverf, c->verf, sizeof(a.cookieverf));
	return SEND(readdirplus, rpc, cb, &a, priv);
}

static struct mc_nfs_entry *entry_new(const entryplus3 *e)
{
	size_t len = strlen(e->name) + 1;
	struct mc_nfs_entry *n = calloc(1, sizeof(*n) + len);

	if (n == NULL)
		return NULL;
	memcpy(n->name, e->name, len);
	n->cookie = e->cookie;
	n->has_attr = e->name_attributes.attributes_follow != 0;
	if (n->has_attr)
		attr_from(&e->name_attributes.post_op_attr_u.attributes, &n->attr);
	return n;
}

static int readdirplus_reply(struct mc_nfs_call *c, const void *data)
{
	const READDIRPLUS3resok *ok = &((const READDIRPLUS3res *)data)->READDIRPLUS3res_u.resok;
	struct mc_nfs_entry **tail = &c->entries;

	c->entries = NULL;
	for (const void *at = ok->reply.entries; at != NULL;) {
		struct mc_nfs_entry *n;
		entryplus3 e;

		memcpy(&e, at, sizeof(e)); /* libnfs 4.0 decodes lists at unaligned addresses */
		n = entry_new(&e);
		if (n == NULL) {
			mc_nfs_entries_free(c->entries);
			c->entries = NULL;
			return -ENOMEM;
		}
		*tail = n;
		tail = &n->next;
		at = e.nextentry;
	}
	memcpy(c->verf, ok->cookieverf, sizeof(c->verf));
	c->eof = ok->reply.eof != 0;
	return 0;
}

const struct mc_nfs_proc mc_nfs_getattr = {"GETATTR", true, getattr_send, getattr_reply};
const struct mc_nfs_proc mc_nfs_lookup = {"LOOKUP", true, lookup_send, lookup_reply};
const struct mc_nfs_proc mc_nfs_readlink = {"READLINK", true, readlink_send, readlink_reply};
const struct mc_nfs_proc mc_nfs_read_proc = {"READ", true, read_send, read_reply};
const struct mc_nfs_proc mc_nfs_write = {"WRITE", true, write_send, write_reply};
const struct mc_nfs_proc mc_nfs_commit = {"COMMIT", true, commit_send, commit_reply};
const struct mc_nfs_proc mc_nfs_create = {"CREATE", true, create_send, create_reply};
const struct mc_nfs_proc mc_nfs_mkdir_proc = {"MKDIR", false, mkdir_send, mkdir_reply};
const struct mc_nfs_proc mc_nfs_remove = {"REMOVE", false, remove_send, keep_nothing};
const struct mc_nfs_proc mc_nfs_rmdir = {"RMDIR", false, rmdir_send, keep_nothing};
const struct mc_nfs_proc mc_nfs_rename = {"RENAME", false, rename_send, keep_nothing};
const struct mc_nfs_proc mc_nfs_link = {"LINK", false, link_send, keep_nothing};
const struct mc_nfs_proc mc_nfs_settime = {"SETATTR", true, settime_send, keep_nothing};
const struct mc_nfs_proc mc_nfs_fsstat = {"FSSTAT", true, fsstat_send, fsstat_reply};
const struct mc_nfs_proc mc_nfs_fsinfo = {"FSINFO", true, fsinfo_send, fsinfo_reply};
const struct mc_nfs_proc mc_nfs_readdirplus = {
	"READDIRPLUS", true, readdirplus_send, readdirplus_reply};
