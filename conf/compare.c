/* The differences between a configuration and an existing model: two texts of fr_conf_model_json or
 * of fr_conf_training_json are compared, and each difference is written in the words of the
 * configuration.
 *
 * Lists of named things are compared by name, other lists as a whole; numbers are shown in their
 * shortest form. What replicas hold is fixed, except rows that the option table marks with
 * `follows`: replicas then get another model record. Slots and labels that nothing reads may be
 * added and removed; if something reads one, its reader differs too. For the training record the
 * option table says what is fixed (`fixed`, `settled`), except two rules in this file: an optimizer
 * continues only from the state of the same optimizer, and no other gate can read the counters of a
 * sketch.
 *
 * This file does not know the state, or what becomes of a difference. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "forms.h"
#include "vocabulary/optimizer.h"

enum { VALUE_MAX = 80 }; /* bytes shown of one value */

static const char served[] = "replicas hold it";
static const struct fr_node nothing = {.kind = FR_NODE_MAP};

struct comparison {
    struct fr_conf_changes *out;
    bool training;
    const struct fr_node *before, *after; /* the two texts */
};

/* The place of two values: the path that is shown, the row of the option or of the value that
 * contains it (NULL: none), and the pattern of the rows below it. */
struct place {
    char path[FR_PATH_MAX], pattern[FR_PATH_MAX];
    const struct fr_option *option;
};

/* ---- one difference ---- */

static void put_real(const char *text, struct fr_buffer *out)
{
    float value = strtof(text, NULL);
    char shown[FR_SCALAR_TEXT_MAX];
    int digits = 0;
    do
        snprintf(shown, sizeof(shown), "%.*g", ++digits, (double)value);
    while (digits < 9 && strtof(shown, NULL) != value);
    fr_buffer_printf(out, "%s", shown);
}

static void put_value(const struct fr_node *node, const struct fr_option *option, struct fr_buffer *out)
{
    if (!node) {
        fr_buffer_printf(out, "%s", option && option->quiet && option->initial ? option->initial : "absent");
    } else if (node->kind != FR_NODE_SCALAR) {
        struct fr_buffer json = {0};
        fr_document_write_json(node, &json);
        fr_buffer_printf(out, "%.*s%s", json.size < VALUE_MAX ? (int)json.size : VALUE_MAX, (const char *)json.data,
                         json.size > VALUE_MAX ? ".." : "");
        fr_buffer_release(&json);
    } else if (node->plain && strpbrk(node->text, "0123456789") && strpbrk(node->text, ".e")) {
        put_real(node->text, out);
    } else {
        fr_buffer_printf(out, "%.*s", VALUE_MAX, node->text);
    }
}

/* Appends `path: text`, once. When the list is full, a difference is counted only; a refused one
 * also replaces the last entry, because the reason must be seen. */
static void add(const struct comparison *c, const char *path, const struct fr_buffer *text, const char *refused)
{
    struct fr_conf_changes *changes = c->out;
    struct fr_conf_change change = {.model = !c->training, .refused = refused};
    snprintf(change.text, sizeof(change.text), "%.256s: %.*s", path, (int)text->size, (const char *)text->data);
    for (uint32_t i = 0; i < changes->n && i < FR_CONF_CHANGES_MAX; i++)
        if (strcmp(changes->list[i].text, change.text) == 0)
            return;
    changes->n++;
    changes->n_refused += refused != NULL;
    bool room = changes->n <= FR_CONF_CHANGES_MAX;
    if (room || refused)
        changes->list[(room ? changes->n : FR_CONF_CHANGES_MAX) - 1] = change;
}

static bool is_known(const struct place *at)
{
    return at->option && strcmp(at->pattern, "?") != 0;
}

static const char *refusal(const struct comparison *c, const struct place *at, bool one)
{
    if (!c->training)
        return is_known(at) && at->option->follows ? NULL : served;
    if (!at->option)
        return "not of this version";
    return one && at->option->settled ? at->option->settled : at->option->fixed;
}

static void note(const struct comparison *c, const struct place *at, const struct fr_node *a, const struct fr_node *b)
{
    struct fr_buffer text = {0};
    bool one = !a || !b, scalar = (a ? a : b)->kind == FR_NODE_SCALAR;
    /* a secret; logs have other readers than the configuration */
    if (strcmp(at->path, "key_seed") == 0) {
        fr_buffer_printf(&text, "%s -> %s", a ? "given" : "absent", !b ? "absent" : a ? "another" : "given");
    } else if (one && !scalar) {
        fr_buffer_printf(&text, "%s", a ? "removed" : "added");
    } else {
        put_value(a, at->option, &text);
        fr_buffer_printf(&text, " -> ");
        put_value(b, at->option, &text);
    }
    add(c, at->path, &text, refusal(c, at, one));
    fr_buffer_release(&text);
}

/* ---- maps ---- */

static void compare(const struct comparison *c, const struct place *at, const struct fr_node *a,
                    const struct fr_node *b);

static bool is_called(const struct comparison *c, const struct fr_option *option, const char *name, const char *key)
{
    return name && (strcmp(name, key) == 0 || (c->training && option->as && strcmp(option->as, key) == 0));
}

/* Finds the row of a key below the pattern. At the top of a record, options of any depth stand
 * under the last part of their path; delta.json has some that are in no view. */
static const struct fr_option *find_row(const struct comparison *c, const char *pattern, const char *key)
{
    unsigned view = c->training ? FR_VIEW_TRAINING : FR_VIEW_MODEL;
    for (size_t i = 0; i < fr_options_count; i++) {
        const struct fr_option *option = &fr_options[i];
        bool top = *pattern == '\0';
        if (top && !(option->top & view) && (c->training || !option->fixed))
            continue;
        if (is_called(c, option, top ? fr_option_name(option) : fr_option_key(option, pattern), key))
            return option;
    }
    return NULL;
}

static void compare_key(const struct comparison *c, const struct place *map, const char *key, const struct fr_node *a,
                        const struct fr_node *b)
{
    struct place at = {.option = find_row(c, map->pattern, key)};
    if (map->path[0] == '\0' && at.option)
        snprintf(at.path, sizeof(at.path), "%s", at.option->path);
    else
        fr_path_join(at.path, map->path, key);
    snprintf(at.pattern, sizeof(at.pattern), "%s", at.option ? at.option->path : "?");
    if (!at.option)
        at.option = map->option;
    compare(c, &at, a, b);
}

static void compare_maps(const struct comparison *c, const struct place *at, const struct fr_node *a,
                         const struct fr_node *b)
{
    for (uint32_t i = 0; i < a->count; i++)
        if (strcmp(a->keys[i]->text, "name") != 0)
            compare_key(c, at, a->keys[i]->text, a->values[i], fr_node_get(b, a->keys[i]->text));
    for (uint32_t i = 0; i < b->count; i++)
        if (!fr_node_get(a, b->keys[i]->text))
            compare_key(c, at, b->keys[i]->text, NULL, b->values[i]);
}

/* ---- rules for one word ---- */

static void note_words(const struct comparison *c, const struct place *at, const char *a, const char *b,
                       const char *refused)
{
    struct fr_buffer text = {0};
    fr_buffer_printf(&text, "%s -> %s", a, b);
    add(c, at->path, &text, refused);
    fr_buffer_release(&text);
}

static const char *kind_of(const struct fr_node *optimizer)
{
    const struct fr_node *kind = optimizer ? fr_node_get(optimizer, "kind") : NULL;
    return kind && kind->kind == FR_NODE_SCALAR ? kind->text : "none";
}

/* A layer without an optimizer has the network's. */
static void compare_optimizers(const struct comparison *c, const struct place *at, const struct fr_node *a,
                               const struct fr_node *b)
{
    const struct fr_node *network_a = fr_node_get(c->before, "network"), *network_b = fr_node_get(c->after, "network");
    a = a ? a : network_a ? fr_node_get(network_a, "optimizer") : NULL;
    b = b ? b : network_b ? fr_node_get(network_b, "optimizer") : NULL;
    const char *before = kind_of(a), *after = kind_of(b);
    enum fr_optimizer_kind from, to;
    bool same = fr_optimizer_kind_parse(before, &from) && fr_optimizer_kind_parse(after, &to) &&
                fr_optimizer_same_state(from, to);
    if (strcmp(before, after) != 0 || !same)
        note_words(c, at, before, after, same ? NULL : "their states differ");
    if (!same || !a || !b)
        return;
    struct place below = *at;
    fr_path_join(below.pattern, "optimizer", before); /* each key has a row of its own kind */
    for (uint32_t i = 0; i < a->count; i++)
        if (strcmp(a->keys[i]->text, "kind") != 0)
            compare_key(c, &below, a->keys[i]->text, a->values[i], fr_node_get(b, a->keys[i]->text));
    fr_path_join(below.pattern, "optimizer", after);
    for (uint32_t i = 0; i < b->count; i++)
        if (!fr_node_get(a, b->keys[i]->text))
            compare_key(c, &below, b->keys[i]->text, NULL, b->values[i]);
}

static const char *gate_of(const struct fr_node *admit)
{
    return fr_node_get(admit, "sketch") ? "sketch" : fr_node_get(admit, "probability") ? "probability" : "count";
}

static void compare_gates(const struct comparison *c, const struct place *at, const struct fr_node *a,
                          const struct fr_node *b)
{
    const char *before = gate_of(a), *after = gate_of(b);
    if (strcmp(before, after) == 0)
        compare_maps(c, at, a, b);
    else
        note_words(c, at, before, after,
                   strcmp(before, "sketch") == 0 ? "no other gate reads the counters of a sketch" : NULL);
}

/* ---- lists ---- */

static const char *name_of(const struct fr_node *entry)
{
    const struct fr_node *name = entry->kind == FR_NODE_MAP ? fr_node_get(entry, "name") : NULL;
    return name && name->kind == FR_NODE_SCALAR ? name->text : NULL;
}

static bool is_named(const struct fr_node *list)
{
    for (uint32_t i = 0; i < list->count; i++)
        if (!name_of(list->values[i]))
            return false;
    return true;
}

static const struct fr_node *find_entry(const struct fr_node *list, const char *name)
{
    for (uint32_t i = 0; i < list->count; i++)
        if (strcmp(name_of(list->values[i]), name) == 0)
            return list->values[i];
    return NULL;
}

/* Says whether the entry is a slot whose mean and deviation are kept with the layers. */
static bool is_standardized(const struct fr_node *entry)
{
    const struct fr_node *transform = fr_node_get(entry, "transform");
    if (transform && transform->kind == FR_NODE_LIST && transform->count > 0)
        transform = transform->values[transform->count - 1];
    return transform && transform->kind == FR_NODE_SCALAR && strcmp(transform->text, "standardize") == 0;
}

/* The training record leaves out entries without training options, and does not report entries that
 * come and go with the model. A layer without training options has the network's optimizer. */
static void compare_entry(const struct comparison *c, const struct place *list, const struct fr_node *a,
                          const struct fr_node *b)
{
    const struct fr_option *option = list->option;
    struct place at = {.option = option};
    fr_path_join(at.path, list->path, name_of(a ? a : b));
    fr_path_join(at.pattern, list->pattern, "*");
    bool one = !a || !b;
    bool quiet_layer =
        one && c->training && !fr_node_get(a ? a : b, "init") && fr_node_get(a ? a : b, "optimizer") != NULL;
    if (!one || quiet_layer)
        compare_maps(c, &at, a ? a : &nothing, b ? b : &nothing);
    else if (!c->training && is_standardized(a ? a : b))
        note_words(c, &at, a ? "there" : "none", a ? "none" : "there", "its statistics are parameters of the model");
    else if (!c->training || !option || !(option->top & FR_VIEW_MODEL))
        note(c, &at, a, b);
}

static void compare_lists(const struct comparison *c, const struct place *at, const struct fr_node *a,
                          const struct fr_node *b)
{
    if (!is_named(a) || !is_named(b)) {
        struct fr_buffer before = {0}, after = {0};
        fr_document_write_json(a, &before);
        fr_document_write_json(b, &after);
        if (before.size != after.size || memcmp(before.data, after.data, after.size) != 0)
            note(c, at, a, b);
        fr_buffer_release(&before);
        fr_buffer_release(&after);
        return;
    }
    bool same = a->count == b->count, in_order = true;
    for (uint32_t i = 0; i < a->count; i++) {
        const struct fr_node *other = find_entry(b, name_of(a->values[i]));
        same = same && other;
        in_order = in_order && i < b->count && other == b->values[i];
        compare_entry(c, at, a->values[i], other);
    }
    for (uint32_t i = 0; i < b->count; i++)
        if (!find_entry(a, name_of(b->values[i])))
            compare_entry(c, at, NULL, b->values[i]);
    if (same && !in_order && !c->training)
        note_words(c, at, "this order", "another", refusal(c, at, false));
}

/* ---- all ---- */

static bool is_quiet_group(const struct fr_option *option)
{
    return option->type == FR_OPTION_GROUP && option->quiet;
}

/* The parser's depth bounds the recursion. At least one of the two exists. */
static void compare(const struct comparison *c, const struct place *at, const struct fr_node *a,
                    const struct fr_node *b)
{
    /* true: the option itself, not a part of its value */
    bool own = at->option && strcmp(at->pattern, at->option->path) == 0;
    if (c->training && own && at->option->show == fr_option_show_optimizer) {
        compare_optimizers(c, at, a, b);
        return;
    }
    if (own && is_quiet_group(at->option)) {
        a = a ? a : &nothing;
        b = b ? b : &nothing;
    }
    if (!a || !b || a->kind != b->kind)
        note(c, at, a, b);
    else if (a->kind == FR_NODE_LIST)
        compare_lists(c, at, a, b);
    else if (a->kind == FR_NODE_MAP && strcmp(at->pattern, "tables.*.admit") == 0)
        compare_gates(c, at, a, b);
    else if (a->kind == FR_NODE_MAP)
        compare_maps(c, at, a, b);
    else if (a->plain != b->plain || strcmp(a->text, b->text) != 0)
        note(c, at, a, b);
}

static enum fr_status compare_texts(const char *before, const char *after, bool training, struct fr_conf_changes *out,
                                    struct fr_err *err)
{
    struct fr_arena arena = {0};
    struct fr_node *a = NULL, *b = NULL;
    enum fr_status status = fr_document_parse_json(&arena, before, strlen(before), &a, err);
    if (status == FR_OK)
        status = fr_document_parse_json(&arena, after, strlen(after), &b, err);
    if (status == FR_OK) {
        struct comparison c = {.out = out, .training = training, .before = a, .after = b};
        compare(&c, &(struct place){.path = ""}, a, b);
    }
    fr_arena_release(&arena);
    return status;
}

enum fr_status fr_conf_compare_models(const char *before, const char *after, struct fr_conf_changes *out,
                                      struct fr_err *err)
{
    return compare_texts(before, after, false, out, err);
}

enum fr_status fr_conf_compare_training(const char *before, const char *after, struct fr_conf_changes *out,
                                        struct fr_err *err)
{
    return compare_texts(before, after, true, out, err);
}
