/* Mounts and their users, read from /proc. */
#include "tools/mount-table.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int mc_mount_resolve(const char *path, char ret[PATH_MAX])
{
	char copy[PATH_MAX], dir[PATH_MAX], *slash;
	size_t n = strlen(path);

	if (n == 0 || n >= sizeof(copy))
		return n == 0 ? -ENOENT : -ENAMETOOLONG;
	memcpy(copy, path, n + 1);
	/* A descriptor of /dev/fuse that somebody mounted already: a name of this process alone. */
	if (strncmp(path, "/dev/fd/", 8) == 0) {
		memcpy(ret, path, n + 1);
		return 0;
	}
	while (n > 1 && copy[n - 1] == '/')
		copy[--n] = '\0';
	slash = strrchr(copy, '/');
	/* "x/..", "." and "/" name a directory by what it is: nothing to leave alone. */
	if (strcmp(copy, "/") == 0 || strcmp(slash == NULL ? copy : slash + 1, ".") == 0 ||
		strcmp(slash == NULL ? copy : slash + 1, "..") == 0)
		return realpath(copy, ret) == NULL ? -errno : 0;
	if (slash != NULL)
		*slash = '\0';
	if (realpath(slash == NULL ? "." : slash == copy ? "/" : copy, dir) == NULL)
		return -errno;
	n = (size_t)snprintf(ret, PATH_MAX, "%s%s%s", dir, strcmp(dir, "/") == 0 ? "" : "/",
		slash == NULL ? copy : slash + 1);
	return n >= PATH_MAX ? -ENAMETOOLONG : 0;
}

/* Undoes the octal escapes of /proc/self/mountinfo in place. */
static void unescape(char *s)
{
	char *out = s;

	for (; *s != '\0'; s++) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
			s[3] >= '0' && s[3] <= '7') {
			*out++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 3;
		} else {
			*out++ = *s;
		}
	}
	*out = '\0';
}

/* "36 35 98:0 / /mnt/x rw,noatime master:1 - ext3 /dev/root rw" */
static bool parse_line(char *line, struct mc_mount *ret)
{
	char *tail = strstr(line, " - "), *owner;

	if (tail == NULL)
		return false;
	owner = strstr(tail, "user_id=");
	ret->owner = owner != NULL ? (uid_t)strtoul(owner + 8, NULL, 10) : 0;
	*tail = '\0';
	/* %4095s: PATH_MAX - 1 */
	if (sscanf(line, "%*u %*u %u:%u %*s %4095s", &ret->major, &ret->minor, ret->path) != 3 ||
		sscanf(tail + 3, "%63s %255s", ret->type, ret->source) != 2)
		return false;
	unescape(ret->path);
	unescape(ret->source);
	return true;
}

/* The last mount, which lies on top of earlier ones, that matches. *ret_n: how many places. */
static int find_mount(const char *path, const char *type, struct mc_mount *ret, unsigned *ret_n)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char *line = NULL;
	size_t cap = 0;
	struct mc_mount m;

	*ret_n = 0;
	if (f == NULL)
		return -errno;
	while (getline(&line, &cap, f) > 0)
		if (parse_line(line, &m) && (path == NULL || strcmp(m.path, path) == 0) &&
			(type == NULL || strcmp(m.type, type) == 0)) {
			*ret_n += *ret_n == 0 || strcmp(m.path, ret->path) != 0;
			*ret = m;
		}
	free(line);
	fclose(f);
	return *ret_n > 0 ? 0 : -ENOENT;
}

int mc_mount_find(const char *path, struct mc_mount *ret)
{
	unsigned n;

	return find_mount(path, NULL, ret, &n);
}

/* Whether path is top or lies below it; a space may follow, as in "… (deleted)". */
static bool is_below(const char *path, const char *top)
{
	size_t n = strlen(top);

	return strncmp(path, top, n) == 0 && (path[n] == '\0' || path[n] == '/' || path[n] == ' ');
}

int mc_mount_over(const char *path, struct mc_mount *ret)
{
	char copy[PATH_MAX];
	char *slash;
	int r;

	snprintf(copy, sizeof(copy), "%s", path);
	for (;;) {
		r = mc_mount_find(copy[0] == '\0' ? "/" : copy, ret);
		slash = strrchr(copy, '/');
		if (r != -ENOENT || slash == NULL)
			return r;
		*slash = '\0';
	}
}

int mc_mount_only(struct mc_mount *ret)
{
	unsigned n;
	int r = find_mount(NULL, "fuse.mooncakefs", ret, &n);

	return r == 0 && n > 1 ? -EEXIST : r;
}

void mc_run_dir(uid_t uid, char *ret, size_t size)
{
	if (uid == 0)
		snprintf(ret, size, "/run/mooncakefs");
	else
		snprintf(ret, size, "/dev/shm/mooncakefs-%u", (unsigned)uid);
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
