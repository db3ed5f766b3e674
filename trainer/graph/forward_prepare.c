/* Preparing a batch: the variant of the network that it needs, the number of rows of each space,
 * and their memory.
 *
 * Memory only grows: nothing is allocated for a batch not larger than an earlier one of the same
 * variant. Numbers do not depend on which variants were there before.
 *
 * Owner thread: the graph's. Nothing is computed here. */
#include "passes.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };

static size_t bytes_of(size_t rows, size_t columns)
{
    size_t n, bytes;
    FR_CHECK(fr_mul_size(rows, columns, &n) && fr_mul_size(n, sizeof(float), &bytes));
    return bytes ? bytes : ALIGNMENT;
}

/* Two functions: memory that operations read and write, and memory that only the host uses. */
static float *floats(const struct fr_graph *graph, size_t rows, size_t columns)
{
    return fr_graph_memory(graph, bytes_of(rows, columns));
}

static float *host_floats(size_t rows, size_t columns)
{
    return fr_alloc_aligned(ALIGNMENT, bytes_of(rows, columns));
}

/* ---- variants ---- */

static bool batch_has_shared(const struct fr_batch *batch)
{
    for (uint32_t s = 0; s < batch->n_slots; s++)
        if (batch->columns[s].shared)
            return true;
    return false;
}

static struct variant *compile_another(struct fr_graph *graph, const uint64_t *shared)
{
    uint32_t at = graph->n_variants;
    if (at == FR_VARIANTS_MAX) {
        at = 1;
        for (uint32_t i = 2; i < FR_VARIANTS_MAX; i++)
            if (graph->variants[i]->last_used < graph->variants[at]->last_used)
                at = i;
        fr_graph_free_variant(graph, graph->variants[at]);
    } else {
        graph->n_variants++;
    }
    graph->variants[at] = fr_graph_compile(graph, shared);
    if (!graph->scoring_only)
        fr_graph_find_loss_sets(graph, graph->variants[at]);
    return graph->variants[at];
}

static struct variant *variant_for(struct fr_graph *graph, const struct fr_batch *batch)
{
    uint64_t shared[FR_SLOTS_MAX / 64] = {0};
    for (uint32_t s = 0; s < batch->n_slots; s++)
        if (batch->columns[s].shared && fr_bit(graph->slots_read, s))
            shared[s / 64] |= 1ull << s % 64;
    for (uint32_t i = 0; i < graph->n_variants; i++)
        if (memcmp(graph->variants[i]->shared, shared, sizeof(shared)) == 0)
            return graph->variants[i];
    return compile_another(graph, shared);
}

static size_t variant_bytes(const struct variant *v)
{
    size_t floats = 0;
    for (uint32_t i = 0; i < v->n_buffers; i++)
        floats += v->spaces[v->buffers[i].space].capacity * v->buffers[i].ld * (v->buffers[i].gradients ? 2 : 1);
    for (uint32_t n = 0; n < v->n_nodes; n++)
        floats += (size_t)v->spaces[v->nodes[n].space].capacity * v->nodes[n].extra_width;
    return floats * sizeof(float);
}

size_t fr_graph_variant_bytes(const struct fr_graph *graph)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < graph->n_variants; i++)
        bytes += variant_bytes(graph->variants[i]);
    return bytes;
}

/* Frees the least recently used variants, but neither the current one nor the first. */
static void drop_variants(struct fr_graph *graph)
{
    while (fr_graph_variant_bytes(graph) > graph->variant_bytes_max) {
        uint32_t oldest = 0;
        for (uint32_t i = 1; i < graph->n_variants; i++)
            if (graph->variants[i] != graph->variant &&
                (oldest == 0 || graph->variants[i]->last_used < graph->variants[oldest]->last_used))
                oldest = i;
        if (oldest == 0)
            return;
        fr_graph_free_variant(graph, graph->variants[oldest]);
        graph->variants[oldest] = graph->variants[--graph->n_variants];
    }
}

/* ---- lanes ---- */

/* Without groups in the graph, each sample is a group, whose number in the batch may be another. */
static void cut_lanes(struct fr_graph *graph, const struct fr_batch *batch)
{
    _Static_assert((int)FR_LANES_MAX == (int)FR_DOMAINS_MAX, "a lane for each domain");
    struct lanes *lanes = &graph->lanes;
    /* a graph that only scores sums nothing over samples */
    lanes->n = batch->n_lanes > 1 && !graph->scoring_only ? batch->n_lanes : 1;
    FR_CHECK(lanes->n <= FR_LANES_MAX && (lanes->n == 1 || !graph->device));
    for (uint32_t level = 0; level < LEVELS; level++) {
        struct lane_begin *begin = lanes->begin[level];
        uint32_t n = fr_level_entries(graph, (enum level)level);
        begin[0] = (struct lane_begin){0, 0};
        for (uint32_t l = 1; l <= lanes->n; l++) {
            begin[l].entry = l == lanes->n || n == 0 ? n : fr_batch_lane_entry(batch, level == LEVEL_GROUP, l);
            FR_CHECK(begin[l].entry >= begin[l - 1].entry && begin[l].entry <= n);
            begin[l].chunk = begin[l - 1].chunk + fr_blocks_of(begin[l].entry - begin[l - 1].entry, graph->chunk_rows);
        }
    }
}

/* The most chunks of a level that a batch of this size can have, however lanes divide it. */
static uint32_t chunks_max(const struct fr_graph *graph, enum level level)
{
    uint32_t n = fr_level_entries(graph, level);
    return n ? fr_blocks_of(n, graph->chunk_rows) + graph->lanes.n - 1 : 0;
}

/* ---- memory of the batch, outside the variants ---- */

static void reserve_pair_samples(struct fr_graph *graph, uint32_t capacity)
{
    for (uint32_t t = 0; t < graph->conf->n_tasks; t++) {
        struct task_pairs *pairs = &graph->tasks[t].pairs;
        if (fr_loss_terms(graph->conf->tasks[t].loss) != FR_TRAINS_PAIRS)
            continue;
        free(pairs->order);
        free(pairs->lower);
        pairs->order = fr_alloc(capacity, sizeof(*pairs->order));
        pairs->lower = fr_alloc(capacity, sizeof(*pairs->lower));
        free(graph->pair_sums);
        free(graph->pair_blocks);
        graph->pair_sums = fr_alloc(capacity, sizeof(*graph->pair_sums));
        graph->pair_blocks =
            fr_alloc(fr_blocks_of(capacity, FR_PAIR_SAMPLES) + FR_LANES_MAX - 1, sizeof(*graph->pair_blocks));
    }
}

static void reserve_samples(struct fr_graph *graph, uint32_t capacity)
{
    for (uint32_t k = 0; k < graph->n_outputs; k++) {
        fr_graph_release(graph, graph->outputs[k].values);
        fr_graph_release(graph, graph->outputs[k].gradient);
        graph->outputs[k].values = floats(graph, capacity, 1);
        graph->outputs[k].gradient = floats(graph, capacity, 1);
    }
    for (uint32_t t = 0; t < graph->conf->n_tasks; t++) {
        fr_graph_answer_release(graph, graph->tasks[t].logits);
        graph->tasks[t].logits = fr_graph_answer_memory(graph, bytes_of(capacity, 1));
        if (graph->device) {
            fr_graph_release(graph, graph->tasks[t].at_logits);
            graph->tasks[t].at_logits = floats(graph, capacity, 1);
        } else {
            graph->tasks[t].at_logits = graph->tasks[t].logits;
        }
    }
    free(graph->trained);
    free(graph->effective_weights);
    free(graph->sample_losses);
    free(graph->step_counts);
    graph->trained = fr_alloc(capacity, 1);
    graph->effective_weights = host_floats(capacity, 1);
    graph->sample_losses = fr_alloc(capacity, sizeof(*graph->sample_losses));
    graph->step_counts = fr_alloc(capacity, sizeof(*graph->step_counts));
    for (uint32_t i = 0; i < graph->n_loss_sets; i++) {
        free(graph->loss_sets[i].samples);
        graph->loss_sets[i].samples = fr_alloc(capacity, sizeof(uint32_t));
    }
    if (!graph->scoring_only)
        reserve_pair_samples(graph, capacity);
    graph->capacity_samples = capacity;
}

/* Reserves memory for the pairs of the batch, whether its columns are shared or not. */
static void reserve_pairs(struct fr_graph *graph, uint32_t n_groups)
{
    if (n_groups <= graph->capacity_pair_groups)
        return;
    graph->capacity_pair_groups = n_groups;
    for (uint32_t t = 0; t < graph->conf->n_tasks; t++)
        if (fr_loss_terms(graph->conf->tasks[t].loss) == FR_TRAINS_PAIRS)
            graph->tasks[t].pairs.groups =
                fr_realloc(graph->tasks[t].pairs.groups, n_groups, sizeof(*graph->tasks[t].pairs.groups));
}

static void reserve_chunks(struct fr_graph *graph)
{
    bool grow = false;
    for (uint32_t level = 0; level < LEVELS; level++) {
        uint32_t n = chunks_max(graph, (enum level)level);
        grow |= n > graph->capacity_chunks[level];
        if (n > graph->capacity_chunks[level])
            graph->capacity_chunks[level] = n;
    }
    if (!grow)
        return;
    free(graph->chunk_bits);
    free(graph->loss_partial);
    size_t chunks = (size_t)graph->capacity_chunks[LEVEL_SAMPLE] + graph->capacity_chunks[LEVEL_GROUP];
    graph->chunk_bits = fr_alloc(chunks, sizeof(*graph->chunk_bits));
    graph->loss_partial = fr_alloc((size_t)graph->capacity_chunks[LEVEL_SAMPLE] * (graph->conf->n_losses + 1),
                                   sizeof(*graph->loss_partial));
}

/* ---- rows and memory of the variant ---- */

static uint32_t whole_chunks(const struct fr_graph *graph, uint32_t rows)
{
    uint32_t size = graph->conf->chunk_rows, chunks = fr_blocks_of(rows, size);
    FR_CHECK(chunks <= UINT32_MAX / size);
    return (chunks ? chunks : 1) * size;
}

/* Computes where the steps of a shared sequence lie when every sample of a group gets a copy of
 * them. */
static void expand_begin(struct variant *v, struct space *space, const struct fr_batch *batch)
{
    const uint32_t *from = v->spaces[space->from].begin;
    if (batch->n_samples >= space->capacity_entries) {
        space->capacity_entries = batch->n_samples + 1;
        space->expanded = fr_realloc(space->expanded, space->capacity_entries, sizeof(*space->expanded));
    }
    uint64_t rows = 0;
    space->expanded[0] = 0;
    for (uint32_t i = 0; i < batch->n_samples; i++) {
        uint32_t g = batch->group_of[i];
        rows += from[g + 1] - from[g];
        FR_CHECK(rows <= UINT32_MAX / 2);
        space->expanded[i + 1] = (uint32_t)rows;
    }
    space->begin = space->expanded;
    space->rows = (uint32_t)rows;
}

static void set_rows(const struct fr_graph *graph, struct variant *v, const struct fr_batch *batch)
{
    v->spaces[SPACE_SAMPLES].rows = batch->n_samples;
    v->spaces[SPACE_GROUPS].rows = graph->n_groups;
    /* the space that a space is expanded from comes before it */
    for (uint32_t s = SPACE_GROUPS + 1; s < v->n_spaces; s++) {
        struct space *space = &v->spaces[s];
        if (space->from != FR_NO_INDEX) {
            expand_begin(v, space, batch);
            continue;
        }
        space->begin = batch->columns[space->slot].begin;
        space->rows = space->begin[fr_level_entries(graph, space->level)];
    }
}

/* Makes the processor's operations read the host's arrays. */
static void set_places(const struct fr_graph *graph, struct variant *v)
{
    for (uint32_t s = 0; s < v->n_spaces; s++) {
        v->spaces[s].at_begin = v->spaces[s].begin;
        v->spaces[s].at_masked = v->spaces[s].masked;
        v->spaces[s].at_source = v->spaces[s].source;
    }
    for (uint32_t i = 0; i < graph->n_loss_sets; i++) {
        graph->loss_sets[i].at_samples = graph->loss_sets[i].samples;
        graph->loss_sets[i].at_groups = graph->loss_sets[i].groups;
    }
}

/* Each block of packed rows begins at a place of its own and may be padded; a lane has at most one
 * block that is not whole. */
static void grow_linear(const struct fr_graph *graph, struct linear *linear, uint32_t capacity)
{
    uint32_t blocks = fr_linear_blocks(graph, linear, capacity), lanes = graph->lanes.n;
    uint32_t rows = blocks > 1 ? FR_SUM_ROWS : capacity;
    size_t packed = graph->device ? 0 : blocks * graph->ops->packed_floats(rows, linear->out);
    if (packed > 0 && lanes > 1)
        packed += lanes * graph->ops->packed_floats(FR_PACK_PADDING, linear->out);
    free(linear->packed);
    free(linear->block_sums);
    linear->packed_floats = packed;
    linear->packed = packed ? host_floats(1, packed) : NULL;
    linear->block_sums = blocks > 1 && lanes == 1 ? host_floats((size_t)blocks * linear->in, linear->out) : NULL;
}

static void grow_space(const struct fr_graph *graph, struct variant *v, uint32_t s)
{
    struct space *space = &v->spaces[s];
    bool steps = space->slot != FR_NO_INDEX;
    space->capacity = whole_chunks(graph, steps ? space->rows + space->rows / 2 : space->rows);
    if (steps) {
        free(space->masked);
        free(space->source);
        space->masked = fr_alloc(space->capacity, 1);
        space->source = space->from == FR_NO_INDEX ? NULL : fr_alloc(space->capacity, sizeof(*space->source));
    }
    for (uint32_t i = 0; i < v->n_buffers; i++) {
        struct node_buffer *buffer = &v->buffers[i];
        if (buffer->space != s)
            continue;
        fr_graph_release(graph, buffer->values);
        fr_graph_release(graph, buffer->gradients);
        buffer->values = floats(graph, space->capacity, buffer->ld);
        buffer->gradients = NULL;
    }
    for (uint32_t n = 0; n < v->n_nodes; n++) {
        struct node *node = &v->nodes[n];
        if (node->reached && node->width > 0 && node->space == s && !v->buffers[node->buffer].gradients)
            v->buffers[node->buffer].gradients = floats(graph, space->capacity, v->buffers[node->buffer].ld);
        if (node->extra_width > 0 && node->space == s) {
            fr_graph_release(graph, node->extra);
            node->extra = floats(graph, space->capacity, node->extra_width);
        }
        if (node->linear == FR_NO_INDEX || !node->reached || node->space != s)
            continue;
        grow_linear(graph, &v->linears[node->linear], space->capacity);
    }
}

static void reserve_partials(const struct fr_graph *graph, struct variant *v, enum level level)
{
    uint32_t chunks = chunks_max(graph, level);
    if (chunks <= v->capacity_chunks[level])
        return;
    v->capacity_chunks[level] = chunks;
    for (uint32_t n = 0; n < v->n_nodes; n++) {
        struct node *node = &v->nodes[n];
        for (uint32_t p = 0; p < node->n_partials && node->reached && v->spaces[node->space].level == level; p++) {
            fr_graph_release(graph, node->partials[p].values);
            node->partials[p].values = floats(graph, chunks, node->partials[p].n);
        }
    }
}

/* Memory for the products of several lanes, and the place of each lane's packed gradients. */
static void reserve_lanes(struct fr_graph *graph, struct variant *v)
{
    size_t floats = 0, padded = 0;
    for (uint32_t l = 0; l < v->n_linears; l++) {
        struct linear *linear = &v->linears[l];
        if ((size_t)graph->chunk_rows * (linear->in + linear->out) > padded)
            padded = (size_t)graph->chunk_rows * (linear->in + linear->out);
        if (!v->nodes[linear->node].reached)
            continue;
        FR_CHECK(graph->device || fr_graph_place_gradients(graph, linear) <= linear->packed_floats);
        if ((size_t)FR_ROW_BLOCK * linear->out > floats)
            floats = (size_t)FR_ROW_BLOCK * linear->out;
    }
    if (graph->lanes.n > 1 && floats > graph->lane_floats) {
        free(graph->lane_products);
        graph->lane_products = host_floats((size_t)graph->workers * FR_LANE_TREE_DEPTH, floats);
        graph->lane_floats = floats;
    }
    if (graph->lanes.n > 1 && graph->pads && padded > graph->padded_floats) {
        free(graph->padded);
        graph->padded = host_floats(graph->workers, padded);
        graph->padded_floats = padded;
    }
}

static size_t workspace_of(const struct fr_graph *graph, const struct variant *v, const struct node *node)
{
    if (graph->device)
        return fr_graph_device_workspace(graph, v, node);
    /* the workspace depends on the number of entries only */
    struct fr_steps steps = {.entry_end = graph->conf->chunk_rows};
    if (node->kind == NODE_GRU)
        return graph->ops->gru_workspace(&steps, node->width);
    if (node->kind == NODE_ATTENTION_DENSE)
        return graph->ops->attention_workspace(v->nodes[node->arguments[0].node].width, node->width);
    return 0;
}

static void reserve_workspace(struct fr_graph *graph, const struct variant *v)
{
    size_t needed = 0;
    for (uint32_t n = 0; n < v->n_nodes; n++) {
        size_t size = workspace_of(graph, v, &v->nodes[n]);
        needed = size > needed ? size : needed;
    }
    needed = (needed + 15) / 16 * 16;
    if (needed <= graph->workspace_floats)
        return;
    fr_graph_release(graph, graph->workspace);
    graph->workspace = floats(graph, graph->device ? 1 : graph->workers, needed);
    graph->workspace_floats = needed;
}

void fr_graph_prepare(struct graph_run *run)
{
    struct fr_graph *graph = run->graph;
    const struct fr_batch *batch = run->batch;
    FR_CHECK(batch->n_slots == graph->conf->n_slots);
    struct variant *v = variant_for(graph, batch);
    v->last_used = ++graph->variant_clock;
    graph->variant = v;
    graph->swept = false;
    graph->n_samples = batch->n_samples;
    graph->n_groups = batch_has_shared(batch) ? batch->n_groups : 0;
    cut_lanes(graph, batch);
    if (graph->n_samples > graph->capacity_samples || graph->capacity_samples == 0)
        reserve_samples(graph, whole_chunks(graph, graph->n_samples));
    reserve_chunks(graph);
    set_rows(graph, v, batch);
    bool grown = false;
    for (uint32_t s = 0; s < v->n_spaces; s++) {
        if (v->spaces[s].rows <= v->spaces[s].capacity && v->spaces[s].capacity > 0 &&
            graph->lanes.n <= v->capacity_lanes)
            continue;
        grow_space(graph, v, s);
        grown = true;
    }
    if (graph->lanes.n > v->capacity_lanes)
        v->capacity_lanes = graph->lanes.n;
    if (grown)
        drop_variants(graph);
    reserve_workspace(graph, v);
    if (graph->scoring_only) {
        set_places(graph, v);
        return;
    }
    FR_CHECK(run->rows->n_tables == graph->conf->n_tables && run->rows->n_slots == graph->conf->n_slots);
    reserve_pairs(graph, batch->n_groups);
    reserve_lanes(graph, v);
    for (uint32_t level = 0; level < LEVELS; level++)
        reserve_partials(graph, v, (enum level)level);
    if (graph->n_groups > graph->capacity_groups) {
        graph->capacity_groups = graph->n_groups;
        for (uint32_t i = 0; i < graph->n_loss_sets; i++)
            graph->loss_sets[i].groups =
                fr_realloc(graph->loss_sets[i].groups, graph->capacity_groups, sizeof(uint32_t));
    }
    set_places(graph, v);
    fr_graph_begin_sums(run);
}
