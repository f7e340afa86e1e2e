/* mooncakefs ls: the checkpoints on a remote, or the files of one revision. */
#include "tools/command.h"

#include "tier/cleanup.h"
#include "tier/remote.h"
#include "tools/json-line.h"
#include "tools/load-revision.h"
#include "tools/near-revision.h"
#include "tools/open-remote.h"
#include "tools/size.h"

#include <errno.h>
#include <string.h>
#include <time.h>

/* A growing list of names; two-level listings first collect, then ask on. */
struct revs {
	struct mc_rev_name *v; /* owned */
	size_t n, cap;
	struct mc_rev_name at; /* what the names found belong to */
	enum { ORG, MODEL, REV } level;
};

static int collect(void *ctx, const char *name)
{
	struct revs *l = ctx;
	struct mc_rev_name *n;

	if (l->n == l->cap) {
		size_t cap = l->cap == 0 ? 16 : 2 * l->cap;

		n = reallocarray(l->v, cap, sizeof(*n));
		if (n == NULL)
			return -ENOMEM;
		l->v = n;
		l->cap = cap;
	}
	n = &l->v[l->n++];
	*n = l->at;
	snprintf(l->level == ORG            ? n->org
			: l->level == MODEL ? n->model
					    : n->rev,
		MC_NAME_MAX + 1, "%s", name);
	return 0;
}

static int by_name(const void *a, const void *b)
{
	const struct mc_rev_name *x = a, *y = b;
	int c = strcmp(x->org, y->org);

	if (c == 0)
		c = strcmp(x->model, y->model);
	return c != 0 ? c : strcmp(x->rev, y->rev);
}

/* Replaces each name of the list by the names one level below it. */
static int descend(struct mc_catalogue *c, struct revs *list, int level, struct mc_err *err)
{
	struct revs below = {.level = level};
	int r = 0;

	for (size_t i = 0; i < list->n && r == 0; i++) {
		below.at = list->v[i];
		if (level == MODEL)
			r = mc_catalogue_models(c, below.at.org, collect, &below, err);
		else
			r = mc_catalogue_revisions(c, &below.at, collect, &below, err);
		/* Removed meanwhile. */
		if (r == -ENOENT && list->n > 1)
			r = 0;
	}
	free(list->v);
	*list = below;
	return r;
}

/* text: NULL, ORG or ORG/MODEL. */
static int find(struct mc_catalogue *c, const char *text, struct revs *list, struct mc_err *err)
{
	int r = 0;

	if (text == NULL) {
		list->level = ORG;
		r = mc_catalogue_orgs(c, collect, list, err);
	} else if (strchr(text, '/') == NULL) {
		if (!mc_model_name_good(text))
			return mc_err_set(
				err, -EINVAL, "\"%s\" is no name of an organisation", text);
		list->level = ORG;
		r = collect(list, text);
	} else {
		struct mc_rev_name name;

		r = mc_rev_name_parse(text, &name, err);
		list->at = name;
		list->level = MODEL;
		if (r == 0)
			r = collect(list, name.model);
	}
	if (r == 0 && list->level == ORG)
		r = descend(c, list, MODEL, err);
	if (r == 0)
		r = descend(c, list, REV, err);
	if (r == 0 && list->n > 1)
		qsort(list->v, list->n, sizeof(*list->v), by_name);
	return r;
}

static void format_time(int64_t seconds, char *out, size_t size)
{
	time_t t = (time_t)seconds;
	struct tm tm;

	if (gmtime_r(&t, &tm) == NULL || strftime(out, size, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
		snprintf(out, size, "%lld", (long long)seconds);
}

struct facts {
	uint8_t id[MC_SHA256_SIZE];
	bool latest;
	int64_t published_s; /* -l: the mtime of manifest.json */
	uint64_t files, bytes, hole_bytes;
};

static void count_files(const struct mc_manifest *m, struct facts *f)
{
	for (uint32_t i = 0; i < mc_manifest_entries(m); i++) {
		struct mc_entry e;

		mc_manifest_entry(m, i, &e);
		if (e.type != MC_ENTRY_FILE)
			continue;
		f->files++;
		f->bytes += e.size;
		f->hole_bytes += e.hole_bytes;
	}
}

static int learn(struct mc_catalogue *c, struct mc_remote *r, const struct mc_rev_name *name,
	bool details, struct facts *ret, struct mc_err *err)
{
	struct mc_rev_name latest = *name;
	struct mc_err ignored = {0};
	struct mc_remote_attr attr;
	struct mc_loaded loaded;
	char path[3 * MC_NAME_MAX + 64];
	int res;

	*ret = (struct facts){0};
	ret->latest = mc_catalogue_latest(c, &latest, NULL, &ignored) == 0 &&
		strcmp(latest.rev, name->rev) == 0;
	if (!details)
		return 0;
	snprintf(path, sizeof(path), "checkpoints/%s/%s/%s/manifest.json", name->org, name->model,
		name->rev);
	res = mc_remote_stat(r, path, &attr, err);
	if (res == 0)
		res = mc_catalogue_load(c, name, &loaded, err);
	if (res < 0)
		return res;
	ret->published_s = attr.mtime_s;
	memcpy(ret->id, mc_manifest_id(loaded.m), sizeof(ret->id));
	count_files(loaded.m, ret);
	mc_manifest_unref(loaded.m);
	return 0;
}

static void print_revision(
	const struct mc_rev_name *name, const struct facts *f, bool details, bool json)
{
	char hex[MC_SHA256_HEX + 1], size[MC_SIZE_TEXT], when[40];
	struct mc_json_line j;

	mc_hex_encode(f->id, sizeof(f->id), hex);
	format_time(f->published_s, when, sizeof(when));
	if (json) {
		mc_json_line_begin(&j, stdout);
		mc_json_line_text(&j, "org", name->org);
		mc_json_line_text(&j, "model", name->model);
		mc_json_line_text(&j, "revision", name->rev);
		mc_json_line_flag(&j, "latest", f->latest);
		if (details) {
			mc_json_line_text(&j, "id", hex);
			mc_json_line_text(&j, "published", when);
			mc_json_line_number(&j, "files", f->files);
			mc_json_line_number(&j, "bytes", f->bytes);
			mc_json_line_number(&j, "hole_bytes", f->hole_bytes);
		}
		mc_json_line_end(&j);
		return;
	}
	if (details) {
		mc_size_format(f->bytes, size);
		printf("%10s %6llu files  %s  %.12s  ", size, (unsigned long long)f->files, when,
			hex);
	}
	printf("%s/%s@%s%s\n", name->org, name->model, name->rev, f->latest ? "  (latest)" : "");
}

static int list_revisions(const struct mc_options *o, struct mc_remote *remote, struct mc_err *err)
{
	bool json = mc_options_flag(o, MC_OPT_JSON),
	     details = json || mc_options_flag(o, MC_OPT_LONG);
	const char *text = o->n_args > 0 ? o->args[0] : NULL;
	struct mc_catalogue *c;
	struct revs list = {0};
	int r = mc_catalogue_open(remote, NULL, &c, err);

	if (r < 0)
		return r;
	r = find(c, text, &list, err);
	if (r == 0 && list.n == 0 && text != NULL)
		r = -ENOENT;
	if (r == -ENOENT && text != NULL && list.at.model[0] != '\0') {
		r = mc_revision_missing(c, remote, &list.at, err);
	} else if (r == -ENOENT && text != NULL) {
		err->text[0] = '\0';
		mc_err_set(err, r, "%s holds no checkpoint of %s; 'mooncakefs ls' lists them",
			mc_remote_url(remote), text);
	}
	for (size_t i = 0; i < list.n && r == 0; i++) {
		struct facts f;

		r = learn(c, remote, &list.v[i], details, &f, err);
		if (r == 0)
			print_revision(&list.v[i], &f, details, json);
		/* Removed meanwhile. */
		if (r == -ENOENT && list.n > 1) {
			err->text[0] = '\0';
			r = 0;
		}
	}
	free(list.v);
	mc_catalogue_close(c);
	return r;
}

static void print_entry(const struct mc_manifest *m, uint32_t entry, bool details, bool json)
{
	static const char *const types[] = {
		[MC_ENTRY_DIR] = "dir", [MC_ENTRY_FILE] = "file", [MC_ENTRY_SYMLINK] = "symlink"};
	char path[MC_PATH_MAX + 1], when[40], hex[MC_SHA256_HEX + 1] = "";
	struct mc_json_line j;
	struct mc_entry e;

	mc_manifest_entry(m, entry, &e);
	if (mc_manifest_path(m, entry, path, sizeof(path)) < 0)
		return;
	format_time(e.mtime_s, when, sizeof(when));
	if (e.digest != NULL)
		mc_hex_encode(e.digest, MC_SHA256_SIZE, hex);
	if (json) {
		mc_json_line_begin(&j, stdout);
		mc_json_line_text(&j, "path", path);
		mc_json_line_text(&j, "type", types[e.type]);
		mc_json_line_number(&j, "mode", e.mode);
		mc_json_line_text(&j, "mtime", when);
		mc_json_line_number(&j, "bytes", e.size);
		if (e.type == MC_ENTRY_SYMLINK)
			mc_json_line_text(&j, "target", e.target);
		if (e.type == MC_ENTRY_FILE) {
			mc_json_line_number(&j, "hole_bytes", e.hole_bytes);
			mc_json_line_text(&j, "digest", hex);
			mc_json_line_flag(&j, "external", e.external);
			mc_json_line_text(&j, "parse_error", e.parse_error);
		}
		mc_json_line_end(&j);
		return;
	}
	if (details)
		printf("%c%04o %15llu %s %12.12s ",
			e.type == MC_ENTRY_FILE ? '-' : types[e.type][0], e.mode,
			(unsigned long long)e.size, when, hex);
	printf("%s%s%s%s\n", path, e.type == MC_ENTRY_DIR ? "/" : "",
		e.type == MC_ENTRY_SYMLINK ? " -> " : "",
		e.type == MC_ENTRY_SYMLINK ? e.target : "");
}

static int list_files(const struct mc_options *o, struct mc_remote *remote)
{
	struct mc_rev_name name;
	struct mc_manifest *m;
	int r = mc_load_revision(o, remote, o->args[0], &name, &m);

	if (r != 0)
		return r;
	for (uint32_t i = 1; i < mc_manifest_entries(m); i++)
		print_entry(m, i, mc_options_flag(o, MC_OPT_LONG), mc_options_flag(o, MC_OPT_JSON));
	mc_manifest_unref(m);
	return MC_EXIT_OK;
}

int mc_cmd_ls(const struct mc_options *o)
{
	struct mc_remote *remote;
	struct mc_err err = {0};
	int r = mc_open_remote(o, &remote);

	if (r != 0)
		return r;
	if (o->n_args > 0 && strchr(o->args[0], '@') != NULL) {
		r = list_files(o, remote);
	} else {
		r = list_revisions(o, remote, &err);
		if (r < 0)
			r = mc_fail(&err, r);
	}
	mc_remote_close(remote);
	return r;
}
