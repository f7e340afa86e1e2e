/*
 * The settings of a mount and their reload.
 *
 * Invariant: a text of now is the command line's, or that of texts.
 */
#include "tools/mount-settings.h"

#include "fs/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int mc_mount_settings_init(
	struct mc_mount_settings *s, const struct mc_options *o, struct mc_err *err)
{
	const char *path = mc_options_text(o, MC_OPT_CONFIG);
	int r;

	mc_mutex_init(&s->lock);
	s->now = *o;
	memset(s->texts, 0, sizeof(s->texts));
	s->config[0] = '\0';
	if (path != NULL && realpath(path, s->config) == NULL) {
		r = -errno;
		return mc_err_set(err, r, "%s: %s", path, strerror(-r));
	}
	return 0;
}

void mc_mount_settings_done(struct mc_mount_settings *s)
{
	for (int i = 0; i < MC_OPT_N; i++)
		free(s->texts[i]);
	mc_mutex_done(&s->lock);
}

const char *mc_mount_settings_show(
	struct mc_mount_settings *s, enum mc_option_id id, char out[MC_OPTION_TEXT_MAX])
{
	const char *origin;

	mc_mutex_lock(&s->lock);
	origin = mc_options_show(&s->now, id, out);
	mc_mutex_unlock(&s->lock);
	return origin;
}

void mc_mount_settings_log(struct mc_mount_settings *s, bool to_syslog)
{
	struct mc_log_opts opts = {.to_syslog = to_syslog};

	mc_mutex_lock(&s->lock);
	opts.level = (enum mc_log_level)mc_options_number(&s->now, MC_OPT_LOG_LEVEL);
	opts.json = mc_options_number(&s->now, MC_OPT_LOG_FORMAT) == MC_LOG_FORMAT_JSON;
	mc_mutex_unlock(&s->lock);
	mc_log_open(&opts);
}

/* A default that is computed follows what it is computed from, which is told itself. */
static bool same(struct mc_mount_settings *s, const struct mc_options *next, enum mc_option_id id)
{
	char before[MC_OPTION_TEXT_MAX], after[MC_OPTION_TEXT_MAX];

	mc_mount_settings_show(s, id, before);
	mc_options_show(next, id, after);
	return strcmp(before, after) == 0 ||
		(!mc_options_given(&s->now, id) && !mc_options_given(next, id));
}

static void take_over(struct mc_mount_settings *s, struct mc_options *next, enum mc_option_id id)
{
	char *old = s->texts[id];

	mc_mutex_lock(&s->lock);
	s->now.values[id] = next->values[id];
	mc_mutex_unlock(&s->lock);
	s->texts[id] = next->values[id].text;
	next->values[id].text = NULL;
	free(old);
}

/* Applies an option's new value if it differs. */
static bool change(struct mc_mount_settings *s, struct mc_options *next, enum mc_option_id id,
	mc_mount_apply_fn *apply, void *ctx)
{
	char before[MC_OPTION_TEXT_MAX], after[MC_OPTION_TEXT_MAX];
	const char *name = mc_option_table[id].name;
	struct mc_err err = {0};
	int r = apply(ctx, id, next, &err);

	mc_mount_settings_show(s, id, before);
	mc_options_show(next, id, after);
	if (r < 0) {
		mc_log(MC_LOG_WARNING, "setting-kept",
			"name=%s value=\"%s\" file=\"%s\" text=\"%s\"", name, before, after,
			r == -EOPNOTSUPP ? "takes a new mount" : err.text);
		return false;
	}
	take_over(s, next, id);
	mc_log(MC_LOG_INFO, "setting-changed", "name=%s value=\"%s\" before=\"%s\"", name, after,
		before);
	return true;
}

void mc_mount_settings_reload(
	struct mc_mount_settings *s, bool to_syslog, mc_mount_apply_fn *apply, void *ctx)
{
	unsigned changed = 0, kept = 0;
	struct mc_err err = {0};
	struct mc_options next;

	if (s->config[0] == '\0') {
		mc_log(MC_LOG_WARNING, "reload", "error=\"the mount has no configuration file\"");
		return;
	}
	if (mc_options_reread(&s->now, s->config, &next, &err) < 0) {
		mc_log(MC_LOG_ERROR, "reload", "error=\"%s\"", err.text);
		mc_options_done(&next);
		return;
	}
	for (int i = 0; i < MC_OPT_N; i++) {
		enum mc_option_id id = (enum mc_option_id)i;

		if (!mc_option_table[i].in_config ||
			(mc_option_table[i].commands & MC_IN_MOUNT) == 0 || same(s, &next, id))
			continue;
		if (change(s, &next, id, apply, ctx))
			changed++;
		else
			kept++;
	}
	mc_options_done(&next);
	mc_mount_settings_log(s, to_syslog);
	mc_log(MC_LOG_INFO, "reload", "file=\"%s\" changed=%u kept=%u", s->config, changed, kept);
}
