/* The tree from which a configuration is read and as which it is written: one node type for YAML,
 * for `--set` values and for JSON.
 *
 * Nodes and their texts live in the caller's arena. Every node records where it was written, for
 * messages. Aliases are expanded (a reference is a copy). libyaml takes time that grows with the
 * square of the number of open brackets, anchors and directives, and a copied text costs its own
 * length. So each of these has its own limit, checked before anything is built, and neither a cycle
 * nor a doubling chain of aliases can grow without end.
 *
 * Thread: any, one owner. */
#ifndef FR_CONF_DOCUMENT_H
#define FR_CONF_DOCUMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/status.h"

enum {
    FR_CONF_BYTES_MAX = 1 << 20, /* a configuration is written by people */
    FR_NODES_MAX = 200000,
    FR_ALIASES_MAX = 1000,  /* the same limit applies to anchors */
    FR_TEXTS_MAX = 4 << 20, /* bytes of all values, with aliases expanded */
    /* bytes of one value with its variables expanded, or of a file with a secret */
    FR_EXPANDED_MAX = 1 << 16,
    FR_KEYS_MAX = 1024,     /* keys of one map: finding duplicates is quadratic */
    FR_NODE_DEPTH_MAX = 15, /* the cursor's own limit */
};

enum fr_node_kind { FR_NODE_SCALAR, FR_NODE_LIST, FR_NODE_MAP };

struct fr_node {
    enum fr_node_kind kind;
    bool plain; /* scalar without quotes: only these are numbers, booleans or null */
    /* For writing: `word` is a plain scalar that JSON quotes; `flow` is a list or map that YAML has
     * on one line. */
    bool word, flow;
    uint32_t line, column;
    const char *source;  /* file name, or the --set it came from */
    const char *text;    /* scalar: NUL-terminated, without NUL inside */
    const char *written; /* the text before references were replaced (expand.c), or NULL */
    uint32_t count;
    struct fr_node **keys; /* map: scalars */
    struct fr_node **values;
};

struct fr_problems;

/* Returns the tree, or NULL after at least one problem. `source` must outlive the tree. */
struct fr_node *fr_document_parse(struct fr_arena *arena, struct fr_problems *problems, const char *source,
                                  const char *text, size_t size);
/* Lays `path=value` over the tree: missing maps on the path are made, numbers index lists. */
void fr_document_set(struct fr_arena *arena, struct fr_problems *problems, struct fr_node *root, const char *set);
/* The same tree from JSON text; duplicate keys are refused. */
enum fr_status fr_document_parse_json(struct fr_arena *arena, const char *json, size_t size, struct fr_node **out,
                                      struct fr_err *err) FR_MUST_CHECK;

/* Writes a map as YAML in block style, except nodes that are `flow` or empty. Texts are quoted, so
 * that none is read as a number or null. */
void fr_document_write_yaml(const struct fr_node *map, struct fr_buffer *out);
/* Writes canonical JSON: no blanks, the keys of every map sorted. */
void fr_document_write_json(const struct fr_node *node, struct fr_buffer *out);

struct fr_node *fr_node_new(struct fr_arena *arena, enum fr_node_kind kind, const struct fr_node *at);
/* Appends; key NULL for lists. */
void fr_node_add(struct fr_arena *arena, struct fr_node *parent, struct fr_node *key, struct fr_node *value);
/* The same under a key that outlives the tree. */
void fr_node_put(struct fr_arena *arena, struct fr_node *parent, const char *key, struct fr_node *value);
/* NUL-terminated. */
char *fr_node_copy_text(struct fr_arena *arena, const void *bytes, size_t size);
/* NULL when absent or not a map */
struct fr_node *fr_node_get(const struct fr_node *map, const char *key);
bool fr_node_is_null(const struct fr_node *node);
const char *fr_node_kind_name(const struct fr_node *node);

#endif
