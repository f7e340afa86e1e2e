/* Memory control groups: cgroups(7), proc(5), Documentation/admin-guide/cgroup-v1 and -v2. */
#include "tier/cgroup.h"

#include "tier/cleanup.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* Whether the comma-separated list holds the word. */
static bool lists(const char *list, const char *word)
{
	size_t len = strlen(word);

	for (const char *p = list; p != NULL; p = strchr(p, ',')) {
		p += *p == ',';
		if (strncmp(p, word, len) == 0 && (p[len] == ',' || p[len] == '\0'))
			return true;
	}
	return false;
}

/* Puts the line "ID:CONTROLLERS:PATH" into ret if it is of what counts memory: of the controller,
 * or of version 2, where that is not in use. */
static bool parse_group(char *line, struct mc_cgroup *ret)
{
	char *list = strchr(line, ':'), *path = list != NULL ? strchr(list + 1, ':') : NULL;

	if (path == NULL || path[1] != '/' || strlen(path + 1) >= sizeof(ret->path))
		return false;
	*path++ = '\0';
	ret->v1 = lists(list + 1, "memory");
	if (!ret->v1 && list[1] != '\0')
		return false;
	strcpy(ret->path, path[1] != '\0' ? path : "");
	return true;
}

/* One system call, as this is done for each put. */
int mc_cgroup_of(const char *root, const char *task, struct mc_cgroup *ret)
{
	char name[PATH_MAX], text[4 * MC_CGROUP_PATH], *rest = text, *line;
	cleanup_close int fd = -1;
	struct mc_cgroup found;
	ssize_t len;
	int r = -ENOENT;

	if (snprintf(name, sizeof(name), "%s/proc/%s/cgroup", root, task) >= (int)sizeof(name))
		return -ENAMETOOLONG;
	fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	len = read(fd, text, sizeof(text) - 1);
	if (len < 0)
		return -errno;
	text[len] = '\0';
	/* What does not fit, or in one read, does not end a line. */
	if (len > 0 && text[len - 1] != '\n')
		return -ENAMETOOLONG;
	while ((r < 0 || !ret->v1) && (line = strsep(&rest, "\n")) != NULL) {
		if (parse_group(line, &found)) {
			*ret = found;
			r = 0;
		}
	}
	return r;
}

size_t mc_cgroup_common(const struct mc_cgroup *a, const struct mc_cgroup *b)
{
	size_t at = 0, end = 0;

	for (;; at++) {
		char x = a->path[at], y = b->path[at];

		if ((x == '\0' || x == '/') && (y == '\0' || y == '/'))
			end = at;
		if (x != y || x == '\0')
			return end;
	}
}

/* ---- the hierarchy */

/* A mounted one: what of it, "" = all, and where. */
struct mounted {
	struct mc_cgroup top;
	char at[MC_CGROUP_PATH];
};

/* Octal escapes, in place. */
static void unescape(char *s)
{
	char *to = s;

	for (; *s != '\0'; s++) {
		unsigned code;

		if (*s == '\\' && sscanf(s + 1, "%3o", &code) == 1) {
			*to++ = (char)code;
			s += 3;
		} else {
			*to++ = *s;
		}
	}
	*to = '\0';
}

/* ID PARENT DEVICE ROOT AT OPTIONS [TAGS...] - TYPE SOURCE OPTIONS */
static bool parse_mount(const char *line, bool v1, struct mounted *m)
{
	const char *tail = strstr(line, " - ");
	char type[32], options[1024];

	_Static_assert(MC_CGROUP_PATH == 4096, "the widths below");
	if (tail == NULL || sscanf(tail, " - %31s %*s %1023s", type, options) != 2 ||
		strcmp(type, v1 ? "cgroup" : "cgroup2") != 0 || (v1 && !lists(options, "memory")) ||
		sscanf(line, "%*s %*s %*s %4095s %4095s", m->top.path, m->at) != 2)
		return false;
	unescape(m->top.path);
	unescape(m->at);
	if (strcmp(m->top.path, "/") == 0)
		m->top.path[0] = '\0';
	return true;
}

static int find_mounted(const char *root, bool v1, struct mounted *ret)
{
	cleanup_free char *name = NULL, *line = NULL;
	bool found = false;
	size_t cap = 0;
	FILE *f;

	if (asprintf(&name, "%s/proc/self/mountinfo", root) < 0)
		return -ENOMEM;
	f = fopen(name, "re");
	if (f == NULL)
		return -errno;
	while (!found && getline(&line, &cap, f) >= 0)
		found = parse_mount(line, v1, ret);
	fclose(f);
	return found ? 0 : -ENODEV;
}

/* ---- limits */

/* Lowers *limit to the number in the file, if it is one. */
static int apply(int dir, const char *name, uint64_t *limit)
{
	cleanup_close int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	char text[32] = "", *end;
	unsigned long long n;

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno; /* not there: it is counted further up */
	if (read(fd, text, sizeof(text) - 1) < 0)
		return -errno;
	n = strtoull(text, &end, 10);
	if (end > text && n < *limit) /* else it is "max" */
		*limit = n;
	return 0;
}

static int apply_group(const char *path, bool v1, uint64_t *limit)
{
	cleanup_close int dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int r;

	if (dir < 0)
		return -errno;
	if (v1)
		return apply(dir, "memory.limit_in_bytes", limit);
	r = apply(dir, "memory.max", limit);
	return r < 0 ? r : apply(dir, "memory.high", limit);
}

/* The length of the path of the one above, which is not the root. */
static size_t parent(const char *path, size_t len)
{
	while (path[--len] != '/')
		;
	return len;
}

int mc_cgroup_limit(const char *root, const struct mc_cgroup *g, size_t least, uint64_t *ret)
{
	cleanup_free char *path = NULL;
	struct mounted m;
	size_t top, len;
	int r = find_mounted(root, g->v1, &m), failed = 0;

	*ret = UINT64_MAX;
	if (r < 0)
		return r;
	top = strlen(m.top.path);
	/* "/../x" lies beyond what our namespace shows. */
	if (mc_cgroup_common(g, &m.top) != top || strstr(g->path, "/..") != NULL)
		return -EXDEV;
	if (asprintf(&path, "%s%s%s", root, m.at, g->path + top) < 0)
		return -ENOMEM;
	for (len = strlen(g->path); len >= least && len >= top; len = parent(g->path, len)) {
		r = apply_group(path, g->v1, ret);
		if (r < 0)
			failed = r;
		if (len == 0)
			return failed;
		*strrchr(path, '/') = '\0';
	}
	/* Perhaps what lies above the mount was asked for, too. */
	return len >= least && failed == 0 ? -EXDEV : failed;
}
