/* Layers: `{name, <op>: argument, options}` -> drafts of operations over resolved references.
 *
 * The vocabulary's list gives what an operation takes. New models add operations, never grammar; an
 * operation that is not implemented yet is a row LATER of the option table. An argument is a name
 * (refs.c), all slots (all_slots.c), the pooling of a slot `{sum: slot.part}`, or another operation
 * without options, which becomes a separate layer. Drafts are sorted in layer_order.c; shapes are
 * inferred in shapes.c. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "forms.h"
#include "layers.h"

enum { ATTENTION_UNITS = 16 /* of Zhou et al. 2018's reference, and of ours */ };

/* ---- options of one layer ---- */

static enum fr_layer_op op_of(const struct fr_option *option)
{
    enum fr_layer_op op = FR_LAYER_CONCAT;
    FR_CHECK(fr_layer_op_parse(fr_option_name(option), &op));
    return op;
}

FR_READ(layer_op)
{
    struct fr_layer_draft *draft = scope; /* the draft begins with the layer */
    if (draft->has_op)
        fr_refuse(loader, node, path, "a second operation in one layer; expected one");
    draft->has_op = true;
    draft->layer.op = op_of(option);
    draft->argument = node;
}

FR_SHOW(layer_op)
{
    const struct fr_conf_layer *layer = scope;
    const char *const *roles = fr_layer_rule(layer->op)->roles;
    if (layer->op != op_of(option))
        return NULL;
    struct fr_node *argument = fr_tree_flow(tree, FR_NODE_MAP), *list = argument;
    for (uint32_t r = 0; r < (roles[0] ? FR_LAYER_ROLES : 1); r++) {
        list = fr_tree_flow(tree, FR_NODE_LIST);
        for (uint32_t i = layer->role_begin[r]; i < layer->role_begin[r + 1]; i++)
            fr_tree_put(tree, list, NULL, fr_ref_show(tree, &layer->refs[i]));
        if (roles[0])
            fr_tree_put(tree, argument, roles[r], list);
    }
    return roles[0] ? argument : list;
}

FR_READ(layer_units)
{
    struct fr_conf_layer *layer = scope;
    bool list = node->kind == FR_NODE_LIST;
    if (list && !fr_loader_sized(loader, node, path, FR_NODE_LIST, 1, FR_UNITS_MAX))
        return;
    layer->n_units = list ? node->count : 1;
    const struct fr_option width = {.type = FR_OPTION_U32, .path = "units", .min = 1, .max = FR_WIDTH_MAX};
    for (uint32_t i = 0; i < layer->n_units; i++)
        fr_loader_read(loader, &width, list ? node->values[i] : node, path, &layer->units[i]);
}

FR_SHOW(layer_units)
{
    const struct fr_conf_layer *layer = scope;
    struct fr_node *list = fr_tree_flow(tree, FR_NODE_LIST);
    for (uint32_t u = 0; u < layer->n_units; u++)
        fr_tree_put(tree, list, NULL, fr_tree_number(tree, "%" PRIu32, layer->units[u]));
    bool one = fr_layer_rule(layer->op)->one_unit && tree->view == FR_VIEW_CONFIG;
    return one ? list->values[0] : list;
}

/* "mlp, dense or gru": the operations that take the option. */
static void name_takers(unsigned option, char *out, size_t room)
{
    size_t left = 0, used = 0;
    for (enum fr_layer_op op = 0; fr_layer_op_text(op); op++)
        left += (fr_layer_rule(op)->options & option) != 0;
    out[0] = '\0';
    for (enum fr_layer_op op = 0; fr_layer_op_text(op); op++) {
        if (!(fr_layer_rule(op)->options & option))
            continue;
        left -= 1;
        int n = snprintf(out + used, room - used, "%s%s",
                         used == 0   ? ""
                         : left == 0 ? " or "
                                     : ", ",
                         fr_layer_op_text(op));
        FR_CHECK(n > 0 && (size_t)n < room - used);
        used += (size_t)n;
    }
}

static void check_options(struct fr_loader *loader, const struct fr_layer_draft *draft)
{
    const struct fr_layer_rule *rule = fr_layer_rule(draft->layer.op);
    const char *op = fr_layer_op_text(draft->layer.op);
    for (const struct fr_option *option = NULL; (option = fr_option_next(option, "network.layers.*"));) {
        const char *name = fr_option_name(option);
        unsigned bit = option->takes;
        const struct fr_node *given = bit ? fr_node_get(draft->node, name) : NULL;
        char takers[256];
        name_takers(bit, takers, sizeof(takers));
        if (given && !(rule->options & bit))
            fr_refuse(loader, given, draft->path, "%s has no %s; expected it with %s", op, name, takers);
        if (!given && (rule->required & bit))
            fr_refuse(loader, draft->node, draft->path, "%s needs %s; expected %s", op, name,
                      bit == FR_LAYER_UNITS        ? (rule->one_unit ? "units: 1 or more" : "units: [64, 32]")
                      : bit == FR_LAYER_ACTIVATION ? "activation: relu"
                      : bit == FR_LAYER_COUNT      ? "count: 4"
                                                   : "rate: 0.1");
    }
    if (rule->one_unit && draft->layer.n_units > 1)
        fr_refuse(loader, draft->node, draft->path, "several units in one %s layer; expected an integer%s", op,
                  draft->layer.op == FR_LAYER_DENSE ? ", or mlp" : "");
}

/* Sets the defaults that depend on the operation. */
static void set_defaults(struct fr_loader *loader, struct fr_layer_draft *draft)
{
    struct fr_conf_layer *layer = &draft->layer;
    unsigned options = fr_layer_rule(layer->op)->options;
    if ((options & FR_LAYER_ACTIVATION) && !fr_node_get(draft->node, "activation"))
        layer->activation = layer->op == FR_LAYER_DENSE ? FR_ACT_NONE : FR_ACT_RELU;
    if (layer->op == FR_LAYER_ATTENTION && layer->n_units == 0) {
        layer->n_units = 1;
        layer->units[0] = ATTENTION_UNITS;
    }
    if (!(options & FR_LAYER_INIT))
        layer->init = (struct fr_conf_init){.kind = FR_INIT_DEFAULT};
    else if (!fr_node_get(draft->node, "init"))
        layer->init = loader->conf->dense_init;
    for (const struct fr_option *option = NULL; (option = fr_option_next(option, "network.layers.*"));) {
        if ((options & option->takes) && option->initial && !fr_node_get(draft->node, fr_option_name(option)))
            fr_loader_default(loader, option, layer);
    }
}

static void finish_draft(struct fr_loader *loader, struct fr_layer_draft *draft)
{
    if (draft->node->kind != FR_NODE_MAP)
        return;
    if (draft->has_op) {
        check_options(loader, draft);
        set_defaults(loader, draft);
        return;
    }
    for (const struct fr_option *option = NULL; (option = fr_option_next(option, "network.layers.*"));) {
        if (option->type == FR_OPTION_LATER && fr_node_get(draft->node, fr_option_name(option)))
            return; /* reported already */
    }
    fr_refuse(loader, draft->node, draft->path,
              "no operation; expected concat, mlp, dense or another of conf/OPTIONS.md");
}

/* Reports a name that is taken; true when it is free (or missing, which is reported elsewhere). */
static bool check_name(struct fr_loader *loader, const struct fr_layer_draft *draft)
{
    const char *name = draft->layer.name;
    if (name[0] != '\0' && fr_slot_find(loader->conf, name, strlen(name)) != FR_NO_INDEX)
        return fr_refuse(loader, draft->node, draft->path, "the name `%s` is that of a slot; expected another", name);
    for (const struct fr_layer_draft *other = loader->drafts; other < draft && name[0] != '\0'; other++) {
        if (strcmp(other->layer.name, name) == 0)
            return fr_refuse(loader, draft->node, draft->path,
                             "the name `%s` is taken by another layer; expected another", name);
    }
    return true;
}

/* ---- arguments ---- */

/* Makes a draft for an inline operation of `outer`, with its references. Returns its number, or
 * FR_NO_INDEX after a problem. */
static int32_t lift(struct fr_loader *loader, struct fr_layer_draft *outer, enum fr_layer_op op,
                    const struct fr_node *node);

static bool is_slot(const struct fr_loader *loader, const struct fr_node *node)
{
    return node->kind == FR_NODE_SCALAR &&
           fr_slot_find(loader->conf, node->text, strcspn(node->text, ".")) != FR_NO_INDEX;
}

static bool resolve_inline(struct fr_loader *loader, struct fr_layer_draft *draft, const struct fr_node *node,
                           struct fr_conf_ref *ref)
{
    const struct fr_node *key = node->keys[0], *argument = node->values[0];
    enum fr_layer_op op;
    enum fr_pooling pooling;
    if (!fr_layer_op_parse(key->text, &op))
        return fr_refuse(
            loader, key, draft->path,
            "`%.80s` inside an argument is not an operation; expected sum, mean or another of conf/OPTIONS.md",
            key->text);
    if (!fr_layer_rule(op)->inline_)
        return fr_refuse(loader, key, draft->path,
                         "`%s` takes options and cannot stand inside an argument; expected a layer of its own",
                         key->text);
    if (!fr_layer_row_pooling(op, &pooling) || !is_slot(loader, argument)) {
        *ref = (struct fr_conf_ref){.kind = FR_REF_LAYER, .part = FR_NO_INDEX};
        ref->index = lift(loader, draft, op, node);
        return ref->index != FR_NO_INDEX;
    }
    if (!fr_ref_read(loader, draft, argument, ref))
        return false;
    if (ref->kind == FR_REF_DENSE)
        return fr_refuse(loader, argument, draft->path,
                         "`%.80s` is a vector already; expected %s of a sparse or sequence slot", argument->text,
                         key->text);
    ref->kind = FR_REF_POOLED;
    ref->pooling = pooling;
    return true;
}

bool fr_ref_resolve(struct fr_loader *loader, struct fr_layer_draft *draft, const struct fr_node *node,
                    struct fr_conf_ref *ref)
{
    if (node->kind == FR_NODE_SCALAR)
        return fr_ref_read(loader, draft, node, ref);
    if (node->kind == FR_NODE_LIST || node->count != 1)
        return fr_refuse(loader, node, draft->path, "%s; expected a reference or one operation, as in {mean: slot}",
                         fr_node_kind_name(node));
    return resolve_inline(loader, draft, node, ref);
}

/* Appends one reference, or a list of them, to the draft's references. */
static bool resolve_role(struct fr_loader *loader, struct fr_layer_draft *draft, const struct fr_node *argument)
{
    bool list = argument->kind == FR_NODE_LIST, whole = true;
    if (list && !fr_loader_sized(loader, argument, draft->path, FR_NODE_LIST, 1, FR_REFS_MAX))
        return false;
    uint32_t count = list ? argument->count : 1;
    struct fr_conf_layer *layer = &draft->layer;
    struct fr_conf_ref *refs = fr_arena_take(&loader->arena, (layer->n_refs + count) * sizeof(*refs));
    if (layer->n_refs > 0)
        memcpy(refs, layer->refs, layer->n_refs * sizeof(*refs));
    layer->refs = refs;
    for (uint32_t i = 0; i < count; i++) {
        if (fr_ref_resolve(loader, draft, list ? argument->values[i] : argument, &refs[layer->n_refs]))
            layer->n_refs += 1;
        else
            whole = false;
    }
    return whole;
}

static bool resolve_roles(struct fr_loader *loader, struct fr_layer_draft *draft, const char *const *roles)
{
    const struct fr_node *argument = draft->argument;
    struct fr_conf_layer *layer = &draft->layer;
    bool whole = true;
    if (argument->kind != FR_NODE_MAP)
        return fr_refuse(loader, argument, draft->path, "%s; expected the map {%s: .., %s: ..}",
                         fr_node_kind_name(argument), roles[0], roles[1]);
    for (uint32_t k = 0; k < argument->count; k++) {
        const struct fr_node *key = argument->keys[k];
        if (strcmp(key->text, roles[0]) != 0 && strcmp(key->text, roles[1]) != 0) {
            fr_refuse(loader, key, draft->path, "unknown role `%.80s`; expected %s and %s", key->text, roles[0],
                      roles[1]);
            whole = false;
        }
    }
    for (uint32_t r = 0; r < FR_LAYER_ROLES; r++) {
        const struct fr_node *node = fr_node_get(argument, roles[r]);
        layer->role_begin[r] = layer->n_refs;
        if (!node)
            fr_refuse(loader, argument, draft->path, "no %s; expected {%s: .., %s: ..}", roles[r], roles[0], roles[1]);
        node = node ? fr_layers_expand_slots(loader, draft, node) : NULL;
        whole = node && resolve_role(loader, draft, node) && whole;
    }
    layer->role_begin[FR_LAYER_ROLES] = layer->n_refs;
    return whole;
}

/* `mean: slot` as a layer is the sum of one pooled slot. */
static void pool_slot(struct fr_conf_layer *layer, const struct fr_node *argument)
{
    struct fr_conf_ref *ref = &layer->refs[0];
    const struct fr_node *written = argument->kind == FR_NODE_LIST ? argument->values[0] : argument;
    enum fr_pooling pooling;
    if (layer->n_refs != 1 || !fr_layer_row_pooling(layer->op, &pooling) ||
        (ref->kind != FR_REF_SEQUENCE && ref->kind != FR_REF_POOLED) ||
        written->kind != FR_NODE_SCALAR) /* {sum: slot} is pooled already */
        return;
    ref->kind = FR_REF_POOLED;
    ref->pooling = pooling;
    layer->op = FR_LAYER_SUM;
}

static bool resolve_draft(struct fr_loader *loader, struct fr_layer_draft *draft)
{
    if (!draft->argument)
        return false;
    struct fr_conf_layer *layer = &draft->layer;
    const struct fr_layer_rule *rule = fr_layer_rule(layer->op);
    if (rule->roles[0])
        return resolve_roles(loader, draft, rule->roles);
    const struct fr_node *argument = fr_layers_expand_slots(loader, draft, draft->argument);
    if (!argument || !resolve_role(loader, draft, argument))
        return false;
    layer->role_begin[1] = layer->role_begin[2] = layer->n_refs;
    if (layer->n_refs < rule->refs_min || (rule->refs_max > 0 && layer->n_refs > rule->refs_max))
        return fr_refuse(loader, argument, draft->path, "%" PRIu32 " given; expected %s %" PRIu32 " for %s",
                         layer->n_refs, rule->refs_min ? "at least" : "only",
                         rule->refs_min ? rule->refs_min : rule->refs_max, fr_layer_op_text(layer->op));
    pool_slot(layer, argument);
    for (uint32_t r = 0; layer->op == FR_LAYER_SUM && r < layer->n_refs; r++) {
        if (layer->refs[r].kind == FR_REF_POOLED || (layer->refs[r].kind == FR_REF_LAYER && layer->n_refs == 1))
            continue;
        return fr_refuse(loader, argument, draft->path,
                         "sum takes slots with a table, or one sequence; expected add for layers and dense slots");
    }
    return true;
}

static int32_t lift(struct fr_loader *loader, struct fr_layer_draft *outer, enum fr_layer_op op,
                    const struct fr_node *node)
{
    if (!loader->drafts)
        return FR_NO_INDEX; /* a loss without any layers: those are missing */
    if (loader->n_drafts == FR_LAYERS_MAX) {
        fr_refuse(loader, node, outer->path, "too many layers, with those inside arguments; expected at most %d",
                  FR_LAYERS_MAX);
        return FR_NO_INDEX;
    }
    int32_t number = (int32_t)loader->n_drafts;
    struct fr_layer_draft *draft = &loader->drafts[number];
    memset(draft, 0, sizeof(*draft));
    draft->node = node;
    draft->argument = node->values[0];
    draft->has_op = true;
    draft->layer.op = op;
    draft->layer.line = node->line;
    memcpy(draft->path, outer->path, sizeof(draft->path));
    int n = snprintf(draft->layer.name, FR_NAME_MAX, "%s__%" PRIu32, outer->layer.name, outer->n_lifted);
    if (n >= FR_NAME_MAX) {
        fr_refuse(loader, node, outer->path,
                  "the name of the layer is too long for what is inside its argument; expected a shorter one");
        return FR_NO_INDEX;
    }
    outer->n_lifted += 1;
    loader->n_drafts += 1;
    set_defaults(loader, draft);
    if (check_name(loader, draft) && resolve_draft(loader, draft))
        return number;
    loader->drafts_broken = true;
    return FR_NO_INDEX;
}

FR_READ(layers)
{
    if (!fr_loader_sized(loader, node, path, FR_NODE_LIST, 1, FR_LAYERS_MAX))
        return;
    loader->drafts = fr_arena_take(&loader->arena, FR_LAYERS_MAX * sizeof(*loader->drafts));
    memset(loader->drafts, 0, FR_LAYERS_MAX * sizeof(*loader->drafts));
    for (uint32_t i = 0; i < node->count; i++) {
        struct fr_layer_draft *draft = &loader->drafts[loader->n_drafts++];
        fr_path_index(draft->path, path, i);
        draft->node = node->values[i];
        draft->layer.line = node->values[i]->line;
        fr_loader_walk(loader, "network.layers.*", draft->path, draft->node, &draft->layer);
        finish_draft(loader, draft);
        (void)check_name(loader, draft);
    }
    for (uint32_t i = 0; i < node->count; i++) { /* every layer has its name now */
        if (!resolve_draft(loader, &loader->drafts[i]))
            loader->drafts_broken = true;
    }
}
