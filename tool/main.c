/* `freshet`: finds the subcommand and runs it. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "tool.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *does;
} commands[] = {
    {"produce", fr_tool_produce, "writes samples to a topic, from a file or synthetic"},
    {"decode", fr_tool_decode, "says what sample records decode to, or why they are malformed"},
    {"follow", fr_tool_follow, "follows a delta topic as a replica; scores and dumps"},
    {"verify", fr_tool_verify, "compares a replica with the state of a drained daemon"},
    {"dump", fr_tool_dump, "prints a state, as published or --private, as JSON Lines"},
    {"score", fr_tool_score, "scores samples from a dump or a followed topic"},
    {"evaluate", fr_tool_evaluate, "AUC, log loss, calibration of a saved stream, in all and by slices"},
    {"compare", fr_tool_compare, "the metrics of two models side by side"},
    {"state", fr_tool_state, "says what a state directory holds; read-only"},
    {"row", fr_tool_row, "what a state or a topic has of one id"},
    {"savepoint", fr_tool_savepoint, "takes a savepoint of a state, or lists them"},
    {"snapshot", fr_tool_snapshot, "takes a snapshot of what is served, lists or checks them"},
    {"import", fr_tool_import, "makes a new state from a model trained elsewhere"},
    {"broker", fr_tool_broker, "runs librdkafka's embedded broker, to try things out"},
    {"debug", fr_tool_debug, "shows what is inside: the compiled network of a configuration"},
};

static void print_usage(FILE *to)
{
    fputs("freshet COMMAND [options]; freshet COMMAND --help says more\n\n", to);
    for (size_t i = 0; i < FR_ARRAY_LEN(commands); i++)
        fprintf(to, "  %-9s  %s\n", commands[i].name, commands[i].does);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_usage(stderr);
        return FR_TOOL_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_usage(stdout);
        return FR_TOOL_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        puts("freshet " FR_VERSION);
        return FR_TOOL_OK;
    }
    for (size_t i = 0; i < FR_ARRAY_LEN(commands); i++)
        if (strcmp(argv[1], commands[i].name) == 0) {
            char named[32];
            snprintf(named, sizeof(named), "freshet %s", commands[i].name);
            argv[1] = named;
            return commands[i].run(argc - 1, argv + 1);
        }
    static const char *const later[] = {"migrate", "plan"};
    for (size_t i = 0; i < FR_ARRAY_LEN(later); i++)
        if (strcmp(argv[1], later[i]) == 0) {
            fprintf(stderr, "freshet: %s is not in this version\n", argv[1]);
            return FR_TOOL_USAGE;
        }
    fprintf(stderr, "freshet: unknown command %s\n\n", argv[1]);
    print_usage(stderr);
    return FR_TOOL_USAGE;
}
