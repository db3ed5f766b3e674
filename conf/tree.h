/* A loaded configuration as a tree: the option table is walked over its structs, once for every
 * writer.
 *
 * The configuration is shown in three views. FR_VIEW_CONFIG has every option, in table order, in
 * the form of a file (--print-config). The model (`cfg`) and the training record have the rows
 * marked for them (`views`), beginning with those at their `top`; in these two views, maps of named
 * things are lists of maps with a `name`. */
#ifndef FR_CONF_TREE_H
#define FR_CONF_TREE_H

#include "base/arena.h"
#include "conf/conf.h"
#include "document.h"
#include "options.h"

struct fr_tree {
    struct fr_arena arena;
    const struct fr_conf *conf;
    enum fr_view view;
};

/* Returns the map of all rows directly below the pattern that the view has. */
struct fr_node *fr_tree_scope(struct fr_tree *tree, const char *pattern, const void *base);

/* Building blocks of the rows' `show` functions. Key: NULL for lists. */
void fr_tree_put(struct fr_tree *tree, struct fr_node *parent, const char *key, struct fr_node *value);
struct fr_node *fr_tree_flow(struct fr_tree *tree, enum fr_node_kind kind);
struct fr_node *fr_tree_number(struct fr_tree *tree, const char *format, ...) __attribute__((format(printf, 2, 3)));
struct fr_node *fr_tree_real(struct fr_tree *tree, float value);
/* Returns a word of a vocabulary, which is quoted in JSON only. */
struct fr_node *fr_tree_word(struct fr_tree *tree, const char *text);
/* Returns the names of some of the entries of a row. */
struct fr_node *fr_tree_names(struct fr_tree *tree, const char *of, const int32_t *places, uint32_t count);
struct fr_node *fr_tree_text(struct fr_tree *tree, const char *text);

#endif
