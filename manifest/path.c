/* Rules for names that come from outside. */
#include "manifest/path.h"

#include <string.h>

#include "manifest/utf8.h"

static const char *component_fault(const char *p, size_t len)
{
	if (len == 0)
		return "has an empty component";
	if (len == 1 && p[0] == '.')
		return "has a '.' component";
	if (len == 2 && p[0] == '.' && p[1] == '.')
		return "has a '..' component";
	if (len > MC_NAME_MAX)
		return "has a component longer than 255 bytes";
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)p[i] < 0x20 || p[i] == 0x7f)
			return "has a control character";
	return NULL;
}

const char *mc_path_fault(const char *path)
{
	size_t len = strlen(path);
	const char *p = path;

	if (len == 0)
		return "is empty";
	if (p[0] == '/')
		return "is absolute";
	if (len > MC_PATH_MAX)
		return "is longer than 4095 bytes";
	if (!mc_utf8_valid(path, len, NULL))
		return "is not UTF-8";
	for (;;) {
		const char *end = strchrnul(p, '/');
		const char *fault = component_fault(p, (size_t)(end - p));

		if (fault != NULL)
			return fault;
		if (*end == '\0')
			return NULL;
		p = end + 1;
	}
}

const char *mc_name_fault(const char *name)
{
	return strchr(name, '/') != NULL ? "contains '/'" : mc_path_fault(name);
}

const char *mc_link_fault(const char *path, const char *target)
{
	const char *p = target;
	size_t ups = 0, parents = 0;

	for (const char *s = path; *s != '\0'; s++)
		parents += *s == '/';
	if (target[0] == '\0')
		return "is empty";
	if (strlen(target) > MC_PATH_MAX)
		return "is longer than 4095 bytes";
	while (p[0] == '.' && p[1] == '.' && (p[2] == '/' || p[2] == '\0')) {
		ups++;
		p += p[2] == '/' ? 3 : 2;
	}
	if (ups > parents)
		return "leaves the checkpoint";
	if (*p == '\0')
		return p[-1] == '/' ? "has an empty component" : NULL;
	return mc_path_fault(p);
}
