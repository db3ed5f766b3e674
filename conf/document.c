/* YAML text -> node tree, through libyaml's document interface.
 *
 * Refused here: syntax errors, an empty file, a second document, duplicate keys, keys that are not
 * scalars, explicit tags, NUL in text, and anything beyond the limits. Limits on constructs that
 * cost the parser more than reading are checked token by token before it builds anything. This file
 * does not know what keys and values mean. */
#include "document.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yaml.h>

#include "base/check.h"
#include "base/cursor.h"
#include "problem.h"

#define NUL_INSIDE "NUL inside a text"
#define TOO_DEEP "nested too deeply (an alias inside itself?); expected at most 15 levels"
#define NO_PARSER "the YAML parser could not start (out of memory)"

struct builder {
    struct fr_arena *arena;
    struct fr_problems *problems;
    yaml_document_t *document;
    const char *source;
    uint32_t n_nodes;
    size_t text_bytes;
    bool failed;
};

char *fr_node_copy_text(struct fr_arena *arena, const void *bytes, size_t size)
{
    char *text = fr_arena_take(arena, size + 1);
    if (size > 0)
        memcpy(text, bytes, size);
    text[size] = '\0';
    return text;
}

struct fr_node *fr_node_new(struct fr_arena *arena, enum fr_node_kind kind, const struct fr_node *at)
{
    struct fr_node *node = fr_arena_take(arena, sizeof(*node));
    memset(node, 0, sizeof(*node));
    node->kind = kind;
    node->text = "";
    node->source = at ? at->source : "";
    node->line = at ? at->line : 0;
    node->column = at ? at->column : 0;
    return node;
}

void fr_node_add(struct fr_arena *arena, struct fr_node *parent, struct fr_node *key, struct fr_node *value)
{
    /* Room doubles at powers of two, so the count alone shows when the arrays are full. */
    if ((parent->count & (parent->count - 1)) == 0) {
        size_t room = parent->count == 0 ? 1 : (size_t)parent->count * 2;
        struct fr_node **keys = fr_arena_take(arena, room * sizeof(*keys));
        struct fr_node **values = fr_arena_take(arena, room * sizeof(*values));
        if (parent->count > 0) {
            memcpy(keys, parent->keys, parent->count * sizeof(*keys));
            memcpy(values, parent->values, parent->count * sizeof(*values));
        }
        parent->keys = keys;
        parent->values = values;
    }
    parent->keys[parent->count] = key;
    parent->values[parent->count] = value;
    parent->count += 1;
}

void fr_node_put(struct fr_arena *arena, struct fr_node *parent, const char *key, struct fr_node *value)
{
    struct fr_node *node = key ? fr_node_new(arena, FR_NODE_SCALAR, NULL) : NULL;
    if (key)
        node->text = key;
    fr_node_add(arena, parent, node, value);
}

struct fr_node *fr_node_get(const struct fr_node *map, const char *key)
{
    if (!map || map->kind != FR_NODE_MAP)
        return NULL;
    for (uint32_t i = 0; i < map->count; i++) {
        if (strcmp(map->keys[i]->text, key) == 0)
            return map->values[i];
    }
    return NULL;
}

bool fr_node_is_null(const struct fr_node *node)
{
    return node->kind == FR_NODE_SCALAR && node->plain &&
           (node->text[0] == '\0' || strcmp(node->text, "~") == 0 || strcmp(node->text, "null") == 0);
}

const char *fr_node_kind_name(const struct fr_node *node)
{
    if (node->kind == FR_NODE_MAP)
        return "a map";
    if (node->kind == FR_NODE_LIST)
        return "a list";
    return fr_node_is_null(node) ? "empty" : "a single value";
}

static struct fr_node *refuse(struct builder *builder, const struct fr_node *node, const char *text)
{
    builder->failed = true;
    fr_problem(builder->problems, node, "", "%s", text);
    return NULL;
}

static struct fr_node place_of(const struct builder *builder, const yaml_mark_t *mark)
{
    return (struct fr_node){
        .source = builder->source, .line = (uint32_t)mark->line + 1, .column = (uint32_t)mark->column + 1};
}

static struct fr_node *build(struct builder *builder, int index, unsigned depth);

static void build_map(struct builder *builder, const yaml_node_t *from, struct fr_node *node, unsigned depth)
{
    for (yaml_node_pair_t *pair = from->data.mapping.pairs.start; pair < from->data.mapping.pairs.top; pair++) {
        struct fr_node *key = build(builder, pair->key, depth + 1);
        struct fr_node *value = key ? build(builder, pair->value, depth + 1) : NULL;
        if (!value)
            return;
        if (key->kind != FR_NODE_SCALAR) {
            refuse(builder, key, "a key must be a single value");
            return;
        }
        if (node->count == FR_KEYS_MAX) {
            refuse(builder, key, "too many keys in one map; expected at most 1024");
            return;
        }
        if (fr_node_get(node, key->text)) {
            fr_problem(builder->problems, key, "", "duplicate key `%.80s`; expected every key once", key->text);
            continue; /* the first one counts; the others are still checked */
        }
        fr_node_add(builder->arena, node, key, value);
    }
}

/* Libyaml gives untagged nodes these tags; any other was written out. */
static bool has_default_tag(const yaml_node_t *from)
{
    static const char *const tags[] = {
        [YAML_SCALAR_NODE] = YAML_STR_TAG, [YAML_SEQUENCE_NODE] = YAML_SEQ_TAG, [YAML_MAPPING_NODE] = YAML_MAP_TAG};
    return from->tag && strcmp((const char *)from->tag, tags[from->type]) == 0;
}

static struct fr_node *build(struct builder *builder, int index, unsigned depth)
{
    const yaml_node_t *from = yaml_document_get_node(builder->document, index);
    FR_CHECK(from != NULL && from->type != YAML_NO_NODE);
    struct fr_node at = place_of(builder, &from->start_mark);
    if (depth > FR_NODE_DEPTH_MAX) {
        refuse(builder, &at, TOO_DEEP);
        return NULL;
    }
    if (++builder->n_nodes > FR_NODES_MAX) {
        refuse(builder, &at, "too many values once aliases are expanded; expected at most 200000");
        return NULL;
    }
    if (!has_default_tag(from)) {
        refuse(builder, &at, "a tag (!..); expected values without tags");
        return NULL;
    }
    struct fr_node *node;
    if (from->type == YAML_SCALAR_NODE) {
        builder->text_bytes += from->data.scalar.length;
        if (builder->text_bytes > FR_TEXTS_MAX) {
            builder->n_nodes = FR_NODES_MAX + 1; /* ends the walk */
            return refuse(builder, &at,
                          "values of more than 4MiB once aliases are expanded; write fewer or shorter ones");
        }
        node = fr_node_new(builder->arena, FR_NODE_SCALAR, &at);
        node->plain = from->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
        node->text = fr_node_copy_text(builder->arena, from->data.scalar.value, from->data.scalar.length);
        if (strlen(node->text) != from->data.scalar.length)
            return refuse(builder, node, NUL_INSIDE);
    } else if (from->type == YAML_SEQUENCE_NODE) {
        node = fr_node_new(builder->arena, FR_NODE_LIST, &at);
        for (yaml_node_item_t *item = from->data.sequence.items.start; item < from->data.sequence.items.top; item++) {
            struct fr_node *value = build(builder, *item, depth + 1);
            if (!value)
                return NULL;
            fr_node_add(builder->arena, node, NULL, value);
        }
    } else {
        node = fr_node_new(builder->arena, FR_NODE_MAP, &at);
        build_map(builder, from, node, depth);
    }
    return builder->failed && builder->n_nodes > FR_NODES_MAX ? NULL : node;
}

static void report_syntax(struct builder *builder, const yaml_parser_t *parser)
{
    /* A reader error (bad UTF-8) has no mark, only the byte offset. */
    struct fr_node at = place_of(builder, &parser->problem_mark);
    const char *problem = parser->problem ? parser->problem : "not YAML";
    if (parser->error == YAML_READER_ERROR)
        fr_problem(builder->problems, &at, "", "%s at byte %zu; expected UTF-8 text", problem, parser->problem_offset);
    else if (parser->context)
        fr_problem(builder->problems, &at, "", "%s (%s)", problem, parser->context);
    else
        fr_problem(builder->problems, &at, "", "%s", problem);
    builder->failed = true;
}

/* Checks that nothing follows the first document. */
static void check_end(struct builder *builder, yaml_parser_t *parser)
{
    yaml_document_t second;
    if (!yaml_parser_load(parser, &second)) {
        report_syntax(builder, parser);
        return;
    }
    yaml_node_t *root = yaml_document_get_root_node(&second);
    if (root) {
        struct fr_node at = place_of(builder, &root->start_mark);
        refuse(builder, &at, "a second document; expected exactly one");
    }
    yaml_document_delete(&second);
}

/* ---- limits of tokens ---- */

struct tally {
    unsigned depth, anchors, aliases;
};

static const char *beyond_limits(struct tally *tally, yaml_token_type_t type)
{
    switch (type) {
    case YAML_TAG_DIRECTIVE_TOKEN:
        return "a %TAG directive; expected values without tags";
    case YAML_BLOCK_SEQUENCE_START_TOKEN:
    case YAML_BLOCK_MAPPING_START_TOKEN:
    case YAML_FLOW_SEQUENCE_START_TOKEN:
    case YAML_FLOW_MAPPING_START_TOKEN:
        return ++tally->depth > FR_NODE_DEPTH_MAX + 1 ? TOO_DEEP : NULL;
    case YAML_BLOCK_END_TOKEN:
    case YAML_FLOW_SEQUENCE_END_TOKEN:
    case YAML_FLOW_MAPPING_END_TOKEN:
        tally->depth -= tally->depth > 0;
        return NULL;
    case YAML_ANCHOR_TOKEN:
        return ++tally->anchors > FR_ALIASES_MAX ? "more than 1000 anchors (&name); write the values themselves" : NULL;
    case YAML_ALIAS_TOKEN:
        return ++tally->aliases > FR_ALIASES_MAX ? "more than 1000 aliases (*name); write the values themselves" : NULL;
    default:
        return NULL;
    }
}

/* True: the text may be built, or has a syntax error, which building reports. */
static bool is_within_limits(struct builder *builder, const char *text, size_t size)
{
    yaml_parser_t scanner;
    struct tally tally = {0};
    bool more = true;
    if (!yaml_parser_initialize(&scanner)) {
        refuse(builder, &(struct fr_node){.source = builder->source, .line = 1, .column = 1}, NO_PARSER);
        return false;
    }
    yaml_parser_set_input_string(&scanner, (const unsigned char *)text, size);
    while (more && !builder->failed) {
        yaml_token_t token;
        if (!yaml_parser_scan(&scanner, &token))
            break;
        const char *limit = beyond_limits(&tally, token.type);
        struct fr_node at = place_of(builder, &token.start_mark);
        if (limit)
            refuse(builder, &at, limit);
        more = token.type != YAML_STREAM_END_TOKEN;
        yaml_token_delete(&token);
    }
    yaml_parser_delete(&scanner);
    return !builder->failed;
}

struct fr_node *fr_document_parse(struct fr_arena *arena, struct fr_problems *problems, const char *source,
                                  const char *text, size_t size)
{
    struct builder builder = {.arena = arena, .problems = problems, .source = source};
    struct fr_node *root = NULL;
    struct fr_node at = {.source = source, .line = 1, .column = 1};
    if (size > FR_CONF_BYTES_MAX) {
        refuse(&builder, &at, "too large; expected at most 1MiB");
        return NULL;
    }
    if (!is_within_limits(&builder, text, size))
        return NULL;
    yaml_parser_t parser;
    yaml_document_t document;
    if (!yaml_parser_initialize(&parser)) {
        refuse(&builder, &at, NO_PARSER);
        return NULL;
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, size);
    if (!yaml_parser_load(&parser, &document)) {
        report_syntax(&builder, &parser);
        goto out;
    }
    builder.document = &document;
    if (!yaml_document_get_root_node(&document)) {
        refuse(&builder, &at, "empty; expected a map of options");
    } else {
        root = build(&builder, 1, 0); /* libyaml numbers nodes from 1, the root first */
        check_end(&builder, &parser);
    }
    yaml_document_delete(&document);
out:
    yaml_parser_delete(&parser);
    return builder.failed ? NULL : root;
}

/* ---- JSON ---- */

struct json_builder {
    struct fr_arena *arena;
    struct fr_cursor cursor;
    uint32_t n_nodes;
    struct fr_err *err;
};

static enum fr_status json_scalar(struct json_builder *builder, const struct fr_token *token, struct fr_node *node)
{
    char number[64];
    node->plain = token->kind != FR_TOKEN_STRING;
    switch (token->kind) {
    case FR_TOKEN_NIL:
        node->text = "null";
        return FR_OK;
    case FR_TOKEN_BOOL:
        node->text = token->i ? "true" : "false";
        return FR_OK;
    case FR_TOKEN_INT:
        snprintf(number, sizeof(number), "%" PRId64, token->i);
        break;
    case FR_TOKEN_UINT:
        snprintf(number, sizeof(number), "%" PRIu64, token->u);
        break;
    case FR_TOKEN_FLOAT:
        /* our own numbers are reproduced as they were written */
        snprintf(number, sizeof(number), "%.9g", token->f);
        if (strtod(number, NULL) != token->f)
            snprintf(number, sizeof(number), "%.17g", token->f);
        break;
    case FR_TOKEN_STRING:
        node->text = fr_node_copy_text(builder->arena, token->bytes, token->size);
        if (strlen(node->text) != token->size)
            return fr_err_set(builder->err, FR_E_INVALID, NUL_INSIDE);
        return FR_OK;
    default:
        return fr_err_set(builder->err, FR_E_INVALID, "value of an unknown kind");
    }
    node->text = fr_node_copy_text(builder->arena, number, strlen(number));
    return FR_OK;
}

static enum fr_status json_next(struct json_builder *builder, struct fr_token *token)
{
    enum fr_status status = fr_cursor_next(&builder->cursor, token);
    if (status == FR_EOF)
        return fr_err_set(builder->err, FR_E_INVALID, "JSON ends early");
    if (status != FR_OK)
        return fr_err_set(builder->err, status, "not JSON at byte %zu: %s", fr_cursor_offset(&builder->cursor),
                          builder->cursor.problem ? builder->cursor.problem : "malformed");
    return FR_OK;
}

/* The cursor (depth_max) bounds the depth, and therefore the recursion. */
static enum fr_status json_value(struct json_builder *builder, const struct fr_token *first, struct fr_node **out)
{
    static const struct fr_node at = {.source = "model"};
    if (++builder->n_nodes > FR_NODES_MAX)
        return fr_err_set(builder->err, FR_E_LIMIT, "more than %d values", FR_NODES_MAX);
    bool map = first->kind == FR_TOKEN_MAP;
    if (!map && first->kind != FR_TOKEN_ARRAY) {
        *out = fr_node_new(builder->arena, FR_NODE_SCALAR, &at);
        return json_scalar(builder, first, *out);
    }
    struct fr_node *node = fr_node_new(builder->arena, map ? FR_NODE_MAP : FR_NODE_LIST, &at);
    for (;;) {
        struct fr_token token;
        struct fr_node *key = NULL, *value = NULL;
        enum fr_status status = json_next(builder, &token);
        if (status != FR_OK)
            return status;
        if (token.kind == FR_TOKEN_END)
            break;
        if (map) {
            key = fr_node_new(builder->arena, FR_NODE_SCALAR, &at);
            status = json_scalar(builder, &token, key);
            if (status == FR_OK && node->count == FR_KEYS_MAX)
                status = fr_err_set(builder->err, FR_E_LIMIT, "more than %d keys in one map", FR_KEYS_MAX);
            if (status == FR_OK && fr_node_get(node, key->text))
                status = fr_err_set(builder->err, FR_E_INVALID, "duplicate key `%.80s`", key->text);
            if (status == FR_OK)
                status = json_next(builder, &token);
        }
        if (status == FR_OK)
            status = json_value(builder, &token, &value);
        if (status != FR_OK)
            return status;
        fr_node_add(builder->arena, node, key, value);
    }
    *out = node;
    return FR_OK;
}

enum fr_status fr_document_parse_json(struct fr_arena *arena, const char *json, size_t size, struct fr_node **out,
                                      struct fr_err *err)
{
    if (size > FR_CONF_BYTES_MAX)
        return fr_err_set(err, FR_E_LIMIT, "JSON of %zu bytes; at most %d", size, FR_CONF_BYTES_MAX);
    struct fr_buffer scratch = {0};
    struct json_builder builder = {.arena = arena, .err = err};
    fr_cursor_init(&builder.cursor, FR_FORMAT_JSON, json, size, &scratch);
    builder.cursor.depth_max = FR_NODE_DEPTH_MAX;
    struct fr_token token;
    struct fr_node *root = NULL;
    enum fr_status status = json_next(&builder, &token);
    if (status == FR_OK)
        status = json_value(&builder, &token, &root);
    if (status == FR_OK && fr_cursor_next(&builder.cursor, &token) != FR_EOF)
        status = fr_err_set(err, FR_E_INVALID, "something follows the JSON value");
    fr_buffer_release(&scratch);
    if (status == FR_OK)
        *out = root;
    return status;
}
