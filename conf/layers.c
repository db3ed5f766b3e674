/* Layers: `{name, <op>: argument, options}` -> operations over resolved vectors, in an order in which every layer comes
 * after what it reads (a stable topological sort, Kahn 1962, so that the order of the file stays where it can).
 *
 * A reference is `slot`, `slot.part`, `layer`, or the pooling `{sum: slot.part}` or `{mean: slot.part}`. New models add
 * operations, never grammar: what is not here yet is a row LATER of the option table. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "loader.h"
#include "scalar.h"

const char fr_layer_ops[] = "concat|mlp|dense|bi_interaction|sum|add";
const char fr_layer_activations[] = "none|relu";

struct resolver {
    struct fr_loader *loader;
    const struct fr_layer_draft *drafts;
    uint32_t n_drafts;
    const struct fr_layer_draft *draft; /* whose references are resolved */
    uint32_t layer;
};

/* --- options of one layer
 * -------------------------------------------------------------------------------------------------- */

FR_READ(fr_read_layer_op)
{
    struct fr_layer_draft *draft = scope;
    bool later;
    int op = fr_choice_find(fr_layer_ops, fr_option_key(option, "network.layers.*"), &later);
    FR_CHECK(op >= 0);
    if (draft->has_op)
        fr_problem(&loader->problems, node, path, "a second operation in one layer; expected one");
    draft->has_op = true;
    draft->layer.op = (enum fr_layer_op)op;
    draft->argument = node;
}

FR_READ(fr_read_layer_units)
{
    (void)option;
    struct fr_layer_draft *draft = scope;
    bool list = node->kind == FR_NODE_LIST;
    if (list && !fr_loader_count(loader, node, path, 1, FR_UNITS_MAX))
        return;
    draft->has_units = true;
    draft->layer.n_units = list ? node->count : 1;
    const struct fr_option width = {.type = FR_OPTION_U32, .path = "units", .min = 1, .max = FR_WIDTH_MAX};
    for (uint32_t i = 0; i < draft->layer.n_units; i++)
        fr_loader_read(loader, &width, list ? node->values[i] : node, path, &draft->layer.units[i]);
}

static void finish_draft(struct fr_loader *loader, struct fr_layer_draft *draft)
{
    struct fr_conf_layer *layer = &draft->layer;
    bool learns = layer->op == FR_LAYER_MLP || layer->op == FR_LAYER_DENSE;
    if (draft->node->kind != FR_NODE_MAP)
        return;
    if (!draft->has_op) {
        for (size_t i = 0; i < fr_options_count; i++) { /* one of later is reported already */
            const char *key = fr_option_key(&fr_options[i], "network.layers.*");
            if (key && fr_options[i].type == FR_OPTION_LATER && fr_node_get(draft->node, key))
                return;
        }
        fr_problem(&loader->problems, draft->node, draft->path,
                   "no operation; expected concat, mlp, dense, bi_interaction, sum or add");
        return;
    }
    char op[32];
    fr_choice_name(fr_layer_ops, layer->op, op);
    if (!learns && (draft->has_units || draft->has_activation))
        fr_problem(&loader->problems, draft->node, draft->path,
                   "%s has no units and no activation; expected them with mlp or dense", op);
    if (learns && !fr_node_get(draft->node, "units"))
        fr_problem(&loader->problems, draft->node, draft->path, "%s needs units; expected units: %s", op,
                   layer->op == FR_LAYER_MLP ? "[64, 32]" : "1");
    if (layer->op == FR_LAYER_DENSE && layer->n_units > 1)
        fr_problem(&loader->problems, draft->node, draft->path,
                   "several units in one dense layer; expected an integer, or mlp");
    if (!draft->has_activation)
        layer->activation = layer->op == FR_LAYER_MLP ? FR_ACT_RELU : FR_ACT_NONE;
}

/* --- references
 * ------------------------------------------------------------------------------------------------------------ */

static int32_t find_slot(const struct fr_conf *conf, const char *name, size_t size)
{
    for (uint32_t i = 0; i < conf->n_slots; i++) {
        if (size > 0 && strlen(conf->slots[i].name) == size && memcmp(conf->slots[i].name, name, size) == 0)
            return (int32_t)i;
    }
    return FR_NO_INDEX;
}

static int32_t find_draft(const struct resolver *resolver, const char *name, size_t size)
{
    for (uint32_t i = 0; i < resolver->n_drafts; i++) {
        const char *have = resolver->drafts[i].layer.name;
        if (size > 0 && strlen(have) == size && memcmp(have, name, size) == 0)
            return (int32_t)i;
    }
    return FR_NO_INDEX;
}

static void refuse_ref(struct resolver *resolver, const struct fr_node *node)
{
    const struct fr_conf *conf = resolver->loader->conf;
    struct fr_words *known = &resolver->loader->words;
    known->count = 0;
    for (uint32_t i = 0; i < conf->n_slots; i++)
        fr_words_add(known, conf->slots[i].name, strlen(conf->slots[i].name));
    for (uint32_t i = 0; i < resolver->n_drafts; i++)
        fr_words_add(known, resolver->drafts[i].layer.name, strlen(resolver->drafts[i].layer.name));
    char what[FR_NAME_MAX + 64];
    snprintf(what, sizeof(what), "layer `%s` reads an unknown slot or layer", resolver->draft->layer.name);
    fr_problem_unknown(&resolver->loader->problems, node, resolver->draft->path, what, known);
}

/* The part of a pooled reference; false after a problem. */
static bool resolve_part(struct resolver *resolver, const struct fr_node *node, const char *part,
                         struct fr_conf_ref *ref)
{
    const struct fr_conf *conf = resolver->loader->conf;
    struct fr_problems *problems = &resolver->loader->problems;
    const struct fr_conf_slot *slot = &conf->slots[ref->index];
    if (slot->table == FR_NO_INDEX)
        return false; /* the slot's own problem */
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
    if (table->n_parts > 0 && !part)
        fr_problem(problems, node, resolver->draft->path,
                   "table `%s` has the parts %s; expected one of them, as in %s.%s", table->name, parts, slot->name,
                   table->parts[0].name);
    else if (table->n_parts > 0)
        fr_problem(problems, node, resolver->draft->path, "table `%s` has no part `%.80s`; expected one of %s",
                   table->name, part, parts);
    return false;
}

/* A text: slot, slot.part or layer. pooling is NULL for a bare one. */
static bool resolve_text(struct resolver *resolver, const struct fr_node *node, const enum fr_pooling *pooling,
                         struct fr_conf_ref *ref)
{
    struct fr_problems *problems = &resolver->loader->problems;
    const char *path = resolver->draft->path;
    const char *text = fr_loader_text(resolver->loader, node, path, "a slot, slot.part or layer");
    if (!text)
        return false;
    size_t size = strcspn(text, ".");
    const char *part = text[size] == '.' ? text + size + 1 : NULL;
    int32_t slot = find_slot(resolver->loader->conf, text, size), layer = find_draft(resolver, text, size);
    *ref = (struct fr_conf_ref){.part = FR_NO_INDEX};
    if (slot == FR_NO_INDEX && layer == FR_NO_INDEX) {
        refuse_ref(resolver, node);
        return false;
    }
    enum fr_slot_kind kind = slot != FR_NO_INDEX ? resolver->loader->conf->slots[slot].kind : FR_SLOT_DENSE;
    bool vector = slot == FR_NO_INDEX || kind == FR_SLOT_DENSE;
    if (vector && part) {
        fr_problem(problems, node, path, "`%.80s` has no parts; expected only its name", text);
        return false;
    }
    if (vector && pooling) {
        fr_problem(problems, node, path,
                   "`%.80s` is a vector already; expected sum and mean of a sparse or sequence slot", text);
        return false;
    }
    if (kind == FR_SLOT_SEQUENCE && !pooling) {
        fr_problem(problems, node, path, "the sequence `%.80s` is ragged; pool it with sum or mean: {sum: %.80s}", text,
                   text);
        return false;
    }
    ref->kind = slot == FR_NO_INDEX ? FR_REF_LAYER : vector ? FR_REF_DENSE : FR_REF_POOLED;
    ref->index = slot == FR_NO_INDEX ? layer : slot;
    ref->pooling = pooling ? *pooling : FR_POOL_SUM;
    return vector || resolve_part(resolver, node, part, ref);
}

static bool resolve_ref(struct resolver *resolver, const struct fr_node *node, struct fr_conf_ref *ref)
{
    struct fr_problems *problems = &resolver->loader->problems;
    const char *path = resolver->draft->path;
    if (node->kind == FR_NODE_SCALAR)
        return resolve_text(resolver, node, NULL, ref);
    if (node->kind == FR_NODE_LIST || node->count != 1) {
        fr_problem(problems, node, path, "%s; expected a reference or one {sum: slot} or {mean: slot}",
                   fr_node_kind_name(node));
        return false;
    }
    const char *op = node->keys[0]->text;
    enum fr_pooling pooling = strcmp(op, "mean") == 0 ? FR_POOL_MEAN : FR_POOL_SUM;
    if (strcmp(op, "sum") != 0 && strcmp(op, "mean") != 0) {
        fr_problem(problems, node->keys[0], path,
                   "`%.80s` inside an argument is not in this version; expected sum or mean of a slot, "
                   "or a layer of its own",
                   op);
        return false;
    }
    if (node->values[0]->kind != FR_NODE_SCALAR) {
        fr_problem(problems, node->values[0], path,
                   "%s of %s inside an argument is not in this version; expected one slot or slot.part", op,
                   fr_node_kind_name(node->values[0]));
        return false;
    }
    return resolve_text(resolver, node->values[0], &pooling, ref);
}

/* Fills layer->refs with indexes of drafts; false after a problem. */
static bool resolve_layer(struct resolver *resolver, struct fr_conf_layer *layer)
{
    const struct fr_layer_draft *draft = resolver->draft;
    const struct fr_node *argument = draft->argument;
    struct fr_problems *problems = &resolver->loader->problems;
    if (!argument)
        return false;
    bool list = argument->kind == FR_NODE_LIST;
    uint32_t count = list ? argument->count : 1;
    if (argument->kind == FR_NODE_MAP && argument->count != 1) {
        fr_problem(problems, argument, draft->path,
                   "arguments by role are not in this version; expected a reference or a list");
        return false;
    }
    if (list && !fr_loader_count(resolver->loader, argument, draft->path, 1, FR_REFS_MAX))
        return false;
    bool whole = true;
    layer->refs = fr_alloc(count, sizeof(*layer->refs));
    for (uint32_t i = 0; i < count; i++) {
        const struct fr_node *node = list ? argument->values[i] : argument;
        if (!resolve_ref(resolver, node, &layer->refs[layer->n_refs])) {
            whole = false;
            continue;
        }
        if (layer->op == FR_LAYER_SUM && layer->refs[layer->n_refs].kind != FR_REF_POOLED) {
            fr_problem(problems, node, draft->path,
                       "sum takes slots with a table; expected add for layers and dense slots");
            whole = false;
        }
        layer->n_refs += 1;
    }
    return whole;
}

/* --- order
 * ----------------------------------------------------------------------------------------------------------------- */

static bool is_ready(const struct fr_conf_layer *layer, const int32_t *place)
{
    for (uint32_t r = 0; r < layer->n_refs; r++) {
        if (layer->refs[r].kind == FR_REF_LAYER && place[layer->refs[r].index] == FR_NO_INDEX)
            return false;
    }
    return true;
}

/* From an unplaced layer, always to an unplaced one it reads: after n steps we are on the cycle; once more around names
 * it. */
static void report_cycle(struct fr_loader *loader, const struct fr_layer_draft *drafts, uint32_t count,
                         const int32_t *place)
{
    uint32_t at = 0;
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
    fr_problem(&loader->problems, drafts[start].node, drafts[start].path,
               "layer `%s` reads itself: %s; expected no cycle", drafts[start].layer.name, names);
}

/* place[i]: position of draft i in evaluation order. False on a cycle. */
static bool sort_layers(const struct fr_layer_draft *drafts, uint32_t count, int32_t *place)
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

void fr_layers_store(struct fr_loader *loader, struct fr_layer_draft *drafts, uint32_t count)
{
    struct fr_conf *conf = loader->conf;
    bool whole = true;
    struct resolver resolver = {.loader = loader, .drafts = drafts, .n_drafts = count};
    for (uint32_t i = 0; i < count; i++) {
        resolver.draft = &drafts[i];
        whole = resolve_layer(&resolver, &drafts[i].layer) && whole;
    }
    int32_t *place = fr_arena_take(&loader->arena, count * sizeof(*place));
    if (whole && !sort_layers(drafts, count, place)) {
        report_cycle(loader, drafts, count, place);
        whole = false;
    }
    conf->layers = fr_alloc(count, sizeof(*conf->layers));
    conf->n_layers = count;
    for (uint32_t i = 0; i < count; i++) { /* with problems too: tasks look for the names, and the conf owns the refs */
        struct fr_conf_layer *layer = &conf->layers[whole ? place[i] : (int32_t)i];
        *layer = drafts[i].layer;
        for (uint32_t r = 0; whole && r < layer->n_refs; r++) {
            if (layer->refs[r].kind == FR_REF_LAYER)
                layer->refs[r].index = place[layer->refs[r].index];
        }
    }
}

FR_READ(fr_read_layers)
{
    (void)option, (void)scope;
    const struct fr_conf *conf = loader->conf;
    if (!fr_loader_expect(loader, node, path, FR_NODE_LIST) || !fr_loader_count(loader, node, path, 1, FR_LAYERS_MAX))
        return;
    struct fr_layer_draft *drafts = fr_arena_take(&loader->arena, node->count * sizeof(*drafts));
    memset(drafts, 0, node->count * sizeof(*drafts));
    for (uint32_t i = 0; i < node->count; i++) {
        struct fr_layer_draft *draft = &drafts[i];
        const struct fr_node *item = node->values[i];
        fr_path_index(draft->path, path, i);
        draft->node = item;
        draft->layer.line = item->line;
        draft->has_activation = fr_node_get(item, "activation") != NULL;
        fr_loader_walk(loader, &(struct fr_scope){"network.layers.*", draft->path, item, draft});
        finish_draft(loader, draft);
        const char *name = draft->layer.name;
        if (name[0] == '\0')
            continue;
        if (find_slot(conf, name, strlen(name)) != FR_NO_INDEX)
            fr_problem(&loader->problems, item, draft->path, "the name `%s` is that of a slot; expected another", name);
        for (uint32_t j = 0; j < i; j++) {
            if (strcmp(drafts[j].layer.name, name) == 0)
                fr_problem(&loader->problems, item, draft->path,
                           "the name `%s` is taken by another layer; expected another", name);
        }
    }
    fr_layers_store(loader, drafts, node->count);
}
