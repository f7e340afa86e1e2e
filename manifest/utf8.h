/* UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* *ret_at (may be NULL) is the offset of the first byte of the first bad sequence. */
bool mc_utf8_valid(const void *text, size_t len, size_t *ret_at);
