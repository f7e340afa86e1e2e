/* The keeper's own program: where it lies, and starting it again. For tools/keeper.c. */
#pragma once

#include <stdbool.h>

struct mc_keeper;

/* What a keeper handed to the program that it started. */
struct mc_inherited {
	int device, table, line; /* descriptors, the caller's; -1 = none */
	bool is_try;             /* it is to be tried only */
};

/* Remembers program, arguments and directory, all of which may change. -errno. */
int mc_program_note(struct mc_keeper *k);
/* -EPROTO: another program's. */
int mc_program_inherited(struct mc_inherited *ret);
/* In a child process: executes the program that lies where ours lay, as the worker at the other end
 * of line; -1: it is to be tried only. Returns only when that fails: -errno. */
int mc_program_execute(const struct mc_keeper *k, int line);
