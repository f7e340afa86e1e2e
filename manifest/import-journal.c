/*
 * The resume journal of an import or reshard: fixed records, each with its own checksum, appended
 * by one write.
 *
 * Invariants: 1. a record is one write() at the end of the file, so a killed process leaves whole
 * records and at most one torn tail, which open cuts off; 2. notes (sorted) are read-only after
 * open; 3. the file is locked while it is open. Nothing is synced: after a power cut the lost notes
 * mean reading again.
 */
#include "manifest/import-journal.h"

#include "manifest/local-state.h"
#include "manifest/scan.h"
#include "tier/cleanup.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

struct record {
	struct mc_import_note note;
	uint32_t check; /* CRC32C of note */
} __attribute__((packed));

/* No padding: the checksum covers every byte. */
static_assert(sizeof(struct mc_import_note) == 112, "a note is 112 bytes on disk");

struct mc_import_journal {
	int fd;
	char *path;                   /* owned */
	struct mc_import_note *notes; /* by file, then offset; owned */
	size_t n;
};

/* <state>/<work>-<digest of from where to where>.journal */
static int journal_path(const char *work, const char *url, const char *root, char **ret)
{
	cleanup_free char *dir = NULL;
	cleanup_free char *what = NULL;
	uint8_t digest[MC_SHA256_SIZE];
	char hex[MC_SHA256_HEX + 1];
	int n = asprintf(&what, "%s\n%s", url, root);
	int r;

	if (n < 0)
		return -ENOMEM;
	r = mc_sha256(what, (size_t)n, digest);
	if (r == 0)
		r = mc_local_state_dir(&dir);
	if (r < 0)
		return r;
	mc_hex_encode(digest, sizeof(digest), hex);
	return asprintf(ret, "%s/%s-%.32s.journal", dir, work, hex) < 0 ? -ENOMEM : 0;
}

static int by_file_and_offset(const void *a, const void *b)
{
	const struct mc_import_note *x = a, *y = b;
	int c = memcmp(x->file, y->file, sizeof(x->file));

	if (c != 0)
		return c;
	return x->off < y->off ? -1 : x->off > y->off;
}

static bool read_record(int fd, size_t i, struct record *ret)
{
	return pread(fd, ret, sizeof(*ret), (off_t)(i * sizeof(*ret))) == (ssize_t)sizeof(*ret) &&
		ret->check == mc_crc32c(0, &ret->note, sizeof(ret->note));
}

/* Reads whole good records and cuts off what follows them. */
static int load(struct mc_import_journal *j)
{
	struct record rec;
	struct stat st;
	size_t max;

	if (fstat(j->fd, &st) < 0)
		return -errno;
	max = (size_t)st.st_size / sizeof(struct record);
	j->notes = max == 0 ? NULL : calloc(max, sizeof(*j->notes));
	if (max > 0 && j->notes == NULL)
		return -ENOMEM;
	while (j->n < max && read_record(j->fd, j->n, &rec))
		j->notes[j->n++] = rec.note;
	if (ftruncate(j->fd, (off_t)(j->n * sizeof(struct record))) < 0)
		return -errno;
	if (j->n > 1)
		qsort(j->notes, j->n, sizeof(*j->notes), by_file_and_offset);
	return 0;
}

int mc_import_journal_open(const char *work, const char *url, const char *root,
	struct mc_import_journal **ret, struct mc_err *err)
{
	struct mc_import_journal *j = calloc(1, sizeof(*j));
	int r;

	if (j == NULL)
		return mc_err_set(err, -ENOMEM, "out of memory");
	j->fd = -1;
	r = journal_path(work, url, root, &j->path);
	if (r < 0) {
		mc_err_set(err, r,
			"no place for the resume journal (%s); set XDG_STATE_HOME to a "
			"directory that can be written",
			strerror(-r));
		goto out;
	}
	j->fd = open(j->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (j->fd < 0)
		r = -errno;
	else if (flock(j->fd, LOCK_EX | LOCK_NB) < 0)
		r = errno == EWOULDBLOCK ? -EBUSY : -errno;
	else
		r = load(j);
	if (r == -EBUSY)
		mc_err_set(err, r, "another %s of %s to %s is running", work, root, url);
	else if (r < 0)
		mc_err_set(err, r, "resume journal %s: %s", j->path, strerror(-r));
out:
	if (r < 0) {
		mc_import_journal_close(j, false);
		return r;
	}
	*ret = j;
	return 0;
}

void mc_import_journal_close(struct mc_import_journal *j, bool finished)
{
	if (j == NULL)
		return;
	if (finished)
		unlink(j->path);
	if (j->fd >= 0)
		close(j->fd);
	free(j->notes);
	free(j->path);
	free(j);
}

static int each_note(int dir, const char *name,
	int (*each)(void *ctx, const struct mc_import_note *note), void *ctx)
{
	cleanup_close int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	struct mc_import_note note;
	struct record rec;
	int r = 0;

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno; /* finished since */
	for (size_t i = 0; r == 0 && read_record(fd, i, &rec); i++) {
		note = rec.note;
		r = each(ctx, &note);
	}
	return r;
}

int mc_import_journals_each(int (*each)(void *ctx, const struct mc_import_note *note), void *ctx)
{
	cleanup_free char *path = NULL;
	struct dirent *e;
	int r = mc_local_state_dir(&path);
	DIR *d;

	if (r < 0)
		return r;
	d = opendir(path);
	if (d == NULL)
		return -errno;
	while (r == 0 && (e = readdir(d)) != NULL) {
		const char *dot = strrchr(e->d_name, '.');

		if (dot != NULL && strcmp(dot, ".journal") == 0)
			r = each_note(dirfd(d), e->d_name, each, ctx);
	}
	closedir(d);
	return r;
}

int mc_import_journal_key(const struct mc_scan_entry *e, uint8_t ret[MC_SHA256_SIZE])
{
	cleanup_free char *text = NULL;
	int n = asprintf(&text, "%llu %llu %llu %lld.%09u %s", (unsigned long long)e->dev,
		(unsigned long long)e->ino, (unsigned long long)e->size, (long long)e->mtime_s,
		(unsigned)e->mtime_ns, e->path);

	return n < 0 ? -ENOMEM : mc_sha256(text, (size_t)n, ret);
}

const struct mc_import_note *mc_import_journal_find(const struct mc_import_journal *j,
	const uint8_t file[MC_SHA256_SIZE], uint64_t off, uint32_t len)
{
	struct mc_import_note key = {.off = off};
	const struct mc_import_note *found;

	if (j->n == 0)
		return NULL;
	memcpy(key.file, file, sizeof(key.file));
	found = bsearch(&key, j->notes, j->n, sizeof(*j->notes), by_file_and_offset);
	return found != NULL && found->len == len ? found : NULL;
}

void mc_import_journal_add(struct mc_import_journal *j, const struct mc_import_note *note)
{
	struct record rec = {.note = *note};
	ssize_t n;

	rec.check = mc_crc32c(0, &rec.note, sizeof(rec.note));
	n = write(j->fd, &rec, sizeof(rec));
	(void)n;
}
