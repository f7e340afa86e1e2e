/* mooncakefs mount: opens the remote, the tiers and the catalogue, and serves the tree. */
#include "tools/command.h"

#include "fs/log.h"
#include "fs/takeover.h"
#include "manifest/catalogue.h"
#include "tier/cleanup.h"
#include "tier/scrub.h"
#include "tier/store.h"
#include "tools/serving.h"
#include "tools/json-line.h"
#include "tools/machine-memory.h"
#include "tools/mount-dram.h"
#include "tools/mount-scrub.h"
#include "fs/mount-table.h"
#include "tools/open-remote.h"
#include "tools/size.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

static int parse_nvme(struct mc_serving *m, const char *text, struct mc_err *err)
{
	char cwd[PATH_MAX] = "";
	size_t len;
	int n;

	if (mc_place_parse(text, &len, &m->nvme_bytes) < 0 ||
		(text[0] != '/' && getcwd(cwd, sizeof(cwd)) == NULL))
		return mc_err_set(err, -EINVAL, "--nvme: give an absolute path");
	n = snprintf(m->nvme_dir, sizeof(m->nvme_dir), "%s%s%.*s", cwd, cwd[0] != '\0' ? "/" : "",
		(int)len, text);
	return n < (int)sizeof(m->nvme_dir)
		? 0
		: mc_err_set(err, -ENAMETOOLONG, "--nvme: the path is too long");
}

static int choose_dram_dir(struct mc_serving *m, struct mc_err *err)
{
	const char *was =
		m->keeper.device >= 0 ? mc_takeover_head(m->keeper.takeover)->dram_dir : "";

	mc_run_dir(geteuid(), m->run_dir, sizeof(m->run_dir));
	return mc_mount_dram_dir(m->run_dir, mc_options_text(m->o, MC_OPT_REMOTE), m->mountpoint,
		was, m->dram_dir, err);
}

static void choose_dram_size(struct mc_serving *m)
{
	m->dram_bytes = mc_options_number(m->o, MC_OPT_DRAM);
	m->dram_bytes &= ~((UINT64_C(1) << MC_PAIR_SHIFT) - 1);
}

/* Told before anything goes to the background. */
static void warn_of_memory(const struct mc_serving *m)
{
	uint64_t memory = mc_machine_memory("");

	if (m->dram_bytes > memory)
		mc_log(MC_LOG_WARNING, "dram-larger-than-memory",
			"dram_bytes=%llu memory_bytes=%llu text=\"a tier that fills up will end "
			"processes: give --dram less\"",
			(unsigned long long)m->dram_bytes, (unsigned long long)memory);
}

static int share(struct mc_serving *m, struct mc_err *err)
{
	struct mc_mount_tiers t = {.dram_dir = m->dram_dir,
		.nvme_dir = m->nvme_dir,
		.dram_bytes = m->dram_bytes,
		.nvme_bytes = m->nvme_bytes};
	int r = mc_mount_kv_share(&m->kv, m->o, &t, err);

	m->dram_bytes = t.dram_bytes;
	m->nvme_bytes = t.nvme_bytes;
	return r;
}

/* Nobody answers there while one program follows another. */
static int find_mountpoint(struct mc_serving *m, struct mc_err *err)
{
	int r;

	if (m->keeper.device >= 0) {
		snprintf(m->mountpoint, sizeof(m->mountpoint), "%s",
			mc_takeover_head(m->keeper.takeover)->mountpoint);
		return 0;
	}
	r = mc_fs_check_mountpoint(m->o->args[0], err);
	if (r < 0)
		return r;
	r = mc_mount_resolve(m->o->args[0], m->mountpoint);
	return r < 0 ? mc_err_set(err, r, "%s: %s", m->o->args[0], strerror(-r)) : 0;
}

static int prepare(struct mc_serving *m, struct mc_err *err)
{
	const char *nvme = mc_options_text(m->o, MC_OPT_NVME);
	int r = nvme == NULL ? 0 : parse_nvme(m, nvme, err);

	if (r == 0)
		r = find_mountpoint(m, err);
	if (r == 0)
		r = choose_dram_dir(m, err);
	choose_dram_size(m);
	if (r == 0)
		warn_of_memory(m);
	return r == 0 ? share(m, err) : r;
}

static void on_event(void *ctx, const char *event, const char *text)
{
	(void)ctx;
	mc_log(MC_LOG_WARNING, event, "text=\"%s\"", text);
}

static int open_store(struct mc_serving *m, struct mc_err *err)
{
	uint64_t connections = mc_options_number(m->o, MC_OPT_CONNECTIONS) * mc_count_remotes(m->o);
	const struct mc_store_opts opts = {.remote = m->remote,
		.dram_dir = m->dram_dir,
		.dram_capacity = m->dram_bytes,
		.nvme_dir = m->nvme_dir[0] == '\0' ? NULL : m->nvme_dir,
		.nvme_capacity = m->nvme_bytes,
		.blocks = m->kv.blocks,
		.memory_budget = mc_options_number(m->o, MC_OPT_MEMORY),
		.fetch_depth = (unsigned)(connections * mc_options_number(m->o, MC_OPT_DEPTH)),
		.deadline_ms = (unsigned)mc_options_number(m->o, MC_OPT_DEADLINE) * 1000,
		.event = on_event};
	int r = mc_store_open(&opts, &m->store, err);

	return r < 0 ? mc_err_prefix(err, r, "cache") : 0;
}

/* Indexes of manifests lie beside the NVMe tier; without one the JSON is parsed at each mount. */
static int open_catalogue(struct mc_serving *m, struct mc_err *err)
{
	char dir[PATH_MAX + 16];

	snprintf(dir, sizeof(dir), "%s/manifests", m->nvme_dir);
	return mc_catalogue_open(
		m->remote, m->nvme_dir[0] == '\0' ? NULL : dir, &m->catalogue, err);
}

static void on_news(void *ctx, enum mc_fs_news news)
{
	struct mc_serving *m = ctx;

	switch (news) {
	case MC_FS_READY:
		mc_daemon_ready(&m->daemon);
		mc_keeper_ready(&m->keeper);
		mc_service_notify("READY=1\nSTATUS=Serving %.400s", m->mountpoint);
		break;
	case MC_FS_TICK:
		mc_watchdog_tick(&m->watchdog);
		mc_keeper_beat(&m->keeper);
		break;
	case MC_FS_RELOAD:
		mc_mount_reload(m);
		break;
	case MC_FS_STOPPING:
		mc_service_notify("STOPPING=1\nSTATUS=Moving data to a lasting tier");
		mc_keeper_stopping(&m->keeper);
		m->stopping = true;
		break;
	case MC_FS_DRAINED:
		mc_keeper_drained(&m->keeper);
		_exit(MC_EXIT_OK);
	}
}

/* The i-th option with its value in effect: what the mount decided itself is put in. */
static bool setting(void *ctx, unsigned i, struct mc_fs_setting *ret)
{
	struct mc_serving *m = ctx;
	struct mc_store_stats st;
	unsigned id = 0;
	size_t len;

	for (; id < MC_OPT_N; id++) {
		const struct mc_option *o = &mc_option_table[id];

		if ((o->commands & MC_IN_MOUNT) != 0 && o->in_config && i-- == 0)
			break;
	}
	if (id == MC_OPT_N)
		return false;
	ret->name = mc_option_table[id].name;
	ret->origin = mc_mount_settings_show(&m->settings, (enum mc_option_id)id, ret->value);
	if (id == MC_OPT_KV_DRAM)
		mc_size_exact(m->kv.dram_bytes, ret->value);
	if (id == MC_OPT_NVME && m->nvme_dir[0] != '\0') {
		len = (size_t)snprintf(ret->value, sizeof(ret->value), "%s,", m->nvme_dir);
		mc_store_stats(m->store, &st);
		mc_size_exact(st.nvme.capacity + m->kv.nvme_bytes, ret->value + len);
	}
	return true;
}

static void on_mounted(void *ctx, int device)
{
	const struct mc_serving *m = ctx;

	mc_keeper_mounted(&m->keeper, device);
}

static int serve(struct mc_serving *m, struct mc_err *err)
{
	m->fs_opts = (struct mc_fs_opts){.mountpoint = m->mountpoint,
		.store = m->store,
		.catalogue = m->catalogue,
		.remote = m->remote,
		.kv = m->kv.kv,
		.scrub = m->scrub,
		.fuse_options = mc_options_flag(m->o, MC_OPT_ALLOW_OTHER) && geteuid() != 0
			? "allow_other"
			: NULL,
		.hide_xattrs = mc_options_flag(m->o, MC_OPT_HIDE_XATTRS),
		.no_passthrough = mc_options_flag(m->o, MC_OPT_NO_PASSTHROUGH),
		.request_deadline_ms = (unsigned)mc_options_number(m->o, MC_OPT_DEADLINE) * 2000,
		.stop_deadline_ms = m->stop_s * 1000 / 3,
		.metrics = mc_options_text(m->o, MC_OPT_METRICS),
		.control_dir = m->run_dir,
		.stop_fd = -1,
		.takeover = m->keeper.takeover,
		.takeover_why = m->keeper.why_not,
		.device = m->keeper.device,
		.version = MC_VERSION,
		.mounted = on_mounted,
		.news = on_news,
		.setting = setting,
		.ctx = m};

	return mc_fs_run(&m->fs_opts, err);
}

/* The end of a stop that the remote or a disk holds up. */
static void on_alarm(int sig)
{
	(void)sig;
	_exit(MC_EXIT_FAILED);
}

static void close_all(struct mc_serving *m)
{
	unsigned stop_s = m->stop_s;
	int64_t kept;

	signal(SIGALRM, on_alarm);
	alarm(stop_s - stop_s / 3);
	mc_scrub_close(m->scrub);
	kept = mc_mount_kv_close(&m->kv, stop_s * 1000 / 3);
	if (kept > 0)
		mc_log(MC_LOG_WARNING, "kv-kept-in-memory",
			"objects=%lld text=\"no tier below took them; the next mount here does\"",
			(long long)kept);
	mc_catalogue_close(m->catalogue);
	if (m->store != NULL)
		mc_store_close(m->store, false);
	mc_block_cache_close(m->kv.blocks);
	rmdir(m->dram_dir); /* stays when something is left in it */
	mc_remote_close(m->remote);
	alarm(0);
}

/* Every resident file is an open descriptor. */
static void raise_file_limit(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) < 0 || l.rlim_cur == l.rlim_max)
		return;
	l.rlim_cur = l.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &l) < 0)
		mc_log(MC_LOG_WARNING, "limit", "files=%llu error=\"%s\"",
			(unsigned long long)l.rlim_max, strerror(errno));
}

static void close_unopened(struct mc_serving *m)
{
	mc_mount_kv_close(&m->kv, 0);
	mc_block_cache_close(m->kv.blocks);
}

static int run(struct mc_serving *m)
{
	struct mc_err err = {0};
	int r, code = mc_open_remote_telling(m->o, on_event, &m->remote);

	if (code != 0) {
		close_unopened(m);
		return m->keeper.device >= 0 ? MC_WORKER_AWAY : code;
	}
	raise_file_limit();
	r = open_store(m, &err);
	if (r == 0 && m->keeper.device >= 0)
		r = mc_takeover_puts(m->keeper.takeover, &m->kv.puts, &m->kv.n_puts);
	if (r == 0)
		r = mc_mount_kv_open(&m->kv, m->o, m->remote, on_event, &err);
	if (r == 0)
		r = mc_mount_scrub_open(m->o, m->store, m->kv.kv, m->nvme_dir, &m->scrub, &err);
	if (r == 0)
		r = open_catalogue(m, &err);
	if (r == 0)
		r = serve(m, &err);
	if (r == -ETIMEDOUT) {
		mc_log(MC_LOG_ERROR, "stop", "error=\"the backend did not answer in time\"");
		_exit(MC_EXIT_FAILED);
	}
	/* What a killed one would leave is best for the next one, too. */
	if (r < 0 && m->keeper.device >= 0 && !m->stopping) {
		mc_log(MC_LOG_ERROR, "takeover", "error=\"%s\"", err.text);
		_exit(MC_EXIT_FAILED);
	}
	close_all(m);
	if (r < 0) {
		mc_log(MC_LOG_ERROR, "mount", "error=\"%s\"", err.text);
		return mc_fail(&err, r);
	}
	return MC_EXIT_OK;
}

static void tell_mounted(const struct mc_serving *m)
{
	struct mc_json_line j;

	mc_json_line_begin(&j, stdout);
	mc_json_line_text(&j, "event", "mounted");
	mc_json_line_text(&j, "mountpoint", m->mountpoint);
	mc_json_line_end(&j);
}

/* In the process that serves, -1; an exit code in those before it. */
static int keep(struct mc_serving *m)
{
	struct mc_takeover_head *head;
	int code;

	m->keeper.mountpoint = m->mountpoint;
	m->keeper.daemon = &m->daemon;
	m->keeper.background = !m->foreground;
	if (strncmp(m->mountpoint, "/dev/fd/", 8) == 0) {
		mc_keeper_close(&m->keeper);
		mc_keeper_none(&m->keeper, "another program has mounted it");
	}
	if (m->keeper.takeover != NULL) {
		head = mc_takeover_head(m->keeper.takeover);
		snprintf(head->mountpoint, sizeof(head->mountpoint), "%s", m->mountpoint);
		snprintf(head->dram_dir, sizeof(head->dram_dir), "%s", m->dram_dir);
	}
	if (!m->foreground && m->keeper.device < 0) {
		code = mc_daemon_fork(&m->daemon);
		if (code == MC_EXIT_OK && mc_options_flag(m->o, MC_OPT_JSON))
			tell_mounted(m);
		if (code >= 0)
			return code;
	}
	mc_mount_settings_log(&m->settings, !m->foreground);
	code = mc_keeper_run(&m->keeper);
	if (code < 0 && m->keeper.line < 0)
		mc_watchdog_open(&m->watchdog); /* else the keeper tells the manager */
	return code;
}

int mc_cmd_mount(const struct mc_options *o)
{
	struct mc_serving m = {.o = o,
		.daemon = {.pipe = -1},
		.foreground = mc_options_flag(o, MC_OPT_FOREGROUND),
		.stop_s = (unsigned)mc_options_number(o, MC_OPT_STOP_TIMEOUT)};
	struct mc_err err = {0};
	int r;

	if (mc_options_text(o, MC_OPT_REMOTE) == NULL)
		return mc_open_remote(o, &m.remote);
	r = mc_keeper_open(&m.keeper);
	if (r < 0)
		mc_err_set(&err, r, "taking the mount over: %s", strerror(-r));
	if (r == 0)
		r = mc_mount_settings_init(&m.settings, o, &err);
	if (r == 0)
		r = prepare(&m, &err);
	if (r == -EINVAL)
		return mc_fail_usage(o, "%s", err.text);
	if (r < 0)
		return mc_fail(&err, r);
	r = m.keeper.is_try ? MC_EXIT_OK : keep(&m);
	if (r < 0)
		r = run(&m);
	else
		close_unopened(&m);
	mc_mount_settings_done(&m.settings);
	mc_keeper_close(&m.keeper);
	return r;
}
