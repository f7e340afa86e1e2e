/* Reading untrusted JSON: depth capped before the parser recurses, duplicates and reals refused. */
#include "manifest/json.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

/* Deepest nesting of brackets outside strings; stops counting above max. */
static unsigned depth(const char *p, size_t len, unsigned max)
{
	unsigned now = 0, deepest = 0;
	bool string = false;

	for (size_t i = 0; i < len && deepest <= max; i++) {
		if (string) {
			if (p[i] == '\\')
				i++;
			else if (p[i] == '"')
				string = false;
		} else if (p[i] == '"') {
			string = true;
		} else if (p[i] == '{' || p[i] == '[') {
			now++;
			deepest = now > deepest ? now : deepest;
		} else if ((p[i] == '}' || p[i] == ']') && now > 0) {
			now--;
		}
	}
	return deepest;
}

int mc_json_load(const void *text, size_t len, unsigned max_depth, json_t **ret, struct mc_err *err)
{
	json_error_t e;
	json_t *v;

	if (depth(text, len, max_depth) > max_depth)
		return mc_err_set(err, -EBADMSG, "JSON nested deeper than %u", max_depth);
	v = json_loadb(text, len, JSON_REJECT_DUPLICATES, &e);
	if (v == NULL) {
		/* Out of memory is mostly told by no text at all. */
		if (json_error_code(&e) == json_error_out_of_memory || e.text[0] == '\0')
			return mc_err_set(
				err, -ENOMEM, "not enough memory for %zu bytes of JSON", len);
		return mc_err_set(
			err, -EBADMSG, "bad JSON, line %d column %d: %s", e.line, e.column, e.text);
	}
	*ret = v;
	return 0;
}

int mc_json_uint(const json_t *v, uint64_t max, uint64_t *ret)
{
	json_int_t n;

	if (!json_is_integer(v))
		return -EBADMSG;
	n = json_integer_value(v);
	if (n < 0 || (uint64_t)n > max)
		return -EBADMSG;
	*ret = (uint64_t)n;
	return 0;
}

const char *mc_json_unknown_key(const json_t *obj, const char *const *known)
{
	void *it = json_object_iter((json_t *)obj);

	for (; it != NULL; it = json_object_iter_next((json_t *)obj, it)) {
		const char *key = json_object_iter_key(it);
		size_t i = 0;

		while (known[i] != NULL && strcmp(known[i], key) != 0)
			i++;
		if (known[i] == NULL)
			return key;
	}
	return NULL;
}
