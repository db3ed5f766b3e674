/* Sparse slots that samples do not carry: buckets of a dense slot, and crosses of sparse slots.
 *
 * The slots from which they are computed may come anywhere in the list, so names are looked up
 * after all slots have been read. Buckets are always computed before crosses, and a cross never
 * contains a cross, so no order has to be found. */
#include <string.h>

#include "base/check.h"
#include "forms.h"
#include "layers.h"

FR_READ(buckets)
{
    struct fr_conf_slot *slot = scope;
    const struct fr_node *of = fr_node_get(node, "of"), *boundaries = fr_node_get(node, "boundaries");
    if (node->kind != FR_NODE_MAP || node->count != 2 || !of || !boundaries) {
        fr_refuse(loader, node, path, "%s; expected %s",
                  node->kind == FR_NODE_MAP ? "a map of other keys" : fr_node_kind_name(node), option->form);
        return;
    }
    slot->source = FR_SOURCE_BUCKETS;
    fr_boundaries_read(loader, boundaries, path, slot);
}

FR_SHOW(buckets)
{
    const struct fr_conf_slot *slot = scope;
    struct fr_node *node = fr_tree_flow(tree, FR_NODE_MAP);
    fr_tree_put(tree, node, "of", fr_tree_text(tree, tree->conf->slots[slot->sources[0]].name));
    fr_tree_put(tree, node, "boundaries", fr_boundaries_show(tree, slot));
    return node;
}

FR_SHOW(cross)
{
    const struct fr_conf_slot *slot = scope;
    return fr_tree_names(tree, "slots", slot->sources, slot->n_sources);
}

FR_READ(cross)
{
    struct fr_conf_slot *slot = scope;
    if (!fr_loader_sized(loader, node, path, FR_NODE_LIST, 2, FR_CROSS_MAX))
        return;
    if (slot->source == FR_SOURCE_BUCKETS)
        fr_refuse(loader, node, path, "a slot of buckets already; expected buckets or cross");
    slot->source = FR_SOURCE_CROSS;
}

/* Says whether `slot` may be computed from `from`. */
static bool may_give(const struct fr_conf_slot *slot, const struct fr_conf_slot *from)
{
    if (from == slot)
        return false;
    if (slot->source == FR_SOURCE_CROSS)
        return fr_slot_has_rows(from->kind) && !fr_slot_has_steps(from->kind) && from->source != FR_SOURCE_CROSS;
    return fr_slot_has_numbers(from->kind) && from->dim == 1 && fr_conf_slot_numbers(from) == 1;
}

static void add_source(struct fr_loader *loader, const struct fr_node *node, const char *path,
                       struct fr_conf_slot *slot)
{
    const struct fr_conf *conf = loader->conf;
    bool cross = slot->source == FR_SOURCE_CROSS;
    if (!fr_loader_text(loader, node, path, "the name of a slot"))
        return;
    int32_t found = fr_slot_find(conf, node->text, strlen(node->text));
    if (found != FR_NO_INDEX && !may_give(slot, &conf->slots[found])) {
        fr_refuse(loader, node, path, "`%s` %s; expected %s", node->text,
                  &conf->slots[found] == slot ? "is the slot itself"
                  : cross                     ? "cannot be crossed"
                                              : "has no buckets",
                  cross ? "sparse slots that are no crosses themselves (name their slots here)"
                        : "a dense slot of one number that is no time");
        return;
    }
    for (uint32_t i = 0; found != FR_NO_INDEX && i < slot->n_sources; i++) {
        if (slot->sources[i] == found)
            fr_loader_twice(loader, node, path, "slot");
    }
    if (found != FR_NO_INDEX) {
        slot->sources[slot->n_sources++] = found;
        return;
    }
    struct fr_words *known = fr_loader_words(loader);
    for (uint32_t i = 0; i < conf->n_slots; i++) {
        if (may_give(slot, &conf->slots[i]))
            fr_words_add(known, conf->slots[i].name, strlen(conf->slots[i].name));
    }
    fr_refuse_unknown(loader, node, path, cross ? "unknown sparse slot" : "unknown dense slot");
}

/* Refuses options that describe how samples carry a slot. */
static void refuse_carried(struct fr_loader *loader, const struct fr_node *node, const char *path,
                           const struct fr_conf_slot *slot)
{
    for (const struct fr_option *option = NULL; (option = fr_option_next(option, "slots.*"));) {
        const struct fr_node *given = fr_node_get(node, fr_option_name(option));
        if (!given || !(option->sources & 1u << FR_SOURCE_SAMPLE) || (option->sources >> slot->source & 1))
            continue;
        char at[FR_PATH_MAX];
        fr_path_join(at, path, fr_option_name(option));
        fr_refuse(loader, given, at, "not for a slot that is computed; expected none");
    }
}

/* All slots have their names. */
FR_READ(slots)
{
    struct fr_conf *conf = loader->conf;
    for (uint32_t i = 0; i < conf->n_slots; i++) {
        struct fr_conf_slot *slot = &conf->slots[i];
        if (slot->source == FR_SOURCE_SAMPLE)
            continue;
        bool cross = slot->source == FR_SOURCE_CROSS;
        const struct fr_node *form = fr_node_get(node->values[i], cross ? "cross" : "buckets");
        char at[FR_PATH_MAX], below[FR_PATH_MAX];
        fr_path_entry(at, path, node, i);
        fr_path_join(below, at, cross ? "cross" : "buckets");
        refuse_carried(loader, node->values[i], at, slot);
        for (uint32_t k = 0; cross && k < form->count; k++)
            add_source(loader, form->values[k], below, slot);
        if (!cross)
            add_source(loader, fr_node_get(form, "of"), below, slot);
    }
    fr_loader_slot_keys(loader, node, path);
}
