/* The `freshet` command: one function per subcommand (docs/commands.md). Private to tool. argv[0]
 * is the command as it appears in messages ("freshet produce"). Exit codes: 0; 1 for a failure
 * (verify: a difference); 2 for a usage error. Results go to stdout, progress and errors to
 * stderr. */
#ifndef FR_TOOL_H
#define FR_TOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/status.h"

enum { FR_TOOL_OK = 0, FR_TOOL_FAILED = 1, FR_TOOL_USAGE = 2 };

int fr_tool_broker(int argc, char **argv);
int fr_tool_compare(int argc, char **argv);
int fr_tool_debug(int argc, char **argv);
int fr_tool_decode(int argc, char **argv);
int fr_tool_dump(int argc, char **argv);
int fr_tool_evaluate(int argc, char **argv);
int fr_tool_follow(int argc, char **argv);
int fr_tool_import(int argc, char **argv);
int fr_tool_produce(int argc, char **argv);
int fr_tool_row(int argc, char **argv);
int fr_tool_savepoint(int argc, char **argv);
int fr_tool_snapshot(int argc, char **argv);
int fr_tool_score(int argc, char **argv);
int fr_tool_state(int argc, char **argv);
int fr_tool_verify(int argc, char **argv);

/* Prints on stderr why the command failed; returns FR_TOOL_FAILED. */
int fr_tool_fail(const char *command, const struct fr_err *err);

/* ---- options: --name value or --flag, each at most once unless `many` ---- */

/* An option and its destinations, any of which may be NULL. */
struct fr_tool_option {
    const char *name;   /* "--brokers" */
    const char **value; /* the text */
    uint64_t *number;   /* as a whole number from min to max; max 0: no limit */
    uint64_t min, max;
    int64_t *duration_ms; /* 5s, 200ms, 1m, 1h */
    int *choice;          /* as the index of the word in `choices`, which ends with NULL */
    const char *const *choices;
    bool *flag;
    bool required;
    const char **many; /* array of many_max; *n_many counts */
    size_t *n_many;
    size_t many_max;
};
/* Returns FR_TOOL_OK, or FR_TOOL_USAGE after a message that names the argument. For --help it
 * prints `usage` and returns -1, which means exit 0. */
int fr_tool_options_parse(int argc, char **argv, const struct fr_tool_option *options, size_t n_options,
                          const char *usage);
/* Reads a decimal number within the range; false after a message. */
bool fr_tool_option_u64(const char *name, const char *text, uint64_t min, uint64_t max, uint64_t *out);

#endif
