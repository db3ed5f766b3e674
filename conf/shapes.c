/* Widths of layers. Rules: operations over vectors elementwise want one width; a logit is one number; and what a
 * configuration (or a model description from a topic) asks for must be possible to allocate. */
#include <inttypes.h>
#include <string.h>

#include "base/check.h"
#include "loader.h"

enum {
    CONCAT_MAX = 1 << 20,     /* numbers in one concatenation */
    PARAMETERS_MAX = 1 << 28, /* of all layers: 1 GiB of f32 */
};

static uint32_t ref_width(const struct fr_conf *conf, const struct fr_conf_ref *ref, const uint32_t *widths)
{
    if (ref->kind == FR_REF_LAYER)
        return widths[ref->index];
    const struct fr_conf_slot *slot = &conf->slots[ref->index];
    return ref->kind == FR_REF_DENSE ? slot->dim : conf->tables[slot->table].parts[ref->part].dim;
}

static uint64_t layer_parameters(const struct fr_conf_layer *layer, uint64_t in)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < layer->n_units; i++) {
        total += (in + 1) * layer->units[i]; /* in <= 2^20, units <= 2^16, at most 16 */
        in = layer->units[i];
    }
    return total;
}

bool fr_shapes_check(const struct fr_conf *conf, struct fr_problems *problems, const struct fr_node *at)
{
    uint32_t widths[FR_LAYERS_MAX];
    uint64_t parameters = 0;
    size_t before = problems->count;
    FR_CHECK(conf->n_layers <= FR_LAYERS_MAX);
    for (uint32_t i = 0; i < conf->n_layers; i++) {
        const struct fr_conf_layer *layer = &conf->layers[i];
        const struct fr_node place = {.source = at->source, .line = layer->line, .column = 1};
        bool joined = layer->op == FR_LAYER_CONCAT || layer->op == FR_LAYER_MLP || layer->op == FR_LAYER_DENSE;
        uint64_t width = 0;
        uint32_t first = ref_width(conf, &layer->refs[0], widths);
        for (uint32_t r = 0; r < layer->n_refs; r++) {
            uint32_t one = ref_width(conf, &layer->refs[r], widths);
            width += one;
            if (!joined && one != first) {
                char op[32];
                fr_choice_name(fr_layer_ops, layer->op, op);
                fr_problem(problems, &place, "network.layers",
                           "layer `%s`: argument %" PRIu32 " has width %" PRIu32 ", the first has %" PRIu32
                           "; expected one width for %s",
                           layer->name, r + 1, one, first, op);
                return false;
            }
        }
        if (width > CONCAT_MAX) {
            fr_problem(problems, &place, "network.layers", "layer `%s` reads %" PRIu64 " numbers; expected at most %d",
                       layer->name, width, CONCAT_MAX);
            return false;
        }
        parameters += layer_parameters(layer, width);
        if (parameters > PARAMETERS_MAX) {
            fr_problem(problems, &place, "network.layers", "more than %d parameters with layer `%s`; expected fewer",
                       PARAMETERS_MAX, layer->name);
            return false;
        }
        widths[i] = layer->n_units > 0 ? layer->units[layer->n_units - 1] : joined ? (uint32_t)width : first;
    }
    for (uint32_t i = 0; i < conf->n_tasks; i++) {
        const struct fr_conf_layer *layer = &conf->layers[conf->tasks[i].logit];
        const struct fr_node place = {.source = at->source, .line = layer->line, .column = 1};
        if (widths[conf->tasks[i].logit] != 1)
            fr_problem(problems, &place, "tasks",
                       "the logit of task `%s` is layer `%s` of width %" PRIu32 "; expected width 1",
                       conf->tasks[i].name, layer->name, widths[conf->tasks[i].logit]);
    }
    return problems->count == before;
}
