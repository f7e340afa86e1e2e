/* Helpers for tests of layouts: compiling a document, finding a rank's tensor. */
#pragma once

#include "manifest/layout.h"
#include "tests/suite.h"

#include <string.h>

#define HEAD "\"format\":\"reshard-layout\",\"version\":1,"
#define TP2 HEAD "\"mesh\":{\"axes\":[[\"tp\",2]]},"

static const char *test_config; /* config.json of the next models, NULL = none */

/* Compiles a document for a table of tensors; returns the error or 0. */
static inline int compile(const char *text, const struct mc_layout_tensor *t, uint32_t n,
	struct mc_layout **l, struct mc_sharding **s, struct mc_err *err)
{
	json_t *c = test_config != NULL ? json_loads(test_config, 0, NULL) : NULL;
	struct mc_layout_in in = {.config = c, .tensors = t, .n_tensors = n};
	int r;

	memset(err, 0, sizeof(*err));
	*l = NULL;
	*s = NULL;
	r = mc_layout_parse(text, strlen(text), l, err);
	ck_assert_msg(r == 0, "%s: %s", text, err->text);
	in.layout = *l;
	r = mc_layout_compile(&in, s, err);
	json_decref(c);
	return r;
}

static inline const struct mc_local *find(const struct mc_rank_tensors *v, const char *name)
{
	for (uint32_t i = 0; i < v->n; i++)
		if (strcmp(v->local[i].name, name) == 0)
			return &v->local[i];
	return NULL;
}
