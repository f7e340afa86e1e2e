/* mooncakefs evict: files leave a local tier; what stays is told with the reason. */
#include "tools/command.h"
#include "tools/mount-report.h"

int mc_cmd_evict(const struct mc_options *o)
{
	return mc_mount_report_run(o, "evict", "evicted");
}
