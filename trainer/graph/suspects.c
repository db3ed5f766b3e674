/* Finds the samples that made fr_graph_train refuse a batch: the values and gradients of the
 * refused pass are examined sample by sample.
 *
 * The caller makes the examinations one after another until one finds a suspect, so that as few
 * samples as possible are left out: single numbers that are not finite or exceed the bound
 * (logits, then the outputs' gradients, then every node's values and gradients, and their
 * contributions to parameters and to rows); then squares that a statistic cannot hold; then
 * numbers above a share of the bound (the bound divided by the number of summands, which are those
 * of all ranks), without which no sum can exceed the bound. With several ranks, each examines its
 * own samples, and a suspect of any rank ends the examinations of all.
 *
 * A sample is a suspect by its own rows. Rows of a group belong to all its samples, but a bad
 * row of a group usually has its cause in one of the samples. The group's trained samples are
 * therefore suspects only if none of its samples is a suspect by its own rows. Cost: one pass
 * over the activations, only after a refusal.
 *
 * Owner thread: the graph's, right after the refusal. Nothing is changed here. If the cause is
 * in the parameters, every sample is a suspect. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "learning.h"
#include "ops/pooling.h"
#include "passes.h"

struct search {
    const struct fr_graph *graph;
    const struct fr_batch *batch;
    const struct fr_rows *rows;
    enum fr_suspect_look look;
    struct fr_suspect *samples, *groups; /* [n_samples], [n_groups] */
};

static void suspect(struct fr_suspect *entry, enum fr_suspect_why why, uint32_t where)
{
    if (entry->why == FR_SUSPECT_NONE)
        *entry = (struct fr_suspect){why, where};
}

static uint32_t count(const struct search *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->graph->n_samples; i++)
        n += s->samples[i].why != FR_SUSPECT_NONE;
    return n;
}

/* Returns the limit of one of `n` summands in the present examination. */
static double bound(const struct search *s, uint64_t n)
{
    return s->look == FR_SUSPECT_LOOK_SHARES && n > 0 ? (double)FR_GRADIENT_MAX / (double)n : (double)FR_GRADIENT_MAX;
}

/* Whether x, which may be NaN, exceeds a limit. */
static bool over(double x, double limit)
{
    return !(x <= limit);
}

static double largest(const struct search *s, uint32_t m, uint32_t n, struct fr_view x)
{
    return (double)fr_bits_f32(s->graph->ops->max_bits(m, n, x));
}

/* ---- before the backward pass ---- */

static void check_logits(const struct search *s)
{
    for (uint32_t t = 0; t < s->graph->conf->n_tasks; t++)
        for (uint32_t i = 0; i < s->graph->n_samples; i++)
            if (!isfinite(s->graph->tasks[t].logits[i]))
                suspect(&s->samples[i], FR_SUSPECT_LOGIT, t);
}

static void check_output_gradients(const struct search *s)
{
    for (uint32_t k = 0; k < s->graph->n_outputs; k++)
        for (uint32_t i = 0; i < s->graph->n_samples; i++)
            if (over(fabs((double)s->graph->outputs[k].gradient[i]), (double)FR_GRADIENT_MAX))
                suspect(&s->samples[i], FR_SUSPECT_LOSS, k);
}

/* ---- nodes ---- */

/* The rows of a node that belong to one sample or group. */
struct own {
    struct fr_suspect *entry;
    uint32_t number, begin, count;
};

static bool reads_parameters(const struct node *node)
{
    return node->linear != FR_NO_INDEX || node->n_partials > 0;
}

/* Returns the largest contribution to a parameter's gradient, an element of which sums gradient
 * x argument over rows. */
static double given_to_parameters(const struct search *s, const struct node *node, const struct own *own)
{
    const struct variant *v = s->graph->variant;
    double x = 1.0;
    const struct node *from = node->n_arguments > 0 ? fr_argument(s->graph, node, 0) : node;
    /* this is at least as large as any of q, k, q - k, q o k */
    if (node->kind == NODE_ATTENTION_DENSE) {
        const struct node *keys = fr_argument(s->graph, node, 1);
        x += largest(s, 1, from->width, fr_node_values(v, from, own->number));
        x *= 1.0 + largest(s, own->count, keys->width, fr_node_values(v, keys, own->begin));
        return x * largest(s, own->count, node->width, fr_node_gradients(v, node, own->begin));
    }
    if (from->space == node->space) {
        double largest_x = largest(s, own->count, from->width, fr_node_values(v, from, own->begin));
        x = over(largest_x, x) ? largest_x : x;
    }
    return x * largest(s, own->count, node->width, fr_node_gradients(v, node, own->begin));
}

/* Returns the largest coefficient of the ids with rows in a leaf's entry. */
static double largest_coefficient(const struct search *s, const struct node *node, uint32_t entry)
{
    const struct fr_column *column = &s->batch->columns[node->slot];
    const struct fr_table_rows *table = &s->rows->tables[s->graph->conf->slots[node->slot].table];
    const uint32_t *unique_of = table->unique_of + s->rows->slot_base[node->slot];
    double found = 0.0;
    for (uint32_t p = column->begin[entry]; p < column->begin[entry + 1]; p++) {
        if (!table->rows[unique_of[p]])
            continue;
        double coefficient = column->weights ? fabs((double)column->weights[p]) : 1.0;
        if (fr_pooling_keeps_scale(node->pooling))
            coefficient *= fabs((double)node->extra[entry]);
        if (over(coefficient, found))
            found = coefficient;
    }
    return found;
}

static void check_rows(const struct search *s, const struct node *node, const struct own *own, double gradient)
{
    uint32_t t = (uint32_t)s->graph->conf->slots[node->slot].table;
    uint64_t readers = s->graph->variant->tables[t].source_begin[s->graph->tables[t].n_groups];
    double given = gradient * largest_coefficient(s, node, own->number);
    if (over(given, bound(s, readers * fr_graph_occurrences(s->graph, s->rows, t))))
        suspect(own->entry, FR_SUSPECT_ROW, (uint32_t)node->slot);
}

static void check_own(const struct search *s, const struct node *node, const struct own *own)
{
    const struct variant *v = s->graph->variant;
    uint64_t summands = fr_graph_rows_of_space(s->graph, node->space);
    bool leaf = node->kind == NODE_POOLED || node->kind == NODE_SEQUENCE;
    uint32_t slot = node->slot >= 0 && (leaf || node->kind == NODE_DENSE) ? (uint32_t)node->slot : FR_SUSPECT_NOWHERE;
    if (!isfinite(largest(s, own->count, node->width, fr_node_values(v, node, own->begin))))
        suspect(own->entry, FR_SUSPECT_VALUE, slot);
    if (!node->reached)
        return;
    double gradient = largest(s, own->count, node->width, fr_node_gradients(v, node, own->begin));
    if (over(gradient, (double)FR_GRADIENT_MAX))
        suspect(own->entry, FR_SUSPECT_GRADIENT, slot);
    if (reads_parameters(node) && over(given_to_parameters(s, node, own), bound(s, summands)))
        suspect(own->entry, FR_SUSPECT_GRADIENT, slot);
    if (leaf)
        check_rows(s, node, own, gradient);
}

static void check_squares(const struct search *s, const struct node *node, const struct own *own)
{
    double x = 0.0;
    if (node->mean == FR_NO_INDEX)
        return;
    if (node->kind == NODE_DENSE) {
        const struct fr_column *column = &s->batch->columns[node->slot];
        x = largest(s, 1, column->dim,
                    (struct fr_view){column->dense + (size_t)own->number * column->dim, column->dim});
    } else {
        const struct node *from = fr_argument(s->graph, node, 0);
        x = largest(s, own->count, from->width, fr_node_values(s->graph->variant, from, own->begin));
    }
    if (x * x > (double)FLT_MAX)
        suspect(own->entry, FR_SUSPECT_VALUE, node->kind == NODE_DENSE ? (uint32_t)node->slot : FR_SUSPECT_NOWHERE);
}

static void check_node(const struct search *s, const struct node *node)
{
    const struct space *space = &s->graph->variant->spaces[node->space];
    uint32_t n = fr_level_entries(s->graph, space->level);
    for (uint32_t e = 0; e < n; e++) {
        struct own own = {space->level == LEVEL_GROUP ? &s->groups[e] : &s->samples[e], e, e, 1};
        if (space->slot != FR_NO_INDEX) {
            own.begin = space->begin[e];
            own.count = space->begin[e + 1] - own.begin;
        }
        if (own.count == 0 || own.entry->why != FR_SUSPECT_NONE)
            continue;
        if (s->look == FR_SUSPECT_LOOK_SQUARES)
            check_squares(s, node, &own);
        else
            check_own(s, node, &own);
    }
}

/* ---- groups ---- */

static void pass_on_to_samples(const struct search *s)
{
    for (uint32_t g = 0; g < s->graph->n_groups; g++) {
        const struct fr_suspect *group = &s->groups[g];
        uint32_t begin = s->batch->group_begin[g], end = s->batch->group_begin[g + 1];
        bool known = group->why == FR_SUSPECT_NONE;
        for (uint32_t i = begin; i < end && group->why != FR_SUSPECT_VALUE; i++)
            known |= s->samples[i].why != FR_SUSPECT_NONE;
        for (uint32_t i = begin; i < end && !known; i++)
            if (group->why == FR_SUSPECT_VALUE || s->graph->trained[i])
                suspect(&s->samples[i], group->why, group->where);
    }
}

static void check_nodes(struct search *s)
{
    const struct fr_graph *graph = s->graph;
    fr_graph_write_sums(&(struct graph_run){.graph = (struct fr_graph *)(uintptr_t)graph,
                                            .batch = s->batch,
                                            .rows = s->rows,
                                            .at_batch = s->batch,
                                            .at_rows = s->rows});
    s->groups = fr_alloc(graph->n_groups ? graph->n_groups : 1, sizeof(*s->groups));
    for (uint32_t n = 0; n < graph->variant->n_nodes; n++)
        if (graph->variant->nodes[n].width > 0)
            check_node(s, &graph->variant->nodes[n]);
    pass_on_to_samples(s);
    free(s->groups);
}

uint32_t fr_graph_suspects(const struct fr_graph *graph, const struct fr_batch *batch, const struct fr_rows *rows,
                           enum fr_suspect_look look, struct fr_suspect *suspects)
{
    struct search s = {.graph = graph, .batch = batch, .rows = rows, .look = look, .samples = suspects};
    FR_CHECK(graph->n_samples == batch->n_samples && look < FR_SUSPECT_LOOKS);
    if (batch->n_samples == 0)
        return 0;
    memset(suspects, 0, batch->n_samples * sizeof(*suspects));
    if (graph->device)
        fr_graph_device_borrow(graph);
    if (look == FR_SUSPECT_LOOK_LOGITS)
        check_logits(&s);
    else if (look == FR_SUSPECT_LOOK_OUTPUTS)
        check_output_gradients(&s);
    else
        check_nodes(&s);
    if (graph->device)
        fr_graph_device_return(graph);
    return count(&s);
}

/* ---- texts ---- */

static void describe(const struct fr_graph *graph, struct fr_suspect found, char *text, size_t size)
{
    const struct fr_conf *conf = graph->conf;
    const char *slot = "";
    if (found.where < conf->n_slots &&
        (found.why == FR_SUSPECT_VALUE || found.why == FR_SUSPECT_GRADIENT || found.why == FR_SUSPECT_ROW))
        slot = conf->slots[found.where].name;
    switch (found.why) {
    case FR_SUSPECT_LOGIT:
        snprintf(text, size, "the logit of %s is not finite", conf->tasks[found.where].name);
        break;
    case FR_SUSPECT_LOSS:
        snprintf(text, size, "the gradient of its loss is not finite or over %g", (double)FR_GRADIENT_MAX);
        break;
    case FR_SUSPECT_VALUE:
        snprintf(text, size, "a value of the network is not finite or too large%s%s", slot[0] ? ": slot " : "", slot);
        break;
    case FR_SUSPECT_GRADIENT:
        snprintf(text, size, "its gradient is not finite or over %g", (double)FR_GRADIENT_MAX);
        break;
    case FR_SUSPECT_ROW:
        snprintf(text, size, "its gradient of the rows of slot %s is not finite or over %g", slot,
                 (double)FR_GRADIENT_MAX);
        break;
    case FR_SUSPECT_NONE:
        snprintf(text, size, "a step with this sample is refused");
        break;
    }
}

/* Describes the largest number in the sample, which usually is the cause. */
static const char *largest_input(const struct fr_graph *graph, const struct fr_batch *batch, uint32_t sample,
                                 double *found)
{
    const char *name = NULL;
    for (uint32_t slot = 0; slot < batch->n_slots; slot++) {
        const struct fr_column *column = &batch->columns[slot];
        uint32_t entry = column->shared ? batch->group_of[sample] : sample;
        const float *x = column->dim ? column->dense + (size_t)entry * column->dim : column->weights;
        size_t n = column->dim;
        if (!column->dim && x) {
            x += column->begin[entry];
            n = column->begin[entry + 1] - column->begin[entry];
        }
        for (size_t i = 0; x && i < n; i++)
            if (!isnan(x[i]) && (!name || fabs((double)x[i]) > fabs(*found))) {
                name = graph->conf->slots[slot].name;
                *found = (double)x[i];
            }
    }
    return name;
}

void fr_graph_suspect_text(const struct fr_graph *graph, const struct fr_batch *batch, uint32_t sample,
                           struct fr_suspect found, char *text, size_t size)
{
    char why[160];
    double x = 0.0;
    describe(graph, found, why, sizeof(why));
    const char *name = largest_input(graph, batch, sample, &x);
    if (name)
        snprintf(text, size, "%s; largest number of its slots: %s %.9g", why, name, x);
    else
        snprintf(text, size, "%s", why);
}
