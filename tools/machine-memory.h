/* How much memory this process may use: the machine's, or less where a control group says so. */
#pragma once

#include <stdint.h>

/* Bytes: the least of MemTotal and the limits of the control group (v1 or v2) and its parents. root
 * is put before /proc and /sys (for tests), "" otherwise. 0 when nothing can be read. */
uint64_t mc_machine_memory(const char *root);
