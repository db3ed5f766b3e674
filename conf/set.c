/* `--set path=value`: an overlay on the tree, applied before any check, so that a wrong one is
 * reported like a wrong line of the file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "document.h"
#include "options.h"
#include "problem.h"
#include "scalar.h"

/* Replaces the value of the key, or adds the key. */
static void put(struct fr_arena *arena, struct fr_node *map, struct fr_node *key, struct fr_node *value)
{
    for (uint32_t i = 0; i < map->count; i++) {
        if (strcmp(map->keys[i]->text, key->text) == 0) {
            map->values[i] = value;
            return;
        }
    }
    fr_node_add(arena, map, key, value);
}

static struct fr_node *key_node(struct fr_arena *arena, const struct fr_node *at, const char *text, size_t size)
{
    struct fr_node *key = fr_node_new(arena, FR_NODE_SCALAR, at);
    key->plain = true;
    key->text = fr_node_copy_text(arena, text, size);
    return key;
}

/* Returns the child in which to continue; missing maps are made. */
static struct fr_node *descend(struct fr_arena *arena, struct fr_node *node, struct fr_node *key)
{
    if (node->kind == FR_NODE_LIST) {
        uint64_t index;
        return fr_scalar_u64(key->text, &index) == FR_SCALAR_OK && index < node->count ? node->values[index] : NULL;
    }
    if (node->kind != FR_NODE_MAP)
        return NULL;
    struct fr_node *child = fr_node_get(node, key->text);
    if (!child) {
        child = fr_node_new(arena, FR_NODE_MAP, key);
        fr_node_add(arena, node, key, child);
    }
    return child;
}

void fr_document_set(struct fr_arena *arena, struct fr_problems *problems, struct fr_node *root, const char *set)
{
    /* Only the path is shown: the value may be a secret. */
    const char *equals = strchr(set, '=');
    size_t path = equals ? (size_t)(equals - set) : strlen(set), room = path + sizeof("--set ");
    char *source = fr_arena_take(arena, room);
    snprintf(source, room, "--set %.*s", (int)path, set);
    struct fr_node at = {.source = source, .line = 1, .column = 1};
    if (!equals || equals == set) {
        fr_problem(problems, &at, "", "no value; expected path=value");
        return;
    }
    struct fr_node *value = fr_document_parse(arena, problems, source, equals + 1, strlen(equals + 1));
    if (!value)
        return;
    struct fr_node *node = root;
    const char *from = set;
    for (;;) {
        /* Below a map of free keys, the rest of the path is one key:
         * ingest.kafka.security.protocol. */
        char prefix[FR_PATH_MAX];
        snprintf(prefix, sizeof(prefix), "%.*s", from > set ? (int)(from - set - 1 > 500 ? 500 : from - set - 1) : 0,
                 set);
        const struct fr_option *option = fr_option_find(prefix);
        size_t left = (size_t)(equals - from);
        const char *dot = option && option->open_keys ? NULL : memchr(from, '.', left);
        size_t size = dot ? (size_t)(dot - from) : left;
        if (size == 0) {
            fr_problem(problems, &at, "", "an empty name in the path; expected path=value");
            return;
        }
        struct fr_node *key = key_node(arena, &at, from, size);
        if (!dot && node->kind == FR_NODE_MAP) {
            put(arena, node, key, value);
            return;
        }
        struct fr_node *child = descend(arena, node, key);
        if (!child) {
            fr_problem(problems, &at, "", "`%s` is not there; expected a path into maps, or an index into a list",
                       key->text);
            return;
        }
        if (!dot) {
            *child = *value; /* element of a list */
            return;
        }
        node = child;
        from = dot + 1;
    }
}
