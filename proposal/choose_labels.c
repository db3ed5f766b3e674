/* Labels and the event time.
 *
 * Samples have both in fields of their own. Flat records have neither: a label is a field that is
 * true or false, 1 or 0 (or -1) in every record, and has the name of an outcome, such as `clicked`;
 * the event time is a number that is a Unix time in almost every record.
 *
 * Owner: the caller's thread. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "kinds.h"

enum { LISTED_MAX = 400 };
static const double NEARLY_ALL_TIMES = 0.99;

static const char *const label_words[] = {"label",     "target",     "y",        "click",     "clicked", "conversion",
                                          "converted", "convert",    "purchase", "purchased", "buy",     "bought",
                                          "order",     "ordered",    "like",     "liked",     "install", "installed",
                                          "subscribe", "subscribed", "response", "responded", "engaged", NULL};
static const char *const time_words[] = {"event", "ts", "timestamp", "time", "t", "at", "datetime", "date", NULL};

/* ---- event time ---- */

static bool is_time(const struct fr_seen_field *field)
{
    const struct fr_seen_scalars *v = &field->value;
    double present = NEARLY_ALL_TIMES * (double)fr_seen_present(field);
    return present > 0 && ((double)v->seconds >= present || (double)v->milliseconds >= present);
}

void fr_proposed_event_time(const struct fr_survey *survey, struct fr_proposed *out)
{
    const uint32_t unnamed = FR_ARRAY_LEN(time_words) - 1;
    uint32_t chosen = FR_PROPOSED_NONE, times = 0, best = unnamed;
    for (uint32_t i = 0; i < out->n_slots; i++) {
        const struct fr_proposed_field *choice = &out->slots[i];
        if (choice->kind == FR_PROPOSED_LEFT_OUT || !is_time(choice->field))
            continue;
        uint32_t word = fr_proposed_name_word(choice->field->path, time_words);
        times++;
        if (word < best || (chosen == FR_PROPOSED_NONE && choice->kind == FR_PROPOSED_TIME)) {
            chosen = i;
            best = word;
        }
    }
    if (chosen == FR_PROPOSED_NONE)
        return;
    struct fr_proposed_field *choice = &out->slots[chosen];
    choice->kind = FR_PROPOSED_EVENT_TIME;
    fr_buffer_clear(&choice->unsure);
    if (best == unnamed || times > 1)
        fr_buffer_printf(&choice->unsure,
                         "%" PRIu32 " fields are Unix times: this one is taken for the time of the "
                         "event\n",
                         times);
    uint64_t present = fr_seen_present(choice->field);
    if (present < survey->samples)
        fr_buffer_printf(&choice->unsure,
                         "absent in %" PRIu64 " of %" PRIu64 " samples, whose time is the Kafka "
                         "timestamp\n",
                         survey->samples - present, survey->samples);
}

/* ---- labels ---- */

static bool is_unit(const struct fr_seen_scalars *v)
{
    return v->min >= 0 && v->max <= 1;
}

static void doubt_label(const struct fr_seen_field *field, struct fr_buffer *unsure)
{
    const struct fr_seen_scalars *v = &field->value;
    uint64_t present = fr_seen_present(field);
    if (present == 0)
        fr_buffer_printf(unsure, "no value in the sample\n");
    else if (v->zeros == present || v->ones == present)
        fr_buffer_printf(unsure, "always the same in the sample: nothing can be learned from it\n");
    if (v->strings + v->others + field->lists + field->objects > 0)
        fr_buffer_printf(unsure, "not always a number or boolean: such records are refused\n");
}

static struct fr_proposed_field *add_label(struct fr_proposed *out, const struct fr_seen_field *field)
{
    if (out->n_labels == FR_LABELS_MAX)
        return NULL;
    struct fr_proposed_field *label = &out->labels[out->n_labels++];
    *label = (struct fr_proposed_field){.field = field, .kind = FR_PROPOSED_LABEL, .table = FR_PROPOSED_NONE};
    doubt_label(field, &label->unsure);
    return label;
}

/* The labels of samples, in the order of an array, else in the order in which they were seen,
 * those within 0 and 1 first: the first label is the one that is learned. */
static enum fr_status choose_sample_labels(const struct fr_survey *survey, struct fr_proposed *out, struct fr_err *err)
{
    bool array = survey->y_arrays > 0 && survey->y_maps == 0;
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < survey->labels.n; i++) {
            const struct fr_seen_field *field = &survey->labels.fields[i];
            bool first = array || (is_unit(&field->value) && fr_seen_present(field) > 0);
            if (first == (pass == 0) && (survey->y_maps == 0 || field->path_size > 0))
                (void)add_label(out, field);
        }
    if (out->n_labels > 0)
        return FR_OK;
    return fr_err_set(err, FR_E_INVALID,
                      "no record has a label: `y` is missing or empty in all of the %" PRIu64
                      " samples; write the label of each sample into `y` (docs/formats/samples.md, \"Labels\")",
                      survey->samples);
}

static bool is_label_like(const struct fr_proposed_field *choice)
{
    const struct fr_seen_scalars *v = &choice->field->value;
    uint64_t present = fr_seen_present(choice->field);
    return choice->kind != FR_PROPOSED_EVENT_TIME && choice->kind != FR_PROPOSED_LEFT_OUT && present > 0 &&
           v->zeros + v->ones + v->minus_ones == present;
}

static void take_label(struct fr_proposed *out, uint32_t slot)
{
    struct fr_proposed_field *choice = &out->slots[slot];
    if (add_label(out, choice->field))
        choice->kind = FR_PROPOSED_LABEL;
}

static enum fr_status take_named_labels(const struct fr_proposal_options *options, struct fr_proposed *out,
                                        struct fr_err *err)
{
    for (size_t l = 0; l < options->n_labels; l++) {
        uint32_t found = FR_PROPOSED_NONE;
        for (uint32_t i = 0; i < out->n_slots; i++)
            if (strcmp(out->slots[i].field->path, options->labels[l]) == 0)
                found = i;
        if (found == FR_PROPOSED_NONE)
            return fr_err_set(
                err, FR_E_INVALID,
                "--label %s: no record of the sample has this field; a field in an object is named by its "
                "path, as `outcome.clicked`",
                options->labels[l]);
        if (out->slots[found].kind != FR_PROPOSED_LABEL)
            take_label(out, found);
    }
    return FR_OK;
}

static enum fr_status refuse_unlabelled(const struct fr_proposed *out, struct fr_err *err)
{
    struct fr_buffer listed = {0};
    for (uint32_t i = 0; i < out->n_slots && listed.size < LISTED_MAX; i++)
        if (is_label_like(&out->slots[i]))
            fr_buffer_printf(&listed, "%s %.64s", listed.size ? "," : "", out->slots[i].field->path);
    fr_buffer_terminate(&listed);
    (void)fr_err_set(
        err, FR_E_INVALID,
        "the records are flat objects, and no field has the name of a label: name the label by --label PATH%s%s",
        listed.size ? "; the fields of 0 and 1, or of true and false, are:"
                    : "; no field has only 0 and 1, or true "
                      "and false",
        listed.size ? (const char *)listed.data : "");
    fr_buffer_release(&listed);
    return FR_E_INVALID;
}

/* Fields of 0 and 1 that are labels by their names, in the order of the words; else the only field
 * of booleans. */
static enum fr_status choose_flat_labels(const struct fr_proposal_options *options, struct fr_proposed *out,
                                         struct fr_err *err)
{
    if (options->n_labels > 0)
        return take_named_labels(options, out, err);
    uint32_t booleans = 0, boolean = FR_PROPOSED_NONE;
    for (uint32_t word = 0; label_words[word]; word++)
        for (uint32_t i = 0; i < out->n_slots; i++)
            if (is_label_like(&out->slots[i]) && fr_proposed_name_word(out->slots[i].field->path, label_words) == word)
                take_label(out, i);
    if (out->n_labels > 0)
        return FR_OK;
    for (uint32_t i = 0; i < out->n_slots; i++)
        if (is_label_like(&out->slots[i]) && out->slots[i].field->value.booleans > 0) {
            booleans++;
            boolean = i;
        }
    if (booleans != 1)
        return refuse_unlabelled(out, err);
    take_label(out, boolean);
    fr_buffer_printf(&out->labels[0].unsure, "the only field of true and false; another: --label PATH\n");
    return FR_OK;
}

enum fr_status fr_proposed_labels(const struct fr_survey *survey, const struct fr_proposal_options *options,
                                  struct fr_proposed *out, struct fr_err *err)
{
    out->labels = fr_alloc(FR_LABELS_MAX, sizeof(*out->labels));
    if (!survey->flat && options->n_labels > 0)
        return fr_err_set(
            err, FR_E_INVALID,
            "--label is for flat records; these records are samples, whose labels are in `y`: remove --label");
    return survey->flat ? choose_flat_labels(options, out, err) : choose_sample_labels(survey, out, err);
}
