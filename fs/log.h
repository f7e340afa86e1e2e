/*
 * Structured log lines "event=… key=value …": stderr in the foreground, syslog (the journal)
 * otherwise. Only fs/ and tools/ log; libraries return errors. Thread-safe.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

enum mc_log_level { MC_LOG_ERROR, MC_LOG_WARNING, MC_LOG_INFO, MC_LOG_DEBUG };

struct mc_log_opts {
	bool to_syslog;          /* else standard error */
	bool json;               /* a line is a JSON object */
	enum mc_log_level level; /* the least important one to be shown */
};
/* Before the first thread; later calls may change format and level. */
void mc_log_open(const struct mc_log_opts *opts);

/* fmt gives the key=value pairs; a value that may hold spaces stands in double quotes. */
void mc_log(enum mc_log_level level, const char *event, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
#define MC_LOG_KEY_CHARS "abcdefghijklmnopqrstuvwxyz0123456789_"

/* A line as one JSON object: time, level, event, and the pairs of text as strings. 0 or -ENOMEM. */
int mc_log_json(const struct timespec *at, enum mc_log_level level, const char *event,
	const char *text, FILE *out);
/* The last 256 lines like that, oldest first. */
int mc_log_recent(FILE *out);

/* At most one line each interval; what is kept back is counted. Zero-initialised = one a second. */
struct mc_log_limit {
	uint64_t interval_ns; /* set before first use; 0 = 1 s */
	_Atomic uint64_t next_ns;
	_Atomic uint64_t suppressed;
};

/* True when a line may be written now; *ret_suppressed: lines kept back since the last one. */
bool mc_log_allowed(struct mc_log_limit *l, uint64_t *ret_suppressed);
