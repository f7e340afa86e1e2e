/*
 * The settings of a mount and their reload.
 *
 * Invariant: of now only numbers change after init, under lock; texts stay those of the command
 * line's options.
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
	s->config[0] = '\0';
	if (path != NULL && realpath(path, s->config) == NULL) {
		r = -errno;
		return mc_err_set(err, r, "%s: %s", path, strerror(-r));
	}
	return 0;
}

void mc_mount_settings_done(struct mc_mount_settings *s)
{
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

static bool can_change(enum mc_option_id id)
{
	return id == MC_OPT_LOG_LEVEL || id == MC_OPT_LOG_FORMAT;
}

/* Takes over an option's new value if it differs and can change; counts what it did. */
static void compare(struct mc_mount_settings *s, const struct mc_options *next,
	enum mc_option_id id, unsigned *changed, unsigned *kept)
{
	char before[MC_OPTION_TEXT_MAX], after[MC_OPTION_TEXT_MAX];
	const char *name = mc_option_table[id].name;

	mc_mount_settings_show(s, id, before);
	mc_options_show(next, id, after);
	if (strcmp(before, after) == 0)
		return;
	if (!can_change(id)) {
		mc_log(MC_LOG_WARNING, "setting-kept",
			"name=%s value=\"%s\" file=\"%s\" text=\"takes a new mount\"", name, before,
			after);
		++*kept;
		return;
	}
	mc_mutex_lock(&s->lock);
	s->now.values[id] = next->values[id];
	mc_mutex_unlock(&s->lock);
	mc_log(MC_LOG_INFO, "setting-changed", "name=%s value=\"%s\" before=\"%s\"", name, after,
		before);
	++*changed;
}

void mc_mount_settings_reload(struct mc_mount_settings *s, bool to_syslog)
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
	} else {
		for (int i = 0; i < MC_OPT_N; i++)
			if (mc_option_table[i].in_config &&
				(mc_option_table[i].commands & MC_IN_MOUNT) != 0)
				compare(s, &next, (enum mc_option_id)i, &changed, &kept);
		mc_mount_settings_log(s, to_syslog);
		mc_log(MC_LOG_INFO, "reload", "file=\"%s\" changed=%u kept=%u", s->config, changed,
			kept);
	}
	mc_options_done(&next);
}
