/*
 * The keeper's own program. A new version lies where the old one lay, and gets its arguments, its
 * directory, and by the environment the numbers of the descriptors that are handed over.
 */
#include "tools/keeper.h"
#include "tools/keeper-program.h"

#include "fs/takeover.h"
#include "tier/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VARIABLE "MOONCAKEFS_TAKEOVER" /* "device=5,table=4,line=6"; line=-1: to be tried */
#define LINE_MAX_BYTES (1 << 20)

static int read_line(struct mc_keeper *k)
{
	cleanup_close int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
	char *words = malloc(LINE_MAX_BYTES);
	size_t len = 0;
	ssize_t n = 0;

	if (fd < 0 || words == NULL) {
		free(words);
		return fd < 0 ? -errno : -ENOMEM;
	}
	do {
		len += (size_t)n;
		n = read(fd, words + len, LINE_MAX_BYTES - len);
	} while (n > 0);
	if (n < 0 || len == 0 || len == LINE_MAX_BYTES || words[len - 1] != '\0') {
		free(words);
		return -E2BIG;
	}
	k->line_words = words;
	k->line_len = len;
	return 0;
}

int mc_program_note(struct mc_keeper *k)
{
	ssize_t n = readlink("/proc/self/exe", k->program, sizeof(k->program) - 1);

	if (n < 0)
		return -errno;
	k->program[n] = '\0';
	if (getcwd(k->cwd, sizeof(k->cwd)) == NULL)
		return -errno;
	return read_line(k);
}

static int inherited(int fd)
{
	return fd >= 0 && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 ? fd : -1;
}

int mc_program_inherited(struct mc_inherited *ret)
{
	const char *text = getenv(VARIABLE);
	int device, table, line;

	*ret = (struct mc_inherited){.device = -1, .table = -1, .line = -1};
	if (text == NULL)
		return 0;
	if (sscanf(text, "device=%d,table=%d,line=%d", &device, &table, &line) != 3)
		return -EPROTO;
	ret->device = inherited(device);
	ret->table = inherited(table);
	ret->line = inherited(line);
	ret->is_try = line < 0;
	unsetenv(VARIABLE);
	return ret->device >= 0 && ret->table >= 0 ? 0 : -EPROTO;
}

static void pass_on(int fd)
{
	if (fd >= 0)
		fcntl(fd, F_SETFD, 0);
}

int mc_program_execute(const struct mc_keeper *k, int line)
{
	cleanup_free char **argv = NULL;
	char text[64];
	size_t n = 0;

	for (size_t i = 0; i < k->line_len; i++)
		n += k->line_words[i] == '\0';
	argv = calloc(n + 1, sizeof(char *));
	if (argv == NULL)
		return -ENOMEM;
	n = 0;
	for (size_t i = 0; i < k->line_len; i += strlen(k->line_words + i) + 1)
		argv[n++] = k->line_words + i;
	snprintf(text, sizeof(text), "device=%d,table=%d,line=%d", k->device,
		mc_takeover_fd(k->takeover), line);
	if (chdir(k->cwd) < 0 || setenv(VARIABLE, text, 1) < 0)
		return -errno;
	pass_on(k->device);
	pass_on(mc_takeover_fd(k->takeover));
	pass_on(line);
	execv(k->program, argv);
	return -errno;
}
