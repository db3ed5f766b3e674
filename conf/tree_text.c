/* Tree -> text: YAML for people, canonical JSON for hashing and comparing. This file does not know
 * which nodes there are. */
#include <string.h>

#include "document.h"

enum { INDENT = 2 };

static void write_flow(const struct fr_node *node, struct fr_buffer *out)
{
    if (node->kind == FR_NODE_SCALAR) {
        if (node->plain)
            fr_buffer_append(out, node->text, strlen(node->text));
        else
            fr_buffer_yaml_text(out, node->text);
        return;
    }
    bool map = node->kind == FR_NODE_MAP;
    fr_buffer_append(out, map ? "{" : "[", 1);
    for (uint32_t i = 0; i < node->count; i++) {
        fr_buffer_printf(out, "%s%s%s", i ? ", " : "", map ? node->keys[i]->text : "", map ? ": " : "");
        write_flow(node->values[i], out);
    }
    fr_buffer_append(out, map ? "}" : "]", 1);
}

static void write_block(const struct fr_node *node, int indent, struct fr_buffer *out)
{
    for (uint32_t i = 0; i < node->count; i++) {
        const struct fr_node *value = node->values[i];
        const char *key = node->kind == FR_NODE_MAP ? node->keys[i]->text : NULL;
        /* Without quotes this name would be read as null. */
        const char *quote = key && strcmp(key, "null") == 0 ? "\"" : "";
        fr_buffer_printf(out, "%*s%s%s%s%s", indent, "", quote, key ? key : "-", quote, key ? ":" : "");
        if (value->kind == FR_NODE_SCALAR || value->flow || value->count == 0) {
            fr_buffer_append(out, " ", 1);
            write_flow(value, out);
        }
        fr_buffer_append(out, "\n", 1);
        if (value->kind != FR_NODE_SCALAR && !value->flow)
            write_block(value, indent + INDENT, out);
    }
}

void fr_document_write_yaml(const struct fr_node *map, struct fr_buffer *out)
{
    write_block(map, 0, out);
    fr_buffer_terminate(out);
}

/* Returns the map's entry with the least key greater than `last`. */
static uint32_t next_key(const struct fr_node *map, const char *last)
{
    uint32_t least = map->count;
    for (uint32_t i = 0; i < map->count; i++) {
        if (strcmp(map->keys[i]->text, last) > 0 &&
            (least == map->count || strcmp(map->keys[i]->text, map->keys[least]->text) < 0))
            least = i;
    }
    return least;
}

static void write_json(const struct fr_node *node, struct fr_buffer *out)
{
    if (node->kind == FR_NODE_SCALAR) {
        if (node->plain && !node->word)
            fr_buffer_append(out, node->text, strlen(node->text));
        else
            fr_buffer_json_text(out, node->text);
        return;
    }
    bool map = node->kind == FR_NODE_MAP;
    const char *last = "";
    fr_buffer_append(out, map ? "{" : "[", 1);
    for (uint32_t n = 0; n < node->count; n++) {
        uint32_t i = map ? next_key(node, last) : n;
        if (i == node->count) /* the remaining keys came before, or one is empty */
            break;
        last = map ? node->keys[i]->text : "";
        if (n > 0)
            fr_buffer_append(out, ",", 1);
        if (map)
            fr_buffer_printf(out, "\"%s\":", last);
        write_json(node->values[i], out);
    }
    fr_buffer_append(out, map ? "}" : "]", 1);
}

void fr_document_write_json(const struct fr_node *node, struct fr_buffer *out)
{
    write_json(node, out);
    fr_buffer_terminate(out);
}
