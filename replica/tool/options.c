/* Command-line options of the subcommands: a table, one pass, messages that name the argument. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool.h"

static const struct fr_tool_option *find(const struct fr_tool_option *options, size_t n_options, const char *name)
{
    for (size_t i = 0; i < n_options; i++)
        if (strcmp(options[i].name, name) == 0)
            return &options[i];
    return NULL;
}

static int take(const struct fr_tool_option *option, const char *command, int argc, char **argv, int *i)
{
    if (option->flag) {
        *option->flag = true;
        return FR_TOOL_OK;
    }
    if (*i + 1 >= argc) {
        fprintf(stderr, "freshet %s: %s needs a value\n", command, option->name);
        return FR_TOOL_USAGE;
    }
    const char *value = argv[++*i];
    if (option->many) {
        if (*option->n_many == option->many_max) {
            fprintf(stderr, "freshet %s: more than %zu %s\n", command, option->many_max, option->name);
            return FR_TOOL_USAGE;
        }
        option->many[(*option->n_many)++] = value;
        return FR_TOOL_OK;
    }
    if (*option->value) {
        fprintf(stderr, "freshet %s: %s is given twice\n", command, option->name);
        return FR_TOOL_USAGE;
    }
    *option->value = value;
    return FR_TOOL_OK;
}

int fr_tool_options_parse(int argc, char **argv, const struct fr_tool_option *options, size_t n_options,
                          const char *usage)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(usage, stdout);
            return -1;
        }
        const struct fr_tool_option *option = find(options, n_options, argv[i]);
        if (!option) {
            fprintf(stderr, "freshet %s: unknown argument %s\n\n%s", argv[0], argv[i], usage);
            return FR_TOOL_USAGE;
        }
        int status = take(option, argv[0], argc, argv, &i);
        if (status != FR_TOOL_OK)
            return status;
    }
    for (size_t i = 0; i < n_options; i++)
        if (options[i].required && options[i].value && !*options[i].value) {
            fprintf(stderr, "freshet %s: %s is missing\n\n%s", argv[0], options[i].name, usage);
            return FR_TOOL_USAGE;
        }
    return FR_TOOL_OK;
}

bool fr_tool_option_u64(const char *name, const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || errno || value < min || value > max) {
        fprintf(stderr, "%s %s: expected a whole number from %" PRIu64 " to %" PRIu64 "\n", name, text, min, max);
        return false;
    }
    *out = value;
    return true;
}

bool fr_tool_option_duration_ms(const char *name, const char *text, int64_t *out)
{
    static const struct {
        const char *unit;
        int64_t ms;
    } units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}};
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (text[0] >= '0' && text[0] <= '9' && !errno && value <= 1000000000ull)
        for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
            if (strcmp(end, units[i].unit) == 0) {
                *out = (int64_t)value * units[i].ms;
                return true;
            }
    fprintf(stderr, "%s %s: expected a duration such as 500ms, 5s or 1m\n", name, text);
    return false;
}
