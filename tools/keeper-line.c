/* Words and descriptors between a worker and its keeper. */
#include "tools/keeper.h"
#include "tools/keeper-line.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void mc_line_say(int line, char word, int fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec iov = {.iov_base = &word, .iov_len = 1};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;

	if (line < 0)
		return;
	if (fd >= 0) {
		struct cmsghdr *c;

		m.msg_control = control.bytes;
		m.msg_controllen = sizeof(control.bytes);
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	}
	do
		n = sendmsg(line, &m, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
}

char mc_line_hear(int line, bool wait, int *ret_fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	char word = 0;
	struct iovec iov = {.iov_base = &word, .iov_len = 1};
	struct msghdr m = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes)};
	struct cmsghdr *c;
	ssize_t n;

	*ret_fd = -1;
	do
		n = recvmsg(line, &m, MSG_CMSG_CLOEXEC | (wait ? 0 : MSG_DONTWAIT));
	while (n < 0 && errno == EINTR);
	if (n != 1)
		return 0;
	c = CMSG_FIRSTHDR(&m);
	if (c != NULL && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		memcpy(ret_fd, CMSG_DATA(c), sizeof(*ret_fd));
	return word;
}

void mc_keeper_mounted(const struct mc_keeper *k, int device)
{
	mc_line_say(k->line, MC_WORD_MOUNTED, device);
}

void mc_keeper_ready(const struct mc_keeper *k)
{
	mc_keeper_leave_directory(k);
	mc_line_say(k->line, MC_WORD_READY, -1);
}

void mc_keeper_stopping(const struct mc_keeper *k)
{
	int fd;

	if (k->line < 0)
		return;
	mc_line_say(k->line, MC_WORD_STOPPING, -1);
	mc_line_hear(k->line, true, &fd);
}

void mc_keeper_drained(const struct mc_keeper *k)
{
	mc_line_say(k->line, MC_WORD_DRAINED, -1);
}
