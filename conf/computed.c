/* Sparse slots that samples do not carry: buckets of a dense slot, and crosses of sparse ones.
 *
 * What they are computed from may stand anywhere among the slots, so names are looked up when all
 * slots are read. Buckets come before crosses in whatever computes them, and a cross is never of a
 * cross: there is no order to find. */
#include <string.h>

#include "base/check.h"
#include "loader.h"
#include "printer.h"

FR_READ(fr_read_buckets)
{
    struct fr_conf_slot *slot = scope;
    const struct fr_node *of = fr_node_get(node, "of"), *boundaries = fr_node_get(node, "boundaries");
    if (node->kind != FR_NODE_MAP || node->count != 2 || !of || !boundaries) {
        fr_problem(&loader->problems, node, path, "%s; expected %s",
                   node->kind == FR_NODE_MAP ? "a map of other keys" : fr_node_kind_name(node), option->form);
        return;
    }
    slot->source = FR_SOURCE_BUCKETS;
    fr_read_boundaries(loader, boundaries, path, slot);
}

FR_READ(fr_read_cross)
{
    struct fr_conf_slot *slot = scope;
    if (!fr_loader_expect(loader, node, path, FR_NODE_LIST) || !fr_loader_count(loader, node, path, 2, FR_CROSS_MAX))
        return;
    (void)option;
    if (slot->source == FR_SOURCE_BUCKETS)
        fr_problem(&loader->problems, node, path, "a slot of buckets already; expected buckets or cross");
    slot->source = FR_SOURCE_CROSS;
}

/* What a slot may be computed from. */
static bool may_give(const struct fr_conf_slot *slot, const struct fr_conf_slot *from)
{
    if (from == slot)
        return false;
    if (slot->source == FR_SOURCE_CROSS)
        return from->kind == FR_SLOT_SPARSE && from->source != FR_SOURCE_CROSS;
    return from->kind == FR_SLOT_DENSE && from->dim == 1 && fr_conf_slot_numbers(from) == 1;
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
        fr_problem(&loader->problems, node, path, "`%s` %s; expected %s", node->text,
                   &conf->slots[found] == slot ? "is the slot itself"
                   : cross                     ? "cannot be crossed"
                                               : "has no buckets",
                   cross ? "sparse slots that are no crosses themselves (name their slots here)"
                         : "a dense slot of one number that is no time");
        return;
    }
    for (uint32_t i = 0; found != FR_NO_INDEX && i < slot->n_sources; i++) {
        if (slot->sources[i] == found)
            fr_problem(&loader->problems, node, path, "`%s` is there twice; expected every slot once", node->text);
    }
    if (found != FR_NO_INDEX) {
        slot->sources[slot->n_sources++] = found;
        return;
    }
    struct fr_words *known = &loader->words;
    known->count = 0;
    for (uint32_t i = 0; i < conf->n_slots; i++) {
        if (may_give(slot, &conf->slots[i]))
            fr_words_add(known, conf->slots[i].name, strlen(conf->slots[i].name));
    }
    fr_problem_unknown(&loader->problems, node, path, cross ? "unknown sparse slot" : "unknown dense slot", known);
}

/* Options that say how samples carry a slot. */
static void refuse_carried(struct fr_loader *loader, const struct fr_node *node, const char *path,
                           const struct fr_conf_slot *slot)
{
    static const char *const keys[] = {"id", "index", "max_ids"};
    for (size_t k = 0; k < FR_ARRAY_LEN(keys); k++) {
        const struct fr_node *given = fr_node_get(node, keys[k]);
        if (!given || (slot->source == FR_SOURCE_CROSS && strcmp(keys[k], "max_ids") == 0))
            continue;
        char at[FR_PATH_MAX];
        fr_path_join(at, path, keys[k]);
        fr_problem(&loader->problems, given, at, "not for a slot that is computed; expected none");
    }
}

void fr_slots_compute(struct fr_loader *loader, const struct fr_node *slots)
{
    struct fr_conf *conf = loader->conf;
    for (uint32_t i = 0; i < conf->n_slots; i++) {
        struct fr_conf_slot *slot = &conf->slots[i];
        if (slot->source == FR_SOURCE_SAMPLE)
            continue;
        bool cross = slot->source == FR_SOURCE_CROSS;
        const struct fr_node *node = fr_node_get(slots->values[i], cross ? "cross" : "buckets");
        char at[FR_PATH_MAX], path[FR_PATH_MAX];
        fr_path_join(at, "slots", slots->keys[i]->text);
        fr_path_join(path, at, cross ? "cross" : "buckets");
        refuse_carried(loader, slots->values[i], at, slot);
        for (uint32_t k = 0; cross && k < node->count; k++)
            add_source(loader, node->values[k], path, slot);
        if (!cross)
            add_source(loader, fr_node_get(node, "of"), path, slot);
    }
}
