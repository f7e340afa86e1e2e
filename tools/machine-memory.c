/* Memory limits from /proc/meminfo and the control groups of this process. */
#include "tools/machine-memory.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The number on the first line of a file; false for "max", a missing file, or no number. */
static bool read_number(const char *path, uint64_t *ret)
{
	char line[64], *end;
	FILE *f = fopen(path, "re");
	bool good = false;

	if (f == NULL)
		return false;
	if (fgets(line, sizeof(line), f) != NULL && line[0] >= '0' && line[0] <= '9') {
		errno = 0;
		*ret = strtoull(line, &end, 10);
		good = errno == 0 && (*end == '\n' || *end == '\0');
	}
	fclose(f);
	return good;
}

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

/* Lowers *limit to what the group and each of its parents allow; group starts with '/'. */
static void apply_group(const char *mount, const char *group, const char *file, uint64_t *limit)
{
	char dir[PATH_MAX], path[PATH_MAX + 32];
	size_t top = strlen(mount);
	int n = snprintf(dir, sizeof(dir), "%s%s", mount, strcmp(group, "/") == 0 ? "" : group);

	if (n < 0 || (size_t)n >= sizeof(dir))
		return;
	for (;;) {
		uint64_t v;
		char *slash;

		snprintf(path, sizeof(path), "%s/%s", dir, file);
		if (read_number(path, &v) && (*limit == 0 || v < *limit))
			*limit = v;
		if (strlen(dir) <= top)
			return;
		slash = strrchr(dir, '/');
		*slash = '\0';
	}
}

/* Whether the comma-separated list of controllers holds "memory". */
static bool has_memory(const char *list)
{
	for (const char *s = list; s != NULL && *s != '\0'; s = strchr(s, ',')) {
		if (*s == ',')
			s++;
		if (strncmp(s, "memory", 6) == 0 && (s[6] == ',' || s[6] == '\0'))
			return true;
	}
	return false;
}

uint64_t mc_machine_memory(const char *root)
{
	char path[PATH_MAX], line[PATH_MAX + 128];
	uint64_t limit = mem_total(root);
	FILE *f;

	snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
	f = fopen(path, "re");
	if (f == NULL)
		return limit;
	/* hierarchy:controllers:/group */
	while (fgets(line, sizeof(line), f) != NULL) {
		char *controllers = strchr(line, ':'), *group;

		line[strcspn(line, "\n")] = '\0';
		group = controllers == NULL ? NULL : strchr(controllers + 1, ':');
		if (group == NULL || group[1] != '/')
			continue;
		*controllers++ = '\0';
		*group++ = '\0';
		if (strcmp(line, "0") == 0 && *controllers == '\0') {
			snprintf(path, sizeof(path), "%s/sys/fs/cgroup", root);
			apply_group(path, group, "memory.max", &limit);
		} else if (has_memory(controllers)) {
			snprintf(path, sizeof(path), "%s/sys/fs/cgroup/memory", root);
			apply_group(path, group, "memory.limit_in_bytes", &limit);
		}
	}
	fclose(f);
	return limit;
}
