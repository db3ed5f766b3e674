/* The kind of each field: id, ids, sequence, number, time, or left out with the reason.
 *
 * Types decide first, then values, then names. What is ambiguous becomes an id: a number that is
 * taken for an id is still learned, value by value, while an id that is taken for a number is
 * worthless. Every such decision leaves a doubt, which is printed below the slot.
 *
 * Owner: the caller's thread. */
#include "kinds.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum {
    WORD_MAX = 24,
    FEW_INTEGERS = 32, /* up to so many different integers are taken for ids without a hint */
    UNIQUE_FROM = 100, /* fewer values that are all different prove nothing */
    TEXT_BYTES = 64,   /* mean length of strings from which they are taken for text */
    SEQUENCE_MIN = 50, /* max_len; the default of the option */
    SEQUENCE_MAX = 200,
    DIM_MAX = 4096,
};
static const double ALMOST_ALL = 0.95, NEARLY_ALL_TIMES = 0.99;
/* Counts and prices: the largest number is so many times the mean, and at least this. */
static const double SKEW = 10, SKEW_MAX = 100;

static const char *const id_words[] = {"id",   "ids",   "uid",  "sku",     "code",   "zip",   "user",  "item",
                                       "hour", "month", "wday", "weekday", "region", "color", "brand", NULL};
static const char *const number_words[] = {
    "age",    "price", "amount", "count",    "counts",   "cnt",   "num",    "number", "quantity", "qty",
    "score",  "rate",  "ratio",  "length",   "size",     "sum",   "total",  "avg",    "mean",     "views",
    "clicks", "days",  "hours",  "minutes",  "seconds",  "ms",    "weight", "height", "income",   "rating",
    "budget", "cost",  "bid",    "duration", "distance", "width", "rank",   NULL};
static const char *const sequence_words[] = {"hist",    "history",  "recent",  "sequence", "seq",     "last",
                                             "past",    "previous", "prev",    "viewed",   "clicked", "bought",
                                             "watched", "visited",  "session", NULL};
static const char *const request_words[] = {"request", "event",   "impression", "uuid",        "guid", "trace",
                                            "session", "message", "span",       "transaction", NULL};

bool fr_proposed_has_ids(const struct fr_proposed_field *choice)
{
    return choice->kind == FR_PROPOSED_ID || choice->kind == FR_PROPOSED_IDS || choice->kind == FR_PROPOSED_SEQUENCE;
}

uint64_t fr_survey_holders(const struct fr_survey *survey, const struct fr_seen_field *field)
{
    /* a sample of a group may not have what the group shares, so such a field is a group's */
    return field->shared && survey->groups > 0 ? survey->groups : survey->samples;
}

/* ---- words of names ---- */

static bool is_upper(char c)
{
    return c >= 'A' && c <= 'Z';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || is_upper(c);
}

static uint32_t find_word(const char *word, const char *const *list)
{
    uint32_t i = 0;
    while (list[i] && strcmp(list[i], word) != 0)
        i++;
    return i;
}

uint32_t fr_proposed_name_word(const char *name, const char *const *list)
{
    uint32_t best = find_word("", list); /* the length: no list has the empty word */
    for (size_t i = 0; name[i];) {
        char word[WORD_MAX + 1];
        size_t n = 0;
        if (!is_letter(name[i])) {
            i++;
            continue;
        }
        do {
            if (n < WORD_MAX)
                word[n++] = (char)(is_upper(name[i]) ? name[i] + ('a' - 'A') : name[i]);
            i++;
        } while (is_letter(name[i]) && (!is_upper(name[i]) || is_upper(name[i - 1])));
        word[n] = '\0';
        uint32_t found = find_word(word, list);
        best = found < best ? found : best;
    }
    return best;
}

static bool named(const struct fr_seen_field *field, const char *const *list)
{
    return list[fr_proposed_name_word(field->path, list)] != NULL;
}

/* ---- decisions ---- */

static void leave_out(struct fr_proposed_field *choice, const char *why)
{
    choice->kind = FR_PROPOSED_LEFT_OUT;
    choice->why = why;
}

static void choose_ids(struct fr_proposed_field *choice)
{
    const struct fr_seen_field *field = choice->field;
    const struct fr_seen_scalars *e = &field->element;
    bool sequence = field->length_max > 1 && named(field, sequence_words);
    choice->kind = sequence ? FR_PROPOSED_SEQUENCE : FR_PROPOSED_IDS;
    if (sequence) {
        choice->max_len = field->length_max < SEQUENCE_MIN ? SEQUENCE_MIN : field->length_max;
        if (choice->max_len > SEQUENCE_MAX)
            choice->max_len = SEQUENCE_MAX;
        fr_buffer_printf(&choice->unsure, "by its name a history, the oldest id first; without an order: remove kind "
                                          "and max_len\n");
    } else if (e->strings == 0 && field->length_min == field->length_max && field->length_max > 1) {
        fr_buffer_printf(&choice->unsure,
                         "always %" PRIu32 " integers; a vector of numbers would be {kind: dense, dim: %" PRIu32 "}\n",
                         field->length_max, field->length_max);
    }
}

static void choose_list(struct fr_proposed_field *choice)
{
    const struct fr_seen_field *field = choice->field;
    const struct fr_seen_scalars *e = &field->element;
    uint64_t elements = fr_seen_numbers(e) + e->strings + e->booleans + e->others;
    if (elements == 0)
        leave_out(choice, "only empty lists in the sample");
    else if (2 * e->others > elements)
        leave_out(choice, "lists of objects or of lists, which no slot reads: send lists of ids");
    else if (e->booleans > 0)
        leave_out(choice, "lists of booleans, which no slot reads: send numbers");
    else if (e->fractions == 0 || field->weighted > 0)
        choose_ids(choice);
    else if (e->strings > 0 || field->length_min != field->length_max || field->length_max > DIM_MAX)
        leave_out(choice, "lists of numbers of different lengths: a dense slot needs a fixed number of them");
    else {
        choice->kind = FR_PROPOSED_NUMBER;
        choice->dim = field->length_max;
    }
    if (e->nils > 0 && choice->kind != FR_PROPOSED_LEFT_OUT)
        fr_buffer_printf(&choice->unsure,
                         "%" PRIu64 " nulls inside lists: such records are refused; leave the value "
                         "out, or send each number alone\n",
                         e->nils);
}

static void choose_number_transform(struct fr_proposed_field *choice)
{
    const struct fr_seen_scalars *v = &choice->field->value;
    choice->kind = FR_PROPOSED_NUMBER;
    choice->dim = 1;
    choice->log1p = v->min >= 0 && v->max >= SKEW_MAX && v->max > SKEW * v->sum / (double)fr_seen_numbers(v);
}

static void choose_integer(struct fr_proposed_field *choice, uint64_t distinct)
{
    const struct fr_seen_field *field = choice->field;
    const struct fr_seen_scalars *v = &field->value;
    bool number = named(field, number_words), id = named(field, id_words);
    if (v->min < -1 || (number && !id)) {
        choose_number_transform(choice);
        return;
    }
    choice->kind = FR_PROPOSED_ID;
    if (id || v->strings > 0 || v->zeros + v->ones == fr_seen_numbers(v) || v->max > INT32_MAX)
        return;
    fr_buffer_printf(&choice->unsure,
                     distinct <= FEW_INTEGERS
                         ? "few different integers: taken for ids; if they count or measure: {kind: dense, transform: "
                           "standardize}\n"
                         : "integers: taken for ids, because numbers taken for ids still learn; if they count or "
                           "measure: {kind: dense, transform: [log1p, standardize]}\n");
}

static void choose_numeric(struct fr_proposed_field *choice, uint64_t distinct)
{
    const struct fr_seen_field *field = choice->field;
    const struct fr_seen_scalars *v = &field->value;
    double numbers = (double)fr_seen_numbers(v);
    bool time =
        (double)v->seconds >= NEARLY_ALL_TIMES * numbers || (double)v->milliseconds >= NEARLY_ALL_TIMES * numbers;
    if (time && !named(field, id_words)) {
        choice->kind = FR_PROPOSED_TIME;
        fr_buffer_printf(&choice->unsure, "numbers that are Unix times: hour and day of the week; an age in days would "
                                          "be a number that the producer computes\n");
    } else if (v->fractions > 0 || (2 * v->floats > v->integers && !named(field, id_words))) {
        choose_number_transform(choice);
    } else {
        choose_integer(choice, distinct);
    }
}

static void choose_string(struct fr_proposed_field *choice)
{
    const struct fr_seen_scalars *v = &choice->field->value;
    double strings = (double)v->strings;
    choice->kind = FR_PROPOSED_ID;
    if ((double)v->dates >= ALMOST_ALL * strings)
        leave_out(choice,
                  "times as text: send Unix seconds or milliseconds, then {kind: dense, transform: time_of_week}");
    else if ((double)(v->decimals + v->fraction_texts) >= ALMOST_ALL * strings &&
             (double)v->fraction_texts > (1 - ALMOST_ALL) * strings)
        leave_out(choice, "numbers as text: send numbers, then {kind: dense, transform: standardize}");
    else if (2 * v->sentences > v->strings || v->bytes > TEXT_BYTES * v->strings)
        leave_out(choice, "free text: send its words, or a category, as ids");
}

/* Adds what speaks against an id: values that do not come back, or do not change. */
static void doubt_id(struct fr_proposed_field *choice, uint64_t present, uint64_t holders, uint64_t distinct)
{
    if (present >= UNIQUE_FROM && (double)distinct >= ALMOST_ALL * (double)present) {
        if (named(choice->field, request_words))
            leave_out(choice, "a value of its own in nearly every record, which cannot be learned from");
        else
            fr_buffer_printf(&choice->unsure,
                             "a value of its own in nearly every record of the sample: remove the slot "
                             "unless its values come back\n");
    } else if (distinct == 1 && present == holders) {
        fr_buffer_printf(&choice->unsure, "one value only in the sample\n");
    }
}

static void choose_scalar(struct fr_proposed_field *choice, const struct fr_survey *survey, uint64_t present)
{
    const struct fr_seen_field *field = choice->field;
    const struct fr_seen_scalars *v = &field->value;
    uint64_t numbers = fr_seen_numbers(v), distinct = fr_seen_distinct(&field->sketch);
    if (2 * v->strings > present)
        choose_string(choice);
    else if (2 * v->booleans > present || numbers == 0) /* 0: no type is that of most values */
        choice->kind = FR_PROPOSED_ID;
    else
        choose_numeric(choice, distinct);
    if (v->booleans > 0 && !survey->flat)
        leave_out(choice, "booleans, which slots of samples do not take: send 0 or 1");
    if (v->strings > 0 && numbers > 0 && choice->kind != FR_PROPOSED_LEFT_OUT)
        fr_buffer_printf(&choice->unsure, "seen as number in %.3g %%, as string in %.3g %%%s\n",
                         100.0 * (double)numbers / (double)present, 100.0 * (double)v->strings / (double)present,
                         choice->kind == FR_PROPOSED_ID ? "" : ": records with a string are refused");
    if (choice->kind == FR_PROPOSED_ID && v->booleans == 0)
        doubt_id(choice, present, fr_survey_holders(survey, field), distinct);
}

/* Returns whether a configuration can name the field: its path in flat records, else its key. */
static bool can_be_named(const struct fr_seen_field *field, bool flat)
{
    uint32_t dots = 0;
    for (uint32_t i = 0; flat && i < field->path_size; i++)
        dots += field->path[i] == '.';
    return field->path_size > 0 && field->path_size <= FR_SAMPLE_KEY_MAX && dots <= FR_FLAT_DOTS_MAX &&
           !strstr(field->path, "${") && strlen(field->path) == field->path_size;
}

static void choose_kind(struct fr_proposed_field *choice, const struct fr_survey *survey)
{
    const struct fr_seen_field *field = choice->field;
    uint64_t present = fr_seen_present(field), lists = field->lists + field->weighted;
    if (!can_be_named(field, survey->flat))
        leave_out(choice, "a name that is empty, too long, too deep or has ${: no configuration can write it");
    else if (present == 0)
        leave_out(choice, "no value in the sample");
    else if (2 * (field->objects + field->value.others) > present)
        leave_out(choice, "objects, which no slot reads");
    else if (2 * lists > present)
        choose_list(choice);
    else
        choose_scalar(choice, survey, present);
}

/* ---- flat records: one path leads through another ---- */

static bool leads_through(const struct fr_seen_field *inner, const struct fr_seen_field *outer)
{
    return inner->path_size > outer->path_size && inner->path[outer->path_size] == '.' &&
           memcmp(inner->path, outer->path, outer->path_size) == 0;
}

/* Leaves out what lies inside the value of another choice, or the value itself if it is rarer. */
static void leave_out_inner(struct fr_proposed *choices)
{
    for (uint32_t i = 0; i < choices->n_slots; i++)
        for (uint32_t j = 0; j < choices->n_slots; j++) {
            struct fr_proposed_field *inner = &choices->slots[i], *outer = &choices->slots[j];
            if (inner->kind == FR_PROPOSED_LEFT_OUT || outer->kind == FR_PROPOSED_LEFT_OUT ||
                !leads_through(inner->field, outer->field))
                continue;
            bool rarer = fr_seen_present(inner->field) < fr_seen_present(outer->field);
            leave_out(rarer ? inner : outer, "an object in some records and a value in others");
        }
}

static void limit_slots(struct fr_proposed *choices)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < choices->n_slots; i++) {
        struct fr_proposed_field *choice = &choices->slots[i];
        bool slot =
            fr_proposed_has_ids(choice) || choice->kind == FR_PROPOSED_NUMBER || choice->kind == FR_PROPOSED_TIME;
        if (slot && ++n > FR_SLOTS_MAX)
            leave_out(choice, "a model has at most 512 slots");
    }
}

static uint32_t find_user(const struct fr_proposed *choices)
{
    static const char *const user_words[] = {"user",   "uid",     "member",   "visitor", "reader",
                                             "viewer", "account", "customer", NULL};
    for (uint32_t i = 0; i < choices->n_slots; i++)
        if (choices->slots[i].kind == FR_PROPOSED_ID && named(choices->slots[i].field, user_words) &&
            fr_seen_distinct(&choices->slots[i].field->sketch) > FEW_INTEGERS)
            return i;
    return FR_PROPOSED_NONE;
}

enum fr_status fr_proposed_make(const struct fr_survey *survey, const struct fr_proposal_options *options,
                                struct fr_proposed *out, struct fr_err *err)
{
    out->n_slots = survey->fields.n;
    out->slots = fr_alloc(out->n_slots ? out->n_slots : 1, sizeof(*out->slots));
    for (uint32_t i = 0; i < out->n_slots; i++) {
        out->slots[i] = (struct fr_proposed_field){.field = &survey->fields.fields[i], .table = i};
        choose_kind(&out->slots[i], survey);
    }
    if (survey->flat)
        fr_proposed_event_time(survey, out);
    enum fr_status status = fr_proposed_labels(survey, options, out, err);
    if (status != FR_OK)
        return status;
    if (survey->flat)
        leave_out_inner(out);
    limit_slots(out);
    uint32_t n = 0;
    for (uint32_t i = 0; i < out->n_slots; i++)
        n += out->slots[i].kind >= FR_PROPOSED_ID;
    if (n == 0)
        return fr_err_set(err, FR_E_INVALID,
                          "none of the %" PRIu32 " fields can be a slot: ids are strings and integers, numbers are "
                          "numbers (docs/formats/samples.md)",
                          out->n_slots);
    out->gauc_by = find_user(out);
    fr_proposed_tables(out);
    fr_proposed_names(out);
    return FR_OK;
}

void fr_proposed_release(struct fr_proposed *choices)
{
    for (uint32_t i = 0; i < choices->n_slots; i++)
        fr_buffer_release(&choices->slots[i].unsure);
    for (uint32_t i = 0; i < choices->n_labels; i++)
        fr_buffer_release(&choices->labels[i].unsure);
    free(choices->slots);
    free(choices->labels);
    *choices = (struct fr_proposed){0};
}
