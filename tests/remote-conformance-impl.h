/* What the parts of the conformance suite of remotes share: the remote, and objects of known bytes.
 */
#pragma once

#include "tests/remote-conformance.h"

#include <stdint.h>
#include <stdlib.h>

#define MIB (1u << 20)

/* Of the running test. */
extern struct mc_remote *remote;
extern char base[64]; /* its directory, relative to the root */

/* "base/name", in one of a few buffers of this thread. */
const char *at(const char *name);

/* len bytes that tell where they stand, at a page; 4,096 more have room behind. The caller frees.
 */
uint8_t *pattern(size_t len);
/* Fails unless b is bytes [off, off + len) of the pattern. */
void check_bytes(const uint8_t *b, uint64_t off, size_t len);

void put(const char *path, const void *buf, size_t len);
void put_pattern(const char *path, size_t len);
/* 0 or −errno. */
int read_at(const char *path, uint64_t off, uint32_t len, void *buf);

/* For mc_remote_list: counts in an int. */
int count_each(void *ctx, const char *name, const struct mc_remote_attr *attr);

/* The parts. */
void conformance_reads(TCase *t);
void conformance_puts(TCase *t);
void conformance_names(TCase *t);
void conformance_add(TCase *t, const TTest *const *tests, size_t n);
