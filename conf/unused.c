/* Warnings about valid entries that have no effect: tables that never get a row, and slots and
 * layers on which no task and no loss depends. A misspelled or forgotten reference looks like
 * this. */
#include <stdio.h>
#include <string.h>

#include "loader.h"

struct use {
    bool layers[FR_LAYERS_MAX];
    bool slots[FR_SLOTS_MAX];
    bool named[FR_SLOTS_MAX]; /* named by a layer, even by one on which nothing depends */
};

static void mark_refs(struct use *use, const struct fr_conf_ref *refs, uint32_t count)
{
    for (uint32_t r = 0; r < count; r++) {
        if (refs[r].kind == FR_REF_LAYER)
            use->layers[refs[r].index] = true;
        else
            use->slots[refs[r].index] = true;
    }
}

/* Layers are in evaluation order, so the readers of a layer come after it. */
static void find_use(const struct fr_conf *conf, struct use *use)
{
    for (uint32_t t = 0; t < conf->n_tasks; t++)
        if (conf->tasks[t].logit != FR_NO_INDEX)
            use->layers[conf->tasks[t].logit] = true;
    for (uint32_t i = 0; i < conf->n_losses; i++)
        mark_refs(use, conf->losses[i].refs, conf->losses[i].n_refs);
    for (uint32_t l = conf->n_layers; l-- > 0;) {
        const struct fr_conf_layer *layer = &conf->layers[l];
        if (use->layers[l])
            mark_refs(use, layer->refs, layer->n_refs);
        for (uint32_t r = 0; r < layer->n_refs; r++)
            if (layer->refs[r].kind != FR_REF_LAYER)
                use->named[layer->refs[r].index] = true;
    }
    if (conf->metrics.gauc_by != FR_NO_INDEX)
        use->slots[conf->metrics.gauc_by] = true;
    /* A cross may contain buckets; neither contains a cross. */
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t s = 0; s < conf->n_slots; s++)
            for (uint32_t i = 0; use->slots[s] && i < conf->slots[s].n_sources; i++)
                use->slots[conf->slots[s].sources[i]] = true;
}

static const struct fr_node *place(const struct fr_node *root, const char *section, const char *name, char *path)
{
    const struct fr_node *map = fr_node_get(root, section);
    fr_path_join(path, section, name);
    for (uint32_t i = 0; map && map->kind == FR_NODE_MAP && i < map->count; i++)
        if (strcmp(map->keys[i]->text, name) == 0)
            return map->keys[i];
    return map ? map : root;
}

static void warn_table(struct fr_loader *loader, const struct fr_node *root, uint32_t t)
{
    const struct fr_conf *conf = loader->conf;
    char path[FR_PATH_MAX];
    const struct fr_node *node = place(root, "tables", conf->tables[t].name, path);
    uint32_t slots = 0, admitting = 0;
    for (uint32_t s = 0; s < conf->n_slots; s++) {
        slots += conf->slots[s].table == (int32_t)t;
        admitting += conf->slots[s].table == (int32_t)t && conf->slots[s].admit;
    }
    if (slots == 0)
        fr_warn(loader, node, path, "no slot has this table; give it to one, or remove it");
    else if (admitting == 0)
        fr_warn(loader, node, path,
                "every slot of this table has `admit: never`, so it never gets a row; let one of them admit");
}

void fr_loader_warn_unused(struct fr_loader *loader, const struct fr_node *root)
{
    const struct fr_conf *conf = loader->conf;
    struct use use = {0};
    char path[FR_PATH_MAX];
    find_use(conf, &use);
    for (uint32_t t = 0; t < conf->n_tables; t++)
        warn_table(loader, root, t);
    for (uint32_t s = 0; s < conf->n_slots; s++) {
        if (use.slots[s])
            continue;
        const struct fr_node *node = place(root, "slots", conf->slots[s].name, path);
        fr_warn(loader, node, path, "%s; %s",
                use.named[s] ? "only layers read it that no task and no loss depends on"
                             : "no layer, loss or metric reads it",
                "name it where it should count, or remove it");
    }
    for (uint32_t l = 0; l < conf->n_layers; l++) {
        if (use.layers[l])
            continue;
        struct fr_node at = *place(root, "network", conf->layers[l].name, path);
        if (conf->layers[l].line)
            at.line = conf->layers[l].line, at.column = 1;
        snprintf(path, sizeof(path), "network.layers.%s", conf->layers[l].name);
        fr_warn(loader, &at, path, "no task and no loss depends on this layer; name it in one, or remove it");
    }
}
