/* Structured log lines to stderr or syslog, and the rate limit for lines a client could provoke. */
#include "fs/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>

#include "fs/fs.h"
#include "tier/lock.h"

static atomic_bool use_syslog;
static atomic_bool show_debug;

void mc_log_open(bool to_syslog, bool debug)
{
	if (to_syslog)
		openlog("mooncakefs", LOG_PID, LOG_DAEMON);
	atomic_store(&use_syslog, to_syslog);
	atomic_store(&show_debug, debug);
}

/* A line is one line: control bytes in a value (a file name) must not forge another. */
static void flatten(char *s)
{
	for (; *s != '\0'; s++) {
		if ((unsigned char)*s < 0x20 || *s == 0x7f)
			*s = '?';
	}
}

void mc_log(enum mc_log_level level, const char *event, const char *fmt, ...)
{
	static const int priority[] = {LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG};
	static const char *const name[] = {"error", "warning", "info", "debug"};
	char text[1024];
	va_list ap;

	if (level == MC_LOG_DEBUG && !atomic_load_explicit(&show_debug, memory_order_relaxed))
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	flatten(text);
	if (atomic_load_explicit(&use_syslog, memory_order_relaxed))
		syslog(priority[level], "event=%s %s", event, text);
	else
		fprintf(stderr, "mooncakefs: level=%s event=%s %s\n", name[level], event, text);
}

bool mc_log_allowed(struct mc_log_limit *l, uint64_t *ret_suppressed)
{
	uint64_t now = mc_now_ns();
	uint64_t next = atomic_load(&l->next_ns);
	uint64_t interval = l->interval_ns != 0 ? l->interval_ns : UINT64_C(1000000000);

	if (now < next || !atomic_compare_exchange_strong(&l->next_ns, &next, now + interval)) {
		atomic_fetch_add(&l->suppressed, 1);
		return false;
	}
	*ret_suppressed = atomic_exchange(&l->suppressed, 0);
	return true;
}
