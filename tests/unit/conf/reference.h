/* OPTIONS.md from the table of options: one section a scope, one line an option. */
#ifndef FR_TESTS_CONF_REFERENCE_H
#define FR_TESTS_CONF_REFERENCE_H

#include <float.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "conf/conf.h"
#include "../../../conf/forms.h"
#include "../../../conf/options.h"
#include "../../../conf/problem.h"
#include "../../../conf/scalar.h"

static const struct section {
    const char *prefix, *title, *text;
} sections[] = {
    {"", "Top level", NULL},
    {"savepoint", "`savepoint`", NULL},
    {"snapshot", "`snapshot`", NULL},
    {"ingest", "`ingest`: the sample log", NULL},
    {"tables", "`tables`: embedding tables", "`NAME` is a name you choose. At most 64 tables of at most 8 parts."},
    {"slots", "`slots`: input fields", "At most 512. A slot of kind sequence must be pooled where a vector is needed."},
    {"labels", "`labels`",
     "At most 16. Samples carry those without `of`, in this order in their arrays; the others are derived."},
    {"network", "`network`: layers over the slots",
     "At most 256 layers. A layer is `{name, <operation>: argument, options}`. An argument is a reference, a list of "
     "them, or, where an operation has roles, a map role → references. A reference is `slot`, `slot.part` (the part "
     "may be left out when the table has one), `layer`, a pooling `{sum: slot.part}` (any "
     "of" FR_ROW_POOLINGS_QUOTED "; of a slot of kind sequence also" FR_STEP_POOLINGS_QUOTED
     "), or an operation that needs no options, as in `{layer_norm: x}`: that becomes a layer `<outer>__0`, "
     "`<outer>__1`, … A "
     "sparse slot alone is its sum. Layers may come in any order, without cycles.\n\n"
     "Every value is a vector [n], one row per sample, or a sequence [T, n], one row per step: slots of kind "
     "sequence, `concat` and `dense` of sequences, `gru`. Sequences in one argument are joined step by step, aligned "
     "at the newest; the first one's length counts."},
    {"tasks", "`tasks` and `losses`", "At most 16 tasks and 16 losses."},
    {"export", "`export`: the delta topic", NULL},
    {"metrics", "`metrics`", NULL},
    {"optimizer", "Optimizers",
     "Written where an `optimizer` is asked for, as `adagrad` or `{adagrad: {lr: 0.05}}`. Rows of tables take all but "
     "adamw; layers take sgd, momentum, adagrad, adam, adamw, rmsprop and ftrl. `optimizer.NAME` stands for each of "
     "them. A gradient is scaled by `clip_norm`, cut to `clip_value`, joined by `l1` and `l2`. The ftrl kinds have no "
     "warm-up and no decay. Rows count their own steps in adam."},
};

static bool in_section(const struct fr_option *option, const struct section *section)
{
    size_t size = strlen(section->prefix);
    size_t head = strcspn(option->path, ".");
    if (size == 0) { /* options that have no section of their own */
        for (size_t i = 1; i < FR_ARRAY_LEN(sections); i++) {
            if (in_section(option, &sections[i]))
                return false;
        }
        return true;
    }
    if (strcmp(section->prefix, "tasks") == 0 && head == 6 && memcmp(option->path, "losses", 6) == 0)
        return true;
    return head == size && memcmp(option->path, section->prefix, size) == 0;
}

static void write_choices(struct fr_buffer *out, const char *choices)
{
    struct fr_words words = {0};
    fr_choice_words(choices, &words);
    for (size_t i = 0; i < words.count; i++)
        fr_buffer_printf(out, "%s`%.*s`", i ? ", " : "", (int)words.items[i].size, words.items[i].text);
}

static void write_type(struct fr_buffer *out, const struct fr_option *option)
{
    static const char *const names[] = {
        [FR_OPTION_GROUP] = "map",         [FR_OPTION_NAME] = "name",        [FR_OPTION_TEXT] = "text",
        [FR_OPTION_TOPIC] = "topic",       [FR_OPTION_BOOL] = "true, false", [FR_OPTION_U32] = "integer",
        [FR_OPTION_U64] = "integer",       [FR_OPTION_I64] = "integer",      [FR_OPTION_REAL] = "number",
        [FR_OPTION_DURATION] = "duration", [FR_OPTION_SIZE] = "size",
    };
    if (option->form) {
        fr_buffer_printf(out, "%s", option->form);
        return;
    }
    if (option->choices) {
        write_choices(out, option->choices);
        return;
    }
    fr_buffer_printf(out, "%s", names[option->type]);
    bool ranged = option->min != 0 || option->max != 0;
    if (ranged && option->type == FR_OPTION_REAL && option->min == (double)FLT_MIN) {
        fr_buffer_printf(out, " > 0");
    } else if (ranged && option->max < (double)FLT_MAX) {
        char min[FR_SCALAR_TEXT_MAX], max[FR_SCALAR_TEXT_MAX];
        fr_option_bound(option, option->min, min);
        fr_option_bound(option, option->max, max);
        fr_buffer_printf(out, " %s…%s", min, max);
    }
}

static void write_path(struct fr_buffer *out, const char *path)
{
    for (const char *at = path; *at; at++) {
        bool star = *at == '*';
        bool list = star && (strncmp(path, "network.", 8) == 0 || strncmp(path, "tasks.", 6) == 0 ||
                             strncmp(path, "losses.", 7) == 0);
        if (star)
            fr_buffer_printf(out, "%s", list ? "N" : "NAME");
        else
            fr_buffer_append(out, at, 1);
    }
}

/* Returns whether an existing state accepts another value of the option at a restart. */
static const char *change_of(const struct fr_option *option)
{
    if (option->shorthand) { /* the option of the table's only part decides */
        char path[FR_PATH_MAX];
        snprintf(path, sizeof(path), "tables.*.parts.*.%s", fr_option_name(option));
        option = fr_option_find(path);
    }
    if (option->follows)
        return option->type == FR_OPTION_ENTRIES ? "unread" : "model";
    if (option->fixed || (option->views | option->top) & FR_VIEW_MODEL)
        return "no";
    if (option->show == fr_option_show_optimizer)
        return "same state";
    if (option->settled)
        return "while given";
    return (option->views | option->top) & FR_VIEW_TRAINING ? "recorded" : "yes";
}

static void write_row(struct fr_buffer *out, const struct fr_option *option)
{
    fr_buffer_printf(out, "| `");
    write_path(out, option->path);
    fr_buffer_printf(out, "` | ");
    write_type(out, option);
    if (option->required)
        fr_buffer_printf(out, " | required | ");
    else if (option->initial)
        fr_buffer_printf(out, " | `%s` | ", option->initial);
    else
        fr_buffer_printf(out, " | %s | ", option->computed ? option->computed : "–");
    fr_buffer_printf(out, "%s | %s", change_of(option), option->text);
    static const char *const kinds[] = {"", "sparse", "sequence", "sparse and sequence", "dense"};
    if (option->kinds)
        fr_buffer_printf(out, " (%s)", kinds[option->kinds]);
    fr_buffer_printf(out, " |\n");
}

static void write_later(struct fr_buffer *out, const struct section *section)
{
    bool first = true;
    for (size_t i = 0; i < fr_options_count; i++) {
        if (fr_options[i].type != FR_OPTION_LATER || !in_section(&fr_options[i], section))
            continue;
        fr_buffer_printf(out, "%s`", first ? "\nNot in this version, and an error: " : ", ");
        write_path(out, fr_options[i].path);
        fr_buffer_printf(out, "`");
        first = false;
    }
    if (!first)
        fr_buffer_printf(out, ".\n");
}

static void write_reference(struct fr_buffer *out)
{
    fr_buffer_printf(
        out,
        "# Options\n\nGenerated from the option table (`conf/options.c`); a test compares this file with it. "
        "`freshetd --check` reports every mistake of a file at once; an unknown option is a mistake.\n\n"
        "Durations are integers with a unit `ms`, `s`, `m`, `h` or `d`; sizes with `B`, `KiB`, `MiB`, `GiB` or `TiB`; "
        "0 needs no unit.\n\nA running daemon takes no new values. The column `change` says which ones a model that exists "
        "takes at a restart:\n\n"
        "- `yes`: any value; it is not recorded.\n"
        "- `recorded`: any value; `freshet state` shows since which epoch.\n"
        "- `while given`: another value, which is recorded; the option cannot be added or removed (0 counts as absent).\n"
        "- `same state`: an optimizer that keeps the same state (docs/operating.md); it is recorded.\n"
        "- `model`: any value, which is recorded; the next epoch carries a new model record for replicas.\n"
        "- `unread`: slots and labels that nothing reads may be added, removed and reordered.\n"
        "- `no`: never.\n");
    for (size_t s = 0; s < FR_ARRAY_LEN(sections); s++) {
        fr_buffer_printf(out, "\n## %s\n\n", sections[s].title);
        if (sections[s].text)
            fr_buffer_printf(out, "%s\n\n", sections[s].text);
        fr_buffer_printf(out, "| option | value | default | change | meaning |\n|---|---|---|---|---|\n");
        for (size_t i = 0; i < fr_options_count; i++) {
            const struct fr_option *option = &fr_options[i];
            bool optimizer_head = option->type == FR_OPTION_GROUP && strncmp(option->path, "optimizer.", 10) == 0;
            if (option->type != FR_OPTION_LATER && in_section(option, &sections[s]) &&
                (option->type != FR_OPTION_GROUP || option->present || optimizer_head))
                write_row(out, option);
        }
        write_later(out, &sections[s]);
    }
    fr_buffer_terminate(out);
}

#endif
