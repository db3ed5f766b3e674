/* Gradients: loss, then every node in reverse order, chunk by chunk; then the kernels' gradients over the whole batch.
 *
 * A node's gradient is complete when its turn comes, because its readers come later in evaluation order. Sums over
 * samples have a fixed order: within a kernel gradient ascending over all samples of the batch, for a bias chunk by
 * chunk. Nothing here changes a parameter or a row. Owner thread: the graph's; a chunk or a block of kernel rows
 * belongs to one worker. Does not: update (update.c). */
#include "backward.h"

#include <math.h>
#include <string.h>

static void zero_gradients(const struct fr_graph *graph, uint32_t buffer, const struct chunk *c)
{
    const struct node_buffer *b = &graph->buffers[buffer];
    memset(b->gradients + c->first * b->ld, 0, c->rows * b->ld * sizeof(float));
}

static void loss_chunk(const struct graph_run *run, size_t index, const struct chunk *c)
{
    const struct fr_graph *graph = run->graph;
    const struct fr_batch *batch = run->batch;
    for (uint32_t t = 0; t < graph->conf->n_tasks; t++) {
        const struct task_state *task = &graph->tasks[t];
        const struct node *node = &graph->nodes[task->node];
        size_t label = (size_t)graph->conf->tasks[t].label * batch->capacity_samples + c->first;
        if (task->zero_buffer)
            zero_gradients(graph, node->buffer, c);
        double *partial = &graph->loss_partial[index * graph->conf->n_tasks + t];
        *partial = 0.0;
        if (task->unmasked == 0 || graph->conf->tasks[t].weight == 0.0f)
            continue;
        struct fr_logloss loss = {
            .n = c->samples,
            .logits = fr_node_values(graph, node, c->first),
            .labels = batch->labels + label,
            .weights = batch->weights + label,
            .trained = graph->trained + c->first,
            .scale = graph->conf->tasks[t].weight / (float)task->unmasked,
            .gradient = fr_node_gradients(graph, node, c->first),
        };
        *partial = graph->ops->logloss(&loss);
    }
}

/* Gives `gradient` to argument i as it is. */
static void pass_gradient(const struct fr_graph *graph, const struct argument *argument, struct fr_view gradient,
                          const struct chunk *c)
{
    const struct node *from = &graph->nodes[argument->node];
    struct fr_view to = fr_node_gradients(graph, from, c->first);
    if (argument->zero_buffer)
        zero_gradients(graph, from->buffer, c);
    if (argument->accumulate)
        graph->ops->add(c->rows, from->width, gradient, to);
    else
        graph->ops->copy(c->rows, from->width, gradient, to);
}

static void backward_linear(const struct fr_graph *graph, const struct node *node, size_t index, const struct chunk *c)
{
    const struct linear *linear = &graph->linears[node->linear];
    const struct argument *argument = &node->arguments[0];
    const struct node *from = &graph->nodes[argument->node];
    struct fr_view gradient = fr_node_gradients(graph, node, c->first);
    if (linear->relu)
        graph->ops->relu_backward(c->rows, node->width, fr_node_values(graph, node, c->first), gradient);
    graph->ops->bias_gradient(c->samples, node->width, gradient, linear->bias_partial + index * linear->out);
    if (!argument->skip_gradient) {
        if (argument->zero_buffer)
            zero_gradients(graph, from->buffer, c);
        struct fr_operand left = {gradient.values, gradient.ld, c->rows, linear->out, false, NULL};
        struct fr_multiply product = {.left = &left,
                                      .right = &linear->weights_t,
                                      .row_end = c->rows,
                                      .out = fr_node_gradients(graph, from, c->first),
                                      .accumulate = argument->accumulate};
        graph->ops->multiply(&product);
    }
    graph->ops->pack(&linear->gradients, c->first, c->first + c->samples);
}

static void backward_bi_interaction(const struct fr_graph *graph, const struct node *node, const struct chunk *c)
{
    struct fr_view *in = graph->views + (size_t)c->worker * 2 * graph->views_max;
    struct fr_view *in_gradient = in + graph->views_max;
    for (uint32_t i = 0; i < node->n_arguments; i++) {
        const struct argument *argument = &node->arguments[i];
        const struct node *from = &graph->nodes[argument->node];
        in[i] = fr_node_values(graph, from, c->first);
        in_gradient[i] = (struct fr_view){NULL, 0};
        if (argument->skip_gradient)
            continue;
        in_gradient[i] = fr_node_gradients(graph, from, c->first);
        if (argument->zero_buffer)
            zero_gradients(graph, from->buffer, c);
    }
    graph->ops->bi_interaction_backward(c->rows, node->width, node->n_arguments, in,
                                        fr_node_gradients(graph, node, c->first), in_gradient);
}

static void backward_node(const struct fr_graph *graph, const struct node *node, size_t index, const struct chunk *c)
{
    if (node->kind == NODE_LINEAR) {
        backward_linear(graph, node, index, c);
        return;
    }
    if (node->kind == NODE_BI_INTERACTION && node->trainable) {
        backward_bi_interaction(graph, node, c);
        return;
    }
    if (!node->trainable)
        return;
    struct fr_view gradient = fr_node_gradients(graph, node, c->first);
    for (uint32_t i = 0; i < node->n_arguments; i++) {
        if (!node->arguments[i].skip_gradient)
            pass_gradient(graph, &node->arguments[i], gradient, c);
        if (node->kind == NODE_CONCAT)
            gradient.values += graph->nodes[node->arguments[i].node].width;
    }
}

static void backward_chunk(void *context, size_t index, size_t worker)
{
    const struct graph_run *run = context;
    const struct fr_graph *graph = run->graph;
    struct chunk c = fr_chunk_of(graph, index, worker);
    loss_chunk(run, index, &c);
    for (uint32_t n = graph->n_nodes; n-- > 0;)
        backward_node(graph, &graph->nodes[n], index, &c);
    uint32_t largest = 0;
    for (uint32_t n = 0; n < graph->n_nodes; n++) {
        const struct node *node = &graph->nodes[n];
        if (node->kind != NODE_POOLED)
            continue;
        uint32_t bits = graph->ops->max_bits(c.samples, node->width, fr_node_gradients(graph, node, c.first));
        largest = bits > largest ? bits : largest;
    }
    graph->chunk_bits[index] = largest;
}

static void pack_weights_t(void *context, size_t index, size_t worker)
{
    const struct graph_run *run = context;
    const struct pack_task *task = &run->graph->pack_t_tasks[index];
    (void)worker;
    run->graph->ops->pack(&run->graph->linears[task->linear].weights_t, task->k_begin, task->k_end);
}

static void sum_bias(const struct fr_graph *graph, const struct linear *linear)
{
    float *out = graph->parameter_states[linear->bias].gradient;
    uint32_t chunks = fr_blocks_of(graph->n_samples, graph->conf->chunk_rows);
    graph->ops->bias_gradient(chunks, linear->out, (struct fr_view){linear->bias_partial, linear->out}, out);
}

static void kernel_gradient(void *context, size_t index, size_t worker)
{
    const struct graph_run *run = context;
    const struct fr_graph *graph = run->graph;
    const struct gradient_task *task = &graph->gradient_tasks[index];
    const struct linear *linear = &graph->linears[task->linear];
    float *out = graph->parameter_states[linear->kernel].gradient;
    (void)worker;
    struct fr_multiply product = {.left = &linear->inputs_t,
                                  .right = &linear->gradients,
                                  .row_begin = task->row_begin,
                                  .row_end = task->row_end,
                                  .out = {out, linear->out}};
    graph->ops->multiply(&product);
    struct fr_view block = {out + (size_t)task->row_begin * linear->out, linear->out};
    uint32_t bits = graph->ops->max_bits(task->row_end - task->row_begin, linear->out, block);
    if (task->row_begin == 0) {
        sum_bias(graph, linear);
        float *bias = graph->parameter_states[linear->bias].gradient;
        uint32_t bias_bits = graph->ops->max_bits(1, linear->out, (struct fr_view){bias, linear->out});
        bits = bias_bits > bits ? bias_bits : bits;
    }
    graph->gradient_bits[index] = bits;
}

/* The factors of this batch's kernel gradients. */
static void set_operands(struct fr_graph *graph)
{
    for (uint32_t l = 0; l < graph->n_linears; l++) {
        struct linear *linear = &graph->linears[l];
        const struct node *node = &graph->nodes[linear->node];
        struct fr_view x = fr_node_values(graph, &graph->nodes[node->arguments[0].node], 0);
        struct fr_view g = fr_node_gradients(graph, node, 0);
        linear->inputs_t = (struct fr_operand){x.values, x.ld, linear->in, graph->n_samples, true, NULL};
        linear->gradients =
            (struct fr_operand){g.values, g.ld, graph->n_samples, linear->out, false, linear->gradients.packed};
    }
}

void fr_graph_backward(struct graph_run *run)
{
    struct fr_graph *graph = run->graph;
    set_operands(graph);
    if (graph->ops->packed_floats(1, 1) > 0)
        fr_graph_run_tasks(graph, graph->n_pack_t_tasks, pack_weights_t, run);
    fr_graph_run_tasks(graph, fr_blocks_of(graph->n_samples, graph->conf->chunk_rows), backward_chunk, run);
    fr_graph_run_tasks(graph, graph->n_gradient_tasks, kernel_gradient, run);
}

bool fr_graph_trained_samples(struct graph_run *run)
{
    struct fr_graph *graph = run->graph;
    const struct fr_batch *batch = run->batch;
    bool any = false;
    for (uint32_t i = 0; i < graph->n_samples; i++)
        graph->trained[i] = batch->role[i] == FR_ROLE_TRAIN;
    for (uint32_t t = 0; t < graph->conf->n_tasks; t++) {
        const float *labels = batch->labels + (size_t)graph->conf->tasks[t].label * batch->capacity_samples;
        uint32_t unmasked = 0;
        for (uint32_t i = 0; i < graph->n_samples; i++)
            unmasked += graph->trained[i] && !isnan(labels[i]);
        graph->tasks[t].unmasked = unmasked;
        any |= unmasked > 0;
    }
    return any;
}

double fr_graph_loss(const struct fr_graph *graph)
{
    double loss = 0.0;
    uint32_t chunks = fr_blocks_of(graph->n_samples, graph->conf->chunk_rows);
    for (uint32_t t = 0; t < graph->conf->n_tasks; t++) {
        double sum = 0.0;
        for (uint32_t c = 0; c < chunks; c++)
            sum += graph->loss_partial[c * graph->conf->n_tasks + t];
        if (graph->tasks[t].unmasked > 0)
            loss += (double)graph->conf->tasks[t].weight * sum / (double)graph->tasks[t].unmasked;
    }
    return loss;
}
