/* JSON lines on a stream. */
#include "tools/json-line.h"

/* Bytes of the character that begins at s, 1 to 4; 0: it is not UTF-8. */
static unsigned utf8(const char *s)
{
	const unsigned char *u = (const unsigned char *)s;
	unsigned n = u[0] < 0x80 ? 1 : u[0] >= 0xc2 && u[0] < 0xe0 ? 2 : 0;

	if (n == 0)
		n = (u[0] & 0xf0) == 0xe0 ? 3 : u[0] >= 0xf0 && u[0] < 0xf5 ? 4 : 0;
	for (unsigned i = 1; i < n; i++)
		if ((u[i] & 0xc0) != 0x80)
			return 0;
	/* Longer than it need be, a surrogate, or beyond the last one. */
	if ((u[0] == 0xe0 && u[1] < 0xa0) || (u[0] == 0xed && u[1] > 0x9f) ||
		(u[0] == 0xf0 && u[1] < 0x90) || (u[0] == 0xf4 && u[1] > 0x8f))
		return 0;
	return n;
}

static void put_text(FILE *out, const char *s)
{
	fputc('"', out);
	while (*s != '\0') {
		unsigned n = utf8(s);

		if (*s == '"' || *s == '\\')
			fputc('\\', out);
		if (n == 1 && (unsigned char)*s < 0x20)
			fprintf(out, "\\u%04x", (unsigned char)*s);
		else if (n > 0)
			fwrite(s, 1, n, out);
		else
			fputs("\\ufffd", out);
		s += n > 0 ? n : 1;
	}
	fputc('"', out);
}

static void put_key(struct mc_json_line *j, const char *key)
{
	fputs(j->any ? "," : "{", j->out);
	j->any = true;
	put_text(j->out, key);
	fputc(':', j->out);
}

void mc_json_line_begin(struct mc_json_line *j, FILE *out)
{
	*j = (struct mc_json_line){.out = out};
}

void mc_json_line_text(struct mc_json_line *j, const char *key, const char *value)
{
	put_key(j, key);
	put_text(j->out, value);
}

void mc_json_line_number(struct mc_json_line *j, const char *key, uint64_t value)
{
	put_key(j, key);
	fprintf(j->out, "%llu", (unsigned long long)value);
}

void mc_json_line_real(struct mc_json_line *j, const char *key, double value)
{
	put_key(j, key);
	fprintf(j->out, "%.3f", value);
}

void mc_json_line_flag(struct mc_json_line *j, const char *key, bool value)
{
	put_key(j, key);
	fputs(value ? "true" : "false", j->out);
}

void mc_json_line_end(struct mc_json_line *j)
{
	fputs(j->any ? "}\n" : "{}\n", j->out);
	fflush(j->out);
}
