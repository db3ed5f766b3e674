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
#include "conf/conf.h"

/* FR_TOOL_HELPED: `--help` was answered; exit 0. */
enum { FR_TOOL_HELPED = -1, FR_TOOL_OK = 0, FR_TOOL_FAILED = 1, FR_TOOL_USAGE = 2 };
enum { FR_TOOL_SETS_MAX = 64 /* --set in one command */ };

/* The commands, in the order in which they are listed to users: name, and what the command does. */
#define FR_TOOL_COMMANDS(COMMAND)                                                                                      \
    COMMAND(topic, "makes a topic for samples")                                                                        \
    COMMAND(produce, "writes samples to a topic, from a file or synthetic")                                            \
    COMMAND(decode, "shows what sample records decode to, or why they are malformed")                                  \
    COMMAND(follow, "follows a delta topic as a replica; scores and dumps")                                            \
    COMMAND(verify, "compares a replica with the state of a drained daemon")                                           \
    COMMAND(dump, "prints a state, as published or --private, as JSON Lines")                                          \
    COMMAND(score, "scores samples from a dump or a followed topic")                                                   \
    COMMAND(evaluate, "AUC, log loss, calibration of a saved stream, in total and by slices")                          \
    COMMAND(compare, "the metrics of two models side by side")                                                         \
    COMMAND(state, "shows what a state directory contains; read-only")                                                 \
    COMMAND(row, "shows what a state or a topic has of one id")                                                        \
    COMMAND(savepoint, "takes a savepoint of a state, or lists them")                                                  \
    COMMAND(snapshot, "takes a snapshot of what is served, lists or checks snapshots")                                 \
    COMMAND(import, "makes a new state from a model trained elsewhere")                                                \
    COMMAND(broker, "runs librdkafka's embedded broker, for trying things")                                            \
    COMMAND(debug, "shows the compiled network of a configuration")
#define FR_TOOL_DECLARED(name, does) int fr_tool_##name(int argc, char **argv);
FR_TOOL_COMMANDS(FR_TOOL_DECLARED)
#undef FR_TOOL_DECLARED

/* Prints on stderr why the command failed; returns FR_TOOL_FAILED. */
int fr_tool_fail(const char *command, const struct fr_err *err);

/* ---- options: --name value or --flag, each at most once unless `many` ---- */

/* An option and its destinations, any of which may be NULL. */
struct fr_tool_option {
    const char *name;   /* "--brokers" */
    const char **value; /* the text */
    uint64_t *number;   /* as a whole number from min to max; max 0: no limit */
    uint64_t min, max;
    int64_t *duration_ms; /* 5s, 200ms, 1m, 1h, 7d */
    int *choice;          /* as the index of the word in `choices`, which ends with NULL */
    const char *const *choices;
    bool *flag;
    bool required;
    const char **many; /* array of many_max; *n_many counts */
    size_t *n_many;
    size_t many_max;
};
/* Options that several commands have. Those of a configuration go to a struct fr_conf_load_options
 * and an array for its sets, those of a topic to a struct fr_consume_options and an array for its
 * properties. */
#define FR_TOOL_CONFIG_OPTIONS(to, texts, needed)                                                                      \
    {.name = "--config", .value = &(to).path, .required = (needed)}, FR_TOOL_MANY("--set", texts, (to).n_sets)
#define FR_TOOL_TOPIC_OPTIONS(to, texts, needed)                                                                       \
    {.name = "--brokers", .value = &(to).brokers, .required = (needed)},                                               \
        {.name = "--topic", .value = &(to).topic, .required = (needed)},                                               \
        {.name = "--kafka-file", .value = &(to).kafka_file}, FR_TOOL_MANY("--kafka", texts, (to).n_properties)
#define FR_TOOL_MANY(option, texts, n)                                                                                 \
    {                                                                                                                  \
        .name = (option), .many = (texts), .n_many = &(n), .many_max = FR_ARRAY_LEN(texts)                             \
    }

/* Returns FR_TOOL_OK, FR_TOOL_USAGE after a message that names the argument, or FR_TOOL_HELPED
 * after it has printed `usage` for --help. */
int fr_tool_options_parse(int argc, char **argv, const struct fr_tool_option *options, size_t n_options,
                          const char *usage);
/* Reads a configuration. FR_TOOL_USAGE: its problems were printed on stderr. *out is written only
 * on FR_TOOL_OK; free it with fr_conf_free. */
int fr_tool_load_conf(const struct fr_conf_load_options *options, struct fr_conf **out);
/* Reads a decimal number within the range; false after a message. */
bool fr_tool_option_u64(const char *name, const char *text, uint64_t min, uint64_t max, uint64_t *out);

#endif
