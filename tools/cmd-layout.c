/* mooncakefs layout: checks, shows, registers and removes layouts. */
#include "tools/command.h"

#include "manifest/dtype.h"
#include "manifest/views.h"
#include "tier/cleanup.h"
#include "tools/json-line.h"
#include "tools/model-table.h"
#include "tools/open-document.h"
#include "tools/open-remote.h"
#include "tools/size.h"

#include <string.h>

#define RULE_TEXT 1200 /* bytes; a rule's place and pattern */

/* What happened to a layout or profile, for programs. */
static void tell(const char *event, const char *kind, const char *name)
{
	struct mc_json_line j;

	mc_json_line_begin(&j, stdout);
	mc_json_line_text(&j, "event", event);
	mc_json_line_text(&j, "kind", kind);
	mc_json_line_text(&j, "name", name);
	mc_json_line_end(&j);
}

static int list_one(void *ctx, const char *name)
{
	const bool *json = ctx;

	if (*json)
		tell("registered", "layout", name);
	else
		printf("%s\n", name);
	return ferror(stdout) ? -EIO : 0;
}

static int list(const struct mc_options *o)
{
	struct mc_err err = {0};
	bool json = mc_options_flag(o, MC_OPT_JSON);
	struct mc_remote *remote;
	int r = mc_open_remote(o, &remote);

	if (r != 0)
		return r;
	r = mc_layouts_list(remote, list_one, &json, &err);
	mc_remote_close(remote);
	return r < 0 ? mc_fail(&err, r) : MC_EXIT_OK;
}

/* A profile has the name of its file. */
static int add_profile(struct mc_remote *remote, const char *path, const void *text, size_t len,
	char name[MC_NAME_MAX + 1], struct mc_err *err)
{
	const char *base = strrchr(path, '/');
	size_t n;

	base = base != NULL ? base + 1 : path;
	n = strlen(base);
	if (n > 5 && strcmp(base + n - 5, ".json") == 0)
		n -= 5;
	snprintf(name, MC_NAME_MAX + 1, "%.*s", (int)n, base);
	return mc_profiles_put(remote, name, text, len, err);
}

static int add(const struct mc_options *o, const char *path)
{
	cleanup_free char *text = NULL;
	char name[MC_NAME_MAX + 1];
	struct mc_err err = {0};
	struct mc_remote *remote;
	size_t len;
	bool profile;
	int r = mc_read_file(path, MC_PROFILE_MAX_BYTES, &text, &len, &err);

	if (r < 0)
		return mc_fail(&err, r);
	r = mc_open_remote(o, &remote);
	if (r != 0)
		return r;
	profile = memmem(text, len, "\"engine-profile\"", 16) != NULL;
	r = profile ? add_profile(remote, path, text, len, name, &err)
		    : mc_layouts_put(remote, NULL, text, len, name, &err);
	mc_remote_close(remote);
	if (r < 0)
		return mc_fail(&err, r);
	if (mc_options_flag(o, MC_OPT_JSON))
		tell("registered", profile ? "profile" : "layout", name);
	else if (profile)
		printf("%s: a profile, for layouts that name it in emit.profile\n", name);
	else
		printf("%s: views/ORG/MODEL/%s\n", name, name);
	return MC_EXIT_OK;
}

/* By its name, or that of its file in layouts/. */
static int drop(const struct mc_options *o, const char *what)
{
	size_t n = strlen(what);
	char name[MC_NAME_MAX + 1];
	struct mc_err err = {0};
	struct mc_remote *remote;
	int r = mc_open_remote(o, &remote);

	if (r != 0)
		return r;
	if (n > 5 && strcmp(what + n - 5, ".json") == 0)
		n -= 5;
	snprintf(name, sizeof(name), "%.*s", (int)n, what);
	r = mc_layouts_remove(remote, name, &err);
	mc_remote_close(remote);
	if (r == -ENOENT) {
		err.text[0] = '\0';
		mc_err_set(&err, r, "no layout \"%s\" is registered", name);
	}
	if (r == 0 && mc_options_flag(o, MC_OPT_JSON))
		tell("removed", "layout", name);
	return r < 0 ? mc_fail(&err, r) : MC_EXIT_OK;
}

/* Bytes of a rank's tensors. */
static int rank_bytes(const struct mc_sharding *s, uint32_t rank, uint64_t *ret_bytes,
	uint32_t *ret_tensors, struct mc_err *err)
{
	struct mc_rank_tensors t;
	int r = mc_sharding_rank(s, rank, &t, err);

	if (r < 0)
		return r;
	*ret_bytes = 0;
	*ret_tensors = t.n;
	for (uint32_t i = 0; i < t.n; i++) {
		uint64_t bytes;

		if (mc_dtype_bytes(t.local[i].dtype, t.local[i].shape, t.local[i].rank, &bytes) ==
			0)
			*ret_bytes += bytes;
	}
	mc_rank_tensors_done(&t);
	return 0;
}

static int show_ranks(const struct mc_layout *l, const struct mc_sharding *s, bool json)
{
	struct mc_err err = {0};
	struct mc_json_line j;

	for (uint32_t k = 0; k < mc_layout_world(l); k++) {
		char size[MC_SIZE_TEXT];
		uint64_t bytes;
		uint32_t n;
		int r = rank_bytes(s, k, &bytes, &n, &err);

		if (r < 0)
			return mc_fail(&err, r);
		if (json) {
			mc_json_line_begin(&j, stdout);
			mc_json_line_text(&j, "event", "rank");
			mc_json_line_number(&j, "rank", k);
			mc_json_line_number(&j, "tensors", n);
			mc_json_line_number(&j, "bytes", bytes);
			mc_json_line_end(&j);
			continue;
		}
		mc_size_format(bytes, size);
		printf("rank %u: %u tensors, %s\n", k, n, size);
	}
	return MC_EXIT_OK;
}

static void show_rules(const struct mc_model_table *t, const struct mc_sharding *s, bool json)
{
	char rule[RULE_TEXT];
	struct mc_json_line j;

	for (uint32_t i = 0; i < t->n; i++) {
		mc_sharding_explain(s, i, rule, sizeof(rule));
		if (!json) {
			printf("%s: %s\n", t->name[i], rule);
			continue;
		}
		mc_json_line_begin(&j, stdout);
		mc_json_line_text(&j, "event", "tensor");
		mc_json_line_text(&j, "name", t->name[i]);
		mc_json_line_text(&j, "rule", rule);
		mc_json_line_end(&j);
	}
}

/* Every rank against the profile that is given, or that the layout names. */
static int check_profile(const struct mc_options *o, const struct mc_layout *l,
	const struct mc_sharding *s, const json_t *config)
{
	const char *given = mc_options_text(o, MC_OPT_PROFILE),
		   *text = given != NULL ? given : mc_layout_profile(l);
	struct mc_profile *p;
	struct mc_err err = {0};
	int r = 0;

	if (text[0] == '\0')
		return 0;
	r = mc_open_profile(o, text, config, mc_layout_world(l), &p);
	if (r != 0)
		return r;
	for (uint32_t k = 0; k < mc_layout_world(l) && r == 0; k++) {
		struct mc_rank_tensors t;

		r = mc_sharding_rank(s, k, &t, &err);
		if (r < 0)
			break;
		r = mc_profile_check(p, &t, k, &err);
		mc_rank_tensors_done(&t);
	}
	if (r == 0 && !mc_options_flag(o, MC_OPT_JSON))
		printf("profile %s: every rank holds its %zu tensors\n", text, mc_profile_count(p));
	mc_profile_free(p);
	return r < 0 ? mc_fail(&err, r) : 0;
}

static int against_model(const struct mc_options *o, const char *what, bool rules)
{
	struct mc_layout *l = NULL;
	struct mc_sharding *s = NULL;
	struct mc_model_table t;
	struct mc_err err = {0};
	int r = mc_model_table_open(o, mc_options_text(o, MC_OPT_MODEL), &t);

	if (r != 0)
		return r;
	r = mc_open_layout(o, what, t.config, &l);
	if (r == 0) {
		struct mc_layout_in in = {
			.layout = l, .config = t.config, .tensors = t.tensor, .n_tensors = t.n};

		r = mc_layout_compile(&in, &s, &err);
		r = r < 0 ? mc_fail(&err, r) : 0;
	}
	if (r == 0)
		r = check_profile(o, l, s, t.config);
	if (r == 0 && rules)
		show_rules(&t, s, mc_options_flag(o, MC_OPT_JSON));
	if (r == 0)
		r = show_ranks(l, s, mc_options_flag(o, MC_OPT_JSON));
	mc_sharding_free(s);
	mc_layout_free(l);
	mc_model_table_done(&t);
	return r;
}

int mc_cmd_layout(const struct mc_options *o)
{
	const char *verb = o->args[0], *what = o->n_args > 1 ? o->args[1] : NULL;
	bool model = mc_options_text(o, MC_OPT_MODEL) != NULL;
	struct mc_layout *l;
	int r;

	if (strcmp(verb, "ls") == 0 && what == NULL)
		return list(o);
	if (what == NULL)
		return mc_fail_usage(o, "which layout?");
	if (strcmp(verb, "add") == 0)
		return add(o, what);
	if (strcmp(verb, "rm") == 0)
		return drop(o, what);
	if (strcmp(verb, "show") == 0 && model)
		return against_model(o, what, true);
	if (strcmp(verb, "check") == 0 && model)
		return against_model(o, what, false);
	if (strcmp(verb, "show") != 0 && strcmp(verb, "check") != 0)
		return mc_fail_usage(o, "\"%s\" is none of add, check, ls, rm, show", verb);
	if (mc_options_text(o, MC_OPT_PROFILE) != NULL)
		return mc_fail_usage(o, "--profile needs --model");
	r = mc_open_layout(o, what, NULL, &l);
	if (r != 0)
		return r;
	if (mc_options_flag(o, MC_OPT_JSON))
		tell("good", "layout", mc_layout_name(l));
	else
		printf("%s: good, %u ranks\n", mc_layout_name(l), mc_layout_world(l));
	mc_layout_free(l);
	return MC_EXIT_OK;
}
