/* "mooncakefs <kind> format <n>", newline, "uuid <32 hex digits>", newline. */
#include "tier/dir-id.h"

#include "tier/cleanup.h"
#include "tier/digest.h"
#include "tier/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define TEXT_MAX 128

static size_t make_text(const struct mc_dir_id *id, const uint8_t uuid[16], char out[TEXT_MAX])
{
	char hex[33];

	mc_hex_encode(uuid, 16, hex);
	return (size_t)snprintf(
		out, TEXT_MAX, "mooncakefs %s format %u\nuuid %s\n", id->kind, id->format, hex);
}

/* A later format has a larger number in the same first line. */
static bool is_later(const struct mc_dir_id *id, const char *text)
{
	char line[TEXT_MAX];
	unsigned format = 0;
	int n = 0;

	snprintf(line, sizeof(line), "mooncakefs %s format ", id->kind);
	if (strncmp(text, line, strlen(line)) != 0)
		return false;
	return sscanf(text + strlen(line), "%u%n", &format, &n) == 1 && format != id->format &&
		text[strlen(line) + (size_t)n] == '\n';
}

int mc_dir_id_read(const struct mc_io *io, const struct mc_dir_id *id, uint8_t ret_uuid[16],
	struct mc_err *err)
{
	cleanup_free char *path = NULL;
	char text[TEXT_MAX] = "", again[TEXT_MAX];
	uint8_t uuid[16] = {0};
	size_t len = make_text(id, uuid, again);
	int fd, r;

	if (asprintf(&path, "%s/%s", id->dir, id->name) < 0)
		return -ENOMEM;
	fd = io->open(io, path, O_RDONLY, 0);
	if (fd < 0)
		return fd;
	r = (int)io->pread(io, fd, text, sizeof(text) - 1, 0);
	io->close(io, fd);
	if (r < 0)
		return r;
	if (is_later(id, text))
		return mc_err_set(err, -EPROTONOSUPPORT,
			"%s %s: %s names a format this program does not know", id->what, id->dir,
			id->name);
	if ((size_t)r == len && text[len - 1] == '\n') {
		text[len - 1] = '\0';
		if (mc_hex_decode(text + len - 33, uuid, sizeof(uuid)) == 0)
			make_text(id, uuid, again);
		text[len - 1] = '\n';
	}
	if ((size_t)r != len || memcmp(text, again, len) != 0)
		return mc_err_set(err, -EBADMSG,
			"%s %s: %s is damaged; 'mooncakefs fsck --repair %s' writes it anew",
			id->what, id->dir, id->name, id->dir);
	memcpy(ret_uuid, uuid, sizeof(uuid));
	return 0;
}

int mc_dir_id_write(const struct mc_io *io, const struct mc_dir_id *id, const uint8_t uuid[16])
{
	cleanup_free char *path = NULL, *tmp = NULL;
	char text[TEXT_MAX];
	size_t len = make_text(id, uuid, text);
	int fd, r;

	if (asprintf(&path, "%s/%s", id->dir, id->name) < 0 || asprintf(&tmp, "%s.tmp", path) < 0)
		return -ENOMEM;
	fd = io->open(io, tmp, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (fd < 0)
		return fd;
	r = mc_io_write_full(io, fd, text, len, 0);
	if (r == 0)
		r = io->fsync(io, fd);
	io->close(io, fd);
	if (r == 0)
		r = io->rename(io, tmp, path);
	return r == 0 ? mc_io_sync_dir(io, id->dir) : r;
}

int mc_dir_id_make(const struct mc_io *io, const struct mc_dir_id *id, uint8_t ret_uuid[16])
{
	uint8_t uuid[16];
	int r;

	if (getrandom(uuid, sizeof(uuid), 0) != (ssize_t)sizeof(uuid))
		return -EIO;
	r = mc_dir_id_write(io, id, uuid);
	if (r == 0)
		memcpy(ret_uuid, uuid, sizeof(uuid));
	return r;
}
