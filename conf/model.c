/* Readers of tables and slots, and of the model sections as a whole. The same code reads the model
 * JSON, so its bounds are the bounds of both. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "loader.h"
#include "scalar.h"

/* ---- tables ---- */

/* A vector needs to differ from others at the start, or it never learns behind a product; a weight
 * of FTRL need not. */
static void default_init(const struct fr_node *node, struct fr_conf_part *part)
{
    if (fr_node_get(node, "init"))
        return;
    bool ftrl = part->optimizer.kind == FR_OPT_FTRL || part->optimizer.kind == FR_OPT_GROUP_FTRL;
    bool zeros = ftrl && part->dim == 1;
    part->init = (struct fr_conf_init){.kind = zeros ? FR_INIT_ZEROS : FR_INIT_NORMAL, .scale = zeros ? 0 : 0.01f};
}

FR_READ(fr_read_parts)
{
    (void)option;
    struct fr_conf_table *table = scope;
    if (!fr_loader_expect(loader, node, path, FR_NODE_MAP) || !fr_loader_count(loader, node, path, 1, FR_PARTS_MAX))
        return;
    for (uint32_t i = 0; i < node->count; i++) {
        struct fr_conf_part *part = &table->parts[i];
        char at[FR_PATH_MAX];
        fr_path_join(at, path, node->keys[i]->text);
        memset(part, 0, sizeof(*part));
        fr_loader_name(loader, node->keys[i], at, part->name);
        fr_loader_defaults(loader, "tables.*.parts.*", part);
        fr_loader_walk(loader, &(struct fr_scope){"tables.*.parts.*", at, node->values[i], part});
        default_init(node->values[i], part);
    }
    table->n_parts = node->count;
}

static void read_table(struct fr_loader *loader, const struct fr_node *node, const char *path,
                       struct fr_conf_table *table)
{
    bool whole = fr_node_get(node, "dim") != NULL, parts = fr_node_get(node, "parts") != NULL;
    fr_loader_defaults(loader, "tables.*", table);
    fr_loader_walk(loader, &(struct fr_scope){"tables.*", path, node, table});
    if (node->kind != FR_NODE_MAP)
        return;
    if (whole == parts)
        fr_problem(&loader->problems, node, path, "%s; expected dim (one part) or parts",
                   whole ? "both dim and parts" : "no width");
    if (parts && (fr_node_get(node, "optimizer") || fr_node_get(node, "init")))
        fr_problem(&loader->problems, node, path,
                   "optimizer and init belong to each of the parts; expected them there");
    if (whole && !parts) {
        memcpy(table->parts[0].name, "v", 2);
        table->n_parts = 1;
        default_init(node, &table->parts[0]);
    }
}

FR_READ(fr_read_tables)
{
    (void)option, (void)scope;
    struct fr_conf *conf = loader->conf;
    if (!fr_loader_expect(loader, node, path, FR_NODE_MAP) || !fr_loader_count(loader, node, path, 0, FR_TABLES_MAX))
        return;
    conf->tables = fr_alloc(node->count + 1, sizeof(*conf->tables));
    for (uint32_t i = 0; i < node->count; i++) {
        struct fr_conf_table *table = &conf->tables[conf->n_tables++];
        char at[FR_PATH_MAX];
        fr_path_join(at, path, node->keys[i]->text);
        fr_loader_name(loader, node->keys[i], at, table->name);
        read_table(loader, node->values[i], at, table);
    }
}

/* ---- slots ---- */

FR_READ(fr_read_slot_table)
{
    (void)option;
    const struct fr_conf *conf = loader->conf;
    struct fr_conf_slot *slot = scope;
    if (!fr_loader_text(loader, node, path, "the name of a table"))
        return;
    struct fr_words *known = &loader->words;
    known->count = 0;
    for (uint32_t i = 0; i < conf->n_tables; i++) {
        fr_words_add(known, conf->tables[i].name, strlen(conf->tables[i].name));
        if (strcmp(conf->tables[i].name, node->text) == 0)
            slot->table = (int32_t)i;
    }
    if (slot->table == FR_NO_INDEX)
        fr_problem_unknown(&loader->problems, node, path, "unknown table", known);
}

static void finish_slot(struct fr_loader *loader, const struct fr_node *node, const char *path, uint32_t index)
{
    const struct fr_conf *conf = loader->conf;
    struct fr_conf_slot *slot = &conf->slots[index];
    if (slot->kind == FR_SLOT_DENSE) {
        slot->admit = slot->touch = false;
        slot->max_ids = slot->max_len = 0;
        /* Without standardize or a time a missing value always reads as something: 0 unless said
         * otherwise. */
        if (slot->transform != FR_TRANSFORM_STANDARDIZE && fr_conf_slot_numbers(slot) == slot->dim)
            slot->has_default = true;
    } else {
        slot->dim = 0;
        slot->indicator = false;
        if (slot->kind == FR_SLOT_SPARSE)
            slot->max_len = 0;
        else
            slot->max_ids = 0;
        if (slot->source == FR_SOURCE_BUCKETS)
            slot->max_ids = 1;
        /* A bucket's number says nothing without its slot: two of them in one table must not
         * meet. */
        if (slot->name_space[0] == '\0' && slot->source != FR_SOURCE_SAMPLE)
            memcpy(slot->name_space, slot->name, sizeof(slot->name_space));
        if (slot->name_space[0] == '\0' && slot->table != FR_NO_INDEX)
            memcpy(slot->name_space, conf->tables[slot->table].name, sizeof(slot->name_space));
        slot->seed = fr_xxh3(slot->name_space, strlen(slot->name_space));
    }
    for (uint32_t i = 0; i < index && slot->index != FR_NO_INDEX; i++) {
        if (conf->slots[i].index == slot->index)
            fr_problem(&loader->problems, node, path,
                       "index %" PRId64 " is also that of `%s`; expected every index once", slot->index,
                       conf->slots[i].name);
    }
}

FR_READ(fr_read_slots)
{
    (void)option, (void)scope;
    struct fr_conf *conf = loader->conf;
    if (!fr_loader_expect(loader, node, path, FR_NODE_MAP) || !fr_loader_count(loader, node, path, 1, FR_SLOTS_MAX))
        return;
    conf->slots = fr_alloc(node->count, sizeof(*conf->slots));
    for (uint32_t i = 0; i < node->count; i++) {
        struct fr_conf_slot *slot = &conf->slots[conf->n_slots++];
        char at[FR_PATH_MAX];
        fr_path_join(at, path, node->keys[i]->text);
        fr_loader_name(loader, node->keys[i], at, slot->name);
        slot->table = FR_NO_INDEX;
        slot->index = FR_NO_INDEX;
        fr_loader_defaults(loader, "slots.*", slot);
        fr_loader_walk(loader, &(struct fr_scope){"slots.*", at, node->values[i], slot});
        finish_slot(loader, node->values[i], at, i);
    }
    fr_slots_compute(loader, node);
}

void fr_loader_model(struct fr_loader *loader, const struct fr_node *root)
{
    static const char *const sections[] = {"tables", "slots", "labels", "network.layers", "tasks", "export.quantize"};
    for (size_t i = 0; i < FR_ARRAY_LEN(sections); i++) {
        const struct fr_node *node = fr_node_get(root, sections[i]);
        if (node)
            fr_loader_read(loader, fr_option_find(sections[i]), node, sections[i], loader->conf);
        else
            fr_problem(&loader->problems, root, sections[i], "missing");
    }
    fr_layers_store(loader);
    if (loader->problems.count == 0)
        (void)fr_shapes_infer(loader);
}
