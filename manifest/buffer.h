/* A byte buffer that doubles as it grows. One owner, not thread-safe. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct mc_buffer {
	uint8_t *p; /* owned */
	size_t len; /* bytes used */
	size_t cap; /* bytes allocated */
};

/* All zero is an empty buffer. */
void mc_buffer_done(struct mc_buffer *b);
/* Appends len bytes, uninitialised, and returns where they stand (valid until the next append);
 * NULL without memory. */
void *mc_buffer_extend(struct mc_buffer *b, size_t len);
/* Appends a copy. 0 or -ENOMEM. */
int mc_buffer_append(struct mc_buffer *b, const void *data, size_t len);
