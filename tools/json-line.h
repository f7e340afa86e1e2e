/* One JSON object on one line, written key by key. Text is escaped; what is not UTF-8
 * becomes U+FFFD. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct mc_json_line {
	FILE *out; /* borrowed */
	bool any;  /* a key was written */
};

void mc_json_line_begin(struct mc_json_line *j, FILE *out);
void mc_json_line_text(struct mc_json_line *j, const char *key, const char *value);
void mc_json_line_number(struct mc_json_line *j, const char *key, uint64_t value);
void mc_json_line_real(struct mc_json_line *j, const char *key, double value);
void mc_json_line_flag(struct mc_json_line *j, const char *key, bool value);
/* Ends the line and flushes it: who reads it sees it now. */
void mc_json_line_end(struct mc_json_line *j);
