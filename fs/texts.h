/*
 * Texts in memory that outlives the process: what is known about free memory is not kept there, but
 * found anew by each user from the texts that are still named. Thread-safe.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mc_texts;

#define MC_TEXT_MAX 4352 /* bytes */

/* mem: borrowed until close; bytes: at most 32 GiB. Nothing is in use until claimed. */
int mc_texts_open(void *mem, size_t bytes, struct mc_texts **ret);
void mc_texts_close(struct mc_texts *t); /* NULL allowed */

/* A text that an earlier user left is still in use; any number of times. False: there is none. */
bool mc_texts_claim(struct mc_texts *t, uint32_t ref);
/* All are claimed: add and drop may follow. */
void mc_texts_ready(struct mc_texts *t);

/* A copy of len bytes: its reference, > 0; 0 = there is no room. */
uint32_t mc_texts_add(struct mc_texts *t, const void *text, size_t len);
void mc_texts_drop(struct mc_texts *t, uint32_t ref); /* 0 allowed */
/* Borrowed until drop. NULL: not the reference of a text. */
const void *mc_texts_get(const struct mc_texts *t, uint32_t ref, size_t *ret_len);
