/*
 * Every option of the program stands in one table (options-table.c): name, type, unit, default,
 * limits, one sentence, and which commands take it. The table makes the flags, the words of -o, the
 * keys of the configuration file and the texts of --help and of the documentation.
 *
 * A value's origin decides: flag over -o over configuration file over default.
 */
#pragma once

#include "tier/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum mc_option_id {
	MC_OPT_REMOTE,
	MC_OPT_REPLICAS,
	MC_OPT_CONNECTIONS,
	MC_OPT_DEPTH,
	MC_OPT_DEADLINE,
	MC_OPT_REFERENCE,
	MC_OPT_JOBS,
	MC_OPT_STRICT,
	MC_OPT_FILE_SHA256,
	MC_OPT_SAMPLE,
	MC_OPT_GRACE,
	MC_OPT_DELETE,
	MC_OPT_REPAIR,
	MC_OPT_NO_CHANGE,
	MC_OPT_LONG,
	MC_OPT_JSON,
	MC_OPT_MODEL,
	MC_OPT_FROM,
	MC_OPT_FROM_REMOTE,
	MC_OPT_SOURCE,
	MC_OPT_TO,
	MC_OPT_NODES,
	MC_OPT_SAME,
	MC_OPT_PAYLOAD_ROOT,
	MC_OPT_PROFILE,
	MC_OPT_DRAM,
	MC_OPT_NVME,
	MC_OPT_BLOCK,
	MC_OPT_BLOCK_UUID,
	MC_OPT_FORMAT,
	MC_OPT_FORCE,
	MC_OPT_KV_DRAM,
	MC_OPT_KV_REPLICAS,
	MC_OPT_KV_ACK,
	MC_OPT_SCRUB,
	MC_OPT_MEMORY,
	MC_OPT_STOP_TIMEOUT,
	MC_OPT_ALLOW_OTHER,
	MC_OPT_NO_PASSTHROUGH,
	MC_OPT_HIDE_XATTRS,
	MC_OPT_FOREGROUND,
	MC_OPT_LAZY,
	MC_OPT_METRICS,
	MC_OPT_LOG_LEVEL,
	MC_OPT_LOG_FORMAT,
	MC_OPT_TIER,
	MC_OPT_FILES_FROM,
	MC_OPT_BWLIMIT,
	MC_OPT_CHECK,
	MC_OPT_WATCH,
	MC_OPT_MAN,
	MC_OPT_COMPLETION,
	MC_OPT_CONFIG,
	MC_OPT_WORDS,
	MC_OPT_HELP,
	MC_OPT_N
};

enum mc_option_type {
	MC_OPTION_FLAG,    /* on or off */
	MC_OPTION_TEXT,    /* anything */
	MC_OPTION_TEXTS,   /* the same, given once or several times: kept a line each */
	MC_OPTION_COUNT,   /* a whole number */
	MC_OPTION_SECONDS, /* a whole number of seconds */
	MC_OPTION_SIZE,    /* bytes, size.h */
	MC_OPTION_PERCENT, /* 0 to 100, fractions allowed; kept in millionths of the whole */
	MC_OPTION_CHOICE,  /* one of the words that unit lists, "a|b|c"; kept as its index */
	MC_OPTION_PLACE,   /* a directory, perhaps with ",SIZE"; kept as text */
	MC_OPTION_ADDRESS, /* a numeric address and port; kept as text */
};

enum { MC_LOG_FORMAT_TEXT, MC_LOG_FORMAT_JSON }; /* choices of log-format */

/* Which commands take an option. */
enum {
	MC_IN_IMPORT = 1 << 0,
	MC_IN_LS = 1 << 1,
	MC_IN_VERIFY = 1 << 2,
	MC_IN_EXPORT = 1 << 3,
	MC_IN_MOUNT = 1 << 4,
	MC_IN_UMOUNT = 1 << 5,
	MC_IN_VERSION = 1 << 6,
	MC_IN_HELP = 1 << 7,
	MC_IN_LAYOUT = 1 << 8,
	MC_IN_PLAN = 1 << 9,
	MC_IN_RESHARD = 1 << 10,
	MC_IN_CONFIG = 1 << 11,
	MC_IN_STATUS = 1 << 12,
	MC_IN_STATS = 1 << 13,
	MC_IN_DU = 1 << 14,
	MC_IN_WARM = 1 << 15,
	MC_IN_EVICT = 1 << 16,
	MC_IN_PIN = 1 << 17,
	MC_IN_UNPIN = 1 << 18,
	MC_IN_REFRESH = 1 << 19,
	MC_IN_DEBUG_BUNDLE = 1 << 20,
	MC_IN_GC = 1 << 24,
	MC_IN_RM = 1 << 25,
	MC_IN_REBALANCE = 1 << 28,
	MC_IN_REPAIR = 1 << 29,
	MC_IN_FSCK = 1 << 30,
};

struct mc_option {
	const char *name; /* --name, -o name, "name" in the configuration file */
	char letter;      /* -letter, or 0 */
	bool in_config;   /* a key of the configuration file */
	bool in_words;    /* a word of -o */
	enum mc_option_type type;
	const char *unit;  /* what the help calls the value; NULL for a flag */
	const char *def;   /* the default as one would write it, NULL = off, or computed from the
			      machine (the   sentence says) */
	uint64_t min, max; /* COUNT, SECONDS, SIZE, the size of a PLACE */
	const char *sentence;
	unsigned commands; /* MC_IN_… */
};

extern const struct mc_option mc_option_table[MC_OPT_N];

enum mc_option_origin {
	MC_FROM_NOWHERE,
	MC_FROM_DEFAULT,
	MC_FROM_CONFIG,
	MC_FROM_WORDS,
	MC_FROM_FLAG
};

struct mc_option_value {
	enum mc_option_origin origin;
	uint64_t number; /* FLAG: 0 or 1 */
	char *text;      /* TEXT and PLACE, owned */
};

struct mc_options {
	unsigned command; /* MC_IN_… of the command the line is for */
	struct mc_option_value values[MC_OPT_N];
	const char **args; /* what is no option: owned array, words borrowed from argv */
	unsigned n_args;
};

/*
 * Reads a command line (argv[0] is the first word after the command's name), then the configuration
 * file it names. -EINVAL with a text that says what is wrong and what was meant; -ENOENT, -EIO …
 * when the configuration file cannot be read. The caller calls done in every case.
 */
int mc_options_parse(
	unsigned command, int argc, char *const *argv, struct mc_options *ret, struct mc_err *err);
void mc_options_done(struct mc_options *o);

bool mc_options_given(
	const struct mc_options *o, enum mc_option_id id); /* default does not count */
bool mc_options_flag(const struct mc_options *o, enum mc_option_id id);
/* NULL when unset; of TEXTS all of them, with newlines between. */
const char *mc_options_text(const struct mc_options *o, enum mc_option_id id);
uint64_t mc_options_number(const struct mc_options *o, enum mc_option_id id); /* 0 when unset */

/* Prints the options of a command, two columns. */
void mc_options_help(unsigned command, FILE *out);

/* Of names (n of them) the one that word was probably meant to be, or NULL. */
const char *mc_nearest_name(const char *word, const char *const *names, size_t n);

/* Parts of the module: sets one option from text; where: "--jobs", "\"jobs\" in /etc/x.json". */
int mc_options_set(struct mc_options *o, enum mc_option_id id, enum mc_option_origin origin,
	const char *text, const char *where, struct mc_err *err);
int mc_options_load_config(struct mc_options *o, const char *path, struct mc_err *err);
/* The same command line with the configuration file as it is now. As mc_options_parse: the caller
 * calls done for ret in every case. */
int mc_options_reread(
	const struct mc_options *o, const char *path, struct mc_options *ret, struct mc_err *err);

/* Calls problem for everything that is wrong with a configuration file, "FILE:LINE: …", whichever
 * command it is for. The number of problems; -errno when the file cannot be read (that too is told
 * by problem). */
int mc_options_check_config(
	const char *path, void (*problem)(void *ctx, const char *text), void *ctx);

/* Writes the JSON schema of configuration files. */
void mc_options_schema(FILE *out);

/* The i-th word of a CHOICE, NULL behind the last; *ret_len its length. */
const char *mc_option_choice(const struct mc_option *opt, unsigned i, size_t *ret_len);

/*
 * An option's value as one would write it, "" when there is none. out: MC_OPTION_TEXT_MAX bytes.
 * Returns where it comes from: "default", "configuration file", "-o", "command line".
 */
#define MC_OPTION_TEXT_MAX 4096
const char *mc_options_show(const struct mc_options *o, enum mc_option_id id, char *out);
