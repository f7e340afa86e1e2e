/* JSON lines on a stream. */
#include "tools/json-line.h"

static void put_text(FILE *out, const char *s)
{
	fputc('"', out);
	for (; *s != '\0'; s++) {
		if (*s == '"' || *s == '\\')
			fputc('\\', out);
		if ((unsigned char)*s < 0x20)
			fprintf(out, "\\u%04x", (unsigned char)*s);
		else
			fputc(*s, out);
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
