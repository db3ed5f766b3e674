/* Calls that have another form on a device: the recurrence gets the entries that have a step at
 * each time, and attention's first layer gets the number of steps.
 *
 * Owner thread: the graph's. */
#include "passes.h"

#include <stdlib.h>

#include "numerics/first_values.h"

size_t fr_graph_device_workspace(const struct fr_graph *graph, const struct variant *v, const struct node *node)
{
    uint32_t entries = fr_level_entries(graph, v->spaces[node->space].level);
    if (node->kind == NODE_GRU)
        return fr_device_gru_floats(entries, node->width);
    if (node->kind == NODE_ATTENTION_DENSE)
        return fr_device_attention_floats(entries, v->spaces[node->space].rows, v->nodes[node->arguments[1].node].width,
                                          node->width);
    return 0;
}

void fr_graph_device_gru(const struct fr_graph *graph, const struct fr_gru *call, uint32_t space, bool backward)
{
    const struct graph_device *device = graph->device;
    const struct space *s = &graph->variant->spaces[space];
    struct fr_device_gru there = {.call = *call};
    for (uint32_t e = call->steps.entry_begin; e < call->steps.entry_end; e++) {
        uint32_t length = s->begin[e + 1] - s->begin[e];
        there.longest = length > there.longest ? length : there.longest;
    }
    uint32_t *begin = fr_alloc((size_t)there.longest + 1, sizeof(*begin)), n = 0;
    void *entries;
    there.entries = fr_graph_device_room(graph->device, (size_t)s->rows * sizeof(uint32_t), &entries);
    for (uint32_t t = 0; t < there.longest && entries; t++) {
        begin[t] = n;
        for (uint32_t e = call->steps.entry_begin; e < call->steps.entry_end; e++)
            if (s->begin[e + 1] - s->begin[e] > t)
                ((uint32_t *)entries)[n++] = e;
    }
    begin[there.longest] = n;
    there.begin = begin;
    if (entries)
        (backward ? device->ops->gru_backward : device->ops->gru)(device->queue, &there);
    free(begin);
}

void fr_graph_device_attention(const struct fr_graph *graph, const struct fr_attention_dense *call, uint32_t space,
                               bool backward)
{
    const struct graph_device *device = graph->device;
    const uint32_t *begin = graph->variant->spaces[space].begin;
    uint32_t first = begin[call->steps.entry_begin];
    struct fr_device_attention there = {.call = *call, .first = first, .rows = begin[call->steps.entry_end] - first};
    (backward ? device->ops->attention_dense_backward : device->ops->attention_dense)(device->queue, &there);
}

const struct fr_device_part_init *fr_graph_device_row_parts(const struct fr_graph *graph, uint32_t t)
{
    struct graph_device *device = graph->device;
    const struct fr_row_layout *layout = &graph->layouts[t];
    struct fr_device_part_init parts[FR_PARTS_MAX];
    size_t bytes = layout->n_parts * sizeof(*parts);
    for (uint32_t p = 0; p < layout->n_parts; p++) {
        const struct fr_layout_part *part = &layout->parts[p];
        parts[p] = (struct fr_device_part_init){.value_offset = part->value_offset,
                                                .dim = part->dim,
                                                .state_offset = part->state_offset,
                                                .state_floats = part->state_floats,
                                                .state_initial = part->state_initial,
                                                .kind = part->init.kind};
        parts[p].scale = fr_first_scale(&part->init, (double)part->dim, (double)part->dim);
    }
    void *there = fr_graph_memory(graph, bytes);
    if (there)
        device->api->upload(device->queue, there, parts, bytes);
    (void)fr_graph_device_wait(device); /* after this wait `parts` may be freed */
    return there;
}
