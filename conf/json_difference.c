/* The first difference of two JSON texts, as a path and two values: what a refused start shows.
 * Maps are compared by key, lists by index; the texts are our own canonical ones, but nothing
 * relies on it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "document.h"
#include "problem.h"
#include "loader.h"

static void write_value(const struct fr_node *node, struct fr_buffer *out)
{
    if (!node)
        fr_buffer_printf(out, "absent");
    else if (node->kind == FR_NODE_MAP)
        fr_buffer_printf(out, "{..}");
    else if (node->kind == FR_NODE_LIST)
        fr_buffer_printf(out, "[..]");
    else
        fr_buffer_printf(out, node->plain ? "%.120s" : "\"%.120s\"", node->text);
}

static void write_difference(const char *path, const struct fr_node *before, const struct fr_node *after,
                             struct fr_buffer *out)
{
    fr_buffer_printf(out, "%s: ", path);
    if (strcmp(path, "key_seed") == 0) { /* a secret; logs have other readers */
        fr_buffer_printf(out, "%s -> %s", before ? "given" : "absent",
                         !after   ? "absent"
                         : before ? "another"
                                  : "given");
        return;
    }
    write_value(before, out);
    fr_buffer_printf(out, " -> ");
    write_value(after, out);
}

/* True when a difference was written. Recursion is bounded by the parser's depth. */
static bool compare(const char *path, const struct fr_node *before, const struct fr_node *after, struct fr_buffer *out)
{
    if (!before || !after || before->kind != after->kind) {
        write_difference(path, before, after, out);
        return true;
    }
    if (before->kind == FR_NODE_SCALAR) {
        if (before->plain == after->plain && strcmp(before->text, after->text) == 0)
            return false;
        write_difference(path, before, after, out);
        return true;
    }
    char below[FR_PATH_MAX];
    bool map = before->kind == FR_NODE_MAP;
    uint32_t count = map || before->count > after->count ? before->count : after->count;
    for (uint32_t i = 0; i < count; i++) {
        const struct fr_node *a = i < before->count ? before->values[i] : NULL;
        const struct fr_node *b = map                ? fr_node_get(after, before->keys[i]->text)
                                  : i < after->count ? after->values[i]
                                                     : NULL;
        if (map)
            fr_path_join(below, path, before->keys[i]->text);
        else
            fr_path_index(below, path, i);
        if (compare(below, a, b, out))
            return true;
    }
    for (uint32_t i = 0; map && i < after->count; i++) {
        if (fr_node_get(before, after->keys[i]->text))
            continue;
        fr_path_join(below, path, after->keys[i]->text);
        write_difference(below, NULL, after->values[i], out);
        return true;
    }
    return false;
}

void fr_conf_json_difference(const char *before, const char *after, struct fr_buffer *out)
{
    struct fr_arena arena = {0};
    struct fr_err err = {0};
    struct fr_node *a = NULL, *b = NULL;
    if (fr_document_parse_json(&arena, before, strlen(before), &a, &err) != FR_OK)
        fr_buffer_printf(out, "the earlier text cannot be read: %s", err.text);
    else if (fr_document_parse_json(&arena, after, strlen(after), &b, &err) != FR_OK)
        fr_buffer_printf(out, "the later text cannot be read: %s", err.text);
    else if (!compare("", a, b, out))
        fr_buffer_printf(out, "no difference");
    fr_buffer_terminate(out);
    fr_arena_release(&arena);
}
