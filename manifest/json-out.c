/* Writing compact JSON with deterministic bytes. */
#include "manifest/json-out.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void mc_json_put_mem(struct mc_json_out *o, const void *raw, size_t len)
{
	if (!o->failed && mc_buffer_append(&o->b, raw, len) < 0)
		o->failed = true;
}

void mc_json_put(struct mc_json_out *o, const char *raw)
{
	mc_json_put_mem(o, raw, strlen(raw));
}

void mc_json_put_uint(struct mc_json_out *o, uint64_t v)
{
	char text[20]; /* digits of 2^64 */
	size_t at = sizeof(text);

	/* Headers and manifests are mostly numbers: printf took a tenth of a header's time. */
	do {
		text[--at] = (char)('0' + v % 10);
		v /= 10;
	} while (v > 0);
	mc_json_put_mem(o, text + at, sizeof(text) - at);
}

void mc_json_put_int(struct mc_json_out *o, int64_t v)
{
	char text[24];

	mc_json_put_mem(o, text, (size_t)snprintf(text, sizeof(text), "%" PRId64, v));
}

/* The escape of one character, as Python's json module writes it. */
static void put_escape(struct mc_json_out *o, char c)
{
	static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
	const char *at = strchr(from, c);
	char text[12];

	if (at != NULL)
		snprintf(text, sizeof(text), "\\%c", to[at - from]);
	else
		snprintf(text, sizeof(text), "\\u%04x", (unsigned)c);
	mc_json_put(o, text);
}

void mc_json_put_string(struct mc_json_out *o, const char *text)
{
	mc_json_put(o, "\"");
	while (*text != '\0') {
		size_t plain = 0;

		while ((unsigned char)text[plain] >= 0x20 && text[plain] != '"' &&
			text[plain] != '\\')
			plain++;
		mc_json_put_mem(o, text, plain);
		text += plain;
		if (*text != '\0')
			put_escape(o, *text++);
	}
	mc_json_put(o, "\"");
}

void mc_json_put_comma(struct mc_json_out *o, bool *first)
{
	if (!*first)
		mc_json_put(o, ",");
	*first = false;
}
