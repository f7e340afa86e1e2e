/*
 * What the background has to tell: one line with the tier, the file and the way out, at most one a
 * second for each kind, so that an outage does not bury the rest.
 */
#include "tier/store-impl.h"

#include "tier/image-name.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define EVENT_NS 1000000000u

/* Whether a line may be written now; a kind beyond the table is never held back. */
static bool event_allowed(struct mc_store *s, const char *event, uint64_t *ret_suppressed)
{
	uint64_t now = mc_now_ns();
	bool allowed = true;

	*ret_suppressed = 0;
	mc_mutex_lock(&s->event_lock);
	for (size_t i = 0; i < sizeof(s->limits) / sizeof(s->limits[0]); i++) {
		struct mc_event_limit *l = &s->limits[i];

		if (l->event != NULL && strcmp(l->event, event) != 0)
			continue;
		l->event = event;
		allowed = now >= l->next_ns;
		if (allowed) {
			l->next_ns = now + EVENT_NS;
			*ret_suppressed = l->suppressed;
			l->suppressed = 0;
		} else {
			l->suppressed++;
		}
		break;
	}
	mc_mutex_unlock(&s->event_lock);
	return allowed;
}

void mc_store_event(struct mc_store *s, const char *event, const char *fmt, ...)
{
	uint64_t suppressed;
	char text[800];
	va_list ap;
	int n;

	if (s->opts.event == NULL || !event_allowed(s, event, &suppressed))
		return;
	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (suppressed > 0 && n >= 0 && (size_t)n < sizeof(text))
		snprintf(text + n, sizeof(text) - (size_t)n, " (%llu more left out)",
			(unsigned long long)suppressed);
	s->opts.event(s->opts.event_ctx, event, text);
}

__attribute__((format(printf, 5, 0))) static void file_event(struct mc_store *s,
	const struct mc_file *f, const char *event, bool device, const char *fmt, va_list ap)
{
	char name[MC_IMAGE_NAME_MAX], text[300];

	vsnprintf(text, sizeof(text), fmt, ap);
	mc_image_name(&f->id, name);
	if (device)
		mc_store_event(s, event, "tier=block file=%s %s", name, text);
	else
		mc_store_event(
			s, event, "tier=nvme dir=%s file=%s %s", s->opts.nvme_dir, name, text);
}

void mc_event_device(
	struct mc_store *s, const struct mc_file *f, const char *event, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	file_event(s, f, event, true, fmt, ap);
	va_end(ap);
}

void mc_event_nvme(
	struct mc_store *s, const struct mc_file *f, const char *event, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	file_event(s, f, event, s->nvme == NULL, fmt, ap);
	va_end(ap);
}

static const char *what_to_do(int res)
{
	switch (-res) {
	case EBADMSG:
		return "bytes do not match their checksum; mooncakefs verify finds what is wrong "
		       "there";
	case ENOENT:
		return "the object is missing; importing the same source again restores it";
	case ESTALE:
		return "the file is not what it was when it was imported; import it again";
	default:
		return NULL;
	}
}

void mc_event_remote(
	struct mc_store *s, const struct mc_file *f, uint64_t block, const char *object, int res)
{
	const char *what = what_to_do(res);
	char name[MC_IMAGE_NAME_MAX];

	mc_image_name(&f->id, name);
	mc_store_event(s, res == -EBADMSG ? "remote-bad-block" : "fetch-failed",
		"tier=remote url=%s object=%s file=%s block=%llu: %s%s",
		mc_remote_url(s->opts.remote), object != NULL ? object : "-", name,
		(unsigned long long)block, what != NULL ? what : strerror(-res),
		what != NULL ? "" : mc_err_hint(res));
}
