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
#define LISTED(name, does) {#name, fr_tool_##name, does},
    FR_TOOL_COMMANDS(LISTED)
#undef LISTED
};

static void print_usage(FILE *to)
{
    fputs("freshet COMMAND [options]; freshet COMMAND --help lists the options\n\n", to);
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
            int code = commands[i].run(argc - 1, argv + 1);
            return code == FR_TOOL_HELPED ? FR_TOOL_OK : code;
        }
    fprintf(stderr, "freshet: unknown command %s\n\n", argv[1]);
    print_usage(stderr);
    return FR_TOOL_USAGE;
}
