/* Names of checkpoints and revisions, and the escaping of '/' in a revision. */
#include "manifest/catalogue.h"

#include <errno.h>
#include <string.h>

bool mc_model_name_good(const char *name)
{
	return name[0] != '.' && strchr(name, '@') == NULL && mc_name_fault(name) == NULL;
}

/* "%2F" or "%25" stands at p. */
static bool escape_at(const char *p)
{
	return p[0] == '%' && p[1] == '2' && (p[2] == 'F' || p[2] == '5');
}

bool mc_rev_good(const char *rev)
{
	for (const char *p = strchr(rev, '%'); p != NULL; p = strchr(p + 1, '%'))
		if (!escape_at(p))
			return false;
	return rev[0] != '.' && strcmp(rev, "latest") != 0 && mc_name_fault(rev) == NULL;
}

/* Copies text[0 .. len) as it is; false when it does not fit. */
static bool copy(char out[MC_NAME_MAX + 1], const char *text, size_t len)
{
	if (len > MC_NAME_MAX)
		return false;
	memcpy(out, text, len);
	out[len] = '\0';
	return true;
}

static bool escape(char out[MC_NAME_MAX + 1], const char *rev)
{
	size_t n = 0;

	for (; *rev != '\0'; rev++) {
		const char *piece = *rev == '/' ? "%2F" : "%25";
		bool plain = *rev != '/' && (*rev != '%' || escape_at(rev));
		size_t len = plain ? 1 : 3;

		if (n + len > MC_NAME_MAX)
			return false;
		memcpy(out + n, plain ? rev : piece, len);
		n += len;
	}
	out[n] = '\0';
	return true;
}

int mc_rev_name_parse(const char *text, struct mc_rev_name *ret, struct mc_err *err)
{
	const char *slash = strchr(text, '/'), *at = strchr(text, '@');
	struct mc_rev_name name = {0};

	if (at == NULL)
		at = text + strlen(text);
	if (slash == NULL || slash > at)
		return mc_err_set(err, -EINVAL, "\"%.200s\" is not ORG/MODEL[@REVISION]", text);
	if (!copy(name.org, text, (size_t)(slash - text)) ||
		!copy(name.model, slash + 1, (size_t)(at - slash - 1)) ||
		!mc_model_name_good(name.org) || !mc_model_name_good(name.model))
		return mc_err_set(err, -EINVAL,
			"\"%.200s\": ORG and MODEL are plain names without '/' or '@', not "
			"starting with"
			" '.'",
			text);
	if (*at == '@' && (!escape(name.rev, at + 1) || !mc_rev_good(name.rev)))
		return mc_err_set(err, -EINVAL,
			"\"%.200s\": the revision is empty, too long, \"latest\", starts with '.' "
			"or has"
			" a control character",
			text);
	if (strlen(name.model) + 1 + strlen(name.rev) > MC_NAME_MAX)
		return mc_err_set(err, -EINVAL,
			"\"%.200s\": MODEL@REVISION is longer than %d bytes", text, MC_NAME_MAX);
	*ret = name;
	return 0;
}
