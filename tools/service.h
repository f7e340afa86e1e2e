/* Telling a service manager (systemd, Type=notify) how the daemon is. */
#pragma once

#include <stdint.h>

/* Sends lines NAME=VALUE to $NOTIFY_SOCKET; does nothing without one, and never waits. */
void mc_service_notify(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Says at half of the manager's interval that the process works. Used by one thread. */
struct mc_watchdog {
	uint64_t interval_ns; /* 0 = nobody waits for it */
	uint64_t next_ns;     /* CLOCK_MONOTONIC */
};
void mc_watchdog_open(struct mc_watchdog *w);
void mc_watchdog_tick(struct mc_watchdog *w); /* to be called at least four times an interval */
