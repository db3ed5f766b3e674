/* Readers of optimizers and initial weights. Rows of tables and layers take different ones of the
 * same list: what is not for a place is refused there by name. */
#include <stdio.h>
#include <string.h>

#include "loader.h"
#include "scalar.h"

/* `name` or a map of one key: the key's node, its body (NULL for a bare name); NULL and a problem
 * otherwise. */
static const struct fr_node *one_key(struct fr_loader *loader, const struct fr_node *node, const char *path,
                                     const struct fr_node **body)
{
    *body = NULL;
    if (node->kind == FR_NODE_SCALAR)
        return fr_loader_text(loader, node, path, "a name or {name: {..}}") ? node : NULL;
    if (node->kind != FR_NODE_MAP || node->count != 1) {
        fr_problem(&loader->problems, node, path, "%s%s; expected a name or {name: {..}}", fr_node_kind_name(node),
                   node->kind == FR_NODE_MAP ? " that has not exactly one key" : "");
        return NULL;
    }
    *body = node->values[0];
    return node->keys[0];
}

/* Whether the option takes the name; a problem otherwise: of a name that another place takes, or of
 * one that is not `known`. */
static bool takes(struct fr_loader *loader, const struct fr_option *option, const struct fr_node *name,
                  const char *path, bool known, const char *unknown)
{
    bool later;
    if (fr_choice_find(option->choices, name->text, &later) >= 0)
        return true;
    struct fr_words *words = &loader->words;
    words->count = 0;
    for (const char *at = option->choices; *at; at += *at == '|') {
        size_t size = strcspn(at, "|");
        fr_words_add(words, at, size);
        at += size;
    }
    bool layers = strncmp(option->path, "network.", 8) == 0;
    fr_problem_unknown(&loader->problems, name, path,
                       !known   ? unknown
                       : layers ? "layers have no"
                                : "rows of tables have no",
                       words);
    return false;
}

FR_READ(fr_read_optimizer)
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
        fr_loader_walk(loader, &(struct fr_scope){pattern, below, body, optimizer});
    bool ftrl = kind == FR_OPT_FTRL || kind == FR_OPT_GROUP_FTRL;
    if (ftrl && (optimizer->warmup_samples > 0 || optimizer->decay_samples > 0))
        fr_problem(&loader->problems, body, below,
                   "a rate that changes would rescale the weights %s has already; expected no warmup_samples and no "
                   "decay_samples",
                   name->text);
}

FR_READ(fr_read_init)
{
    struct fr_conf_init *init = (struct fr_conf_init *)(void *)((char *)scope + option->offset);
    const struct fr_node *body, *name = one_key(loader, node, path, &body);
    enum fr_init_kind kind = FR_INIT_DEFAULT;
    if (!name || !takes(loader, option, name, path, fr_init_kind_parse(name->text, &kind), "unknown initial weights"))
        return;
    bool scaled = fr_init_takes_scale(kind);
    double scale = 0;
    if (scaled != (body != NULL)) {
        fr_problem(&loader->problems, name, path, "`%s` %s; expected %s", name->text,
                   scaled ? "needs a number" : "takes no number", option->form);
        return;
    }
    bool number =
        body && body->kind == FR_NODE_SCALAR && body->plain && fr_scalar_real(body->text, &scale) == FR_SCALAR_OK;
    if (kind == FR_INIT_CONSTANT && !(number && scale >= -1000 && scale <= 1000)) {
        fr_problem(&loader->problems, body, path, "not a first value; expected a number from -1000 to 1000");
        return;
    }
    if (kind != FR_INIT_CONSTANT && body && !(number && scale > 0 && scale <= 1000 && (float)scale > 0)) {
        fr_problem(&loader->problems, body, path, "not a scale; expected a number above 0, at most 1000");
        return;
    }
    *init = (struct fr_conf_init){.kind = kind, .scale = (float)scale};
}
