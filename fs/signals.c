/*
 * Signal handlers that only note what came.
 *
 * Invariants: 1. pending is set before the descriptor becomes readable, and taken after it was
 * read: nothing that came is missed. 2. Handlers are installed only while signal_fd is open.
 */
#include "fs/signals.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

static volatile sig_atomic_t signal_fd = -1;
static atomic_uint pending; /* lock-free: a handler may change it */

static const struct {
	int signal;
	unsigned bit;
} signals[MC_SIGNALS] = {{SIGTERM, MC_SIGNAL_STOP}, {SIGINT, MC_SIGNAL_STOP},
	{SIGHUP, MC_SIGNAL_RELOAD}, {SIGUSR1, MC_SIGNAL_DUMP}, {SIGUSR2, MC_SIGNAL_DRAIN}};

static void on_signal(int sig)
{
	uint64_t one = 1;
	int saved = errno;
	ssize_t n;

	for (int i = 0; i < MC_SIGNALS; i++)
		if (signals[i].signal == sig)
			atomic_fetch_or(&pending, signals[i].bit);
	n = write((int)signal_fd, &one, sizeof(one));
	(void)n; /* only fails when it is readable already */
	errno = saved;
}

int mc_signals_open(struct mc_signals *s)
{
	struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

	s->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->fd < 0)
		return -errno;
	signal_fd = s->fd;
	atomic_store(&pending, 0);
	sigemptyset(&sa.sa_mask);
	for (int i = 0; i < MC_SIGNALS; i++)
		sigaction(signals[i].signal, &sa, &s->before[i]);
	return 0;
}

unsigned mc_signals_take(struct mc_signals *s)
{
	uint64_t count;
	ssize_t n = read(s->fd, &count, sizeof(count));

	(void)n; /* -EAGAIN: nothing came */
	return atomic_exchange(&pending, 0);
}

void mc_signals_close(struct mc_signals *s)
{
	for (int i = 0; i < MC_SIGNALS; i++)
		sigaction(signals[i].signal, &s->before[i], NULL);
	signal_fd = -1;
	close(s->fd);
}
