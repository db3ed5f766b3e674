/* Readers of optimizers and initial weights. Rows of tables and layers take different ones of the
 * same list: what is not for a place is refused there by name. */
#include <stdio.h>
#include <string.h>

#include "loader.h"
#include "scalar.h"

const char fr_optimizer_kinds[] =
    "sgd|adagrad|adagrad_rowwise|adam|ftrl|momentum|rmsprop|adam_rowwise|group_ftrl|adamw";
const char fr_init_kinds[] = "zeros|uniform|normal|default|truncated_normal|xavier_uniform|xavier_normal|"
                             "kaiming_uniform|kaiming_normal|constant";

bool fr_init_takes_scale(enum fr_init_kind kind)
{
    return kind == FR_INIT_UNIFORM || kind == FR_INIT_NORMAL || kind == FR_INIT_TRUNCATED_NORMAL ||
           kind == FR_INIT_CONSTANT;
}

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

/* Index of the name in `all`, when the option's own choices have it too; -1 and a problem
 * otherwise. */
static int read_kind(struct fr_loader *loader, const struct fr_option *option, const struct fr_node *name,
                     const char *path, const char *all)
{
    bool later;
    int kind = fr_choice_find(all, name->text, &later);
    if (kind >= 0 && fr_choice_find(option->choices, name->text, &later) >= 0)
        return kind;
    struct fr_words *known = &loader->words;
    known->count = 0;
    for (const char *at = option->choices; *at; at += *at == '|') {
        size_t size = strcspn(at, "|");
        fr_words_add(known, at, size);
        at += size;
    }
    bool layers = strncmp(option->path, "network.", 8) == 0;
    fr_problem_unknown(&loader->problems, name, path,
                       kind >= 0              ? (layers ? "layers have no" : "rows of tables have no")
                       : all == fr_init_kinds ? "unknown initial weights"
                                              : "unknown optimizer",
                       known);
    return -1;
}

FR_READ(fr_read_optimizer)
{
    struct fr_conf_optimizer *optimizer = (struct fr_conf_optimizer *)(void *)((char *)scope + option->offset);
    const struct fr_node *body, *name = one_key(loader, node, path, &body);
    int kind = name ? read_kind(loader, option, name, path, fr_optimizer_kinds) : -1;
    if (kind < 0)
        return;
    char pattern[FR_PATH_MAX], below[FR_PATH_MAX];
    fr_path_join(pattern, "optimizer", name->text);
    fr_path_join(below, path, name->text);
    memset(optimizer, 0, sizeof(*optimizer));
    optimizer->kind = (enum fr_optimizer_kind)kind;
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
    int kind = name ? read_kind(loader, option, name, path, fr_init_kinds) : -1;
    if (kind < 0)
        return;
    bool scaled = fr_init_takes_scale((enum fr_init_kind)kind);
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
    *init = (struct fr_conf_init){.kind = (enum fr_init_kind)kind, .scale = (float)scale};
}
