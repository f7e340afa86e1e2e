/* Memory limits from /proc/meminfo and the control groups of this process. */
#include "tools/machine-memory.h"

#include <limits.h>
#include <stdio.h>

#include "tier/cgroup.h"

static uint64_t mem_total(const char *root)
{
	char path[PATH_MAX], line[256];
	unsigned long long kib = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/proc/meminfo", root);
	f = fopen(path, "re");
	if (f == NULL)
		return 0;
	while (fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "MemTotal: %llu kB", &kib) == 1)
			break;
	fclose(f);
	return kib * 1024;
}

uint64_t mc_machine_memory(const char *root)
{
	uint64_t memory = mem_total(root), limit;
	struct mc_cgroup group;

	if (mc_cgroup_of(root, "self", &group) < 0)
		return memory;
	/* Those that cannot be looked at set no limit that we know of. */
	(void)mc_cgroup_limit(root, &group, 0, &limit);
	return memory == 0 && limit < UINT64_MAX ? limit : limit < memory ? limit : memory;
}
