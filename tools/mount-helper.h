/* The program as a helper of mount(8) and umount(8). */
#pragma once

#include <stdbool.h>

/* True when the program was called under a helper's name: it did its work, and *ret_code is what to
 * leave with, one of mount(8)'s exit codes. */
bool mc_mount_helper(int argc, char **argv, int *ret_code);
