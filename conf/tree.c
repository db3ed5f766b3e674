/* See tree.h. Forms of one row only are shown where they are read. */
#include "tree.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "scalar.h"

void fr_tree_put(struct fr_tree *tree, struct fr_node *parent, const char *key, struct fr_node *value)
{
    fr_node_put(&tree->arena, parent, key, value);
}

struct fr_node *fr_tree_flow(struct fr_tree *tree, enum fr_node_kind kind)
{
    struct fr_node *node = fr_node_new(&tree->arena, kind, NULL);
    node->flow = true;
    return node;
}

struct fr_node *fr_tree_number(struct fr_tree *tree, const char *format, ...)
{
    char text[FR_SCALAR_TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    FR_CHECK(size > 0 && (size_t)size < sizeof(text));
    struct fr_node *node = fr_tree_text(tree, text);
    node->plain = true;
    return node;
}

struct fr_node *fr_tree_real(struct fr_tree *tree, float value)
{
    return fr_tree_number(tree, "%.9g", (double)value);
}

struct fr_node *fr_tree_word(struct fr_tree *tree, const char *text)
{
    struct fr_node *node = fr_tree_text(tree, text);
    node->plain = node->word = true;
    return node;
}

struct fr_node *fr_tree_text(struct fr_tree *tree, const char *text)
{
    struct fr_node *node = fr_node_new(&tree->arena, FR_NODE_SCALAR, NULL);
    node->text = fr_node_copy_text(&tree->arena, text, strlen(text));
    return node;
}

struct fr_node *fr_tree_names(struct fr_tree *tree, const char *of, const int32_t *places, uint32_t count)
{
    const struct fr_option *row = fr_option_find(of);
    struct fr_node *list = fr_tree_flow(tree, FR_NODE_LIST);
    for (uint32_t i = 0; i < count; i++)
        fr_tree_put(tree, list, NULL,
                    fr_tree_text(tree, fr_option_entries(row, tree->conf).first + (size_t)places[i] * row->size));
    return list;
}

/* ---- rows ---- */

/* Maps of named things stay maps in the configuration and are lists in the other views. An entry
 * that has only its name is left out of the training record. */
static struct fr_node *show_entries(struct fr_tree *tree, const struct fr_option *option, const void *base)
{
    bool map = option->named && tree->view == FR_VIEW_CONFIG;
    struct fr_node *all = fr_node_new(&tree->arena, map ? FR_NODE_MAP : FR_NODE_LIST, NULL);
    uint32_t count = fr_option_entries(option, base).count;
    for (uint32_t i = 0; i < count; i++) {
        const char *entry = fr_option_entries(option, base).first + i * option->size;
        char pattern[64];
        snprintf(pattern, sizeof(pattern), "%s.*", option->path);
        struct fr_node *node = fr_tree_scope(tree, pattern, entry);
        node->flow = option->flow;
        if (option->named && !map)
            fr_tree_put(tree, node, "name", fr_tree_text(tree, entry));
        if (tree->view != FR_VIEW_TRAINING || node->count > 1)
            fr_tree_put(tree, all, map ? entry : NULL, node);
    }
    return all;
}

static struct fr_node *show_value(struct fr_tree *tree, const struct fr_option *option, const void *base)
{
    const void *place = (const char *)base + option->offset;
    char text[FR_SCALAR_TEXT_MAX];
    switch (option->type) {
    case FR_OPTION_GROUP:
        return fr_tree_scope(tree, option->path, base);
    case FR_OPTION_ENTRIES:
        return show_entries(tree, option, base);
    case FR_OPTION_NAME:
        return fr_tree_text(tree, place);
    case FR_OPTION_TEXT:
    case FR_OPTION_TOPIC:
        return fr_tree_text(tree, *(char *const *)place);
    case FR_OPTION_REF:
        return fr_tree_names(tree, option->of, place, 1)->values[0];
    case FR_OPTION_BOOL:
        return fr_tree_number(tree, "%s", *(const bool *)place ? "true" : "false");
    case FR_OPTION_SWITCH:
    case FR_OPTION_CHOICE:
        fr_choice_name(option->choices, option->type == FR_OPTION_SWITCH ? *(const bool *)place : *(const int *)place,
                       text);
        return fr_tree_word(tree, text);
    case FR_OPTION_U32:
        return fr_tree_number(tree, "%" PRIu32, *(const uint32_t *)place);
    case FR_OPTION_U64:
        return fr_tree_number(tree, "%" PRIu64, *(const uint64_t *)place);
    case FR_OPTION_I64:
        return fr_tree_number(tree, "%" PRId64, *(const int64_t *)place);
    case FR_OPTION_REAL:
        return fr_tree_real(tree, *(const float *)place);
    case FR_OPTION_DURATION:
        fr_scalar_format_duration(*(const int64_t *)place, text);
        return fr_tree_word(tree, text);
    case FR_OPTION_SIZE:
        fr_scalar_format_size(*(const uint64_t *)place, text);
        return fr_tree_word(tree, text);
    case FR_OPTION_CUSTOM:
    case FR_OPTION_LATER:
        break;
    }
    FR_CHECK(!"a row without a value");
    return NULL;
}

static bool is_shown(const struct fr_tree *tree, const struct fr_option *option, const void *base)
{
    const char *place = base;
    if (option->type == FR_OPTION_LATER || option->shorthand || !fr_option_applies(option, base))
        return false;
    /* The training record contains only the optimizer of a layer. */
    unsigned takes = option->takes && tree->view == FR_VIEW_TRAINING ? FR_LAYER_OPTIMIZER : option->takes;
    if (takes && !(fr_layer_rule(((const struct fr_conf_layer *)base)->op)->options & takes))
        return false;
    if (option->sources && !(option->sources >> ((const struct fr_conf_slot *)base)->source & 1))
        return false;
    if (option->present && !*(const bool *)(place + option->present))
        return false;
    if (option->type == FR_OPTION_REF)
        return *(const int32_t *)(const void *)(place + option->offset) != FR_NO_INDEX;
    if (option->type == FR_OPTION_TEXT || option->type == FR_OPTION_TOPIC)
        return *(char *const *)(const void *)(place + option->offset) != NULL; /* NULL: not given */
    return option->type != FR_OPTION_I64 || *(const int64_t *)(const void *)(place + option->offset) != FR_NO_INDEX;
}

static bool is_default(const struct fr_option *option, const struct fr_node *value)
{
    if (value->kind == FR_NODE_MAP)
        return value->count == 0;
    return option->type == FR_OPTION_REAL ? strtof(value->text, NULL) == strtof(option->initial, NULL)
                                          : strcmp(value->text, option->initial) == 0;
}

static void show_row(struct fr_tree *tree, const struct fr_option *option, const void *base, struct fr_node *map)
{
    bool training = tree->view == FR_VIEW_TRAINING;
    if (!is_shown(tree, option, base))
        return;
    struct fr_node *value = option->show ? option->show(tree, option, base, map) : show_value(tree, option, base);
    if (value && !(training && option->quiet && is_default(option, value)))
        fr_tree_put(tree, map, training && option->as ? option->as : fr_option_name(option), value);
}

struct fr_node *fr_tree_scope(struct fr_tree *tree, const char *pattern, const void *base)
{
    struct fr_node *map = fr_node_new(&tree->arena, FR_NODE_MAP, NULL);
    for (const struct fr_option *option = NULL; (option = fr_option_next(option, pattern));) {
        if ((option->views | FR_VIEW_CONFIG) & tree->view)
            show_row(tree, option, base, map);
    }
    return map;
}

/* ---- views ---- */

static void write_view(const struct fr_conf *conf, enum fr_view view, struct fr_buffer *out)
{
    struct fr_tree tree = {.conf = conf, .view = view};
    struct fr_node *root = fr_node_new(&tree.arena, FR_NODE_MAP, NULL);
    for (size_t i = 0; i < fr_options_count; i++) {
        if (fr_options[i].top & view)
            show_row(&tree, &fr_options[i], conf, root);
    }
    if (view == FR_VIEW_MODEL)
        fr_tree_put(&tree, root, "chunk_rows", fr_tree_number(&tree, "%" PRIu32, conf->chunk_rows));
    fr_document_write_json(root, out);
    fr_arena_release(&tree.arena);
}

void fr_conf_print(const struct fr_conf *conf, struct fr_buffer *out)
{
    struct fr_tree tree = {.conf = conf, .view = FR_VIEW_CONFIG};
    fr_document_write_yaml(fr_tree_scope(&tree, "", conf), out);
    fr_arena_release(&tree.arena);
}

void fr_conf_model_json(const struct fr_conf *conf, struct fr_buffer *out)
{
    write_view(conf, FR_VIEW_MODEL, out);
}

void fr_conf_training_json(const struct fr_conf *conf, struct fr_buffer *out)
{
    write_view(conf, FR_VIEW_TRAINING, out);
}

uint64_t fr_conf_fingerprint(const struct fr_conf *conf)
{
    struct fr_buffer json = {0};
    fr_conf_model_json(conf, &json);
    struct fr_sha256 digest = fr_sha256(json.data, json.size);
    fr_buffer_release(&json);
    return fr_sha256_u64(&digest);
}
