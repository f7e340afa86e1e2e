/* The node's name: <state>/node-id, made on first use. */
#include "tools/node-name.h"

#include "manifest/local-state.h"
#include "tier/cleanup.h"
#include "tier/digest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define ID_BYTES 16
#define ID_HEX (2 * ID_BYTES)

static int read_id(const char *path, char **ret)
{
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	char text[ID_HEX + 1] = "";
	uint8_t bytes[ID_BYTES];

	if (fd < 0)
		return -errno;
	if (read(fd, text, ID_HEX) != ID_HEX || mc_hex_decode(text, bytes, ID_BYTES) < 0)
		return -EBADMSG;
	*ret = strdup(text);
	return *ret == NULL ? -ENOMEM : 0;
}

/* Written beside and linked into place: of two processes the first wins, and none sees half a name.
 */
static int make_id(const char *path)
{
	cleanup_free char *tmp = NULL;
	cleanup_close int fd = -1;
	uint8_t bytes[ID_BYTES];
	char text[ID_HEX + 1];
	int r = 0;

	if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
		return -EIO;
	mc_hex_encode(bytes, sizeof(bytes), text);
	if (asprintf(&tmp, "%s.%s", path, text) < 0)
		return -ENOMEM;
	fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	if (write(fd, text, ID_HEX) != ID_HEX)
		r = -EIO;
	else if (link(tmp, path) < 0 && errno != EEXIST)
		r = -errno;
	unlink(tmp);
	return r;
}

int mc_node_name(char **ret)
{
	cleanup_free char *dir = NULL;
	cleanup_free char *path = NULL;
	int r = mc_local_state_dir(&dir);

	if (r < 0)
		return r;
	if (asprintf(&path, "%s/node-id", dir) < 0)
		return -ENOMEM;
	r = read_id(path, ret);
	if (r != -ENOENT)
		return r;
	r = make_id(path);
	return r < 0 ? r : read_id(path, ret);
}
