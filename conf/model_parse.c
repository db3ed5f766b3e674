/* Model JSON -> the model part of a configuration. The text may come from a topic to which anyone
 * can write. So it is bounded, parsed by the one reader of foreign bytes, reshaped into the tree of
 * a configuration file (lists of named entries become maps), read by the same code with the same
 * bounds, and then written again. A text that is not reproduced byte for byte is refused: it is not
 * canonical, leaves a default out, or contains something that this version does not know. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "layers.h"
#include "loader.h"

/* [{"name": n, ..}, ..] -> {n: {..}}; NULL and err on anything else. */
static struct fr_node *list_to_map(struct fr_arena *arena, const struct fr_node *list, const char *what,
                                   struct fr_err *err)
{
    if (!list || list->kind != FR_NODE_LIST) {
        (void)fr_err_set(err, FR_E_INVALID, "%s: expected a list", what);
        return NULL;
    }
    if (list->count > FR_SLOTS_MAX) { /* before the search for duplicates, which is quadratic */
        (void)fr_err_set(err, FR_E_LIMIT, "%s: more than %d entries", what, FR_SLOTS_MAX);
        return NULL;
    }
    struct fr_node *map = fr_node_new(arena, FR_NODE_MAP, list);
    for (uint32_t i = 0; i < list->count; i++) {
        const struct fr_node *item = list->values[i];
        struct fr_node *name = fr_node_get(item, "name");
        if (!name || name->kind != FR_NODE_SCALAR || fr_node_get(map, name->text)) {
            (void)fr_err_set(err, FR_E_INVALID, "%s.%" PRIu32 ": no name, or one that is taken", what, i);
            return NULL;
        }
        struct fr_node *body = fr_node_new(arena, FR_NODE_MAP, item);
        for (uint32_t k = 0; k < item->count; k++) {
            if (item->values[k] != name)
                fr_node_add(arena, body, item->keys[k], item->values[k]);
        }
        fr_node_add(arena, map, name, body);
    }
    return map;
}

static bool is_scalar(const struct fr_node *node, const char *text)
{
    return node && node->kind == FR_NODE_SCALAR && node->plain && strcmp(node->text, text) == 0;
}

/* The JSON tree in the shape of a configuration file, keyed by the paths of the sections. */
static enum fr_status reshape(struct fr_arena *arena, const struct fr_node *json, struct fr_node **out,
                              struct fr_err *err)
{
    if (json->kind != FR_NODE_MAP)
        return fr_err_set(err, FR_E_INVALID, "expected a map");
    if (!is_scalar(fr_node_get(json, "version"), "1"))
        return fr_err_set(err, FR_E_UNSUPPORTED, "version: expected 1");
    if (!is_scalar(fr_node_get(json, "chunk_rows"), "128"))
        return fr_err_set(err, FR_E_UNSUPPORTED, "chunk_rows: expected 128");
    struct fr_node *root = fr_node_new(arena, FR_NODE_MAP, json);
    for (size_t i = 0; i < fr_options_count; i++) {
        const struct fr_option *option = &fr_options[i];
        if (!(option->top & FR_VIEW_MODEL))
            continue;
        struct fr_node *node = fr_node_get(json, fr_option_name(option));
        if (option->named && !(node = list_to_map(arena, node, option->path, err)))
            return FR_E_INVALID;
        if (node)
            fr_node_put(arena, root, option->path, node);
    }
    struct fr_node *tables = fr_node_get(root, "tables");
    for (uint32_t i = 0; i < tables->count; i++) {
        struct fr_node *table = tables->values[i];
        for (uint32_t k = 0; k < table->count; k++) {
            if (strcmp(table->keys[k]->text, "parts") == 0 &&
                !(table->values[k] = list_to_map(arena, table->values[k], "parts", err)))
                return FR_E_INVALID;
        }
    }
    *out = root;
    return FR_OK;
}

static void read_model(struct fr_loader *loader, const struct fr_node *root)
{
    for (size_t i = 0; i < fr_options_count; i++) {
        const struct fr_node *node = fr_node_get(root, fr_options[i].path);
        if (node)
            fr_loader_read(loader, &fr_options[i], node, fr_options[i].path, loader->conf);
        else if (fr_options[i].top & FR_VIEW_MODEL && !fr_options[i].quiet)
            fr_refuse(loader, root, fr_options[i].path, "missing");
    }
    fr_layers_store(loader);
    if (loader->problems.count == 0)
        (void)fr_shapes_infer(loader);
}

static void report(const struct fr_problems *problems, struct fr_err *err)
{
    struct fr_buffer text = {0};
    fr_problems_write(problems, "", &text);
    (void)fr_err_set(err, FR_E_INVALID, "%.*s", (int)(text.size > 900 ? 900 : text.size - 1), (const char *)text.data);
    fr_buffer_release(&text);
}

enum fr_status fr_conf_model_parse(const char *json, size_t size, struct fr_conf **out, struct fr_err *err)
{
    struct fr_loader loader;
    struct fr_buffer again = {0};
    struct fr_node *tree = NULL, *root = NULL;
    fr_loader_init(&loader);
    enum fr_status status = fr_document_parse_json(&loader.arena, json, size, &tree, err);
    if (status == FR_OK)
        status = reshape(&loader.arena, tree, &root, err);
    if (status != FR_OK)
        goto out;
    read_model(&loader, root);
    if (loader.problems.count > 0) {
        report(&loader.problems, err);
        status = FR_E_INVALID;
        goto out;
    }
    fr_conf_model_json(loader.conf, &again);
    if (again.size != size || memcmp(again.data, json, size) != 0) {
        status = fr_err_set(err, FR_E_INVALID, "not the canonical form of the model it describes");
        goto out;
    }
    *out = loader.conf;
    loader.conf = NULL;
out:
    if (status != FR_OK)
        (void)fr_err_wrap(err, "model description");
    fr_buffer_release(&again);
    fr_loader_release(&loader);
    return status;
}
