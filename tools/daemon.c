/* A child that becomes a daemon, and the parent that waits for its word. */
#include "tools/daemon.h"

#include "tools/command.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The child's end of the pipe is closed by its death, with or without a word. */
static int wait_for_child(pid_t pid, int fd)
{
	ssize_t n;
	int status;
	char word;

	do
		n = read(fd, &word, 1);
	while (n < 0 && errno == EINTR);
	close(fd);
	if (n == 1)
		return MC_EXIT_OK;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return MC_EXIT_FAILED;
	if (WIFEXITED(status))
		return WEXITSTATUS(status) != 0 ? WEXITSTATUS(status) : MC_EXIT_FAILED;
	fprintf(stderr, "mooncakefs: the daemon was ended by signal %d (%s) before it was ready\n",
		WTERMSIG(status), strsignal(WTERMSIG(status)));
	return MC_EXIT_FAILED;
}

static int failed(const char *what)
{
	fprintf(stderr, "mooncakefs: %s: %s\n", what, strerror(errno));
	return MC_EXIT_FAILED;
}

int mc_daemon_fork(struct mc_daemon *ret)
{
	int fds[2];
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return failed("pipe");
	fflush(NULL);
	pid = fork();
	if (pid < 0)
		return failed("fork");
	if (pid > 0) {
		close(fds[1]);
		return wait_for_child(pid, fds[0]);
	}
	close(fds[0]);
	setsid();
	ret->pipe = fds[1];
	return -1;
}

void mc_daemon_ready(struct mc_daemon *d)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	ssize_t n;

	if (d->pipe < 0)
		return;
	/* So that no directory is kept busy, and no pipe of the caller is kept open. */
	if (chdir("/") < 0)
		fprintf(stderr, "mooncakefs: /: %s\n", strerror(errno));
	for (int fd = 0; fd <= 2 && null >= 0; fd++)
		dup2(null, fd);
	if (null > 2)
		close(null);
	n = write(d->pipe, "r", 1);
	(void)n; /* the parent may have been killed */
	close(d->pipe);
	d->pipe = -1;
}
