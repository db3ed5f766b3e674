/* Drafts -> layers in evaluation order: a stable topological sort (Kahn 1962). The order of the
 * file is kept where possible, so printing what was loaded gives the same order again. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "layers.h"

static bool is_ready(const struct fr_conf_layer *layer, const int32_t *place)
{
    for (uint32_t r = 0; r < layer->n_refs; r++) {
        if (layer->refs[r].kind == FR_REF_LAYER && place[layer->refs[r].index] == FR_NO_INDEX)
            return false;
    }
    return true;
}

/* Follows references from an unplaced layer to unplaced layers. After n steps the walk is on the
 * cycle; one more round names it. */
static void report_cycle(struct fr_loader *loader, const int32_t *place)
{
    const struct fr_layer_draft *drafts = loader->drafts;
    uint32_t count = loader->n_drafts, at = 0;
    char names[512] = "";
    while (place[at] != FR_NO_INDEX)
        at++;
    uint32_t start = at;
    for (uint32_t step = 0; step <= 2 * count; step++) {
        const struct fr_conf_layer *layer = &drafts[at].layer;
        if (step == count)
            start = at;
        if (step >= count) {
            size_t used = strlen(names);
            snprintf(names + used, sizeof(names) - used, "%s%s", used ? " -> " : "", layer->name);
            if (step > count && at == start)
                break;
        }
        for (uint32_t r = 0; r < layer->n_refs; r++) {
            if (layer->refs[r].kind == FR_REF_LAYER && place[layer->refs[r].index] == FR_NO_INDEX) {
                at = (uint32_t)layer->refs[r].index;
                break;
            }
        }
    }
    fr_refuse(loader, drafts[start].node, drafts[start].path, "layer `%s` reads itself: %s; expected no cycle",
              drafts[start].layer.name, names);
}

/* place[i]: the position of draft i in evaluation order. False: there is a cycle. */
static bool sort_drafts(const struct fr_layer_draft *drafts, uint32_t count, int32_t *place)
{
    for (uint32_t i = 0; i < count; i++)
        place[i] = FR_NO_INDEX;
    for (uint32_t n = 0; n < count; n++) {
        uint32_t i = 0;
        while (i < count && (place[i] != FR_NO_INDEX || !is_ready(&drafts[i].layer, place)))
            i++;
        if (i == count)
            return false;
        place[i] = (int32_t)n;
    }
    return true;
}

static void place_refs(struct fr_conf_ref *refs, uint32_t count, const int32_t *place)
{
    for (uint32_t r = 0; r < count; r++) {
        if (refs[r].kind == FR_REF_LAYER)
            refs[r].index = place[refs[r].index];
    }
}

void fr_layers_store(struct fr_loader *loader)
{
    struct fr_conf *conf = loader->conf;
    uint32_t count = loader->n_drafts;
    if (count == 0 || loader->drafts_broken)
        return;
    int32_t *place = fr_arena_take(&loader->arena, count * sizeof(*place));
    if (!sort_drafts(loader->drafts, count, place)) {
        report_cycle(loader, place);
        return;
    }
    conf->layers = fr_loader_alloc(loader, count, sizeof(*conf->layers));
    conf->n_layers = count;
    loader->ordered = fr_arena_take(&loader->arena, count * sizeof(*loader->ordered));
    for (uint32_t i = 0; i < count; i++) {
        struct fr_conf_layer *layer = &conf->layers[place[i]];
        loader->ordered[place[i]] = &loader->drafts[i];
        *layer = loader->drafts[i].layer;
        layer->refs = fr_loader_alloc(loader, layer->n_refs, sizeof(*layer->refs));
        memcpy(layer->refs, loader->drafts[i].layer.refs, layer->n_refs * sizeof(*layer->refs));
        place_refs(layer->refs, layer->n_refs, place);
    }
    for (uint32_t i = 0; i < conf->n_tasks; i++) {
        if (conf->tasks[i].logit != FR_NO_INDEX)
            conf->tasks[i].logit = place[conf->tasks[i].logit];
    }
    for (uint32_t i = 0; i < conf->n_losses; i++)
        place_refs(conf->losses[i].refs, conf->losses[i].n_refs, place);
}
