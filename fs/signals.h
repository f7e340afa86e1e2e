/* Signals of a mounted daemon, turned into a readable descriptor. One user at a time. */
#pragma once

#include <signal.h>

enum {
	MC_SIGNAL_STOP = 1 << 0,   /* SIGTERM, SIGINT */
	MC_SIGNAL_RELOAD = 1 << 1, /* SIGHUP */
	MC_SIGNAL_DUMP = 1 << 2,   /* SIGUSR1 */
	MC_SIGNAL_DRAIN = 1 << 3,  /* SIGUSR2 */
};

#define MC_SIGNALS 5
struct mc_signals {
	int fd; /* readable when a signal came */
	struct sigaction before[MC_SIGNALS];
};

/* Installs the handlers; -errno. */
int mc_signals_open(struct mc_signals *s);
/* What came since the last call: MC_SIGNAL_… */
unsigned mc_signals_take(struct mc_signals *s);
/* Puts back what was there before. */
void mc_signals_close(struct mc_signals *s);
