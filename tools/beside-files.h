/* What stands beside the weights in a local directory, to be put beside other weights. */
#pragma once

#include "tier/error.h"

#include <stddef.h>

struct mc_view;

struct mc_beside {
	struct mc_view **file; /* n views of one file, owned */
	unsigned n;
};

/* The plain files at the top of dir that hold no weights, each at most 64 MiB. -EFBIG, -ENOMEM, or
 * as reading them fails, with a text; done is called in every case. */
int mc_beside_open(const char *dir, struct mc_beside *ret, struct mc_err *err);
/* One more file, with these bytes, which are copied. -ENOMEM. */
int mc_beside_text(const char *name, const void *text, size_t len, struct mc_beside *ret);
void mc_beside_done(struct mc_beside *b);
