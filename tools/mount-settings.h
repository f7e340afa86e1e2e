/* The options of a mount as they are in effect: shown by any thread, changed by a reload. */
#pragma once

#include "tier/lock.h"
#include "tools/options.h"

#include <limits.h>

struct mc_mount_settings {
	struct mc_mutex lock;
	struct mc_options now; /* guarded by lock */
	char *texts[MC_OPT_N]; /* owned: those of now that a reload changed */
	char config[PATH_MAX]; /* the configuration file, absolute; "" = none */
};

/* o is borrowed until done. -errno described in err: the configuration file is gone. */
int mc_mount_settings_init(
	struct mc_mount_settings *s, const struct mc_options *o, struct mc_err *err);
void mc_mount_settings_done(struct mc_mount_settings *s);

/* As mc_options_show. */
const char *mc_mount_settings_show(
	struct mc_mount_settings *s, enum mc_option_id id, char out[MC_OPTION_TEXT_MAX]);
/* Directs the log where the settings say. */
void mc_mount_settings_log(struct mc_mount_settings *s, bool to_syslog);

/* Gives one option the value that it has in next. 0; -EOPNOTSUPP: that takes a new mount; other
 * failures described in err: it stays as it was. */
typedef int mc_mount_apply_fn(
	void *ctx, enum mc_option_id id, const struct mc_options *next, struct mc_err *err);
/*
 * Reads the configuration file again and applies what differs; the log tells what changed, and what
 * stays. A file with a mistake changes nothing. Used by one thread.
 */
void mc_mount_settings_reload(
	struct mc_mount_settings *s, bool to_syslog, mc_mount_apply_fn *apply, void *ctx);
