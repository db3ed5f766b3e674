/* Command-line options of the subcommands: one table, one pass, and messages that name the
 * argument. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "tool.h"

static const struct fr_tool_option *find(const struct fr_tool_option *options, size_t n_options, const char *name)
{
    for (size_t i = 0; i < n_options; i++)
        if (strcmp(options[i].name, name) == 0)
            return &options[i];
    return NULL;
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

static bool parse_duration(const char *name, const char *text, int64_t *out)
{
    static const struct {
        const char *unit;
        int64_t ms;
    } units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}};
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

static bool parse_choice(const char *name, const char *text, const char *const *choices, int *out)
{
    for (int i = 0; choices[i]; i++)
        if (strcmp(text, choices[i]) == 0) {
            *out = i;
            return true;
        }
    fprintf(stderr, "%s %s: expected one of", name, text);
    for (; *choices; choices++)
        fprintf(stderr, " %s", *choices);
    fputc('\n', stderr);
    return false;
}

/* Writes the text to the option's destination. */
static bool parse_value(const struct fr_tool_option *option, const char *command, const char *text)
{
    char name[64];
    snprintf(name, sizeof(name), "%s: %s", command, option->name);
    if (option->value)
        *option->value = text;
    uint64_t max = option->max ? option->max : UINT64_MAX;
    return (!option->number || fr_tool_option_u64(name, text, option->min, max, option->number)) &&
           (!option->duration_ms || parse_duration(name, text, option->duration_ms)) &&
           (!option->choice || parse_choice(name, text, option->choices, option->choice));
}

static int set_option(const struct fr_tool_option *option, const char *command, bool again, const char *value)
{
    if (option->flag) {
        *option->flag = true;
        return FR_TOOL_OK;
    }
    if (!value) {
        fprintf(stderr, "%s: %s needs a value\n", command, option->name);
        return FR_TOOL_USAGE;
    }
    if (option->many) {
        if (*option->n_many == option->many_max) {
            fprintf(stderr, "%s: more than %zu %s\n", command, option->many_max, option->name);
            return FR_TOOL_USAGE;
        }
        option->many[(*option->n_many)++] = value;
        return FR_TOOL_OK;
    }
    if (again) {
        fprintf(stderr, "%s: %s is given twice\n", command, option->name);
        return FR_TOOL_USAGE;
    }
    return parse_value(option, command, value) ? FR_TOOL_OK : FR_TOOL_USAGE;
}

int fr_tool_options_parse(int argc, char **argv, const struct fr_tool_option *options, size_t n_options,
                          const char *usage)
{
    uint64_t given = 0; /* one bit per option */
    FR_CHECK(n_options <= 64);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(usage, stdout);
            return FR_TOOL_HELPED;
        }
        const struct fr_tool_option *option = find(options, n_options, argv[i]);
        if (!option) {
            fprintf(stderr, "%s: unknown argument %s\n\n%s", argv[0], argv[i], usage);
            return FR_TOOL_USAGE;
        }
        uint64_t bit = UINT64_C(1) << (option - options);
        int status = set_option(option, argv[0], given & bit, i + 1 < argc ? argv[i + 1] : NULL);
        if (status != FR_TOOL_OK)
            return status;
        given |= bit;
        i += !option->flag;
    }
    for (size_t i = 0; i < n_options; i++)
        if (options[i].required && !(given & UINT64_C(1) << i)) {
            fprintf(stderr, "%s: %s is missing\n\n%s", argv[0], options[i].name, usage);
            return FR_TOOL_USAGE;
        }
    return FR_TOOL_OK;
}

int fr_tool_load_conf(const struct fr_conf_load_options *options, struct fr_conf **out)
{
    struct fr_buffer problems = {0};
    enum fr_status status = fr_conf_load(options, out, &problems);
    if (status != FR_OK)
        fwrite(problems.data, 1, problems.size, stderr);
    fr_buffer_release(&problems);
    return status == FR_OK ? FR_TOOL_OK : FR_TOOL_USAGE;
}
