/* mooncakefs pin and unpin: files that no eviction takes. */
#include "tools/command.h"
#include "tools/mount-report.h"

int mc_cmd_pin(const struct mc_options *o)
{
	return mc_mount_report_run(o, "pin", "pinned");
}

int mc_cmd_unpin(const struct mc_options *o)
{
	return mc_mount_report_run(o, "unpin", "unpinned");
}
