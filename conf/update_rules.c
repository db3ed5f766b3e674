/* Readers of optimizers and initial weights. Rows of tables and layers accept different entries of
 * the same list; an entry that a place does not accept is refused there by name. */
#include <stdio.h>
#include <string.h>

#include "forms.h"
#include "scalar.h"

/* Reads `name` or a map of one key: returns the key's node and its body (NULL for a bare name);
 * NULL after a problem. */
static const struct fr_node *one_key(struct fr_loader *loader, const struct fr_node *node, const char *path,
                                     const struct fr_node **body)
{
    *body = NULL;
    if (node->kind == FR_NODE_SCALAR)
        return fr_loader_text(loader, node, path, "a name or {name: {..}}") ? node : NULL;
    if (node->kind != FR_NODE_MAP || node->count != 1) {
        fr_refuse(loader, node, path, "%s%s; expected a name or {name: {..}}", fr_node_kind_name(node),
                  node->kind == FR_NODE_MAP ? " that has not exactly one key" : "");
        return NULL;
    }
    *body = node->values[0];
    return node->keys[0];
}

/* Returns whether the option takes the name. Otherwise reports a name that another place takes, or
 * one that is not `known`. */
static bool takes(struct fr_loader *loader, const struct fr_option *option, const struct fr_node *name,
                  const char *path, bool known, const char *unknown)
{
    bool later;
    if (fr_choice_find(option->choices, name->text, &later) >= 0)
        return true;
    fr_choice_words(option->choices, fr_loader_words(loader));
    fr_refuse_unknown(loader, name, path,
                      !known                                      ? unknown
                      : strncmp(option->path, "network.", 8) == 0 ? "layers have no"
                                                                  : "rows of tables have no");
    return false;
}

FR_READ(optimizer)
{
    struct fr_optimizer *optimizer = (struct fr_optimizer *)(void *)((char *)scope + option->offset);
    const struct fr_node *body, *name = one_key(loader, node, path, &body);
    enum fr_optimizer_kind kind = FR_OPT_SGD;
    if (!name || !takes(loader, option, name, path, fr_optimizer_kind_parse(name->text, &kind), "unknown optimizer"))
        return;
    char pattern[FR_PATH_MAX], below[FR_PATH_MAX];
    fr_path_join(pattern, "optimizer", name->text);
    fr_path_join(below, path, name->text);
    memset(optimizer, 0, sizeof(*optimizer));
    optimizer->kind = kind;
    fr_loader_defaults(loader, pattern, optimizer);
    if (body)
        fr_loader_walk(loader, pattern, below, body, optimizer);
    bool ftrl = kind == FR_OPT_FTRL || kind == FR_OPT_GROUP_FTRL;
    if (ftrl && (optimizer->warmup_samples > 0 || optimizer->decay_samples > 0))
        fr_refuse(loader, body, below,
                  "a rate that changes would rescale the weights %s has already; expected no warmup_samples and no "
                  "decay_samples",
                  name->text);
}

FR_SHOW(optimizer)
{
    const struct fr_optimizer *optimizer = (const void *)((const char *)scope + option->offset);
    const char *name = fr_optimizer_kind_text(optimizer->kind);
    char pattern[FR_PATH_MAX];
    fr_path_join(pattern, "optimizer", name);
    struct fr_node *body = fr_tree_scope(tree, pattern, optimizer);
    if (tree->view == FR_VIEW_TRAINING) {
        fr_tree_put(tree, body, "kind", fr_tree_word(tree, name));
        return body;
    }
    struct fr_node *node = fr_node_new(&tree->arena, FR_NODE_MAP, NULL);
    fr_tree_put(tree, node, name, body);
    return node;
}

FR_READ(init)
{
    struct fr_conf_init *init = (struct fr_conf_init *)(void *)((char *)scope + option->offset);
    const struct fr_node *body, *name = one_key(loader, node, path, &body);
    enum fr_init_kind kind = FR_INIT_DEFAULT;
    if (!name || !takes(loader, option, name, path, fr_init_kind_parse(name->text, &kind), "unknown initial weights"))
        return;
    bool scaled = fr_init_takes_scale(kind);
    double scale = 0;
    if (scaled != (body != NULL)) {
        fr_refuse(loader, name, path, "`%s` %s; expected %s", name->text, scaled ? "needs a number" : "takes no number",
                  option->form);
        return;
    }
    bool number =
        body && body->kind == FR_NODE_SCALAR && body->plain && fr_scalar_real(body->text, &scale) == FR_SCALAR_OK;
    if (kind == FR_INIT_CONSTANT && !(number && scale >= -1000 && scale <= 1000)) {
        fr_refuse(loader, body, path, "not a first value; expected a number from -1000 to 1000");
        return;
    }
    if (kind != FR_INIT_CONSTANT && body && !(number && scale > 0 && scale <= 1000 && (float)scale > 0)) {
        fr_refuse(loader, body, path, "not a scale; expected a number above 0, at most 1000");
        return;
    }
    *init = (struct fr_conf_init){.kind = kind, .scale = (float)scale};
}

FR_SHOW(init)
{
    const struct fr_conf_init *init = (const void *)((const char *)scope + option->offset);
    const char *name = fr_init_kind_text(init->kind);
    struct fr_node *word = fr_tree_word(tree, name), *node = fr_tree_flow(tree, FR_NODE_MAP);
    if (tree->view == FR_VIEW_TRAINING)
        fr_tree_put(tree, node, "kind", word);
    else if (!fr_init_takes_scale(init->kind))
        return word;
    fr_tree_put(tree, node, tree->view == FR_VIEW_TRAINING ? "scale" : name, fr_tree_real(tree, init->scale));
    return node;
}
