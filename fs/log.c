/*
 * Structured log lines to stderr or syslog, the last of them in memory, and the rate limit for
 * lines a client could provoke.
 *
 * Invariant: of the ring the lines [total - min(total, RING_LINES), total) are there, under
 * ring.lock, which is a leaf.
 */
#include "fs/log.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include "tier/lock.h"

#define RING_LINES 256
#define EVENT_BYTES 48
#define TEXT_BYTES 1024

static atomic_bool use_syslog, use_json, use_prefix;
static atomic_int shown = MC_LOG_INFO;

static const char *const level_name[] = {"error", "warning", "info", "debug"};

struct line {
	struct timespec at;
	enum mc_log_level level;
	char event[EVENT_BYTES];
	char text[TEXT_BYTES];
};

static struct {
	struct mc_mutex lock;
	struct line lines[RING_LINES];
	uint64_t total;
} ring = {.lock = MC_MUTEX_INIT};

/* Whether standard error leads to the journal, which takes a level from "<N>" before a line. */
static bool is_journal(void)
{
	const char *text = getenv("JOURNAL_STREAM");
	unsigned long long dev, ino;
	struct stat st;

	return text != NULL && sscanf(text, "%llu:%llu", &dev, &ino) == 2 &&
		fstat(STDERR_FILENO, &st) == 0 && st.st_dev == dev && st.st_ino == ino;
}

void mc_log_open(const struct mc_log_opts *opts)
{
	if (opts->to_syslog && !atomic_load(&use_syslog))
		openlog("mooncakefs", LOG_PID, LOG_DAEMON);
	atomic_store(&use_syslog, opts->to_syslog);
	atomic_store(&use_json, opts->json);
	atomic_store(&use_prefix, !opts->to_syslog && is_journal());
	atomic_store(&shown, (int)opts->level);
}

/* A line is one line: control bytes in a value (a file name) must not forge another. */
static void flatten(char *s)
{
	for (; *s != '\0'; s++) {
		if ((unsigned char)*s < 0x20 || *s == 0x7f)
			*s = '?';
	}
}

static void remember(
	const struct timespec *at, enum mc_log_level level, const char *event, const char *text)
{
	struct line *l;

	mc_mutex_lock(&ring.lock);
	l = &ring.lines[ring.total++ % RING_LINES];
	l->at = *at;
	l->level = level;
	snprintf(l->event, sizeof(l->event), "%s", event);
	snprintf(l->text, sizeof(l->text), "%s", text);
	mc_mutex_unlock(&ring.lock);
}

/* One write for one line, whatever threads there are. */
static void show(enum mc_log_level level, const char *line)
{
	static const int priority[] = {LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG};

	if (atomic_load_explicit(&use_syslog, memory_order_relaxed))
		syslog(priority[level], "%s", line);
	else if (atomic_load_explicit(&use_prefix, memory_order_relaxed))
		fprintf(stderr, "<%d>%s\n", priority[level], line);
	else
		fprintf(stderr, "%s\n", line);
}

static void show_json(
	const struct timespec *at, enum mc_log_level level, const char *event, const char *text)
{
	char *line = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&line, &size);
	int r = out == NULL ? -ENOMEM : mc_log_json(at, level, event, text, out);

	if (out != NULL && fclose(out) == 0 && r == 0) {
		line[strcspn(line, "\n")] = '\0';
		show(level, line);
	}
	free(line);
}

void mc_log(enum mc_log_level level, const char *event, const char *fmt, ...)
{
	int least = atomic_load_explicit(&shown, memory_order_relaxed);
	char text[TEXT_BYTES], line[TEXT_BYTES + 128];
	struct timespec now;
	va_list ap;

	if (level == MC_LOG_DEBUG && least < MC_LOG_DEBUG)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	flatten(text);
	clock_gettime(CLOCK_REALTIME, &now);
	remember(&now, level, event, text);
	if ((int)level > least)
		return;
	if (atomic_load_explicit(&use_json, memory_order_relaxed)) {
		show_json(&now, level, event, text);
		return;
	}
	if (atomic_load_explicit(&use_syslog, memory_order_relaxed) ||
		atomic_load_explicit(&use_prefix, memory_order_relaxed))
		snprintf(line, sizeof(line), "event=%s %s", event, text);
	else
		snprintf(line, sizeof(line), "mooncakefs: level=%s event=%s %s", level_name[level],
			event, text);
	show(level, line);
}

/* Where a value ends: a quoted one at the quote before the next key or the end, since the text in
 * it may hold quotes too. */
static const char *value_end(const char *value)
{
	const char *end;

	if (*value != '"')
		return value + strcspn(value, " ");
	for (end = strchr(value + 1, '"'); end != NULL; end = strchr(end + 1, '"')) {
		size_t key = end[1] == ' ' ? strspn(end + 2, MC_LOG_KEY_CHARS) : 0;

		if (end[1] == '\0' || (key > 0 && end[2 + key] == '='))
			return end;
	}
	return value + strlen(value); /* cut off */
}

static json_t *text_of(const char *s, size_t len)
{
	json_t *j = json_stringn(s, len);

	return j != NULL ? j : json_string("?"); /* not UTF-8 */
}

/* Adds the pairs of "key=value key=\"value\" …"; what is none is left out. */
static void add_pairs(json_t *obj, const char *text)
{
	while (*text != '\0') {
		size_t len = strspn(text, MC_LOG_KEY_CHARS);
		const char *value = text + len + 1, *end;
		char key[64];

		if (len == 0 || text[len] != '=' || len >= sizeof(key)) {
			text += strcspn(text, " ");
			text += strspn(text, " ");
			continue;
		}
		memcpy(key, text, len);
		key[len] = '\0';
		end = value_end(value);
		value += *value == '"';
		json_object_set_new(
			obj, key, text_of(value, end > value ? (size_t)(end - value) : 0));
		text = end + strspn(end, "\" ");
	}
}

int mc_log_json(const struct timespec *at, enum mc_log_level level, const char *event,
	const char *text, FILE *out)
{
	char time[64] = "";
	struct tm tm;
	size_t n = gmtime_r(&at->tv_sec, &tm) != NULL
		? strftime(time, sizeof(time), "%Y-%m-%dT%H:%M:%S", &tm)
		: 0;
	json_t *obj = json_object();
	int r;

	snprintf(time + n, sizeof(time) - n, ".%03ldZ", at->tv_nsec / 1000000);
	json_object_set_new(obj, "time", json_string(time));
	json_object_set_new(obj, "level", json_string(level_name[level]));
	json_object_set_new(obj, "event", text_of(event, strlen(event)));
	add_pairs(obj, text);
	r = obj != NULL ? json_dumpf(obj, out, JSON_COMPACT) : -1;
	fputc('\n', out);
	json_decref(obj);
	return r == 0 ? 0 : -ENOMEM;
}

int mc_log_recent(FILE *out)
{
	struct line *copy = malloc(sizeof(ring.lines));
	uint64_t total;
	int r = 0;

	if (copy == NULL)
		return -ENOMEM;
	mc_mutex_lock(&ring.lock);
	total = ring.total;
	memcpy(copy, ring.lines, sizeof(ring.lines));
	mc_mutex_unlock(&ring.lock);
	for (uint64_t i = total > RING_LINES ? total - RING_LINES : 0; r == 0 && i < total; i++) {
		const struct line *l = &copy[i % RING_LINES];

		r = mc_log_json(&l->at, l->level, l->event, l->text, out);
	}
	free(copy);
	return r;
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
