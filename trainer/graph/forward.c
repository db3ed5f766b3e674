/* Forward pass: chunk by chunk through all nodes, each node's output written where its readers want
 * it; groups' rows first, then samples' rows.
 *
 * A chunk stays in the second-level cache from pooling to logit. With a backend whose rows depend
 * on their position (openblas) a chunk of vectors always has exactly C rows, zero-padded; with the
 * others only the real rows are computed, and their bits are the same. Step rows are never padded.
 * Owner thread: the graph's; a chunk belongs to one worker. Does not: look at labels, roles or
 * weights of samples. */
#include "passes.h"

#include <string.h>

#include "base/hash.h"

static void zero_padding(struct fr_view out, uint32_t width, struct rows r)
{
    for (uint32_t i = r.real; i < r.count; i++)
        memset(out.values + i * out.ld, 0, width * sizeof(float));
}

/* ---- leaves ---- */

/* Rows as a replica would have them: those that this batch made are absent. */
static float *const *served_rows(const struct fr_table_rows *table)
{
    return table->served ? table->served : table->rows;
}

static void forward_pooled(const struct graph_run *run, const struct node *node, const struct chunk *c)
{
    const struct fr_graph *graph = run->graph;
    const struct fr_column *column = &run->batch->columns[node->slot];
    const int32_t t = graph->conf->slots[node->slot].table;
    const struct fr_table_rows *rows = &run->rows->tables[t];
    struct fr_gather gather = {
        .begin = column->begin,
        .weights = column->weights,
        .unique_of = rows->unique_of + run->rows->slot_base[node->slot],
        .rows = served_rows(rows),
        .value_offset = graph->layouts[t].parts[node->part].value_offset,
        .dim = node->width,
        .entry_begin = c->first,
        .entry_end = c->first + c->entries,
        .kind = node->pooling,
        .scale = node->extra,
        .out = fr_node_values(graph->variant, node, 0),
    };
    graph->ops->gather(&gather);
    zero_padding(fr_node_values(graph->variant, node, c->first), node->width, fr_rows_of(graph, node->space, c));
}

static void forward_sequence(const struct graph_run *run, const struct node *node, const struct chunk *c)
{
    const struct fr_graph *graph = run->graph;
    const int32_t t = graph->conf->slots[node->slot].table;
    const struct fr_table_rows *table = &run->rows->tables[t];
    struct rows r = fr_rows_of(graph, node->space, c);
    graph->ops->gather_steps(&(struct fr_gather_steps){
        .weights = run->batch->columns[node->slot].weights,
        .unique_of = table->unique_of + run->rows->slot_base[node->slot],
        .rows = served_rows(table),
        .value_offset = graph->layouts[t].parts[node->part].value_offset,
        .dim = node->width,
        .begin = r.begin,
        .end = r.begin + r.real,
        .masked = graph->variant->spaces[node->space].masked,
        .out = fr_node_values(graph->variant, node, 0),
    });
}

static void forward_standardize(const struct fr_graph *graph, const struct node *node, uint32_t m,
                                struct fr_view views[2])
{
    const struct fr_conf_slot *slot = &graph->conf->slots[node->slot];
    float missing[2];
    fr_conf_slot_missing(slot, missing);
    graph->ops->standardize(&(struct fr_standardize){.m = m,
                                                     .n = slot->dim,
                                                     .mean = graph->parameters[node->mean].values,
                                                     .variance = graph->parameters[node->variance].values,
                                                     .count = graph->parameters[node->count].values,
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
    struct fr_view in = {run->batch->columns[node->slot].dense + (size_t)c->first * numbers, numbers};
    struct fr_view out = fr_node_values(graph->variant, node, c->first);
    struct fr_fill_missing fill = {.m = c->entries, .n = numbers, .x = in, .y = out};
    fr_conf_slot_missing(slot, fill.missing);
    if (slot->transform == FR_TRANSFORM_BUCKETIZE)
        graph->ops->bucketize(&(struct fr_bucketize){c->entries, slot->dim, slot->n_boundaries, slot->boundaries,
                                                     fill.missing[0], in, out});
    else if (slot->transform == FR_TRANSFORM_STANDARDIZE)
        forward_standardize(graph, node, c->entries, (struct fr_view[2]){in, out});
    else if (fr_conf_slot_keeps_missing(slot))
        graph->ops->fill_missing(&fill);
    else
        graph->ops->copy(c->entries, numbers, in, out);
    if (slot->indicator)
        graph->ops->mark_missing(&(struct fr_mark_missing){c->entries, in, {out.values + (node->width - 1), out.ld}});
    zero_padding(out, node->width, fr_rows_of(graph, node->space, c));
}

/* ---- rows moved ---- */

static void forward_expand(const struct graph_run *run, const struct node *node, const struct chunk *c)
{
    const struct fr_graph *graph = run->graph;
    const struct space *space = &graph->variant->spaces[node->space];
    struct rows r = fr_rows_of(graph, node->space, c);
    graph->ops->expand(&(struct fr_expand){
        .source = space->from == FR_NO_INDEX ? run->batch->group_of : space->source,
        .begin = r.begin,
        .end = r.begin + r.real,
        .width = node->width,
        .in = fr_node_values(graph->variant, fr_argument(graph, node, 0), 0),
        .out = fr_node_values(graph->variant, node, 0),
    });
    zero_padding(fr_node_values(graph->variant, node, r.begin), node->width, r);
}

static void forward_align(const struct fr_graph *graph, const struct node *node, const struct chunk *c)
{
    const struct variant *v = graph->variant;
    const struct node *from = fr_argument(graph, node, 0);
    graph->ops->align(&(struct fr_align){
        .to_begin = v->spaces[node->space].begin,
        .from_begin = v->spaces[from->space].begin,
        .entry_begin = c->first,
        .entry_end = c->first + c->entries,
        .width = node->width,
        .to = fr_node_values(v, node, 0),
        .from = fr_node_values(v, from, 0),
    });
}

static void forward_concat(const struct fr_graph *graph, const struct node *node, struct rows r)
{
    struct fr_view out = fr_node_values(graph->variant, node, r.begin);
    for (uint32_t i = 0; i < node->n_arguments; i++) {
        const struct node *from = fr_argument(graph, node, i);
        if (!node->arguments[i].in_place)
            graph->ops->copy(r.count, from->width, fr_node_values(graph->variant, from, r.begin), out);
        out.values += from->width;
    }
}

/* ---- layers with parameters ---- */

static void forward_linear(const struct graph_run *run, const struct node *node, struct rows r)
{
    const struct fr_graph *graph = run->graph;
    const struct variant *v = graph->variant;
    const struct linear *linear = &v->linears[node->linear];
    struct fr_view x = fr_node_values(v, fr_argument(graph, node, 0), r.begin);
    struct fr_view y = fr_node_values(v, node, r.begin);
    if (node->n_arguments > 1) {
        graph->ops->expand(&(struct fr_expand){run->batch->group_of, r.begin, r.begin + r.real, linear->out,
                                               fr_node_values(v, fr_argument(graph, node, 1), 0),
                                               fr_node_values(v, node, 0)});
        zero_padding(y, linear->out, r);
    }
    struct fr_operand left = {.values = x.values, .ld = x.ld, .rows = r.count, .columns = linear->in};
    struct fr_operand right = linear->weights;
    if (fr_reads_directly(graph, linear))
        right.packed = NULL;
    graph->ops->multiply(&(struct fr_multiply){
        .left = &left, .right = &right, .row_end = r.count, .out = y, .accumulate = node->n_arguments > 1});
    if (linear->bias)
        graph->ops->bias_activate(r.count, linear->out, y, graph->parameters[node->partials[0].parameter].values,
                                  linear->relu);
}

static void forward_activate(const struct fr_graph *graph, const struct node *node, struct rows r)
{
    struct fr_activate call = {
        .kind = node->activation,
        .m = r.count,
        .n = node->width,
        .x = fr_node_values(graph->variant, fr_argument(graph, node, 0), r.begin),
        .y = fr_node_values(graph->variant, node, r.begin),
    };
    if (node->n_partials > 0)
        call.alpha = graph->parameters[node->partials[0].parameter].values;
    if (node->mean != FR_NO_INDEX) {
        call.mean = graph->parameters[node->mean].values;
        call.variance = graph->parameters[node->variance].values;
    }
    graph->ops->activate(&call);
}

static void forward_bias(const struct fr_graph *graph, const struct node *node, struct rows r)
{
    struct fr_view y = fr_node_values(graph->variant, node, r.begin);
    graph->ops->copy(r.count, node->width, fr_node_values(graph->variant, fr_argument(graph, node, 0), r.begin), y);
    graph->ops->bias_activate(r.count, node->width, y, graph->parameters[node->partials[0].parameter].values, false);
}

static void forward_layer_norm(const struct fr_graph *graph, const struct node *node, struct rows r)
{
    graph->ops->layer_norm(&(struct fr_layer_norm){
        .m = r.count,
        .n = node->width,
        .epsilon = FR_LAYER_NORM_EPSILON,
        .scale = graph->parameters[node->partials[0].parameter].values,
        .bias = graph->parameters[node->partials[1].parameter].values,
        .x = fr_node_values(graph->variant, fr_argument(graph, node, 0), r.begin),
        .y = fr_node_values(graph->variant, node, r.begin),
        .moments = fr_node_extra(node, r.begin),
    });
}

struct fr_dropout fr_graph_dropout(const struct fr_graph *graph, const struct node *node, struct rows r)
{
    const struct fr_conf_layer *layer = &graph->conf->layers[node->layer];
    return (struct fr_dropout){
        .m = r.real,
        .n = node->width,
        .first = r.begin,
        .seed = graph->conf->seed,
        .key = fr_xxh3(layer->name, strlen(layer->name)) + graph->steps,
        .rate = layer->rate,
    };
}

static void forward_dropout(const struct graph_run *run, const struct node *node, struct rows r)
{
    const struct fr_graph *graph = run->graph;
    struct fr_view x = fr_node_values(graph->variant, fr_argument(graph, node, 0), r.begin);
    struct fr_view y = fr_node_values(graph->variant, node, r.begin);
    if (!run->training || graph->conf->layers[node->layer].rate <= 0.0f) {
        graph->ops->copy(r.count, node->width, x, y);
        return;
    }
    struct fr_dropout call = fr_graph_dropout(graph, node, r);
    call.x = x;
    call.y = y;
    graph->ops->dropout(&call);
    zero_padding(y, node->width, r);
}

/* ---- interactions ---- */

static void forward_interaction(const struct fr_graph *graph, const struct node *node, const struct chunk *c)
{
    const struct variant *v = graph->variant;
    struct rows r = fr_rows_of(graph, node->space, c);
    struct fr_view out = fr_node_values(v, node, r.begin);
    struct fr_view *in = graph->views + (size_t)c->worker * 2 * graph->views_max;
    for (uint32_t i = 0; i < node->n_arguments; i++)
        in[i] = fr_node_values(v, fr_argument(graph, node, i), r.begin);
    if (node->kind == NODE_BI_INTERACTION) {
        graph->ops->bi_interaction(r.count, node->width, node->n_arguments, in, out);
        return;
    }
    if (node->kind == NODE_ADD) {
        graph->ops->copy(r.count, node->width, in[0], out);
        for (uint32_t i = 1; i < node->n_arguments; i++)
            graph->ops->add(r.count, node->width, in[i], out);
        return;
    }
    struct fr_interaction call = {
        .m = r.count, .n = fr_argument(graph, node, 0)->width, .count = node->n_arguments, .in = in, .out = out};
    if (node->kind == NODE_MULTIPLY)
        graph->ops->product(&call);
    else
        graph->ops->dot_interaction(&call);
}

static void forward_row_sum(const struct fr_graph *graph, const struct node *node, struct rows r)
{
    const struct node *from = fr_argument(graph, node, 0);
    graph->ops->row_sum(r.count, from->width, fr_node_values(graph->variant, from, r.begin),
                        fr_node_values(graph->variant, node, r.begin));
}

static void forward_cross(const struct fr_graph *graph, const struct node *node, struct rows r)
{
    const struct variant *v = graph->variant;
    graph->ops->cross(&(struct fr_cross){
        .m = r.count,
        .n = node->width,
        .x0 = fr_node_values(v, fr_argument(graph, node, 0), r.begin),
        .t = fr_node_values(v, fr_argument(graph, node, 1), r.begin),
        .x = fr_node_values(v, fr_argument(graph, node, 2), r.begin),
        .out = fr_node_values(v, node, r.begin),
    });
}

static void forward_mixture(const struct fr_graph *graph, const struct node *node, struct rows r)
{
    const struct variant *v = graph->variant;
    graph->ops->mixture(&(struct fr_mixture){
        .m = r.count,
        .n = node->width,
        .count = node->extra_width,
        .gates = fr_node_values(v, fr_argument(graph, node, 0), r.begin),
        .experts = fr_node_values(v, fr_argument(graph, node, 1), r.begin),
        .out = fr_node_values(v, node, r.begin),
        .weights = fr_node_extra(node, r.begin),
    });
}

/* ---- sequences ---- */

static void forward_pool_steps(const struct fr_graph *graph, const struct node *node, const struct chunk *c)
{
    const struct variant *v = graph->variant;
    const struct node *from = fr_argument(graph, node, 0);
    graph->ops->pool_steps(&(struct fr_pool_steps){
        .steps = fr_steps_of(graph, from->space, c),
        .kind = node->pooling,
        .width = node->width,
        .in = fr_node_values(v, from, 0),
        .out = fr_node_values(v, node, c->first),
    });
}

static void forward_attention(const struct fr_graph *graph, const struct node *node, const struct chunk *c)
{
    const struct variant *v = graph->variant;
    const struct node *first = fr_argument(graph, node, 0);
    const struct node *second = fr_argument(graph, node, node->n_arguments - 1);
    switch (node->kind) {
    case NODE_ATTENTION_INPUT:
        graph->ops->attention_input(&(struct fr_attention_input){.steps = fr_steps_of(graph, node->space, c),
                                                                 .width = second->width,
                                                                 .query = fr_node_values(v, first, c->first),
                                                                 .keys = fr_node_values(v, second, 0),
                                                                 .out = fr_node_values(v, node, 0)});
        break;
    case NODE_SOFTMAX_STEPS:
        graph->ops->softmax_steps(&(struct fr_softmax_steps){.steps = fr_steps_of(graph, node->space, c),
                                                             .in = fr_node_values(v, first, 0),
                                                             .out = fr_node_values(v, node, 0)});
        break;
    case NODE_ATTENTION_POOL:
        graph->ops->attention_pool(&(struct fr_attention_pool){.steps = fr_steps_of(graph, second->space, c),
                                                               .width = node->width,
                                                               .scores = fr_node_values(v, first, 0),
                                                               .keys = fr_node_values(v, second, 0),
                                                               .out = fr_node_values(v, node, c->first)});
        break;
    default:
        graph->ops->dot_steps(&(struct fr_dot_steps){.steps = fr_steps_of(graph, node->space, c),
                                                     .width = first->width,
                                                     .keys = fr_node_values(v, first, 0),
                                                     .query = fr_node_values(v, second, c->first),
                                                     .out = fr_node_values(v, node, 0)});
        break;
    }
}

static void forward_gru(const struct fr_graph *graph, const struct node *node, const struct chunk *c)
{
    const struct variant *v = graph->variant;
    struct fr_gru call = {
        .steps = fr_steps_of(graph, node->space, c),
        .units = node->width,
        .input = fr_node_values(v, fr_argument(graph, node, 0), 0),
        .kernel = graph->parameters[node->partials[0].parameter].values,
        .bias = graph->parameters[node->partials[1].parameter].values,
        .states = fr_node_values(v, node, 0),
        .gates = fr_node_extra(node, 0),
        .workspace = graph->workspace + c->worker * graph->workspace_floats,
    };
    if (node->n_arguments > 1)
        call.scores = fr_node_values(v, fr_argument(graph, node, 1), 0);
    graph->ops->gru(&call);
}

/* ---- chunks ---- */

static void forward_node(const struct graph_run *run, const struct node *node, const struct chunk *c)
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
    case NODE_ALIGN:
        forward_align(graph, node, c);
        break;
    case NODE_CONCAT:
        forward_concat(graph, node, r);
        break;
    case NODE_LINEAR:
        forward_linear(run, node, r);
        break;
    case NODE_ACTIVATE:
        forward_activate(graph, node, r);
        break;
    case NODE_BIAS:
        forward_bias(graph, node, r);
        break;
    case NODE_LAYER_NORM:
        forward_layer_norm(graph, node, r);
        break;
    case NODE_DROPOUT:
        forward_dropout(run, node, r);
        break;
    case NODE_ROW_SUM:
        forward_row_sum(graph, node, r);
        break;
    case NODE_BI_INTERACTION:
    case NODE_ADD:
    case NODE_MULTIPLY:
    case NODE_DOT_INTERACTION:
        forward_interaction(graph, node, c);
        break;
    case NODE_CROSS:
        forward_cross(graph, node, r);
        break;
    case NODE_MIXTURE:
        forward_mixture(graph, node, r);
        break;
    case NODE_POOL_STEPS:
        forward_pool_steps(graph, node, c);
        break;
    case NODE_ATTENTION_INPUT:
    case NODE_SOFTMAX_STEPS:
    case NODE_ATTENTION_POOL:
    case NODE_DOT_STEPS:
        forward_attention(graph, node, c);
        break;
    case NODE_GRU:
        forward_gru(graph, node, c);
        break;
    case NODE_MSE_PAIR: /* all of an auxiliary loss is in the backward pass */
    case NODE_NEXT_STEP:
        break;
    }
}

/* Notes where the chunk's occurrences come from, for the row gradients; every slot of a table with
 * entries of this level, read by the network or not. */
static void note_occurrences(const struct graph_run *run, const struct chunk *c)
{
    const struct fr_graph *graph = run->graph;
    for (uint32_t s = 0; s < graph->conf->n_slots; s++) {
        const struct fr_column *column = &run->batch->columns[s];
        if (graph->conf->slots[s].kind == FR_SLOT_DENSE || column->shared != (c->level == LEVEL_GROUP))
            continue;
        struct fr_occurrence *out = graph->tables[graph->conf->slots[s].table].occurrences + run->rows->slot_base[s];
        for (uint32_t i = c->first; i < c->first + c->entries; i++)
            for (uint32_t p = column->begin[i]; p < column->begin[i + 1]; p++)
                out[p] = (struct fr_occurrence){.entry = i, .group = graph->slot_group[s]};
    }
}

/* Rows and masks of sequences that every sample of a group gets a copy of. */
static void fill_expanded(const struct graph_run *run, const struct chunk *c)
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
    if (!graph->scoring_only && !run->training)
        note_occurrences(run, c);
    for (uint32_t n = 0; n < v->n_nodes; n++)
        if (v->spaces[v->nodes[n].space].level == c->level)
            forward_node(run, &v->nodes[n], c);
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
    fill_expanded(run, &c);
    forward_level(run, &c);
    for (uint32_t k = 0; k < graph->n_outputs; k++) {
        const struct node *node = &graph->variant->nodes[graph->variant->output_node[k]];
        graph->ops->copy(c.entries, 1, fr_node_values(graph->variant, node, c.first),
                         (struct fr_view){graph->outputs[k].values + c.first, 1});
    }
}

static void forward_chunks(struct graph_run *run)
{
    fr_graph_run_tasks(run->graph, fr_level_chunks(run->graph, LEVEL_GROUP), forward_groups, run);
    fr_graph_run_tasks(run->graph, fr_level_chunks(run->graph, LEVEL_SAMPLE), forward_samples, run);
}

/* ---- kernels ---- */

/* Puts the rows of a kernel together that are not so in the parameter, and packs them. */
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
                   graph->parameters[linear->kernel].values +
                       (size_t)(segment->parameter_row + begin - segment->row) * linear->out,
                   (size_t)(end - begin) * linear->out * sizeof(float));
    }
    if (linear->weights.packed && !fr_reads_directly(graph, linear))
        graph->ops->pack(&linear->weights, task->k_begin, task->k_end);
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
    struct graph_run run = {.graph = graph, .batch = batch, .rows = rows};
    fr_graph_prepare(&run);
    /* Parameters may have been written from outside: copies do not outlive a call. */
    if (copies_kernels(graph))
        fr_graph_run_tasks(graph, graph->variant->n_pack_tasks, pack_weights, &run);
    forward_chunks(&run);
    fr_graph_task_logits(&run);
}

void fr_graph_forward_training(struct graph_run *run)
{
    if (!run->graph->has_dropout)
        return;
    run->training = true;
    forward_chunks(run);
}
