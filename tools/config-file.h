/* A configuration file as text and as JSON: which keys it holds and on which line each stands. */
#pragma once

#include "tier/error.h"

struct json_t;

struct mc_config_file {
	const char *path;    /* borrowed */
	char *text;          /* owned, NUL-terminated */
	struct json_t *root; /* owned, an object */
};

/* -ENOENT …, -EFBIG beyond 1 MiB, -EINVAL for what is no JSON object, all described in err. The
 * caller calls close after success. */
int mc_config_file_open(const char *path, struct mc_config_file *ret, struct mc_err *err);
void mc_config_file_close(struct mc_config_file *f);
/* The line, from 1, on which a key of the object stands. */
unsigned mc_config_file_line(const struct mc_config_file *f, const char *key);
