/* Sizes as people write them, read without overflow and without floating point. */
#include "tools/size.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const struct {
	const char *name;
	uint64_t bytes;
} units[] = {
	{"", 1},
	{"B", 1},
	{"K", UINT64_C(1) << 10},
	{"M", UINT64_C(1) << 20},
	{"G", UINT64_C(1) << 30},
	{"T", UINT64_C(1) << 40},
	{"P", UINT64_C(1) << 50},
	{"KiB", UINT64_C(1) << 10},
	{"MiB", UINT64_C(1) << 20},
	{"GiB", UINT64_C(1) << 30},
	{"TiB", UINT64_C(1) << 40},
	{"PiB", UINT64_C(1) << 50},
	{"kB", UINT64_C(1000)},
	{"MB", UINT64_C(1000000)},
	{"GB", UINT64_C(1000000000)},
	{"TB", UINT64_C(1000000000000)},
	{"PB", UINT64_C(1000000000000000)},
};

/* The whole part; *text moves past the digits, of which there must be one. */
static int parse_whole(const char **text, uint64_t *ret)
{
	const char *s = *text;
	uint64_t v = 0;

	if (!isdigit((unsigned char)*s))
		return -EINVAL;
	for (; isdigit((unsigned char)*s); s++)
		if (__builtin_mul_overflow(v, 10u, &v) ||
			__builtin_add_overflow(v, (uint64_t)(*s - '0'), &v))
			return -ERANGE;
	*text = s;
	*ret = v;
	return 0;
}

/* ".25" as millionths; further digits are cut off. */
static int parse_fraction(const char **text, uint64_t *ret_millionths)
{
	const char *s = *text;
	uint64_t v = 0, place = 100000;

	*ret_millionths = 0;
	if (*s != '.')
		return 0;
	s++;
	if (!isdigit((unsigned char)*s))
		return -EINVAL;
	for (; isdigit((unsigned char)*s); s++, place /= 10)
		v += place * (uint64_t)(*s - '0');
	*text = s;
	*ret_millionths = v;
	return 0;
}

int mc_size_parse(const char *text, uint64_t *ret_bytes)
{
	uint64_t whole, millionths, bytes;
	bool fraction;
	int r = parse_whole(&text, &whole);

	if (r < 0)
		return r;
	fraction = *text == '.';
	r = parse_fraction(&text, &millionths);
	if (r < 0)
		return r;
	if (*text == ' ' && text[1] != '\0')
		text++;
	for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++) {
		if (strcasecmp(units[i].name, text) != 0)
			continue;
		if (fraction && units[i].bytes == 1)
			return -EINVAL;
		if (__builtin_mul_overflow(whole, units[i].bytes, &bytes))
			return -ERANGE;
		/* Multiplied in two steps: 10^6 × 2^50 does not fit 64 bits. */
		millionths = units[i].bytes / 1000000 * millionths +
			units[i].bytes % 1000000 * millionths / 1000000;
		if (__builtin_add_overflow(bytes, millionths, &bytes))
			return -ERANGE;
		*ret_bytes = bytes;
		return 0;
	}
	return -EINVAL;
}

void mc_size_format(uint64_t bytes, char out[MC_SIZE_TEXT])
{
	static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double v = (double)bytes;
	size_t unit = 0;

	/* 1023.5 would be printed as 1024. */
	while (v >= 1023.5 && unit + 1 < sizeof(names) / sizeof(*names)) {
		v /= 1024;
		unit++;
	}
	if (unit == 0 || v >= 100 || v == (double)(uint64_t)v)
		snprintf(out, MC_SIZE_TEXT, "%.0f %s", v, names[unit]);
	else
		snprintf(out, MC_SIZE_TEXT, v >= 10 ? "%.1f %s" : "%.2f %s", v, names[unit]);
}

int mc_place_parse(const char *text, size_t *ret_dir, uint64_t *ret_bytes)
{
	const char *comma = strrchr(text, ',');
	size_t len = comma == NULL ? strlen(text) : (size_t)(comma - text);
	uint64_t bytes = 0;

	if (len == 0 || (comma != NULL && (mc_size_parse(comma + 1, &bytes) < 0 || bytes == 0)))
		return -EINVAL;
	*ret_dir = len;
	*ret_bytes = bytes;
	return 0;
}

void mc_size_exact(uint64_t bytes, char out[MC_SIZE_TEXT])
{
	static const char *const names[] = {"", "KiB", "MiB", "GiB", "TiB"};
	size_t i = 0;

	while (bytes != 0 && bytes % 1024 == 0 && i + 1 < sizeof(names) / sizeof(*names)) {
		bytes /= 1024;
		i++;
	}
	snprintf(out, MC_SIZE_TEXT, "%" PRIu64 "%s", bytes, names[i]);
}
