/* What of a mount changes when its configuration is read again (SIGHUP). */
#include "tools/serving.h"

#include "fs/log.h"
#include "fs/takeover.h"
#include "tier/scrub.h"
#include "tier/store.h"
#include "tools/mount-settings.h"
#include "tools/size.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define TIER_MIN (UINT64_C(64) << 20)

/* Another size for the part of a tier that checkpoints have; that of KV objects is fixed. */
static int resize(
	struct mc_serving *m, enum mc_tier tier, uint64_t total, uint64_t kv, struct mc_err *err)
{
	uint64_t bytes = total < kv ? 0 : (total - kv) >> MC_PAIR_SHIFT << MC_PAIR_SHIFT;
	int r;

	if (bytes < TIER_MIN)
		return mc_err_set(err, -EINVAL,
			"KV objects keep %llu bytes of it, and 64 MiB have to be left",
			(unsigned long long)kv);
	r = mc_store_resize(m->store, tier, bytes);
	if (r == -EAGAIN)
		mc_log(MC_LOG_INFO, "resize", "tier=%s text=\"goes on as room is needed\"",
			mc_tier_name(tier));
	return r == -EAGAIN ? 0 : r;
}

static int apply_nvme(struct mc_serving *m, const struct mc_options *next, struct mc_err *err)
{
	const char *text = mc_options_text(next, MC_OPT_NVME);
	uint64_t bytes;
	size_t len;

	if (text == NULL || mc_place_parse(text, &len, &bytes) < 0 || bytes == 0 ||
		strlen(m->nvme_dir) != len || memcmp(m->nvme_dir, text, len) != 0)
		return -EOPNOTSUPP;
	return resize(m, MC_TIER_NVME, bytes, m->kv.nvme_bytes, err);
}

/* Remotes behind those there are: another worker begins with them, and takes everything over. */
static int add_remotes(struct mc_serving *m, const struct mc_options *next, struct mc_err *err)
{
	const char *now = mc_options_text(&m->settings.now, MC_OPT_REMOTE);
	const char *text = mc_options_text(next, MC_OPT_REMOTE);
	size_t len = strlen(now);

	if (text == NULL || strncmp(text, now, len) != 0 || text[len] != '\n' ||
		m->keeper.takeover == NULL || !mc_takeover_on(m->keeper.takeover))
		return -EOPNOTSUPP;
	if (kill(getppid(), SIGUSR2) < 0)
		return -EOPNOTSUPP;
	return mc_err_set(err, -EINPROGRESS, "a worker that has them takes over");
}

static int apply(void *ctx, enum mc_option_id id, const struct mc_options *next, struct mc_err *err)
{
	struct mc_serving *m = ctx;

	switch (id) {
	case MC_OPT_LOG_LEVEL:
	case MC_OPT_LOG_FORMAT:
		return 0; /* mc_mount_settings_log follows */
	case MC_OPT_STOP_TIMEOUT:
		m->stop_s = (unsigned)mc_options_number(next, MC_OPT_STOP_TIMEOUT);
		m->fs_opts.stop_deadline_ms = m->stop_s * 1000 / 3;
		return 0;
	case MC_OPT_SCRUB:
		if (m->scrub != NULL)
			mc_scrub_set_rate(m->scrub, mc_options_number(next, MC_OPT_SCRUB));
		return 0;
	case MC_OPT_DRAM:
		return resize(m, MC_TIER_DRAM, mc_options_number(next, MC_OPT_DRAM),
			m->kv.dram_bytes, err);
	case MC_OPT_NVME:
		return apply_nvme(m, next, err);
	case MC_OPT_REMOTE:
		return add_remotes(m, next, err);
	default:
		return -EOPNOTSUPP;
	}
}

void mc_mount_reload(struct mc_serving *m)
{
	mc_service_notify(
		"RELOADING=1\nMONOTONIC_USEC=%llu", (unsigned long long)(mc_now_ns() / 1000));
	mc_mount_settings_reload(&m->settings, !m->foreground, apply, m);
	mc_service_notify("READY=1");
}
