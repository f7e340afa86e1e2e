/* Progress on a terminal or as JSON lines. Used by one thread. */
#include "tools/progress.h"

#include "tier/lock.h"
#include "tools/json-line.h"
#include "tools/size.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SMOOTH_NS 5e9
#define SAMPLE_NS UINT64_C(10000000) /* a rate over less says nothing */
#define SHOW_TERMINAL_NS UINT64_C(200000000)
#define SHOW_JSON_NS UINT64_C(1000000000)

void mc_progress_open(struct mc_progress_view *v, bool json)
{
	*v = (struct mc_progress_view){.json = json, .terminal = !json && isatty(STDERR_FILENO)};
}

void mc_progress_sample(struct mc_progress_view *v, const struct mc_progress *now, uint64_t now_ns)
{
	double seconds, weight, rate;

	if (v->stage == NULL || strcmp(v->stage, now->stage) != 0) {
		v->stage = now->stage;
		v->shown_ns = 0;
		v->rate = 0;
		v->sample_ns = now_ns;
		v->sample_bytes = now->bytes_done;
		return;
	}
	if (now_ns < v->sample_ns + SAMPLE_NS || now->bytes_done < v->sample_bytes)
		return;
	seconds = (double)(now_ns - v->sample_ns) / 1e9;
	rate = (double)(now->bytes_done - v->sample_bytes) / seconds;
	weight = seconds * 1e9 / SMOOTH_NS;
	if (v->rate == 0 || weight > 1)
		weight = 1;
	v->rate += (rate - v->rate) * weight;
	v->sample_ns = now_ns;
	v->sample_bytes = now->bytes_done;
}

/* Seconds to go, or -1 when nothing can be said. */
static long long seconds_left(const struct mc_progress_view *v, const struct mc_progress *now)
{
	double left;

	if (v->rate < 1 || now->bytes_total <= now->bytes_done)
		return -1;
	left = (double)(now->bytes_total - now->bytes_done) / v->rate;
	return left < 1e9 ? (long long)(left + 0.5) : -1;
}

static int add_time_left(char *out, size_t size, long long s)
{
	if (s < 0)
		return 0;
	if (s < 60)
		return snprintf(out, size, ", %lld s left", s);
	if (s < 3600)
		return snprintf(out, size, ", %lld min %lld s left", s / 60, s % 60);
	return snprintf(out, size, ", %lld h %lld min left", s / 3600, s % 3600 / 60);
}

void mc_progress_text(
	const struct mc_progress_view *v, const struct mc_progress *now, char out[MC_PROGRESS_TEXT])
{
	char done[MC_SIZE_TEXT], total[MC_SIZE_TEXT], rate[MC_SIZE_TEXT];
	int n;

	if (now->bytes_total == 0) {
		if (now->items_total == 0)
			snprintf(out, MC_PROGRESS_TEXT, "%s", now->stage);
		else
			snprintf(out, MC_PROGRESS_TEXT, "%s %llu of %llu", now->stage,
				(unsigned long long)now->items_done,
				(unsigned long long)now->items_total);
		return;
	}
	mc_size_format(now->bytes_done, done);
	mc_size_format(now->bytes_total, total);
	mc_size_format((uint64_t)v->rate, rate);
	n = snprintf(out, MC_PROGRESS_TEXT, "%s %s of %s (%.0f %%)", now->stage, done, total,
		100.0 * (double)now->bytes_done / (double)now->bytes_total);
	if (v->rate >= 1)
		n += snprintf(out + n, MC_PROGRESS_TEXT - (size_t)n, ", %s/s", rate);
	add_time_left(out + n, MC_PROGRESS_TEXT - (size_t)n, seconds_left(v, now));
}

static void show_json(const struct mc_progress_view *v, const struct mc_progress *now)
{
	long long left = seconds_left(v, now);

	printf("{\"event\":\"progress\",\"stage\":\"%s\",\"bytes_done\":%llu,\"bytes_total\":%llu,"
	       "\"items_done\":%llu,\"items_total\":%llu,\"bytes_per_second\":%.0f",
		now->stage, (unsigned long long)now->bytes_done,
		(unsigned long long)now->bytes_total, (unsigned long long)now->items_done,
		(unsigned long long)now->items_total, v->rate);
	if (left >= 0)
		printf(",\"seconds_left\":%lld", left);
	printf("}\n");
	fflush(stdout);
}

void mc_progress_show(void *view, const struct mc_progress *now)
{
	struct mc_progress_view *v = view;
	uint64_t now_ns = mc_now_ns();
	char text[MC_PROGRESS_TEXT];

	if (!v->json && !v->terminal)
		return;
	mc_progress_sample(v, now, now_ns);
	if (v->shown_ns != 0 &&
		now_ns - v->shown_ns < (v->json ? SHOW_JSON_NS : SHOW_TERMINAL_NS) &&
		now->bytes_done < now->bytes_total)
		return;
	v->shown_ns = now_ns;
	if (v->json) {
		show_json(v, now);
		return;
	}
	mc_progress_text(v, now, text);
	fprintf(stderr, "\r\033[K%s", text);
	fflush(stderr);
	v->line_open = true;
}

void mc_progress_say(struct mc_progress_view *v, const char *event, const char *text)
{
	struct mc_json_line j;

	if (v->json) {
		mc_json_line_begin(&j, stdout);
		mc_json_line_text(&j, "event", event);
		mc_json_line_text(&j, "text", text);
		mc_json_line_end(&j);
	}
	fprintf(stderr, "%s%s\n", v->line_open ? "\r\033[K" : "", text);
}

void mc_progress_close(struct mc_progress_view *v)
{
	if (v->line_open)
		fprintf(stderr, "\r\033[K");
	v->line_open = false;
}
