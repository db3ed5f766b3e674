/* The proposal as YAML: the shape of conf/samples/general.yaml, with the evidence for each slot
 * behind its line and every doubt below it.
 *
 * Layers name all slots at once ({slots: all.v}), so that a slot is added or removed in one line;
 * only the layer of the numbers names its slots. Text from outside (names, topics) is written by
 * fr_buffer_yaml_text, in comments too; examples are printable ASCII already.
 *
 * Owner: the caller's thread. */
#include "yaml_text.h"

#include <inttypes.h>
#include <string.h>

#include "base/check.h"

static const char *const unsure_mark = "unsure: ";

/* ---- evidence ---- */

static const char *plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

/* Writes 99.2, and 100 for all only. */
static void put_percent(struct fr_buffer *out, uint64_t part, uint64_t whole)
{
    double percent = whole ? 100.0 * (double)part / (double)whole : 0.0;
    if (part == whole)
        fr_buffer_printf(out, "100 %%");
    else
        fr_buffer_printf(out, percent < 0.1 && part > 0 ? "< 0.1 %%" : "%.1f %%", percent > 99.9 ? 99.9 : percent);
}

static void put_distinct(struct fr_buffer *out, const struct fr_seen_field *field)
{
    uint64_t distinct = fr_seen_distinct(&field->sketch);
    if (distinct >= FR_SKETCH_SIZE)
        fr_buffer_printf(out, "about %" PRIu64 " different", distinct / 100 * 100);
    else
        fr_buffer_printf(out, "%" PRIu64 " different", distinct);
    for (uint32_t i = 0; i < field->n_examples; i++)
        fr_buffer_printf(out, "%s %s", i ? "," : ":", field->examples[i]);
}

static void put_range(struct fr_buffer *out, const struct fr_seen_scalars *v)
{
    fr_buffer_printf(out, "%.10g to %.10g, mean %.4g", v->min, v->max, v->sum / (double)fr_seen_numbers(v));
}

/* Writes the evidence for a slot as a comment, without the end of the line. */
static void put_evidence(struct fr_buffer *out, const struct fr_survey *survey, const struct fr_proposed_field *choice)
{
    const struct fr_seen_field *field = choice->field;
    const struct fr_seen_scalars *v = &field->value;
    fr_buffer_printf(out, "   # ");
    switch (choice->kind) {
    case FR_PROPOSED_ID:
        fr_buffer_printf(out, "%s", v->booleans > 0 ? "true or false, as the ids 1 and 0" : "id");
        break;
    case FR_PROPOSED_IDS:
    case FR_PROPOSED_SEQUENCE:
        fr_buffer_printf(out, choice->kind == FR_PROPOSED_IDS ? "ids, " : "history of ");
        if (field->empty_lists || field->length_min != field->length_max)
            fr_buffer_printf(out, "%" PRIu32 " to ", field->empty_lists ? 0 : field->length_min);
        fr_buffer_printf(out, "%" PRIu32, field->length_max);
        break;
    case FR_PROPOSED_NUMBER:
        fr_buffer_printf(out, choice->dim > 1 ? "%" PRIu32 " numbers" : "number", choice->dim);
        break;
    case FR_PROPOSED_TIME:
        fr_buffer_printf(out, "time");
        break;
    case FR_PROPOSED_LEFT_OUT:
    case FR_PROPOSED_LABEL:
    case FR_PROPOSED_EVENT_TIME:
        break;
    }
    fr_buffer_printf(out, " in ");
    put_percent(out, fr_seen_present(field), fr_survey_holders(survey, field));
    fr_buffer_printf(out, "; ");
    if (choice->kind == FR_PROPOSED_NUMBER || choice->kind == FR_PROPOSED_TIME)
        put_range(out, choice->dim > 1 || field->lists > 0 ? &field->element : v);
    else
        put_distinct(out, field);
    fr_buffer_printf(out, "\n");
}

/* Writes the doubts, a comment line each, below the line of the slot or label. */
static void put_doubts(struct fr_buffer *out, const struct fr_buffer *unsure)
{
    const char *at = (const char *)unsure->data, *end = at + unsure->size;
    while (at < end) {
        const char *line = memchr(at, '\n', (size_t)(end - at));
        fr_buffer_printf(out, "    # %s%.*s\n", unsure_mark, (int)(line - at), at);
        at = line + 1;
    }
}

/* ---- the head ---- */

static void put_head(const struct fr_written *w, struct fr_buffer *out)
{
    const struct fr_survey *survey = w->survey;
    const struct fr_sampled *sampled = w->sampled;
    fr_buffer_printf(out, "# Proposed by `freshetd init` from %zu record%s: ", sampled->n, plural(sampled->n));
    if (sampled->partitions)
        fr_buffer_printf(out, "the newest of %" PRIu64 " in %" PRIu32 " partition%s of the topic", sampled->in_log,
                         sampled->partitions, plural(sampled->partitions));
    else
        fr_buffer_printf(out, "the first of the file");
    fr_buffer_printf(out, ", %" PRIu64 " sample%s.\n", survey->samples, plural(survey->samples));
    if (sampled->cut)
        fr_buffer_printf(out, "# Reading ended early: 256 MiB of records, or 30 s.\n");
    if (sampled->without_value)
        fr_buffer_printf(out, "# %" PRIu64 " more have no value.\n", sampled->without_value);
    if (survey->unreadable + survey->deviating)
        fr_buffer_printf(out,
                         "# %" PRIu64 " are neither JSON nor MessagePack objects; %" PRIu64 " have another format or "
                         "form than most and are not surveyed.\n",
                         survey->unreadable, survey->deviating);
    if (w->decoded && w->refused == 0)
        fr_buffer_printf(out, "# All of them decode with this configuration.\n");
    else if (w->decoded)
        fr_buffer_printf(out, "# %" PRIu64 " of them are refused by this configuration, the first because: %s\n",
                         w->refused, w->reason);
    fr_buffer_printf(out, "#\n"
                          "# Read it before you start it:\n"
                          "# - `unsure` marks what the records did not decide.\n"
                          "# - Remove slots whose values are known only with the label or after it: they give the "
                          "answer away.\n"
                          "# - A slot is named once, a number in the layer `values` too. docs/models.md has other "
                          "models, conf/OPTIONS.md all options.\n");
}

static void put_kafka(const struct fr_written *w, struct fr_buffer *out)
{
    const struct fr_proposal_options *options = w->options;
    if (options->kafka_file)
        fr_buffer_printf(out, "  # kafka: the properties of --kafka-file, secrets as \"${NAME}\" or \"file:PATH\"\n");
    bool begun = false;
    for (size_t i = 0; i < options->n_properties; i++) {
        const char *text = options->properties[i], *equals = strchr(text, '=');
        char name[FR_SAMPLE_KEY_MAX];
        size_t size = equals ? (size_t)(equals - text) : sizeof(name);
        if (size >= sizeof(name))
            continue;
        memcpy(name, text, size);
        name[size] = '\0';
        bool shown = fr_conf_property_is_shown(name) && !strstr(equals + 1, "${");
        if (!begun && shown)
            fr_buffer_printf(out, "  kafka:\n");
        begun |= shown;
        fr_buffer_printf(
            out, shown ? "    %s: " : "    # %s: \"${NAME}\" or \"file:PATH\", because the value may be a secret\n",
            name);
        if (!shown)
            continue;
        fr_buffer_yaml_text(out, equals + 1);
        fr_buffer_printf(out, "\n");
    }
}

static void put_envelope(const struct fr_written *w, struct fr_buffer *out)
{
    const struct fr_proposed *choices = w->choices;
    const struct fr_proposed_field *time = NULL;
    for (uint32_t i = 0; i < choices->n_slots; i++)
        if (choices->slots[i].kind == FR_PROPOSED_EVENT_TIME)
            time = &choices->slots[i];
    if (!w->survey->flat) {
        uint64_t holders = w->survey->samples > w->survey->timed ? w->survey->samples - w->survey->timed : 0;
        if (holders > 0 && w->survey->groups == 0)
            fr_buffer_printf(out, "    # %s%" PRIu64 " samples have no `t`: their time is the Kafka timestamp\n",
                             unsure_mark, holders);
        return;
    }
    if (!time) {
        fr_buffer_printf(out, "  envelope: {f: rest}   # flat records; no field is a Unix time: the Kafka timestamp is "
                              "the time\n");
        return;
    }
    fr_buffer_printf(out, "  envelope: {t: ");
    fr_buffer_yaml_text(out, time->field->path);
    fr_buffer_printf(out, ", f: rest}   # flat records; time in %s in ",
                     time->field->value.seconds > 0 ? "seconds" : "milliseconds");
    put_percent(out, fr_seen_present(time->field), w->survey->samples);
    fr_buffer_printf(out, ": %s\n", time->field->examples[0]);
    put_doubts(out, &time->unsure);
}

static void put_ingest(const struct fr_written *w, struct fr_buffer *out)
{
    const struct fr_proposal_options *options = w->options;
    fr_buffer_printf(out, "version: 1\nmodel: %s   # labels its metrics; its deltas go to the topic %s.delta\n",
                     w->model, w->model);
    fr_buffer_printf(out, "state_dir: %s-state   # packages: /var/lib/freshet/%s\n", w->model, w->model);
    fr_buffer_printf(out, "ingest:\n");
    if (options->file) {
        fr_buffer_printf(out, "  files: [");
        fr_buffer_yaml_text(out, options->file);
        fr_buffer_printf(out, "]\n  format: json\n");
    } else {
        fr_buffer_printf(out, "  brokers: ");
        fr_buffer_yaml_text(out, options->brokers);
        fr_buffer_printf(out, "\n  topic: ");
        fr_buffer_yaml_text(out, options->topic);
        fr_buffer_printf(out, "\n  format: %s\n", w->survey->format == FR_FORMAT_JSON ? "json" : "msgpack");
        put_kafka(w, out);
    }
    put_envelope(w, out);
}

/* ---- tables, slots, labels ---- */

static void put_table(struct fr_buffer *out, const char *name, bool first)
{
    if (!first) {
        fr_buffer_printf(out, "  %s: *table\n", name);
        return;
    }
    fr_buffer_printf(out,
                     "\ntables:\n  %s: &table\n"
                     "    parts:\n"
                     "      w: {dim: 1, optimizer: {ftrl: {lr: 0.1}}}\n"
                     "      v: {dim: 16, optimizer: {adagrad: {lr: 0.1}}, init: {normal: 0.01}}\n"
                     "    expire: {idle: 400d}   # of event time; 14d to 60d where ids go stale and rows must be few\n",
                     name);
}

static void put_tables(const struct fr_proposed *choices, struct fr_buffer *out)
{
    bool first = true, context = false;
    for (uint32_t i = 0; i < choices->n_slots; i++) {
        const struct fr_proposed_field *choice = &choices->slots[i];
        if (!fr_proposed_has_ids(choice))
            continue;
        context |= choice->table == FR_PROPOSED_CONTEXT;
        if (choice->table != i)
            continue;
        put_table(out, choice->name, first);
        first = false;
    }
    if (context)
        put_table(out, "context", first);
}

static void put_key(struct fr_buffer *out, const struct fr_proposed_field *choice)
{
    if (strcmp(choice->name, choice->field->path) == 0)
        return;
    fr_buffer_printf(out, ", key: ");
    fr_buffer_yaml_text(out, choice->field->path);
}

static void put_slot(const struct fr_written *w, const struct fr_proposed_field *choice, struct fr_buffer *out)
{
    fr_buffer_printf(out, "  %s: {", choice->name);
    if (choice->kind == FR_PROPOSED_NUMBER) {
        fr_buffer_printf(out, "kind: dense");
        if (choice->dim > 1)
            fr_buffer_printf(out, ", dim: %" PRIu32, choice->dim);
        fr_buffer_printf(out, ", transform: %s", choice->log1p ? "[log1p, standardize]" : "standardize");
    } else if (choice->kind == FR_PROPOSED_TIME) {
        fr_buffer_printf(out, "kind: dense, transform: time_of_week");
    } else {
        if (choice->table == FR_PROPOSED_CONTEXT)
            fr_buffer_printf(out, "table: context, namespace: %s", choice->name);
        else
            fr_buffer_printf(out, "table: %s", w->choices->slots[choice->table].name);
        if (choice->kind == FR_PROPOSED_SEQUENCE)
            fr_buffer_printf(out, ", kind: sequence, max_len: %" PRIu32, choice->max_len);
    }
    put_key(out, choice);
    fr_buffer_printf(out, "}");
    put_evidence(out, w->survey, choice);
    put_doubts(out, &choice->unsure);
    uint32_t self = (uint32_t)(choice - w->choices->slots);
    if (fr_proposed_has_ids(choice) && choice->table != self && choice->table != FR_PROPOSED_CONTEXT) {
        double jaccard;
        const struct fr_proposed_field *of = &w->choices->slots[choice->table];
        double share = fr_seen_contained(&choice->field->sketch, &of->field->sketch, &jaccard);
        fr_buffer_printf(out, "    # %sabout %.0f %% of its ids are also in %s: one table for both\n", unsure_mark,
                         100 * share, of->name);
    }
}

static void put_slots(const struct fr_written *w, struct fr_buffer *out)
{
    fr_buffer_printf(out, "\nslots:\n");
    for (uint32_t i = 0; i < w->choices->n_slots; i++)
        if (w->choices->slots[i].kind >= FR_PROPOSED_ID)
            put_slot(w, &w->choices->slots[i], out);
    for (uint32_t i = 0; i < w->choices->n_slots; i++) {
        const struct fr_proposed_field *choice = &w->choices->slots[i];
        if (choice->kind != FR_PROPOSED_LEFT_OUT)
            continue;
        fr_buffer_printf(out, "  # left out: ");
        fr_buffer_yaml_text(out, choice->field->path);
        fr_buffer_printf(out, ": %s%s%s\n", choice->why, choice->field->n_examples ? ": " : "",
                         choice->field->n_examples ? choice->field->examples[0] : "");
    }
    if (w->survey->fields.passed_over)
        fr_buffer_printf(out, "  # %" PRIu64 " values have no name, or one too many or too long to survey\n",
                         w->survey->fields.passed_over);
}

static void put_labels(const struct fr_written *w, struct fr_buffer *out)
{
    bool named = w->survey->flat || w->survey->y_maps > 0;
    fr_buffer_printf(out, "\nlabels:\n");
    for (uint32_t i = 0; i < w->choices->n_labels; i++) {
        const struct fr_proposed_field *label = &w->choices->labels[i];
        const struct fr_seen_scalars *v = &label->field->value;
        uint64_t present = fr_seen_present(label->field);
        bool keyed = named && strcmp(label->name, label->field->path) != 0, negative = v->minus_ones > 0;
        fr_buffer_printf(out, "  %s: {", label->name);
        if (keyed) {
            fr_buffer_printf(out, "key: ");
            fr_buffer_yaml_text(out, label->field->path);
        }
        fr_buffer_printf(out, negative ? "%snegative: -1}" : "%s}", keyed && negative ? ", " : "");
        fr_buffer_printf(out, "   # in ");
        put_percent(out, present, w->survey->samples);
        fr_buffer_printf(out, "; ");
        if (v->zeros + v->ones + v->minus_ones == present) {
            fr_buffer_printf(out, "1 in ");
            put_percent(out, v->ones, present);
        } else if (fr_seen_numbers(v) > 0) {
            put_range(out, v);
        }
        fr_buffer_printf(out, "%s\n", named ? "" : i == 0 ? "; `y` has no names: choose them" : "");
        put_doubts(out, &label->unsure);
    }
}

/* ---- the network ---- */

static void put_numbers(const struct fr_proposed *choices, struct fr_buffer *out)
{
    const char *separator = "";
    for (uint32_t i = 0; i < choices->n_slots; i++)
        if (choices->slots[i].kind == FR_PROPOSED_NUMBER || choices->slots[i].kind == FR_PROPOSED_TIME) {
            fr_buffer_printf(out, "%s%s", separator, choices->slots[i].name);
            separator = ", ";
        }
}

static void put_network(const struct fr_proposed *choices, struct fr_buffer *out)
{
    uint32_t ids = 0, numbers = 0;
    for (uint32_t i = 0; i < choices->n_slots; i++) {
        bool has_ids = fr_proposed_has_ids(&choices->slots[i]);
        ids += has_ids;
        numbers += !has_ids && choices->slots[i].kind >= FR_PROPOSED_ID;
    }
    fr_buffer_printf(out, "\nnetwork:\n  layers:\n");
    if (ids > 0)
        fr_buffer_printf(out, "    - {name: wide, sum: {mean: {slots: all.w}}}\n");
    if (ids > 1)
        fr_buffer_printf(out, "    - {name: pairs, fm: {mean: {slots: all.v}}}\n");
    fr_buffer_printf(out, "    - {name: h, mlp: %s, units: [64, 32]}\n",
                     ids > 0 ? "{mean: {slots: all.v}}" : "{slots: all}");
    fr_buffer_printf(out, "    - {name: deep, dense: h, units: 1, init: zeros}\n");
    if (numbers > 0) {
        fr_buffer_printf(out, "    - {name: values, dense: [");
        put_numbers(choices, out);
        fr_buffer_printf(out, "], units: 1, init: zeros}\n");
    }
    fr_buffer_printf(out, "    - {name: out, add: [%sdeep%s%s]}\n", numbers > 0 ? "values, " : "",
                     ids > 0 ? ", wide" : "", ids > 1 ? ", pairs" : "");
    fr_buffer_printf(out, "  optimizer: {adam: {lr: 0.005}}\n");
}

static void put_tasks(const struct fr_proposed *choices, struct fr_buffer *out)
{
    const struct fr_proposed_field *label = &choices->labels[0];
    const struct fr_seen_scalars *v = &label->field->value;
    bool unit = v->max <= 1 && (v->min >= 0 || v->zeros + v->ones + v->minus_ones == fr_seen_present(label->field));
    fr_buffer_printf(out, "\ntasks:\n  - {name: %s, label: %s, logit: out, loss: %s}\n", label->name, label->name,
                     unit ? "logloss" : "mse");
    if (choices->n_labels > 1)
        fr_buffer_printf(out,
                         "    # %sthe first label is learned, and no task reads the others yet: "
                         "conf/samples/esmm.yaml and mmoe.yaml have several tasks\n",
                         unsure_mark);
    fr_buffer_printf(out, "\nmetrics: {listen: \"127.0.0.1:8080\"");
    if (choices->gauc_by != FR_PROPOSED_NONE)
        fr_buffer_printf(out, ", gauc_by: %s", choices->slots[choices->gauc_by].name);
    fr_buffer_printf(out, "}\n");
}

void fr_proposal_write(const struct fr_written *written, struct fr_buffer *out)
{
    put_head(written, out);
    put_ingest(written, out);
    put_tables(written->choices, out);
    put_slots(written, out);
    put_labels(written, out);
    put_network(written->choices, out);
    put_tasks(written->choices, out);
}
