/* Canonical JSON: writing it, hashing it, and the one number that jansson cannot hold. */
#include "manifest/weight-canon.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tier/cleanup.h"
#include "tier/digest.h"

/* One code point of valid UTF-8. */
static uint32_t decode(const uint8_t **s)
{
	const uint8_t *p = *s;
	uint32_t c = *p++;
	unsigned more = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : c >= 0xc0 ? 1 : 0;

	c &= more == 3 ? 0x07 : more == 2 ? 0x0f : more == 1 ? 0x1f : 0x7f;
	for (; more > 0; more--)
		c = c << 6 | (*p++ & 0x3f);
	*s = p;
	return c;
}

static void put_escaped(struct mc_canon *c, uint32_t point)
{
	static const char shorts[] = "\b\f\n\r\t\"\\", letters[] = "bfnrt\"\\";
	const char *at = point < 128 && point > 0 ? strchr(shorts, (int)point) : NULL;
	char text[16];

	if (at != NULL)
		snprintf(text, sizeof(text), "\\%c", letters[at - shorts]);
	else if (point < 0x10000)
		snprintf(text, sizeof(text), "\\u%04x", point);
	else
		snprintf(text, sizeof(text), "\\u%04x\\u%04x", 0xd800 + (point - 0x10000) / 0x400,
			0xdc00 + (point - 0x10000) % 0x400);
	mc_json_put(&c->out, text);
}

static void put_string(struct mc_canon *c, const char *text, size_t len)
{
	const uint8_t *s = (const uint8_t *)text, *end = s + len, *from = s;

	mc_json_put(&c->out, "\"");
	while (s < end) {
		const uint8_t *at = s;
		uint32_t point = decode(&s);

		/* ASCII mode keeps ' ' to '~' only, which leaves out DEL. */
		if (point >= 0x20 && point != '"' && point != '\\' && (!c->ascii || point < 0x7f))
			continue;
		mc_json_put_mem(&c->out, from, (size_t)(at - from));
		put_escaped(c, point);
		from = s;
	}
	mc_json_put_mem(&c->out, from, (size_t)(end - from));
	mc_json_put(&c->out, "\"");
}

static int key_compare(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void put_value(struct mc_canon *c, const json_t *v, unsigned depth, const char *extra_key,
	const char *extra);

static void put_object(struct mc_canon *c, const json_t *v, unsigned depth, const char *extra_key,
	const char *extra)
{
	size_t n = json_object_size(v), i = 0;
	cleanup_free const char **keys = malloc((n + 1) * sizeof(*keys));
	const char *key;
	json_t *value;

	if (keys == NULL) {
		c->out.failed = true;
		return;
	}
	json_object_foreach((json_t *)(uintptr_t)v, key, value) keys[i++] = key;
	if (extra_key != NULL)
		keys[i++] = extra_key;
	qsort(keys, i, sizeof(*keys), key_compare);
	mc_json_put(&c->out, "{");
	for (size_t k = 0; k < i; k++) {
		mc_json_put(&c->out, k > 0 ? "," : "");
		put_string(c, keys[k], strlen(keys[k]));
		mc_json_put(&c->out, ":");
		if (keys[k] == extra_key)
			put_string(c, extra, strlen(extra));
		else if (depth == 0 && strcmp(keys[k], "weight_generation") == 0)
			mc_json_put_uint(&c->out, c->generation);
		else
			put_value(c, json_object_get(v, keys[k]), depth + 1, NULL, NULL);
	}
	mc_json_put(&c->out, "}");
}

static void put_value(struct mc_canon *c, const json_t *v, unsigned depth, const char *extra_key,
	const char *extra)
{
	switch (json_typeof(v)) {
	case JSON_OBJECT:
		put_object(c, v, depth, extra_key, extra);
		break;
	case JSON_ARRAY:
		mc_json_put(&c->out, "[");
		for (size_t i = 0; i < json_array_size(v); i++) {
			mc_json_put(&c->out, i > 0 ? "," : "");
			put_value(c, json_array_get(v, i), depth + 1, NULL, NULL);
		}
		mc_json_put(&c->out, "]");
		break;
	case JSON_STRING:
		put_string(c, json_string_value(v), json_string_length(v));
		break;
	case JSON_INTEGER:
		mc_json_put_int(&c->out, json_integer_value(v));
		break;
	default:
		mc_json_put(&c->out,
			json_is_true(v)            ? "true"
				: json_is_false(v) ? "false"
						   : "null");
	}
}

void mc_canon_put(struct mc_canon *c, const json_t *v, const char *extra_key, const char *extra)
{
	put_value(c, v, 0, extra_key, extra);
}

int mc_canon_digest(struct mc_canon *c, char out[65])
{
	uint8_t digest[MC_SHA256_SIZE];
	int r = c->out.failed ? -ENOMEM : mc_sha256(c->out.b.p, c->out.b.len, digest);

	if (r == 0)
		mc_hex_encode(digest, sizeof(digest), out);
	c->out.b.len = 0;
	c->out.failed = false;
	return r;
}

/* The place after the string that starts at text[at] == '"'. */
static size_t skip_string(const char *text, size_t len, size_t at)
{
	for (at++; at < len && text[at] != '"'; at++)
		at += text[at] == '\\';
	return at + 1;
}

static size_t skip_space(const char *text, size_t len, size_t at)
{
	while (at < len &&
		(text[at] == ' ' || text[at] == '\t' || text[at] == '\n' || text[at] == '\r'))
		at++;
	return at;
}

/* Where the digits of the top-level number begin; len when it is not there. */
static size_t find_generation(const char *text, size_t len)
{
	static const char key[] = "\"weight_generation\"";
	unsigned depth = 0;

	for (size_t at = 0; at < len;) {
		size_t next = at + 1;

		depth += text[at] == '{' || text[at] == '[';
		depth -= (text[at] == '}' || text[at] == ']') && depth > 0;
		if (text[at] == '"')
			next = skip_string(text, len, at);
		if (text[at] == '"' && depth == 1 && next - at == sizeof(key) - 1 && next <= len &&
			memcmp(text + at, key, sizeof(key) - 1) == 0) {
			size_t colon = skip_space(text, len, next);

			if (colon < len && text[colon] == ':')
				return skip_space(text, len, colon + 1);
		}
		at = next;
	}
	return len;
}

int mc_canon_take_generation(const char *text, size_t len, char **ret, uint64_t *ret_generation)
{
	size_t at = find_generation(text, len), from = at;
	uint64_t v = 0;
	char *copy;

	for (; at < len && text[at] >= '0' && text[at] <= '9'; at++)
		if (__builtin_mul_overflow(v, 10u, &v) ||
			__builtin_add_overflow(v, (uint64_t)(text[at] - '0'), &v))
			return -EBADMSG;
	if (at == from || (text[from] == '0' && at - from > 1) ||
		(at < len && (text[at] == '.' || text[at] == 'e' || text[at] == 'E')))
		return -EBADMSG;
	copy = malloc(len + 1);
	if (copy == NULL)
		return -ENOMEM;
	memcpy(copy, text, len);
	copy[len] = 0;
	copy[from] = '0';
	memset(copy + from + 1, ' ', at - from - 1);
	*ret = copy;
	*ret_generation = v;
	return 0;
}
