/*
 * A source for store tests: a file whose bytes are a function of the offset, cut into objects of
 * odd length under a directory that serves as a remote, with holes where asked.
 */
#pragma once

#include "tier/source.h"

struct pattern {
	const char *dir;   /* the remote's directory; objects are made in it */
	const char *name;  /* prefix of the objects, and what makes the identity */
	uint64_t size;     /* bytes */
	uint64_t hole_off; /* bytes [hole_off, hole_off + hole_len) are a hole; hole_len 0 = none */
	uint64_t hole_len;
	uint64_t bad_block; /* this block's checksum is wrong in the source; UINT64_MAX = none */
};

/* The byte the file has at off. */
uint8_t pattern_byte(const struct pattern *p, uint64_t off);
/* Writes the objects. */
void pattern_write(const struct pattern *p);
/* A new source; p outlives it. Counts live sources in pattern_live. */
struct mc_source *pattern_source(const struct pattern *p);
/* Whether buf holds the file's bytes from off. */
bool pattern_equal(const struct pattern *p, uint64_t off, const void *buf, size_t len);

extern _Atomic int pattern_live;
