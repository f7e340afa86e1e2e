/* Manual pages from the tables of commands and options, in man(7)'s macros. */
#pragma once

#include <stdio.h>

struct mc_command;

/* mooncakefs-NAME(1). */
void mc_man_command(const struct mc_command *c, FILE *out);
/* mooncakefs(1): the commands, the exit codes, the other pages. */
void mc_man_program(FILE *out);
/* mooncakefs.json(5): the keys of the configuration file. */
void mc_man_config(FILE *out);
/* Completion rules for bash. */
void mc_completion(FILE *out);
