/* The keeper's own program: where it lies, and starting it again. For tools/keeper.c. */
#pragma once

#include <stdbool.h>

struct mc_keeper;

/* Remembers program, arguments and directory, all of which may change. -errno. */
int mc_program_note(struct mc_keeper *k);
/* What the program before this one left: its descriptors, -1 = none. True: it is to be tried only.
 */
bool mc_program_inherited(int *ret_device, int *ret_table);
/* Starts the program that lies where ours lay; returns only when that fails: -errno. In a child
 * process, when it is_try. */
int mc_program_start(const struct mc_keeper *k, bool is_try);
