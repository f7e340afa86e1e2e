/* Small files of a directory as views of one file each. */
#include "tools/beside-files.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "manifest/path.h"
#include "manifest/view.h"
#include "tier/cleanup.h"
#include "tier/remote.h"
#include "tools/model-table.h"

#define FILE_MAX ((size_t)64 << 20) /* bytes */

static int is_wanted(const struct dirent *e)
{
	return !mc_view_is_weights(e->d_name) && mc_name_fault(e->d_name) == NULL;
}

static int add(struct mc_beside *b, const char *path, const char *name, struct mc_err *err)
{
	cleanup_free char *text = NULL;
	struct mc_remote_attr times = {0};
	struct stat st;
	size_t len;
	int r;

	if (stat(path, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size == 0)
		return 0;
	times.mtime_s = st.st_mtim.tv_sec;
	times.mtime_ns = (uint32_t)st.st_mtim.tv_nsec;
	r = mc_read_file(path, FILE_MAX, &text, &len, err);
	if (r == 0)
		r = mc_view_of_text(name, text, len, &times, &b->file[b->n]);
	b->n += r == 0;
	return r;
}

int mc_beside_text(const char *name, const void *text, size_t len, struct mc_beside *ret)
{
	struct mc_view **file = reallocarray(ret->file, ret->n + 1, sizeof(struct mc_view *));
	const struct mc_remote_attr times = {0};
	int r;

	if (file == NULL)
		return -ENOMEM;
	ret->file = file;
	r = mc_view_of_text(name, text, len, &times, &ret->file[ret->n]);
	ret->n += r == 0;
	return r;
}

int mc_beside_open(const char *dir, struct mc_beside *ret, struct mc_err *err)
{
	struct dirent **list;
	int n = scandir(dir, &list, is_wanted, alphasort), r = 0;

	*ret = (struct mc_beside){0};
	if (n < 0) {
		r = -errno;
		return mc_err_set(err, r, "%s: %s", dir, strerror(-r));
	}
	ret->file = calloc((size_t)n + 1, sizeof(struct mc_view *));
	if (ret->file == NULL)
		r = -ENOMEM;
	for (int i = 0; i < n; i++) {
		cleanup_free char *path = NULL;

		if (asprintf(&path, "%s/%s", dir, list[i]->d_name) < 0) {
			path = NULL;
			r = -ENOMEM;
		}
		if (r == 0)
			r = add(ret, path, list[i]->d_name, err);
		free(list[i]);
	}
	free(list);
	return r;
}

void mc_beside_done(struct mc_beside *b)
{
	for (unsigned i = 0; i < b->n; i++)
		mc_view_unref(b->file[i]);
	free(b->file);
	*b = (struct mc_beside){0};
}
