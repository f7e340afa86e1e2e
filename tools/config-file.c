/* Reading a configuration file, and finding the place of a key in its text. */
#include "tools/config-file.h"

#include "tier/cleanup.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define CONFIG_MAX_BYTES (1 << 20)

/* The whole file, NUL-terminated; the caller frees it. */
static int read_file(const char *path, char **ret, struct mc_err *err)
{
	FILE *f = fopen(path, "re");
	char *buf;
	size_t n;
	int r = 0;

	if (f == NULL) {
		r = -errno;
		return mc_err_set(err, r, "%s: %s", path, strerror(-r));
	}
	buf = malloc(CONFIG_MAX_BYTES + 1);
	n = buf == NULL ? 0 : fread(buf, 1, CONFIG_MAX_BYTES + 1, f);
	if (buf == NULL)
		r = mc_err_set(err, -ENOMEM, "%s: out of memory", path);
	else if (ferror(f))
		r = mc_err_set(err, -EIO, "%s: cannot be read", path);
	else if (n > CONFIG_MAX_BYTES)
		r = mc_err_set(err, -EFBIG, "%s: more than 1 MiB is no configuration file", path);
	else if (memchr(buf, '\0', n) != NULL)
		r = mc_err_set(err, -EINVAL, "%s: holds a NUL byte, so it is no text", path);
	fclose(f);
	if (r < 0) {
		free(buf);
		return r;
	}
	buf[n] = '\0';
	*ret = buf;
	return 0;
}

int mc_config_file_open(const char *path, struct mc_config_file *ret, struct mc_err *err)
{
	cleanup_free char *text = NULL;
	json_error_t where;
	json_t *root;
	int r = read_file(path, &text, err);

	if (r < 0)
		return r;
	root = json_loads(text, JSON_REJECT_DUPLICATES, &where);
	if (root == NULL)
		return mc_err_set(
			err, -EINVAL, "%s:%d:%d: %s", path, where.line, where.column, where.text);
	if (!json_is_object(root)) {
		json_decref(root);
		return mc_err_set(err, -EINVAL, "%s:1: not a JSON object", path);
	}
	*ret = (struct mc_config_file){.path = path, .text = steal_ptr(text), .root = root};
	return 0;
}

void mc_config_file_close(struct mc_config_file *f)
{
	json_decref(f->root);
	free(f->text);
	*f = (struct mc_config_file){0};
}

/* Behind the closing quote of the string that begins at s; the text is known to be JSON. */
static const char *string_end(const char *s)
{
	for (s++; *s != '\0' && *s != '"'; s++)
		if (*s == '\\' && s[1] != '\0')
			s++;
	return *s == '"' ? s + 1 : s;
}

/* Whether the string between s and end, escapes and all, says key and a colon follows. */
static bool is_key(const char *s, const char *end, const char *key)
{
	json_t *string;
	bool same;

	if (end[strspn(end, " \t\r\n")] != ':')
		return false;
	string = json_loadb(s, (size_t)(end - s), JSON_DECODE_ANY, NULL);
	same = json_is_string(string) && strcmp(json_string_value(string), key) == 0;
	json_decref(string);
	return same;
}

unsigned mc_config_file_line(const struct mc_config_file *f, const char *key)
{
	unsigned line = 1, depth = 0;

	for (const char *s = f->text; *s != '\0'; s++) {
		if (*s == '"') {
			const char *end = string_end(s);

			if (depth == 1 && is_key(s, end, key))
				return line;
			s = end - 1; /* a string holds no line break */
		} else if (*s == '\n') {
			line++;
		} else if (*s == '{' || *s == '[') {
			depth++;
		} else if (*s == '}' || *s == ']') {
			depth--;
		}
	}
	return 1;
}
