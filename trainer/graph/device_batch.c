/* Sends a batch and its plan to the device, in the batch's arena. Columns, labels, occurrences
 * of keys and long keys come first, possibly while the previous step computes. Masks of steps,
 * what trains, and what counts for which loss follow. All of these are computed from what the
 * host has, so no answer of the device is needed.
 *
 * Owner thread: the graph's. Rows are sent by device_rows.c. */
#include "learning.h"
#include "passes.h"

#include <string.h>

static const void *put(struct graph_device *device, const void *array, size_t n, size_t size)
{
    return array ? fr_graph_device_put(device, array, n * size) : NULL;
}
#define PUT(device, array, n) put(device, array, n, sizeof(*(array)))

/* Puts an array that does not change until the arena is sent. */
static const void *put_later(struct graph_device *device, const void *array, size_t n, size_t size)
{
    return array ? fr_graph_device_put_later(device, array, n * size) : NULL;
}
#define PUT_LATER(device, array, n) put_later(device, array, n, sizeof(*(array)))
/* The batch's own arrays are not const; operations only read them. */
#define PUT_FIELD(device, to, from, field, n) (to).field = (void *)(uintptr_t)PUT_LATER(device, (from)->field, n)

/* ---- the batch ---- */

static void send_column(struct graph_device *device, struct fr_column *to, const struct fr_batch *batch, uint32_t slot,
                        bool wants_numbers)
{
    const struct fr_column *from = &batch->columns[slot];
    size_t entries = fr_batch_entries(batch, slot);
    *to = *from;
    to->keys = NULL;
    PUT_FIELD(device, *to, from, dense, wants_numbers ? entries * from->dim : 0);
    if (!from->begin)
        return;
    PUT_FIELD(device, *to, from, begin, entries + 1);
    PUT_FIELD(device, *to, from, weights, from->begin[entries]);
}

/* Sends the weights, multiplied by 1/s if training compensates for samples that were dropped. */
static void send_weights(const struct fr_graph *graph, struct arrival *to, const struct fr_batch *batch)
{
    void *host;
    size_t n = (size_t)batch->n_labels * batch->capacity_samples;
    to->batch.weights = fr_graph_device_room(graph->device, n * sizeof(float), &host);
    if (!host)
        return;
    bool scaled = graph->conf->ingest.sampling == FR_SAMPLING_ALL && batch->keep;
    for (uint32_t l = 0; l < batch->n_labels; l++) {
        const float *from = batch->weights + (size_t)l * batch->capacity_samples;
        float *there = (float *)host + (size_t)l * batch->capacity_samples;
        if (!scaled)
            fr_graph_device_copy_later(graph->device, there, from, batch->n_samples * sizeof(float));
        for (uint32_t i = 0; i < batch->n_samples && scaled; i++)
            there[i] = from[i] / batch->keep[i];
    }
}

/* ---- keys ---- */

/* Sends the keys with more than one block of occurrences, and reserves room for the sums of
 * their blocks. */
static struct fr_device_long_keys send_long_keys(const struct fr_graph *graph, const struct fr_table_rows *rows,
                                                 const struct key_list *longs, uint32_t t)
{
    struct graph_device *device = graph->device;
    struct fr_device_long_keys keys = {0};
    uint32_t dims = 0, at = 0;
    void *unique, *begin, *first, *none;
    for (uint32_t i = 0; i < longs->n; i++) {
        uint32_t u = longs->of[i];
        keys.n_blocks += fr_blocks_of(rows->occ_begin[u + 1] - rows->occ_begin[u], FR_OCCURRENCE_BLOCK);
    }
    if (keys.n_blocks == 0)
        return keys;
    for (uint32_t p = 0; p < graph->layouts[t].n_parts; p++)
        dims += graph->layouts[t].parts[p].dim;
    keys.unique = fr_graph_device_room(device, keys.n_blocks * sizeof(uint32_t), &unique);
    keys.begin = fr_graph_device_room(device, keys.n_blocks * sizeof(uint32_t), &begin);
    keys.first_block = fr_graph_device_room(device, rows->n_unique * sizeof(uint32_t), &first);
    keys.sums = fr_graph_device_room(device, (size_t)keys.n_blocks * dims * sizeof(float), &none);
    keys.counts =
        fr_graph_device_room(device, (size_t)keys.n_blocks * graph->layouts[t].n_parts * sizeof(uint32_t), &none);
    if (!unique || !begin || !first || !none)
        return (struct fr_device_long_keys){0};
    memset(first, UINT8_MAX, rows->n_unique * sizeof(uint32_t));
    for (uint32_t i = 0; i < longs->n; i++) {
        uint32_t u = longs->of[i];
        ((uint32_t *)first)[u] = at;
        for (uint32_t o = rows->occ_begin[u]; o < rows->occ_begin[u + 1]; o += FR_OCCURRENCE_BLOCK) {
            ((uint32_t *)unique)[at] = u;
            ((uint32_t *)begin)[at++] = o;
        }
    }
    return keys;
}
_Static_assert(FR_DEVICE_SHORT == UINT32_MAX, "bytes of 255");

static void send_keys(const struct fr_graph *graph, struct arrival *arrival, const struct fr_table_rows *from,
                      uint32_t t)
{
    struct graph_device *device = graph->device;
    struct fr_table_rows *to = &arrival->rows.tables[t];
    to->n_unique = from->n_unique;
    to->n_occurrences = from->n_occurrences;
    PUT_FIELD(device, *to, from, unique_of, from->n_occurrences);
    PUT_FIELD(device, *to, from, occ_begin, (size_t)from->n_unique + 1);
    PUT_FIELD(device, *to, from, occ, from->n_occurrences);
    PUT_FIELD(device, *to, from, occ_from, from->n_occurrences);
}

/* ---- steps ---- */

/* Masks the steps without a row that a replica would have. */
static void mask_steps(const struct graph_run *run, const struct space *space)
{
    const struct fr_table_rows *table = &run->rows->tables[run->graph->conf->slots[space->slot].table];
    const uint32_t *unique_of = table->unique_of + run->rows->slot_base[space->slot];
    float *const *served = table->served ? table->served : table->rows;
    for (uint32_t p = 0; p < space->rows; p++)
        space->masked[p] = served[unique_of[p]] == NULL;
}

void fr_graph_device_send_steps(struct graph_run *run)
{
    const struct fr_graph *graph = run->graph;
    struct graph_device *device = graph->device;
    struct variant *v = graph->variant;
    for (uint32_t s = SPACE_GROUPS + 1; s < v->n_spaces; s++)
        if (v->spaces[s].from == FR_NO_INDEX)
            mask_steps(run, &v->spaces[s]);
    if (graph->n_samples > 0) {
        struct chunk all = fr_chunk_of(graph, LEVEL_SAMPLE, 0, 0);
        fr_graph_fill_expanded(run, &all);
    }
    for (uint32_t s = SPACE_GROUPS + 1; s < v->n_spaces; s++) {
        struct space *space = &v->spaces[s];
        size_t entries = fr_level_entries(graph, space->level);
        space->at_begin = PUT_LATER(device, space->begin, entries + 1);
        space->at_masked = (uint8_t *)(uintptr_t)PUT_LATER(device, space->masked, space->rows);
        space->at_source = space->from == FR_NO_INDEX ? NULL : PUT_LATER(device, space->source, space->rows);
    }
}

void fr_graph_device_send_batch(const struct fr_graph *graph, struct arrival *to, const struct fr_batch *batch,
                                const struct fr_rows *rows)
{
    struct graph_device *device = graph->device;
    to->batch = *batch;
    to->batch.columns = to->columns;
    for (uint32_t s = 0; s < batch->n_slots; s++)
        send_column(device, &to->columns[s], batch, s, fr_bit(graph->slots_read, s));
    PUT_FIELD(device, to->batch, batch, group_begin, (size_t)batch->n_groups + 1);
    PUT_FIELD(device, to->batch, batch, group_of, batch->n_samples);
    PUT_FIELD(device, to->batch, batch, labels, (size_t)batch->n_labels * batch->capacity_samples);
    send_weights(graph, to, batch);
    to->rows.n_tables = rows->n_tables;
    to->rows.n_slots = rows->n_slots;
    for (uint32_t t = 0; t < graph->conf->n_tables; t++)
        send_keys(graph, to, &rows->tables[t], t);
    if (++device->turn == 0) /* 0 marks no arrival */
        device->turn++;
    to->turn = device->turn;
    fr_graph_device_find_keys(graph, to, rows);
    for (uint32_t t = 0; t < graph->conf->n_tables; t++) {
        to->plans[t].keys = send_long_keys(graph, &rows->tables[t], &to->plans[t].longs, t);
        to->plans[t].sent = false;
    }
}

/* ---- what trains ---- */

void fr_graph_device_send_training(struct graph_run *run)
{
    struct fr_graph *graph = run->graph;
    struct graph_device *device = graph->device;
    device->trained = (uint8_t *)(uintptr_t)PUT(device, graph->trained, graph->n_samples);
    for (uint32_t i = 0; i < graph->n_loss_sets; i++) {
        struct loss_set *set = &graph->loss_sets[i];
        set->at_samples = PUT(device, set->samples, graph->n_samples);
        set->at_groups = PUT(device, set->groups, graph->n_groups);
    }
    if (graph->n_samples <= device->capacity_counts)
        return;
    fr_graph_release(graph, device->step_counts);
    device->capacity_counts = graph->capacity_samples;
    device->step_counts = fr_graph_memory(graph, device->capacity_counts * sizeof(uint32_t));
}
