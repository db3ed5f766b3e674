/* Readers of tables, slots, labels and tasks. The same code reads the model JSON, so its bounds are the bounds of both.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "loader.h"
#include "scalar.h"

/* --- optimizers and initial weights
 * ---------------------------------------------------------------------------------------- */

/* `name` or a map of one key: the key's node, its body (NULL for a bare name); NULL and a problem otherwise. */
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

FR_READ(fr_read_optimizer)
{
    struct fr_conf_optimizer *optimizer = (struct fr_conf_optimizer *)(void *)((char *)scope + option->offset);
    const struct fr_node *body, *name = one_key(loader, node, path, &body);
    if (!name)
        return;
    int kind = -1;
    const struct fr_option choice = {
        .type = FR_OPTION_CHOICE, .path = option->path, .choices = option->choices, .offset = 0};
    struct fr_node text = *name;
    text.plain = false;
    fr_loader_read(loader, &choice, &text, path, &kind);
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
}

FR_READ(fr_read_init)
{
    struct fr_conf_init *init = (struct fr_conf_init *)(void *)((char *)scope + option->offset);
    const struct fr_node *body, *name = one_key(loader, node, path, &body);
    if (!name)
        return;
    struct fr_words *known = &loader->words;
    known->count = 0;
    fr_words_add(known, "zeros", 5);
    fr_words_add(known, "uniform", 7);
    fr_words_add(known, "normal", 6);
    bool zeros = strcmp(name->text, "zeros") == 0;
    bool normal = strcmp(name->text, "normal") == 0;
    double scale = 0;
    if (!zeros && !normal && strcmp(name->text, "uniform") != 0) {
        fr_problem_unknown(&loader->problems, name, path, "unknown initial weights", known);
        return;
    }
    if (zeros != (body == NULL)) {
        fr_problem(&loader->problems, name, path, "`%s` %s; expected zeros, {uniform: a} or {normal: sd}", name->text,
                   zeros ? "takes no number" : "needs a number");
        return;
    }
    if (body && (body->kind != FR_NODE_SCALAR || !body->plain || fr_scalar_real(body->text, &scale) != FR_SCALAR_OK ||
                 !(scale > 0 && scale <= 1000) || (float)scale <= 0)) {
        fr_problem(&loader->problems, body, path, "not a scale; expected a number above 0, at most 1000");
        return;
    }
    init->kind = zeros ? FR_INIT_ZEROS : normal ? FR_INIT_NORMAL : FR_INIT_UNIFORM;
    init->scale = (float)scale;
}

/* --- tables
 * ---------------------------------------------------------------------------------------------------------------- */

/* A weight of FTRL is a function of its accumulators, which start at 0; all others need to differ at the start. */
static void default_init(const struct fr_node *node, struct fr_conf_part *part)
{
    if (fr_node_get(node, "init"))
        return;
    bool zeros = part->optimizer.kind == FR_OPT_FTRL;
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

/* --- slots
 * ----------------------------------------------------------------------------------------------------------------- */

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
    } else {
        slot->dim = 0;
        if (slot->kind == FR_SLOT_SPARSE)
            slot->max_len = 0;
        else
            slot->max_ids = 0;
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
}

/* --- labels and tasks
 * ------------------------------------------------------------------------------------------------------ */

FR_READ(fr_read_labels)
{
    (void)option, (void)scope;
    struct fr_conf *conf = loader->conf;
    if (!fr_loader_expect(loader, node, path, FR_NODE_MAP) || !fr_loader_count(loader, node, path, 1, FR_LABELS_MAX))
        return;
    conf->labels = fr_alloc(node->count, sizeof(*conf->labels));
    for (uint32_t i = 0; i < node->count; i++) {
        struct fr_conf_label *label = &conf->labels[conf->n_labels++];
        char at[FR_PATH_MAX];
        fr_path_join(at, path, node->keys[i]->text);
        fr_loader_name(loader, node->keys[i], at, label->name);
        fr_loader_walk(loader, &(struct fr_scope){"labels.*", at, node->values[i], label});
    }
}

FR_READ(fr_read_task_label)
{
    (void)option;
    const struct fr_conf *conf = loader->conf;
    struct fr_conf_task *task = scope;
    if (!fr_loader_text(loader, node, path, "the name of a label"))
        return;
    struct fr_words *known = &loader->words;
    known->count = 0;
    for (uint32_t i = 0; i < conf->n_labels; i++) {
        fr_words_add(known, conf->labels[i].name, strlen(conf->labels[i].name));
        if (strcmp(conf->labels[i].name, node->text) == 0)
            task->label = (int32_t)i;
    }
    if (task->label == FR_NO_INDEX)
        fr_problem_unknown(&loader->problems, node, path, "unknown label", known);
}

FR_READ(fr_read_task_logit)
{
    (void)option;
    const struct fr_conf *conf = loader->conf;
    struct fr_conf_task *task = scope;
    if (!fr_loader_text(loader, node, path, "the name of a layer"))
        return;
    struct fr_words *known = &loader->words;
    known->count = 0;
    for (uint32_t i = 0; i < conf->n_layers; i++) {
        fr_words_add(known, conf->layers[i].name, strlen(conf->layers[i].name));
        if (strcmp(conf->layers[i].name, node->text) == 0)
            task->logit = (int32_t)i;
    }
    if (task->logit == FR_NO_INDEX)
        fr_problem_unknown(&loader->problems, node, path, "unknown layer", known);
}

FR_READ(fr_read_tasks)
{
    (void)option, (void)scope;
    struct fr_conf *conf = loader->conf;
    if (!fr_loader_expect(loader, node, path, FR_NODE_LIST) || !fr_loader_count(loader, node, path, 1, FR_TASKS_MAX))
        return;
    conf->tasks = fr_alloc(node->count, sizeof(*conf->tasks));
    for (uint32_t i = 0; i < node->count; i++) {
        struct fr_conf_task *task = &conf->tasks[conf->n_tasks++];
        char at[FR_PATH_MAX];
        fr_path_index(at, path, i);
        task->label = FR_NO_INDEX;
        task->logit = FR_NO_INDEX;
        fr_loader_defaults(loader, "tasks.*", task);
        fr_loader_walk(loader, &(struct fr_scope){"tasks.*", at, node->values[i], task});
        for (uint32_t j = 0; j < i && task->name[0] != '\0'; j++) {
            if (strcmp(conf->tasks[j].name, task->name) == 0)
                fr_problem(&loader->problems, node->values[i], at, "the name `%s` is taken; expected every task once",
                           task->name);
        }
    }
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
    if (loader->problems.count == 0)
        (void)fr_shapes_check(loader->conf, &loader->problems, root);
}
