/* The optimizer state of all dense parameters as one piece: the parts that a state directory keeps
 * in sections (graph/graph.h), one after another, the shared one last. */
#ifndef FR_TESTS_GRAPH_WHOLE_STATE_H
#define FR_TESTS_GRAPH_WHOLE_STATE_H

#include "base/buffer.h"
#include "graph/graph.h"

static inline void save_state(const struct fr_graph *graph, struct fr_buffer *out)
{
    for (size_t p = 0; p < fr_graph_parameter_count(graph); p++)
        fr_graph_save_parameter(graph, p, out);
    fr_graph_save_shared(graph, out);
}

/* The values of all parameters as trained, then their state. */
static inline void save_model(struct fr_graph *graph, struct fr_buffer *out)
{
    for (size_t p = 0; p < fr_graph_parameter_count(graph); p++) {
        const struct fr_parameter *parameter = &fr_graph_parameters(graph)[p];
        fr_buffer_append(out, parameter->values, parameter->n_values * sizeof(float));
    }
    save_state(graph, out);
}

/* Restores the parts of a graph of this shape, up to the first that is refused. */
static inline enum fr_status restore_parts(struct fr_graph *graph, const uint8_t *bytes, size_t size)
{
    enum fr_status status = FR_OK;
    for (size_t p = 0; p < fr_graph_parameter_count(graph) && status == FR_OK; p++) {
        struct fr_buffer own = {0};
        fr_graph_save_parameter(graph, p, &own);
        size_t n = own.size < size ? own.size : size;
        status = fr_graph_restore_parameter(graph, p, bytes, n);
        fr_buffer_release(&own);
        bytes += n;
        size -= n;
    }
    return status == FR_OK ? fr_graph_restore_shared(graph, bytes, size) : status;
}

/* Restores all parts or none. */
static inline enum fr_status restore_state(struct fr_graph *graph, const uint8_t *bytes, size_t size)
{
    struct fr_buffer before = {0};
    save_state(graph, &before);
    enum fr_status status = restore_parts(graph, bytes, size);
    if (status != FR_OK && restore_parts(graph, before.data, before.size) != FR_OK)
        status = FR_E_STATE;
    fr_buffer_release(&before);
    return status;
}

#endif
