/* The forward pass goes chunk by chunk through all nodes, groups' rows first, then samples' rows;
 * each node's output is written where its readers want it.
 *
 * A chunk stays in the second-level cache from pooling to logit. With a backend whose rows depend
 * on their position (openblas) a chunk of vectors always has exactly C rows, zero-padded; with the
 * others only the real rows are computed, and their bits are the same. Step rows are never padded.
 * In a batch with several lanes the rows after a short chunk may be those of the next lane, so only
 * its products are padded, in memory of the worker.
 *
 * Owner thread: the graph's; a chunk belongs to one worker. Labels, roles and weights of samples
 * are not used. */
#include "passes.h"

#include <string.h>

#include "base/hash.h"
#include "numerics/transform_values.h"

static void zero_padding(struct fr_view out, uint32_t width, struct rows r)
{
    for (uint32_t i = r.real; i < r.count; i++)
        memset(out.values + i * out.ld, 0, width * sizeof(float));
}

/* ---- leaves ---- */

static void forward_pooled(const struct graph_run *run, const struct node *node, const struct chunk *c)
{
    const struct fr_graph *graph = run->graph;
    const struct fr_column *column = &run->at_batch->columns[node->slot];
    const int32_t t = graph->conf->slots[node->slot].table;
    const struct fr_table_rows *rows = &run->at_rows->tables[t];
    struct fr_gather gather = {
        .begin = column->begin,
        .weights = column->weights,
        .unique_of = rows->unique_of + run->rows->slot_base[node->slot],
        .rows = fr_served_rows(rows),
        .value_offset = graph->layouts[t].parts[node->part].value_offset,
        .dim = node->width,
        .entry_begin = c->first,
        .entry_end = c->first + c->entries,
        .kind = node->pooling,
        .kept = node->extra,
        .out = fr_node_values(graph->variant, node, 0),
    };
    FR_RUN(graph, gather, &gather);
    zero_padding(fr_node_values(graph->variant, node, c->first), node->width, fr_rows_of(graph, node->space, c));
}

static void forward_sequence(const struct graph_run *run, const struct node *node, const struct chunk *c)
{
    const struct fr_graph *graph = run->graph;
    const int32_t t = graph->conf->slots[node->slot].table;
    const struct fr_table_rows *table = &run->at_rows->tables[t];
    struct rows r = fr_rows_of(graph, node->space, c);
    FR_RUN(graph, gather_steps,
           &(struct fr_gather_steps){
               .weights = run->at_batch->columns[node->slot].weights,
               .unique_of = table->unique_of + run->rows->slot_base[node->slot],
               .rows = fr_served_rows(table),
               .value_offset = graph->layouts[t].parts[node->part].value_offset,
               .dim = node->width,
               .begin = r.begin,
               .end = r.begin + r.real,
               .masked = graph->variant->spaces[node->space].at_masked,
               .out = fr_node_values(graph->variant, node, 0),
           });
}

static void forward_standardize(const struct fr_graph *graph, const struct node *node, uint32_t m,
                                struct fr_view views[2])
{
    const struct fr_conf_slot *slot = &graph->conf->slots[node->slot];
    float missing[2];
    fr_transform_missing(slot, missing);
    FR_RUN(graph, standardize,
           &(struct fr_standardize){.m = m,
                                    .n = slot->dim,
                                    .mean = graph->places[node->mean].values,
                                    .variance = graph->places[node->variance].values,
                                    .count = graph->places[node->count].values,
                                    .epsilon = FR_STANDARDIZE_EPSILON,
                                    .limit = FR_STANDARDIZE_LIMIT,
                                    .count_min = FR_STANDARDIZE_COUNT_MIN,
                                    .missing = missing[0],
                                    .x = views[0],
                                    .y = views[1]});
}

static void forward_dense(const struct graph_run *run, const struct node *node, const struct chunk *c)
{
    const struct fr_graph *graph = run->graph;
    const struct fr_conf_slot *slot = &graph->conf->slots[node->slot];
    uint32_t numbers = fr_conf_slot_numbers(slot);
    struct fr_view in = {run->at_batch->columns[node->slot].dense + (size_t)c->first * numbers, numbers};
    struct fr_view out = fr_node_values(graph->variant, node, c->first);
    struct fr_fill_missing fill = {.m = c->entries, .n = numbers, .x = in, .y = out};
    fr_transform_missing(slot, fill.missing);
    switch (slot->transform) {
    case FR_TRANSFORM_BUCKETIZE:
        FR_RUN(graph, bucketize,
               &(struct fr_bucketize){c->entries, slot->dim, slot->n_boundaries,
                                      fr_graph_array(graph, slot->boundaries, slot->n_boundaries * sizeof(float)),
                                      fill.missing[0], in, out});
        break;
    case FR_TRANSFORM_STANDARDIZE:
        forward_standardize(graph, node, c->entries, (struct fr_view[2]){in, out});
        break;
    case FR_TRANSFORM_NONE:
    case FR_TRANSFORM_LOG1P: /* the decoder has made the steps of these transforms */
    case FR_TRANSFORM_CLIP:
    case FR_TRANSFORM_TIME_OF_DAY:
    case FR_TRANSFORM_TIME_OF_WEEK:
        if (fr_conf_slot_keeps_missing(slot))
            FR_RUN(graph, fill_missing, &fill);
        else
            FR_RUN(graph, copy, c->entries, numbers, in, out);
        break;
    }
    if (slot->indicator)
        FR_RUN(graph, mark_missing,
               &(struct fr_mark_missing){c->entries, in, {out.values + (node->width - 1), out.ld}});
    zero_padding(out, node->width, fr_rows_of(graph, node->space, c));
}

/* ---- rows moved ---- */

static void forward_expand(const struct graph_run *run, const struct node *node, const struct chunk *c)
{
    const struct fr_graph *graph = run->graph;
    const struct space *space = &graph->variant->spaces[node->space];
    struct rows r = fr_rows_of(graph, node->space, c);
    FR_RUN(graph, expand,
           &(struct fr_expand){
               .source = space->from == FR_NO_INDEX ? run->at_batch->group_of : space->at_source,
               .begin = r.begin,
               .end = r.begin + r.real,
               .width = node->width,
               .in = fr_node_values(graph->variant, fr_argument(graph, node, 0), 0),
               .out = fr_node_values(graph->variant, node, 0),
           });
    zero_padding(fr_node_values(graph->variant, node, r.begin), node->width, r);
}

static void forward_concat(const struct fr_graph *graph, const struct node *node, struct rows r)
{
    struct fr_view out = fr_node_values(graph->variant, node, r.begin);
    for (uint32_t i = 0; i < node->n_arguments; i++) {
        const struct node *from = fr_argument(graph, node, i);
        if (!node->arguments[i].in_place)
            FR_RUN(graph, copy, r.count, from->width, fr_node_values(graph->variant, from, r.begin), out);
        out.values += from->width;
    }
}

/* ---- layers with parameters ---- */

/* A product of the first rows of a whole chunk that is made in the worker's memory. */
static void multiply_apart(const struct fr_graph *graph, const struct fr_multiply *call, size_t worker)
{
    uint32_t m = call->row_end, rows = graph->chunk_rows, in = call->left->columns, n = call->right->columns;
    struct fr_view x = {graph->padded + worker * graph->padded_floats, in};
    struct fr_view y = {x.values + (size_t)rows * in, n};
    memset(x.values, 0, (size_t)rows * (in + n) * sizeof(float));
    /* the copied factor is only read */
    graph->ops->copy(m, in, (struct fr_view){(float *)(uintptr_t)call->left->values, call->left->ld}, x);
    if (call->accumulate)
        graph->ops->copy(m, n, call->out, y);
    struct fr_operand left = {x.values, in, rows, in, false, NULL};
    graph->ops->multiply(&(struct fr_multiply){
        .left = &left, .right = call->right, .row_end = rows, .out = y, .accumulate = call->accumulate});
    graph->ops->copy(m, n, y, call->out);
    if (call->bias)
        graph->ops->bias_activate(m, n, call->out, call->bias, call->relu);
    if (call->gate.values)
        graph->ops->relu_backward(m, n, call->gate, call->out);
}

void fr_graph_multiply_chunk(const struct fr_graph *graph, const struct node *node, const struct chunk *c,
                             const struct fr_multiply *call)
{
    bool vectors = graph->variant->spaces[node->space].slot == FR_NO_INDEX;
    if (graph->pads && graph->lanes.n > 1 && vectors && c->entries < graph->chunk_rows)
        multiply_apart(graph, call, c->worker);
    else
        fr_graph_multiply(graph, call);
}

static void forward_linear(const struct graph_run *run, const struct node *node, const struct chunk *c)
{
    const struct fr_graph *graph = run->graph;
    struct rows r = fr_rows_of(graph, node->space, c);
    const struct variant *v = graph->variant;
    const struct linear *linear = &v->linears[node->linear];
    struct fr_view x = fr_node_values(v, fr_argument(graph, node, 0), r.begin);
    struct fr_view y = fr_node_values(v, node, r.begin);
    if (node->n_arguments > 1) {
        FR_RUN(graph, expand,
               &(struct fr_expand){run->at_batch->group_of, r.begin, r.begin + r.real, linear->out,
                                   fr_node_values(v, fr_argument(graph, node, 1), 0), fr_node_values(v, node, 0)});
        zero_padding(y, linear->out, r);
    }
    struct fr_operand left = {.values = x.values, .ld = x.ld, .rows = r.count, .columns = linear->in};
    struct fr_operand right = linear->weights;
    if (fr_reads_directly(graph, linear))
        right.packed = NULL;
    struct fr_multiply product = {
        .left = &left, .right = &right, .row_end = r.count, .out = y, .accumulate = node->n_arguments > 1};
    if (linear->bias)
        product.bias = graph->places[node->partials[0].parameter].values;
    product.relu = linear->relu;
    fr_graph_multiply_chunk(graph, node, c, &product);
}

static void forward_bias(const struct fr_graph *graph, const struct node *node, struct rows r)
{
    struct fr_view y = fr_node_values(graph->variant, node, r.begin);
    FR_RUN(graph, copy, r.count, node->width, fr_node_values(graph->variant, fr_argument(graph, node, 0), r.begin), y);
    FR_RUN(graph, bias_activate, r.count, node->width, y, graph->places[node->partials[0].parameter].values, false);
}

/* A mask is a function of the lane and of the row's number in the lane, so that it does not depend
 * on the other lanes. */
struct fr_dropout fr_graph_dropout(const struct fr_graph *graph, const struct node *node, const struct chunk *c)
{
    static const uint64_t odd = 0x9e3779b97f4a7c15u; /* 2^64 / golden ratio: keys far apart */
    const struct fr_conf_layer *layer = &graph->conf->layers[node->layer];
    struct rows r = fr_rows_of(graph, node->space, c);
    return (struct fr_dropout){
        .m = r.real,
        .n = node->width,
        .first = r.begin - fr_lane_row(graph, node->space, c->lane),
        .seed = graph->conf->seed,
        .key = fr_xxh3(layer->name, strlen(layer->name)) + graph->steps + c->lane * odd,
        .rate = layer->rate,
    };
}

static void forward_dropout(const struct graph_run *run, const struct node *node, const struct chunk *c)
{
    const struct fr_graph *graph = run->graph;
    struct rows r = fr_rows_of(graph, node->space, c);
    struct fr_view x = fr_node_values(graph->variant, fr_argument(graph, node, 0), r.begin);
    struct fr_view y = fr_node_values(graph->variant, node, r.begin);
    if (!run->training || graph->conf->layers[node->layer].rate <= 0.0f) {
        FR_RUN(graph, copy, r.count, node->width, x, y);
        return;
    }
    struct fr_dropout call = fr_graph_dropout(graph, node, c);
    call.x = x;
    call.y = y;
    FR_RUN(graph, dropout, &call);
    zero_padding(y, node->width, r);
}

static void forward_add(const struct fr_graph *graph, const struct node *node, struct rows r)
{
    struct fr_view out = fr_node_values(graph->variant, node, r.begin);
    for (uint32_t i = 0; i < node->n_arguments; i++) {
        struct fr_view in = fr_node_values(graph->variant, fr_argument(graph, node, i), r.begin);
        if (i == 0)
            FR_RUN(graph, copy, r.count, node->width, in, out);
        else
            FR_RUN(graph, add, r.count, node->width, in, out);
    }
}

/* ---- chunks ---- */

void fr_graph_forward_node(const struct graph_run *run, const struct node *node, const struct chunk *c)
{
    const struct fr_graph *graph = run->graph;
    struct rows r = fr_rows_of(graph, node->space, c);
    switch (node->kind) {
    case NODE_POOLED:
        forward_pooled(run, node, c);
        break;
    case NODE_SEQUENCE:
        forward_sequence(run, node, c);
        break;
    case NODE_DENSE:
        forward_dense(run, node, c);
        break;
    case NODE_EXPAND:
        forward_expand(run, node, c);
        break;
    case NODE_CONCAT:
        forward_concat(graph, node, r);
        break;
    case NODE_LINEAR:
        forward_linear(run, node, c);
        break;
    case NODE_BIAS:
        forward_bias(graph, node, r);
        break;
    case NODE_DROPOUT:
        forward_dropout(run, node, c);
        break;
    case NODE_ADD:
        forward_add(graph, node, r);
        break;
        FR_CALLED_NODES(FR_KIND_CASE)
        fr_graph_call_node(graph, node, c, false);
        break;
    case NODE_MSE_PAIR: /* an auxiliary loss is computed in the backward pass */
    case NODE_NEXT_STEP:
        break;
    }
}

/* Fills the rows and masks of shared sequences, which every sample of a group gets a copy of. */
void fr_graph_fill_expanded(const struct graph_run *run, const struct chunk *c)
{
    const struct variant *v = run->graph->variant;
    for (uint32_t s = SPACE_GROUPS + 1; s < v->n_spaces; s++) {
        const struct space *space = &v->spaces[s];
        if (space->from == FR_NO_INDEX)
            continue;
        const struct space *from = &v->spaces[space->from];
        for (uint32_t i = c->first; i < c->first + c->entries; i++) {
            uint32_t to = space->begin[i], at = from->begin[run->batch->group_of[i]], n = space->begin[i + 1] - to;
            memcpy(space->masked + to, from->masked + at, n);
            for (uint32_t t = 0; t < n; t++)
                space->source[to + t] = at + t;
        }
    }
}

static void forward_level(const struct graph_run *run, const struct chunk *c)
{
    const struct fr_graph *graph = run->graph;
    const struct variant *v = graph->variant;
    for (uint32_t n = 0; n < v->n_nodes; n++) {
        if (v->spaces[v->nodes[n].space].level != c->level)
            continue;
        const struct row_sums *sums = fr_sums_of(v, &v->nodes[n]);
        if (sums && n == sums->first)
            fr_graph_forward_sums(graph, sums, c);
        if (sums)
            continue;
        fr_graph_device_enter_node(graph, &v->nodes[n]);
        fr_graph_forward_node(run, &v->nodes[n], c);
    }
    fr_graph_device_enter_node(graph, NULL);
}

static void forward_groups(void *context, size_t index, size_t worker)
{
    const struct graph_run *run = context;
    struct chunk c = fr_chunk_of(run->graph, LEVEL_GROUP, index, worker);
    forward_level(run, &c);
}

static void forward_samples(void *context, size_t index, size_t worker)
{
    const struct graph_run *run = context;
    const struct fr_graph *graph = run->graph;
    struct chunk c = fr_chunk_of(graph, LEVEL_SAMPLE, index, worker);
    if (!graph->device)
        fr_graph_fill_expanded(run, &c);
    forward_level(run, &c);
    for (uint32_t k = 0; k < graph->n_outputs; k++) {
        const struct node *node = &graph->variant->nodes[graph->variant->output_node[k]];
        FR_RUN(graph, copy, c.entries, 1, fr_node_values(graph->variant, node, c.first),
               (struct fr_view){graph->outputs[k].values + c.first, 1});
    }
}

void fr_graph_forward_chunks(struct graph_run *run)
{
    fr_graph_run_tasks(run->graph, fr_level_chunks(run->graph, LEVEL_GROUP), forward_groups, run);
    fr_graph_run_tasks(run->graph, fr_level_chunks(run->graph, LEVEL_SAMPLE), forward_samples, run);
}

/* ---- kernels ---- */

/* Copies rows of a kernel that are not contiguous in the parameter next to each other, and packs
 * them. */
static void pack_weights(void *context, size_t index, size_t worker)
{
    const struct graph_run *run = context;
    const struct fr_graph *graph = run->graph;
    const struct pack_task *task = &graph->variant->pack_tasks[index];
    const struct linear *linear = &graph->variant->linears[task->linear];
    (void)worker;
    for (uint32_t s = 0; s < linear->n_segments && linear->gathered; s++) {
        const struct segment *segment = &linear->segments[s];
        uint32_t begin = segment->row > task->k_begin ? segment->row : task->k_begin;
        uint32_t end = segment->row + segment->n < task->k_end ? segment->row + segment->n : task->k_end;
        if (begin < end)
            memcpy(linear->gathered + (size_t)begin * linear->out,
                   graph->places[linear->kernel].values +
                       (size_t)(segment->parameter_row + begin - segment->row) * linear->out,
                   (size_t)(end - begin) * linear->out * sizeof(float));
    }
    if (linear->weights.packed && !fr_reads_directly(graph, linear))
        graph->ops->pack(&linear->weights, task->k_begin, task->k_end);
}

void fr_graph_gather_kernels(struct graph_run *run)
{
    const struct fr_graph *graph = run->graph;
    for (uint32_t l = 0; l < graph->variant->n_linears; l++) {
        const struct linear *linear = &graph->variant->linears[l];
        for (uint32_t s = 0; s < linear->n_segments && linear->gathered; s++) {
            const struct segment *segment = &linear->segments[s];
            size_t from = (size_t)segment->parameter_row * linear->out, to = (size_t)segment->row * linear->out;
            FR_RUN(graph, copy, segment->n, linear->out,
                   (struct fr_view){graph->places[linear->kernel].values + from, linear->out},
                   (struct fr_view){linear->gathered + to, linear->out});
        }
    }
}

static bool copies_kernels(const struct fr_graph *graph)
{
    for (uint32_t l = 0; l < graph->variant->n_linears; l++) {
        const struct linear *linear = &graph->variant->linears[l];
        if (linear->gathered || (linear->weights.packed && !fr_reads_directly(graph, linear)))
            return true;
    }
    return false;
}

void fr_graph_forward(struct fr_graph *graph, const struct fr_batch *batch, const struct fr_rows *rows)
{
    struct graph_run run = {.graph = graph, .batch = batch, .rows = rows, .at_batch = batch, .at_rows = rows};
    if (graph->device) {
        fr_graph_device_forward(&run);
        return;
    }
    fr_graph_prepare(&run);
    /* Parameters may be written from outside between two calls, so copies are made in each call. */
    if (copies_kernels(graph))
        fr_graph_run_tasks(graph, graph->variant->n_pack_tasks, pack_weights, &run);
    fr_graph_forward_chunks(&run);
    fr_graph_task_logits(&run);
}

void fr_graph_forward_training(struct graph_run *run)
{
    if (!run->graph->has_dropout)
        return;
    run->training = true;
    fr_graph_forward_chunks(run);
}
