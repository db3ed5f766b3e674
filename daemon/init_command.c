/* Options of `freshetd init` (docs/commands.md), which proposal/proposal.h answers. The exit codes
 * are those of the daemon (exit_code.h). */
#include "init_command.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "exit_code.h"
#include "proposal/proposal.h"

enum { PROPERTIES_MAX = 64, COMPLAINT_MAX = 1400 };

static const char usage[] =
    "freshetd init --brokers B --topic T [options] > FILE\n"
    "freshetd init --file F.jsonl[.gz|.zst] [options] > FILE\n"
    "\n"
    "Proposes a configuration from the newest records of a topic, or the first lines of a file: format, slots with\n"
    "their kinds, labels, tables and a small model. Comments have the evidence, and `unsure` marks what to decide.\n"
    "\n"
    "  --records N          reads at most N records (10000), 256 MiB of them, for 30 s\n"
    "  --model NAME         name of the model (made from the topic)\n"
    "  --label PATH         a field of flat records that is a label (found by its name); the first is learned; may be repeated\n"
    "  --kafka-file FILE    librdkafka properties, NAME=VALUE a line: the place of passwords\n"
    "  --kafka NAME=VALUE   a librdkafka property; every user of the host can see it; may be repeated\n"
    "  --help\n"
    "\n"
    "Exit codes: 0 proposed; 2 a wrong argument, no such topic, or records that no configuration reads; 3 access denied,\n"
    "or no such file; 1 another failure; 75 try again: the brokers are away, or the topic has no records yet.\n";

struct init_arguments {
    struct fr_proposal_options options;
    const char *properties[PROPERTIES_MAX], *labels[FR_PROPOSAL_LABELS_MAX];
    const char *records;
};

static int refuse(const char *text, const char *what)
{
    char line[COMPLAINT_MAX];
    int size = snprintf(line, sizeof(line), "freshetd init: %s%.600s; see freshetd init --help\n", text, what);
    if (size > 0)
        fr_log_text(line, (size_t)size < sizeof(line) ? (size_t)size : sizeof(line) - 1);
    return FR_EXIT_CONFIG;
}

static int parse_records(struct init_arguments *arguments)
{
    char *end = NULL;
    if (!arguments->records)
        return FR_EXIT_OK;
    errno = 0;
    unsigned long long records = strtoull(arguments->records, &end, 10);
    if (arguments->records[0] < '0' || arguments->records[0] > '9' || *end || errno || records < 1 ||
        records > FR_PROPOSAL_RECORDS_MAX)
        return refuse("--records: expected a number from 1 to 1000000, not ", arguments->records);
    arguments->options.records = records;
    return FR_EXIT_OK;
}

static int parse(int argc, char **argv, struct init_arguments *arguments)
{
    struct fr_proposal_options *o = &arguments->options;
    const struct {
        const char *name, **text, **many;
        size_t *n, max;
    } table[] = {{"--brokers", &o->brokers, NULL, NULL, 0},
                 {"--topic", &o->topic, NULL, NULL, 0},
                 {"--file", &o->file, NULL, NULL, 0},
                 {"--model", &o->model, NULL, NULL, 0},
                 {"--records", &arguments->records, NULL, NULL, 0},
                 {"--kafka-file", &o->kafka_file, NULL, NULL, 0},
                 {"--label", NULL, arguments->labels, &o->n_labels, FR_PROPOSAL_LABELS_MAX},
                 {"--kafka", NULL, arguments->properties, &o->n_properties, PROPERTIES_MAX}};
    for (int i = 1; i < argc; i += 2) {
        size_t t = 0;
        while (t < FR_ARRAY_LEN(table) && strcmp(table[t].name, argv[i]) != 0)
            t++;
        if (t == FR_ARRAY_LEN(table))
            return refuse("unknown argument ", argv[i]);
        if (i + 1 >= argc)
            return refuse("a value is missing after ", argv[i]);
        if (table[t].text)
            *table[t].text = argv[i + 1];
        else if (*table[t].n == table[t].max)
            return refuse("too many times: ", argv[i]);
        else
            table[t].many[(*table[t].n)++] = argv[i + 1];
    }
    o->labels = arguments->labels;
    o->properties = arguments->properties;
    if (o->file ? o->brokers || o->topic : !o->brokers || !o->topic)
        return refuse("give either --brokers and --topic, or --file", "");
    return parse_records(arguments);
}

int fr_init_command(int argc, char **argv)
{
    struct init_arguments arguments = {.records = NULL};
    struct fr_buffer text = {0};
    struct fr_err err = {0};
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(usage, stdout);
            return FR_EXIT_OK;
        }
    int code = parse(argc, argv, &arguments);
    if (code != FR_EXIT_OK)
        return code;
    enum fr_status status = fr_proposal_make(&arguments.options, &text, &err);
    if (status == FR_OK && (fwrite(text.data, 1, text.size, stdout) != text.size || fflush(stdout) != 0))
        status = fr_err_set(&err, FR_E_IO, "stdout cannot be written: %s", strerror(errno));
    if (status != FR_OK) {
        char line[COMPLAINT_MAX];
        int size = snprintf(line, sizeof(line), "freshetd init: %s\n", err.text);
        fr_log_text(line, (size_t)size < sizeof(line) ? (size_t)size : sizeof(line) - 1);
    }
    fr_buffer_release(&text);
    return fr_exit_code(status);
}
