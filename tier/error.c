/* Error text that travels up with a -errno. */
#include "tier/error.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int mc_err_set(struct mc_err *err, int code, const char *fmt, ...)
{
	va_list ap;

	assert(code < 0);
	if (err == NULL || err->text[0] != '\0')
		return code;
	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	return code;
}

int mc_err_prefix(struct mc_err *err, int code, const char *fmt, ...)
{
	char old[sizeof(err->text)];
	va_list ap;
	int n;

	assert(code < 0);
	if (err == NULL)
		return code;
	memcpy(old, err->text, sizeof(old));
	va_start(ap, fmt);
	n = vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= sizeof(err->text))
		return code;
	if (old[0] != '\0')
		snprintf(err->text + n, sizeof(err->text) - (size_t)n, ": %.*s",
			(int)(sizeof(old) - (size_t)n), old);
	else
		snprintf(err->text + n, sizeof(err->text) - (size_t)n, ": %s", strerror(-code));
	return code;
}

const char *mc_err_hint(int code)
{
	switch (-code) {
	case EACCES:
	case EPERM:
		return "; check the rights of the user that runs this";
	case ENOSPC:
	case EDQUOT:
		return "; make room there and run it again";
	case ENOMEM:
		return "; there is not so much memory: ask for less, or make some free";
	case EMFILE:
		return "; raise the limit of file descriptors (LimitNOFILE, ulimit -n)";
	case ENFILE:
		return "; raise fs.file-max";
	case EROFS:
		return "; that file system is mounted read-only";
	case ETIMEDOUT:
	case EHOSTUNREACH:
	case ECONNREFUSED:
		return "; is the server up and reachable? --deadline says how long to wait";
	case EIO:
		return "; the log of the machine that holds it may say more";
	default:
		return "";
	}
}
