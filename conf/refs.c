/* References that are a name (`slot`, `slot.part`, `layer`), and how each is called and shown. A
 * sequence slot alone is read step by step; shapes.c checks whether its reader can do that. */
#include <stdio.h>
#include <string.h>

#include "layers.h"

int32_t fr_slot_find(const struct fr_conf *conf, const char *name, size_t size)
{
    for (uint32_t i = 0; i < conf->n_slots; i++) {
        if (size > 0 && strlen(conf->slots[i].name) == size && memcmp(conf->slots[i].name, name, size) == 0)
            return (int32_t)i;
    }
    return FR_NO_INDEX;
}

static int32_t find_draft(const struct fr_loader *loader, const char *name, size_t size)
{
    for (uint32_t i = 0; i < loader->n_drafts; i++) {
        const char *have = loader->drafts[i].layer.name;
        if (size > 0 && strlen(have) == size && memcmp(have, name, size) == 0)
            return (int32_t)i;
    }
    return FR_NO_INDEX;
}

void fr_ref_text(const struct fr_conf *conf, const struct fr_conf_ref *ref, char out[static FR_REF_TEXT_MAX])
{
    if (ref->kind == FR_REF_LAYER) {
        snprintf(out, FR_REF_TEXT_MAX, "%s", conf->layers[ref->index].name);
        return;
    }
    const struct fr_conf_slot *slot = &conf->slots[ref->index];
    if (ref->kind == FR_REF_DENSE) {
        snprintf(out, FR_REF_TEXT_MAX, "%s", slot->name);
        return;
    }
    const char *part = conf->tables[slot->table].parts[ref->part].name;
    if (ref->kind == FR_REF_SEQUENCE)
        snprintf(out, FR_REF_TEXT_MAX, "%s.%s", slot->name, part);
    else
        snprintf(out, FR_REF_TEXT_MAX, "{%s: %s.%s}", fr_pooling_text(ref->pooling), slot->name, part);
}

struct fr_node *fr_ref_show(struct fr_tree *tree, const struct fr_conf_ref *ref)
{
    char text[FR_REF_TEXT_MAX];
    if (ref->kind != FR_REF_POOLED) {
        fr_ref_text(tree->conf, ref, text);
        return fr_tree_text(tree, text);
    }
    const struct fr_conf_ref rows = {FR_REF_SEQUENCE, ref->index, ref->part, FR_POOL_SUM};
    struct fr_node *map = fr_tree_flow(tree, FR_NODE_MAP);
    fr_ref_text(tree->conf, &rows, text);
    fr_tree_put(tree, map, fr_pooling_text(ref->pooling), fr_tree_word(tree, text));
    return map;
}

static void refuse_ref(struct fr_loader *loader, const struct fr_layer_draft *draft, const struct fr_node *node)
{
    const struct fr_conf *conf = loader->conf;
    struct fr_words *known = fr_loader_words(loader);
    for (uint32_t i = 0; i < conf->n_slots; i++)
        fr_words_add(known, conf->slots[i].name, strlen(conf->slots[i].name));
    for (uint32_t i = 0; i < loader->n_drafts; i++)
        fr_words_add(known, loader->drafts[i].layer.name, strlen(loader->drafts[i].layer.name));
    char what[FR_NAME_MAX + 64];
    snprintf(what, sizeof(what), "%s `%s` reads an unknown slot or layer", draft->has_op ? "layer" : "loss",
             draft->layer.name);
    fr_refuse_unknown(loader, node, draft->path, what);
}

/* Resolves the part of a reference to a slot with a table; false after a problem. */
static bool resolve_part(struct fr_loader *loader, const struct fr_layer_draft *draft, const struct fr_node *node,
                         const char *part, struct fr_conf_ref *ref)
{
    const struct fr_conf *conf = loader->conf;
    const struct fr_conf_slot *slot = &conf->slots[ref->index];
    if (slot->table == FR_NO_INDEX)
        return false; /* the slot's own problem is reported already */
    const struct fr_conf_table *table = &conf->tables[slot->table];
    char parts[FR_PARTS_MAX * (FR_NAME_MAX + 2) + 1] = "";
    for (uint32_t i = 0; i < table->n_parts; i++) {
        size_t used = strlen(parts);
        snprintf(parts + used, sizeof(parts) - used, "%s%s", i ? ", " : "", table->parts[i].name);
        if (part && strcmp(part, table->parts[i].name) == 0)
            ref->part = (int32_t)i;
    }
    if (!part && table->n_parts == 1)
        ref->part = 0;
    if (ref->part != FR_NO_INDEX)
        return true;
    if (table->n_parts == 0)
        return false; /* the table's own problem is reported already */
    if (part)
        return fr_refuse(loader, node, draft->path, "table `%s` has no part `%.80s`; expected one of %s", table->name,
                         part, parts);
    return fr_refuse(loader, node, draft->path, "table `%s` has the parts %s; expected one of them, as in %s.%s",
                     table->name, parts, slot->name, table->parts[0].name);
}

bool fr_ref_read(struct fr_loader *loader, const struct fr_layer_draft *draft, const struct fr_node *node,
                 struct fr_conf_ref *ref)
{
    const char *text = fr_loader_text(loader, node, draft->path, "a slot, slot.part or layer");
    if (!text)
        return false;
    size_t size = strcspn(text, ".");
    const char *part = text[size] == '.' ? text + size + 1 : NULL;
    int32_t slot = fr_slot_find(loader->conf, text, size), layer = find_draft(loader, text, size);
    *ref = (struct fr_conf_ref){.part = FR_NO_INDEX};
    if (slot == FR_NO_INDEX && layer == FR_NO_INDEX) {
        refuse_ref(loader, draft, node);
        return false;
    }
    enum fr_slot_kind kind = slot != FR_NO_INDEX ? loader->conf->slots[slot].kind : FR_SLOT_DENSE;
    bool bare = slot == FR_NO_INDEX || fr_slot_has_numbers(kind);
    if (bare && part)
        return fr_refuse(loader, node, draft->path, "`%.80s` has no parts; expected only its name", text);
    ref->kind = slot == FR_NO_INDEX       ? FR_REF_LAYER
                : bare                    ? FR_REF_DENSE
                : fr_slot_has_steps(kind) ? FR_REF_SEQUENCE
                                          : FR_REF_POOLED;
    ref->index = slot == FR_NO_INDEX ? layer : slot;
    return bare || resolve_part(loader, draft, node, part, ref);
}
