/* `{slots: all}` in the argument of a layer: every slot that the operation takes, in the order of
 * their definition, so that a slot is named once in a file.
 *
 * The map is replaced in the tree by the references it stands for, before references are resolved.
 * All later code, the printed configuration and the model record see the names.
 *
 * - `{slots: all.v}` stands for `slot.v` for each slot whose table has the part `v`, and for the
 *   name of each dense slot.
 * - `{slots: all}` is the same without a part. Each table must have only one part.
 * - `{mean: {slots: all.v}}` pools each slot that has a table. Dense slots stay as they are.
 * - Operations on vectors of one width take no dense slots here. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "layers.h"

static const char ALL[] = "all";

/* What the map asks for. */
struct all_slots {
    const struct fr_node *written; /* the map {slots: ..} */
    const char *pooling;           /* NULL: none */
    const char *part;              /* NULL: none */
};

/* Returns whether the node is {slots: ..}, or a pooling of it. */
static bool is_all(const struct fr_node *node, struct all_slots *out)
{
    *out = (struct all_slots){.written = node};
    if (node->kind != FR_NODE_MAP || node->count != 1)
        return false;
    enum fr_layer_op op;
    enum fr_pooling pooling;
    if (fr_layer_op_parse(node->keys[0]->text, &op) && fr_layer_row_pooling(op, &pooling)) {
        out->pooling = node->keys[0]->text;
        out->written = node->values[0];
    }
    return fr_node_get(out->written, "slots") != NULL;
}

static bool read_all(struct fr_loader *loader, const struct fr_layer_draft *draft, struct all_slots *all)
{
    const struct fr_node *value = fr_node_get(all->written, "slots");
    size_t size = sizeof(ALL) - 1;
    bool said = all->written->count == 1 && value->kind == FR_NODE_SCALAR && strncmp(value->text, ALL, size) == 0 &&
                (value->text[size] == '\0' || value->text[size] == '.');
    if (!said)
        return fr_refuse(loader, all->written, draft->path,
                         "`slots` inside an argument; expected {slots: all}, or {slots: all.PART} for the part of a "
                         "table");
    all->part = value->text[size] == '.' ? value->text + size + 1 : NULL;
    return true;
}

static bool has_part(const struct fr_conf_table *table, const char *part)
{
    for (uint32_t i = 0; i < table->n_parts; i++)
        if (strcmp(table->parts[i].name, part) == 0)
            return true;
    return false;
}

/* Appends the reference to one slot, if the operation takes the slot. False after a problem. */
static bool add_slot(struct fr_loader *loader, const struct fr_layer_draft *draft, const struct all_slots *all,
                     const struct fr_conf_slot *slot, struct fr_node *list)
{
    bool numbers = fr_slot_has_numbers(slot->kind);
    if (numbers ? fr_layer_rule(draft->layer.op)->one_width : slot->table == FR_NO_INDEX)
        return true; /* a missing table is reported already */
    const struct fr_conf_table *table = numbers ? NULL : &loader->conf->tables[slot->table];
    if (table && all->part && !has_part(table, all->part))
        return true;
    if (table && !all->part && table->n_parts > 1)
        return fr_refuse(loader, all->written, draft->path,
                         "`all` does not say which part of table `%s`, which slot `%s` reads; expected one of its "
                         "parts, as in {slots: all.%s}",
                         table->name, slot->name, table->parts[0].name);
    char text[2 * FR_NAME_MAX + 2];
    snprintf(text, sizeof(text), "%s%s%s", slot->name, table && all->part ? "." : "",
             table && all->part ? all->part : "");
    struct fr_node *name = fr_node_new(&loader->arena, FR_NODE_SCALAR, all->written);
    name->text = fr_node_copy_text(&loader->arena, text, strlen(text));
    struct fr_node *ref = name;
    if (table && all->pooling) {
        ref = fr_node_new(&loader->arena, FR_NODE_MAP, all->written);
        fr_node_put(&loader->arena, ref, all->pooling, name);
    }
    fr_node_add(&loader->arena, list, NULL, ref);
    return true;
}

/* Appends all slots that the operation takes. False after a problem. */
static bool add_all(struct fr_loader *loader, const struct fr_layer_draft *draft, struct all_slots *all,
                    struct fr_node *list)
{
    uint32_t before = list->count;
    if (!read_all(loader, draft, all))
        return false;
    for (uint32_t s = 0; s < loader->conf->n_slots; s++)
        if (!add_slot(loader, draft, all, &loader->conf->slots[s], list))
            return false;
    if (list->count > before)
        return true;
    return fr_refuse(loader, all->written, draft->path, "%s takes none of the slots%s%.80s%s; expected a slot",
                     fr_layer_op_text(draft->layer.op), all->part ? " with a part `" : "", all->part ? all->part : "",
                     all->part ? "`" : "");
}

const struct fr_node *fr_layers_expand_slots(struct fr_loader *loader, const struct fr_layer_draft *draft,
                                             const struct fr_node *argument)
{
    struct all_slots all;
    bool list = argument->kind == FR_NODE_LIST, any = is_all(argument, &all);
    for (uint32_t i = 0; list && i < argument->count; i++)
        any = is_all(argument->values[i], &all) || any;
    if (!any)
        return argument;
    struct fr_node *expanded = fr_node_new(&loader->arena, FR_NODE_LIST, argument);
    for (uint32_t i = 0; i < (list ? argument->count : 1); i++) {
        struct fr_node *node = list ? argument->values[i] : (struct fr_node *)(uintptr_t)argument;
        if (!is_all(node, &all))
            fr_node_add(&loader->arena, expanded, NULL, node);
        else if (!add_all(loader, draft, &all, expanded))
            return NULL;
    }
    return expanded;
}
