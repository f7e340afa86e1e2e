/* A command of the program: one row of command-table.c, one file cmd-<name>.c. */
#pragma once

#include "tier/error.h"
#include "tools/options.h"

/* Exit codes; mc_exit_codes says what each means, in every --help and manual page. */
enum {
	MC_EXIT_OK = 0,
	MC_EXIT_FAILED = 1,
	MC_EXIT_REPAIRED = 1, /* fsck: there was damage, and is no more; it never fails with 1 */
	MC_EXIT_USAGE = 2,
	MC_EXIT_DAMAGED = 3,    /* verify, repair, gc, fsck: bytes are missing or wrong */
	MC_EXIT_BUSY = 4,       /* umount, fsck: somebody uses it */
	MC_EXIT_INCOMPLETE = 5, /* warm: the tier does not hold all of it */
};

struct mc_command {
	const char *name;
	unsigned bit;     /* MC_IN_… */
	const char *args; /* as the usage line shows them */
	unsigned min_args, max_args;
	const char *sentence;
	const char *details;                    /* paragraphs for --help, NULL = none */
	int (*run)(const struct mc_options *o); /* returns the exit code, prints its own errors */
};

struct mc_exit_code {
	int code;
	unsigned commands;   /* MC_IN_… */
	const char *meaning; /* a sentence */
};
extern const struct mc_exit_code mc_exit_codes[];
extern const unsigned mc_exit_code_count;

extern const struct mc_command mc_command_table[];
extern const unsigned mc_command_count;

const struct mc_command *mc_command_find(const char *name); /* NULL: no such command */
void mc_command_help(const struct mc_command *c, FILE *out);
void mc_program_help(FILE *out);

/* Runs a command on its line, or only checks the line; what is wrong is printed. Exit codes. */
int mc_command_run(const struct mc_command *c, int argc, char *const *argv);
int mc_command_check(const struct mc_command *c, int argc, char *const *argv);

/* Prints "mooncakefs: text" on standard error, with --json an object on standard output, too, and
 * returns MC_EXIT_FAILED. */
int mc_fail(const struct mc_err *err, int code);
/* The same with another exit code. */
int mc_fail_as(const struct mc_err *err, int code, int exit_code);
/* The same for a wrong command line, with a hint at --help; returns MC_EXIT_USAGE. */
int mc_fail_usage(const struct mc_options *o, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* No command has the name word, and which is near. MC_EXIT_USAGE. */
int mc_fail_command(const char *word);

int mc_cmd_config(const struct mc_options *o);
int mc_cmd_debug_bundle(const struct mc_options *o);
int mc_cmd_du(const struct mc_options *o);
int mc_cmd_evict(const struct mc_options *o);
int mc_cmd_pin(const struct mc_options *o);
int mc_cmd_unpin(const struct mc_options *o);
int mc_cmd_refresh(const struct mc_options *o);
int mc_cmd_stats(const struct mc_options *o);
int mc_cmd_status(const struct mc_options *o);
int mc_cmd_warm(const struct mc_options *o);
int mc_cmd_export(const struct mc_options *o);
int mc_cmd_fsck(const struct mc_options *o);
int mc_cmd_gc(const struct mc_options *o);
int mc_cmd_help(const struct mc_options *o);
int mc_cmd_import(const struct mc_options *o);
int mc_cmd_layout(const struct mc_options *o);
int mc_cmd_ls(const struct mc_options *o);
int mc_cmd_mount(const struct mc_options *o);
int mc_cmd_plan(const struct mc_options *o);
int mc_cmd_reshard(const struct mc_options *o);
int mc_cmd_rebalance(const struct mc_options *o);
int mc_cmd_repair(const struct mc_options *o);
int mc_cmd_rm(const struct mc_options *o);
int mc_cmd_umount(const struct mc_options *o);
int mc_cmd_verify(const struct mc_options *o);
int mc_cmd_version(const struct mc_options *o);
