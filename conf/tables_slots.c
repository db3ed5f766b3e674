/* What is done after a table or slot was read. The same code reads the model JSON, so its bounds
 * apply to both. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "forms.h"

/* ---- tables ---- */

/* Vectors must differ from each other at the start; otherwise they never learn through a product. A
 * weight of FTRL need not differ. */
static void default_init(const struct fr_node *node, struct fr_conf_part *part)
{
    if (fr_node_get(node, "init"))
        return;
    bool ftrl = part->optimizer.kind == FR_OPT_FTRL || part->optimizer.kind == FR_OPT_GROUP_FTRL;
    bool zeros = ftrl && part->dim == 1;
    part->init = (struct fr_conf_init){.kind = zeros ? FR_INIT_ZEROS : FR_INIT_NORMAL, .scale = zeros ? 0 : 0.01f};
}

FR_READ(part)
{
    default_init(node, scope);
}

/* Checks that a table has exactly one gate; the keys of two gates would contradict each other. */
static void one_gate(struct fr_loader *loader, const struct fr_node *node, const char *path,
                     struct fr_conf_table *table)
{
    const struct fr_node *admit = fr_node_get(node, "admit");
    if (!table->admit_sketch && !table->admit_coins)
        return;
    table->admit_counts = false;
    static const char *const of_counts[] = {"count", "count_max", "idle"};
    char at[FR_PATH_MAX];
    fr_path_join(at, path, "admit");
    const char *gate = table->admit_sketch ? "sketch" : "probability";
    for (size_t i = 0; i < FR_ARRAY_LEN(of_counts); i++)
        if (fr_node_get(admit, of_counts[i]))
            fr_refuse(loader, admit, at,
                      "both %s and %s; expected one gate: count (with count_max, idle), sketch or "
                      "probability",
                      of_counts[i], gate);
    if (table->admit_sketch && table->admit_coins)
        fr_refuse(loader, admit, at, "both sketch and probability; expected one gate");
}

FR_READ(table)
{
    struct fr_conf_table *table = scope;
    bool whole = fr_node_get(node, "dim") != NULL, parts = fr_node_get(node, "parts") != NULL;
    if (node->kind != FR_NODE_MAP)
        return;
    one_gate(loader, node, path, table);
    if (whole == parts)
        fr_refuse(loader, node, path, "%s; expected dim (one part) or parts",
                  whole ? "both dim and parts" : "no width");
    if (parts && (fr_node_get(node, "optimizer") || fr_node_get(node, "init")))
        fr_refuse(loader, node, path, "optimizer and init belong to each of the parts; expected them there");
    if (whole && !parts) {
        memcpy(table->parts[0].name, "v", 2);
        table->n_parts = 1;
        default_init(node, &table->parts[0]);
    }
}

/* ---- slots ---- */

FR_READ(slot)
{
    const struct fr_conf *conf = loader->conf;
    struct fr_conf_slot *slot = scope;
    if (fr_slot_has_numbers(slot->kind)) {
        slot->admit = slot->touch = false;
        slot->max_ids = slot->max_len = 0;
        /* Without standardize or a time, a missing value always has a value: the default, or 0. */
        if (!fr_transform_learns(slot->transform) && fr_conf_slot_numbers(slot) == slot->dim)
            slot->has_default = true;
    } else {
        slot->dim = 0;
        slot->indicator = false;
        if (!fr_slot_has_steps(slot->kind))
            slot->max_len = 0;
        else
            slot->max_ids = 0;
        if (slot->source == FR_SOURCE_BUCKETS)
            slot->max_ids = 1;
        /* The number of a bucket means nothing without its slot, so buckets of two slots in one
         * table must not meet. */
        if (slot->name_space[0] == '\0' && slot->source != FR_SOURCE_SAMPLE)
            memcpy(slot->name_space, slot->name, sizeof(slot->name_space));
        if (slot->name_space[0] == '\0' && slot->table != FR_NO_INDEX)
            memcpy(slot->name_space, conf->tables[slot->table].name, sizeof(slot->name_space));
        slot->seed = fr_xxh3_seed(slot->name_space, strlen(slot->name_space), conf->key_seed_number);
    }
    for (uint32_t i = 0; &conf->slots[i] != slot && slot->index != FR_NO_INDEX; i++) {
        if (conf->slots[i].index == slot->index)
            fr_refuse(loader, node, path, "index %" PRId64 " is also that of `%s`; expected every index once",
                      slot->index, conf->slots[i].name);
    }
}
