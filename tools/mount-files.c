/* Collecting files of a mount. */
#include "tools/mount-files.h"

#include "tier/array.h"
#include "tier/cleanup.h"

#include <errno.h>
#include <ftw.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* nftw has no argument for its callback. */
static struct mc_mount_files *walking;

static int add_file(struct mc_mount_files *m, const char *path, const struct stat *st)
{
	size_t top = strlen(m->mount.path);
	uint64_t bytes = (uint64_t)st->st_blocks * 512;
	int r = mc_array_room(&m->files, &m->cap, m->n + 1);

	if (r < 0)
		return r;
	if (bytes > (uint64_t)st->st_size)
		bytes = (uint64_t)st->st_size;
	m->files[m->n] = (struct mc_mount_file){
		.path = strdup(path + top + 1), .bytes = bytes, .word = m->n_words - 1};
	if (m->files[m->n].path == NULL)
		return -ENOMEM;
	m->n++;
	m->bytes += bytes;
	return 0;
}

/* What the mount makes up about itself, and views (the same bytes in any number of cuts): only when
 * they are named. */
static bool is_left_out(const char *path)
{
	static const char *const names[] = {"/.mooncake", "/tiers", "/layouts", "/views"};
	size_t top = strlen(walking->mount.path);

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (strcmp(path + top, names[i]) == 0)
			return true;
	return false;
}

static int visit(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	int r = 0;

	if (type == FTW_D && ftw->level > 0 && is_left_out(path))
		return FTW_SKIP_SUBTREE;
	if (type == FTW_F && S_ISREG(st->st_mode))
		r = add_file(walking, path, st);
	else if (type == FTW_DNR || type == FTW_NS)
		r = -EACCES;
	if (r < 0)
		errno = -r;
	return r < 0 ? FTW_STOP : FTW_CONTINUE;
}

static int find_mount(struct mc_mount_files *m, const char *path, struct mc_err *err)
{
	struct mc_mount found;
	int r = mc_mount_over(path, &found);

	if (r == 0 && strcmp(found.type, "fuse.mooncakefs") != 0)
		r = -ENOENT;
	if (r < 0)
		return mc_err_set(err, r, "%s is not in a mooncakefs", path);
	if (m->mount.path[0] != '\0' && strcmp(m->mount.path, found.path) != 0)
		return mc_err_set(err, -EXDEV,
			"%s is not in the mount at %s as what was named before", path,
			m->mount.path);
	m->mount = found;
	return 0;
}

static int add_word(struct mc_mount_files *m, const char *word, struct mc_err *err)
{
	char path[PATH_MAX];
	char **more = realloc(m->words, (m->n_words + 1) * sizeof(*more));
	int r = 0;

	if (more == NULL)
		return mc_err_set(err, -ENOMEM, "out of memory");
	m->words = more;
	m->words[m->n_words] = strdup(word);
	if (m->words[m->n_words] == NULL)
		return mc_err_set(err, -ENOMEM, "out of memory");
	m->n_words++;
	if (realpath(word, path) == NULL)
		r = mc_err_set(err, -errno, "%s: %s", word, strerror(errno));
	if (r == 0)
		r = find_mount(m, path, err);
	if (r < 0)
		return r;
	walking = m;
	errno = 0;
	if (nftw(path, visit, 16, FTW_PHYS | FTW_ACTIONRETVAL) != 0)
		r = mc_err_set(err, errno != 0 ? -errno : -EIO, "%s: %s", path,
			strerror(errno != 0 ? errno : EIO));
	return r;
}

/* A word that is no file may be a pattern that no shell has expanded. */
static int add_pattern(struct mc_mount_files *m, const char *word, struct mc_err *err)
{
	struct stat st;
	glob_t found;
	int r = 0;

	if (lstat(word, &st) == 0 || strpbrk(word, "*?[") == NULL)
		return add_word(m, word, err);
	if (glob(word, GLOB_ERR, NULL, &found) != 0)
		return mc_err_set(err, -ENOENT, "%s: nothing has such a name", word);
	for (size_t i = 0; i < found.gl_pathc && r == 0; i++)
		r = add_word(m, found.gl_pathv[i], err);
	globfree(&found);
	return r;
}

/* A path on each line; empty lines and those that begin with # are left out. */
static int add_list(struct mc_mount_files *m, const char *name, struct mc_err *err)
{
	bool standard = strcmp(name, "-") == 0;
	FILE *f = standard ? stdin : fopen(name, "re");
	cleanup_free char *line = NULL;
	size_t cap = 0;
	int r = 0;

	if (f == NULL)
		return mc_err_set(err, -errno, "%s: %s", name, strerror(errno));
	while (r == 0 && getline(&line, &cap, f) > 0) {
		line[strcspn(line, "\n")] = '\0';
		if (line[0] != '\0' && line[0] != '#')
			r = add_pattern(m, line, err);
	}
	if (r == 0 && ferror(f))
		r = mc_err_set(err, -EIO, "%s: cannot be read", name);
	if (!standard)
		fclose(f);
	return r;
}

int mc_mount_files_collect(
	const struct mc_options *o, struct mc_mount_files *ret, struct mc_err *err)
{
	const char *list = mc_options_text(o, MC_OPT_FILES_FROM);
	int r = 0;

	*ret = (struct mc_mount_files){0};
	for (unsigned i = 0; i < o->n_args && r == 0; i++)
		r = add_pattern(ret, o->args[i], err);
	if (r == 0 && list != NULL)
		r = add_list(ret, list, err);
	return r;
}

void mc_mount_files_done(struct mc_mount_files *m)
{
	for (size_t i = 0; i < m->n; i++)
		free(m->files[i].path);
	for (unsigned i = 0; i < m->n_words; i++)
		free(m->words[i]);
	free(m->files);
	free(m->words);
	*m = (struct mc_mount_files){0};
}
