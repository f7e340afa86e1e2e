/* Processes that use or serve a mount, from /proc. */
#include "tools/mount-users.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whether path is top or lies below it; a space may follow, as in "… (deleted)". */
static bool is_below(const char *path, const char *top)
{
	size_t n = strlen(top);

	return strncmp(path, top, n) == 0 && (path[n] == '\0' || path[n] == '/' || path[n] == ' ');
}

static bool link_is_below(const char *link, const char *top)
{
	char to[PATH_MAX];
	ssize_t n = readlink(link, to, sizeof(to) - 1);

	if (n < 0)
		return false;
	to[n] = '\0';
	return is_below(to, top);
}

static bool has_open_file(const char *proc, const char *top)
{
	char path[PATH_MAX];
	struct dirent *de;
	DIR *dir;
	bool found = false;

	snprintf(path, sizeof(path), "%s/fd", proc);
	dir = opendir(path);
	if (dir == NULL)
		return false;
	while (!found && (de = readdir(dir)) != NULL) {
		snprintf(path, sizeof(path), "%s/fd/%s", proc, de->d_name);
		found = link_is_below(path, top);
	}
	closedir(dir);
	return found;
}

static bool has_mapping(const char *proc, const char *top)
{
	char path[64], *line = NULL;
	size_t cap = 0;
	bool found = false;
	FILE *f;

	snprintf(path, sizeof(path), "%s/maps", proc);
	f = fopen(path, "re");
	if (f == NULL)
		return false;
	while (!found && getline(&line, &cap, f) > 0) {
		const char *name = strchr(line, '/');

		line[strcspn(line, "\n")] = '\0';
		found = name != NULL && is_below(name, top);
	}
	free(line);
	fclose(f);
	return found;
}

static const char *how_used(const char *proc, const char *top)
{
	static const struct {
		const char *link, *how;
	} links[] = {{"cwd", "working directory"}, {"root", "root directory"}, {"exe", "program"}};
	char path[64];

	for (size_t i = 0; i < sizeof(links) / sizeof(*links); i++) {
		snprintf(path, sizeof(path), "%s/%s", proc, links[i].link);
		if (link_is_below(path, top))
			return links[i].how;
	}
	if (has_open_file(proc, top))
		return "open file";
	return has_mapping(proc, top) ? "mapped file" : NULL;
}

static void read_name(const char *proc, char *ret, size_t size)
{
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "%s/comm", proc);
	snprintf(ret, size, "?");
	f = fopen(path, "re");
	if (f == NULL)
		return;
	if (fgets(ret, (int)size, f) != NULL)
		ret[strcspn(ret, "\n")] = '\0';
	fclose(f);
}

/* Calls each for every process until it returns true. */
static void for_each_process(bool (*each)(void *ctx, const char *proc, pid_t pid), void *ctx)
{
	DIR *dir = opendir("/proc");
	struct dirent *de;
	char proc[32];

	if (dir == NULL)
		return;
	while ((de = readdir(dir)) != NULL) {
		if (!isdigit((unsigned char)de->d_name[0]))
			continue;
		snprintf(proc, sizeof(proc), "/proc/%.16s", de->d_name);
		if (each(ctx, proc, (pid_t)atoi(de->d_name)))
			break;
	}
	closedir(dir);
}

struct search {
	const char *top;
	struct mc_holder *ret;
	unsigned max, found;
};

static bool add_holder(void *ctx, const char *proc, pid_t pid)
{
	struct search *s = ctx;
	const char *how = pid == getpid() ? NULL : how_used(proc, s->top);

	if (how == NULL)
		return false;
	if (s->found < s->max) {
		s->ret[s->found] = (struct mc_holder){.pid = pid, .how = how};
		read_name(proc, s->ret[s->found].name, sizeof(s->ret->name));
	}
	s->found++;
	return false;
}

unsigned mc_mount_holders(const char *path, struct mc_holder *ret, unsigned max)
{
	struct search s = {.top = path, .ret = ret, .max = max};

	for_each_process(add_holder, &s);
	return s.found;
}

struct daemon {
	unsigned connection;
	pid_t pid;
};

/* /proc/<pid>/fdinfo/<n> of a FUSE device says "fuse_connection:\t<number>". */
static bool serves(void *ctx, const char *proc, pid_t pid)
{
	struct daemon *d = ctx;
	char path[PATH_MAX], line[128];
	struct dirent *de;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/fdinfo", proc);
	dir = opendir(path);
	if (dir == NULL)
		return false;
	while (d->pid == 0 && (de = readdir(dir)) != NULL) {
		unsigned connection;
		FILE *f;

		snprintf(path, sizeof(path), "%s/fdinfo/%s", proc, de->d_name);
		f = fopen(path, "re");
		if (f == NULL)
			continue;
		while (fgets(line, sizeof(line), f) != NULL)
			if (sscanf(line, "fuse_connection: %u", &connection) == 1 &&
				connection == d->connection)
				d->pid = pid;
		fclose(f);
	}
	closedir(dir);
	return d->pid != 0;
}

pid_t mc_mount_daemon(const struct mc_mount *m)
{
	struct daemon d = {.connection = m->minor};

	for_each_process(serves, &d);
	return d.pid;
}
