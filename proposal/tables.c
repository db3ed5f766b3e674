/* Which table a slot of ids gets, and the names of slots and labels.
 *
 * Fields that name the same things share a table: a list with the id that is in it (the items of a
 * history), and a previous id with the present one. What they have in common is estimated from
 * their sketches, and a word that both names have counts in favour. Fields of few values share the
 * table `context`, each in a namespace of its own, because a model has at most 64 tables.
 *
 * Owner: the caller's thread. */
#include <stdio.h>
#include <string.h>

#include "kinds.h"

enum {
    FEW_VALUES = 1000,
    SMALL_RANGE = 100,
    ALIKE_MIN = 10, /* different values from which a comparison means anything */
    TABLES_MAX = 60,
    NAME_BYTES_MAX = 48, /* of a name, which leaves room for a number */
};
static const double ALIKE = 0.3, WORD_COUNTS = 0.5;

/* Names of layers and of the shared table (yaml_text.c), of the options that take a name, and what
 * YAML reads as no name. */
static const char *const reserved[] = {"wide",    "pairs", "h",    "deep", "values", "out",
                                       "context", "all",   "rest", "null", NULL};
static const char *const previous_words[] = {"prev", "previous", "last", NULL};

/* ---- tables ---- */

/* Returns whether the name of the list has the first word of the other name, as `hist_cat` and
 * `cat_id`. */
static bool share_word(const char *list, const char *other)
{
    char first[FR_SAMPLE_KEY_MAX + 1];
    size_t n = 0;
    for (; n < FR_SAMPLE_KEY_MAX && other[n] >= 'a' && other[n] <= 'z'; n++)
        first[n] = other[n];
    first[n] = '\0';
    const char *const words[] = {first, NULL};
    return n > 1 && fr_proposed_name_word(list, words) == 0;
}

/* Returns whether the field has few values, which are all integers: others have the same ones by
 * chance. */
static bool is_small_range(const struct fr_seen_field *field)
{
    const struct fr_seen_scalars *v = &field->value;
    return fr_seen_distinct(&field->sketch) < SMALL_RANGE && v->strings == v->decimals;
}

/* Returns how alike the values of both fields are; 0: not enough for one table. */
static double likeness(const struct fr_proposed_field *choice, const struct fr_seen_field *id)
{
    const struct fr_seen_field *list = choice->field;
    bool word = share_word(list->path, id->path);
    double jaccard, back;
    double contained = fr_seen_contained(&list->sketch, &id->sketch, &jaccard);
    double contains = fr_seen_contained(&id->sketch, &list->sketch, &back);
    if (list->sketch.n < ALIKE_MIN || id->sketch.n < ALIKE_MIN || (contained < ALIKE && contains < ALIKE))
        return 0;
    if (!word && choice->kind == FR_PROPOSED_IDS && is_small_range(id))
        return 0;
    return jaccard + (word ? WORD_COUNTS : 0);
}

static void share_tables(struct fr_proposed *choices)
{
    for (uint32_t i = 0; i < choices->n_slots; i++) {
        struct fr_proposed_field *choice = &choices->slots[i];
        bool list = choice->kind == FR_PROPOSED_IDS || choice->kind == FR_PROPOSED_SEQUENCE;
        bool previous = choice->kind == FR_PROPOSED_ID &&
                        previous_words[fr_proposed_name_word(choice->field->path, previous_words)] != NULL;
        double best = 0;
        for (uint32_t j = 0; (list || previous) && j < choices->n_slots; j++) {
            const struct fr_proposed_field *id = &choices->slots[j];
            if (id->kind != FR_PROPOSED_ID || i == j ||
                previous_words[fr_proposed_name_word(id->field->path, previous_words)] != NULL)
                continue;
            double alike = likeness(choice, id->field);
            if (alike > best) {
                best = alike;
                choice->table = j;
            }
        }
    }
}

static bool is_shared(const struct fr_proposed *choices, uint32_t table)
{
    for (uint32_t i = 0; i < choices->n_slots; i++)
        if (i != table && fr_proposed_has_ids(&choices->slots[i]) && choices->slots[i].table == table)
            return true;
    return false;
}

void fr_proposed_tables(struct fr_proposed *choices)
{
    uint32_t tables = 0;
    share_tables(choices);
    for (uint32_t i = 0; i < choices->n_slots; i++) {
        struct fr_proposed_field *choice = &choices->slots[i];
        if (!fr_proposed_has_ids(choice) || choice->table != i)
            continue;
        bool shared = is_shared(choices, i);
        if (!shared && (fr_seen_distinct(&choice->field->sketch) < FEW_VALUES || tables >= TABLES_MAX))
            choice->table = FR_PROPOSED_CONTEXT;
        else
            tables++;
    }
}

/* ---- names ---- */

static bool is_taken(const struct fr_proposed *choices, const char *name)
{
    for (uint32_t i = 0; reserved[i]; i++)
        if (strcmp(reserved[i], name) == 0)
            return true;
    for (uint32_t i = 0; i < choices->n_slots; i++)
        if (strcmp(choices->slots[i].name, name) == 0)
            return true;
    for (uint32_t i = 0; i < choices->n_labels; i++)
        if (strcmp(choices->labels[i].name, name) == 0)
            return true;
    return false;
}

/* Makes a name of the text, with what a name cannot have replaced, that nothing else has. */
static void give_name(const struct fr_proposed *choices, const char *text, char name[FR_NAME_MAX])
{
    char base[NAME_BYTES_MAX + 2], unique[FR_NAME_MAX];
    size_t n = 0;
    if (text[0] >= '0' && text[0] <= '9')
        base[n++] = '_';
    for (size_t i = 0; text[i] && n <= NAME_BYTES_MAX; i++) {
        char c = text[i];
        bool kept = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
        base[n++] = c;
        base[n - 1] = kept ? c : '_';
    }
    base[n] = '\0';
    snprintf(unique, sizeof(unique), "%s", base);
    for (unsigned number = 2; is_taken(choices, unique); number++)
        snprintf(unique, sizeof(unique), "%s_%u", base, number);
    memcpy(name, unique, sizeof(unique));
}

void fr_proposed_names(struct fr_proposed *choices)
{
    for (uint32_t i = 0; i < choices->n_labels; i++) {
        struct fr_proposed_field *label = &choices->labels[i];
        const char *path = label->field->path;
        bool number = path[0] == '\0' || (path[0] >= '0' && path[0] <= '9');
        give_name(choices, !number ? path : i == 0 ? "click" : "other", label->name);
    }
    for (uint32_t i = 0; i < choices->n_slots; i++)
        if (choices->slots[i].kind >= FR_PROPOSED_ID)
            give_name(choices, choices->slots[i].field->path, choices->slots[i].name);
}
