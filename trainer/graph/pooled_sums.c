/* Sums of pooled rows that nothing else reads, alone or with their interaction by pairs. If
 * every entry has one id without a weight, rows are summed in place (fr_ops.sum_rows), and
 * neither the gathered rows nor their gradients are stored. A row's gradient is then the
 * gradient of the sum, which all slots share, plus, with pairs, the gradient of the pairs times
 * (sum - row). These are few arrays, which stay in the cache, and values that the update reads
 * anyway. The bits are those of the nodes that the sum replaces.
 *
 * Each batch is checked for such columns. The nodes always exist, for other batches, for devices,
 * and for the search for the cause of a refusal (fr_graph_write_sums).
 *
 * Source: sums of factorization machines in linear time, Rendle 2010. Owner thread: the graph's; a
 * chunk belongs to one worker. */
#include <stdlib.h>
#include <string.h>

#include "ops/pooling.h"
#include "passes.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

/* ---- while a variant is compiled ---- */

static bool may_be_summed(const struct variant *v, const struct argument *argument)
{
    const struct node *leaf = &v->nodes[argument->node];
    return leaf->kind == NODE_POOLED && leaf->space == SPACE_SAMPLES && fr_pooling_is_sum(leaf->pooling) &&
           leaf->parent == FR_NO_INDEX && leaf->width <= FR_SUM_DIM_MAX && leaf->reached && leaf->sums == FR_NO_INDEX &&
           !argument->stop && !argument->skip_gradient;
}

static bool reads_the_same(const struct node *a, const struct node *b)
{
    bool same = a->n_arguments == b->n_arguments;
    for (uint32_t i = 0; same && i < a->n_arguments; i++)
        same = a->arguments[i].node == b->arguments[i].node && !b->arguments[i].skip_gradient;
    return same;
}

/* Returns the interaction by pairs of the same leaves; FR_NO_INDEX: there is none. */
static int32_t pairs_of(const struct variant *v, const struct node *add)
{
    for (uint32_t n = 0; n < v->n_nodes; n++)
        if (v->nodes[n].kind == NODE_BI_INTERACTION && v->nodes[n].reached && reads_the_same(add, &v->nodes[n]))
            return (int32_t)n;
    return FR_NO_INDEX;
}

static uint32_t count_readers(const struct fr_graph *graph, const struct variant *v, uint32_t leaf)
{
    uint32_t readers = 0;
    for (uint32_t n = 0; n < v->n_nodes; n++)
        for (uint32_t i = 0; i < v->nodes[n].n_arguments; i++)
            readers += v->nodes[n].arguments[i].node == leaf;
    for (uint32_t k = 0; k < graph->n_outputs; k++)
        readers += v->output_node[k] == leaf;
    return readers;
}

static void try_sum(const struct fr_graph *graph, struct variant *v, uint32_t n)
{
    struct node *add = &v->nodes[n];
    if (add->kind != NODE_ADD || !add->reached || add->n_arguments < 2)
        return;
    struct row_sums sums = {.add = n, .pairs = pairs_of(v, add)};
    sums.first = sums.pairs != FR_NO_INDEX && (uint32_t)sums.pairs < n ? (uint32_t)sums.pairs : n;
    for (uint32_t i = 0; i < add->n_arguments; i++)
        if (!may_be_summed(v, &add->arguments[i]) ||
            count_readers(graph, v, add->arguments[i].node) != (sums.pairs == FR_NO_INDEX ? 1 : 2))
            return;
    for (uint32_t i = 0; i < add->n_arguments; i++)
        v->nodes[add->arguments[i].node].sums = (int32_t)v->n_sums;
    add->sums = (int32_t)v->n_sums;
    if (sums.pairs != FR_NO_INDEX)
        v->nodes[sums.pairs].sums = (int32_t)v->n_sums;
    sums.slots = fr_alloc(add->n_arguments, sizeof(*sums.slots));
    v->sums = fr_realloc(v->sums, v->n_sums + 1, sizeof(*v->sums));
    v->sums[v->n_sums++] = sums;
}

void fr_graph_find_sums(const struct fr_graph *graph, struct variant *v)
{
    if (graph->device || graph->pads || !graph->ops->sum_rows)
        return;
    for (uint32_t n = 0; n < v->n_nodes; n++)
        try_sum(graph, v, n);
}

void fr_graph_free_sums(struct variant *v)
{
    for (uint32_t i = 0; i < v->n_sums; i++) {
        free(v->sums[i].slots);
        free(v->sums[i].bits);
    }
    free(v->sums);
}

/* ---- in a batch ---- */

static bool fill_slots(const struct graph_run *run, struct row_sums *sums)
{
    const struct fr_graph *graph = run->graph;
    const struct node *add = &graph->variant->nodes[sums->add];
    for (uint32_t i = 0; i < add->n_arguments; i++) {
        const struct node *leaf = fr_argument(graph, add, i);
        int32_t t = graph->conf->slots[leaf->slot].table;
        const struct fr_table_rows *rows = &run->rows->tables[t];
        const struct fr_column *column = &run->batch->columns[leaf->slot];
        if (!fr_single_ids(column->begin, graph->n_samples, column->weights))
            return false;
        sums->slots[i] = (struct fr_summed_slot){
            .unique_of = rows->unique_of + run->rows->slot_base[leaf->slot],
            .rows = fr_served_rows(rows),
            .value_offset = graph->layouts[t].parts[leaf->part].value_offset,
        };
    }
    return true;
}

void fr_graph_begin_sums(const struct graph_run *run)
{
    const struct fr_graph *graph = run->graph;
    uint32_t chunks = graph->capacity_chunks[LEVEL_SAMPLE];
    for (uint32_t i = 0; i < graph->variant->n_sums; i++) {
        struct row_sums *sums = &graph->variant->sums[i];
        sums->active = fill_slots(run, sums);
        if (chunks > sums->n_bits) {
            sums->n_bits = chunks;
            sums->bits = fr_realloc(sums->bits, chunks, sizeof(*sums->bits));
        }
    }
}

static struct fr_view pair_values(const struct fr_graph *graph, const struct row_sums *sums, bool gradients)
{
    const struct variant *v = graph->variant;
    if (sums->pairs == FR_NO_INDEX)
        return (struct fr_view){NULL, 0};
    const struct node *node = &v->nodes[sums->pairs];
    return gradients ? fr_node_gradients(v, node, 0) : fr_node_values(v, node, 0);
}

void fr_graph_forward_sums(const struct fr_graph *graph, const struct row_sums *sums, const struct chunk *c)
{
    const struct node *add = &graph->variant->nodes[sums->add];
    sums->bits[c->index] = graph->ops->sum_rows(&(struct fr_row_sums){
        .count = add->n_arguments,
        .slots = sums->slots,
        .dim = add->width,
        .entry_begin = c->first,
        .entry_end = c->first + c->entries,
        .sum = fr_node_values(graph->variant, add, 0),
        .pairs = pair_values(graph, sums, false),
    });
}

static double largest(const struct fr_graph *graph, uint32_t m, uint32_t n, struct fr_view x)
{
    return (double)fr_bits_f32(graph->ops->max_bits(m, n, x));
}

/* An upper bound of |gradient + pairs (sum - row)|, including rounding. NaN stays NaN. */
uint32_t fr_graph_sum_bits(const struct fr_graph *graph, const struct row_sums *sums, const struct chunk *c)
{
    const double rounding = 1.0 + 1e-5;
    const struct variant *v = graph->variant;
    const struct node *add = &v->nodes[sums->add];
    double bound = largest(graph, c->entries, add->width, fr_node_gradients(v, add, c->first));
    if (sums->pairs != FR_NO_INDEX) {
        const struct node *pairs = &v->nodes[sums->pairs];
        double sum = largest(graph, c->entries, add->width, fr_node_values(v, add, c->first));
        bound += largest(graph, c->entries, add->width, fr_node_gradients(v, pairs, c->first)) *
                 (sum + (double)fr_bits_f32(sums->bits[c->index]));
    }
    return fr_f32_bits((float)(bound * rounding)) & 0x7fffffffu;
}

void fr_graph_sum_source(const struct fr_graph *graph, const struct row_sums *sums, struct fr_row_source *source)
{
    const struct node *add = &graph->variant->nodes[sums->add];
    source->gradient = fr_node_gradients(graph->variant, add, 0);
    source->pairs = pair_values(graph, sums, true);
    if (source->pairs.values)
        source->sum = fr_node_values(graph->variant, add, 0);
}

/* Writes the values and gradients of leaves that passes without sums would have written. */
void fr_graph_write_sums(const struct graph_run *run)
{
    const struct fr_graph *graph = run->graph;
    const struct variant *v = graph->variant;
    for (uint32_t i = 0; i < v->n_sums; i++)
        for (uint32_t index = 0; v->sums[i].active && index < fr_level_chunks(graph, LEVEL_SAMPLE); index++) {
            struct chunk c = fr_chunk_of(graph, LEVEL_SAMPLE, index, 0);
            for (uint32_t n = 0; n < v->n_nodes; n++)
                if (v->nodes[n].sums == (int32_t)i && v->nodes[n].kind == NODE_POOLED)
                    fr_graph_forward_node(run, &v->nodes[n], &c);
            for (uint32_t n = v->n_nodes; n-- > 0;)
                if (v->nodes[n].sums == (int32_t)i)
                    fr_graph_backward_node(run, &v->nodes[n], &c);
        }
}
