/* Memory of a batch: columns have room for the configured number of samples, grow on demand, and
 * are kept by fr_batch_clear.
 *
 * Invariants: every column has room for capacity_samples entries; begin[0] = 0; weights is NULL or
 * weights_storage. A steady stream allocates nothing: after the widest batch so far all arrays are
 * large enough.
 *
 * Owner: the thread that holds the batch. append.c fills the columns. */
#include "batch/records.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { DEFAULT_SAMPLES = 64, MIN_KEYS = 64 };

struct fr_batch *fr_batch_new(const struct fr_conf *conf)
{
    struct fr_batch *batch = fr_alloc(1, sizeof(*batch));
    batch->n_labels = conf->n_labels;
    batch->n_tasks = conf->n_tasks;
    batch->n_slots = conf->n_slots;
    batch->n_lanes = fr_conf_domains(conf);
    batch->lane_begin = fr_alloc(batch->n_lanes, sizeof(*batch->lane_begin));
    batch->columns = fr_alloc(batch->n_slots ? batch->n_slots : 1, sizeof(*batch->columns));
    for (uint32_t s = 0; s < batch->n_slots; s++)
        batch->columns[s].dim = fr_slot_has_numbers(conf->slots[s].kind) ? fr_conf_slot_numbers(&conf->slots[s]) : 0;
    fr_batch_reserve(batch, conf->ingest.batch_size ? conf->ingest.batch_size : DEFAULT_SAMPLES);
    fr_batch_clear(batch);
    return batch;
}

void fr_batch_free(struct fr_batch *batch)
{
    if (!batch)
        return;
    for (uint32_t s = 0; s < batch->n_slots; s++) {
        struct fr_column *column = &batch->columns[s];
        free(column->begin);
        free(column->keys);
        free(column->weights_storage);
        free(column->dense);
    }
    free(batch->columns);
    free(batch->group_begin);
    free(batch->group_of);
    free(batch->lane_begin);
    free(batch->t_ms);
    free(batch->origin);
    free(batch->use);
    free(batch->role);
    free(batch->labels);
    free(batch->weights);
    free(batch->keep);
    free(batch->served_storage);
    free(batch->positions);
    fr_batch_drop_records(batch);
    free(batch->records);
    fr_buffer_release(&batch->record_bytes);
    free(batch->gathered);
    free(batch);
}

void fr_batch_clear(struct fr_batch *batch)
{
    batch->n_samples = 0;
    batch->n_groups = 0;
    batch->group_begin[0] = 0;
    memset(batch->lane_begin, 0, batch->n_lanes * sizeof(*batch->lane_begin));
    for (uint32_t s = 0; s < batch->n_slots; s++) {
        batch->columns[s].weights = NULL;
        batch->columns[s].shared = false;
        if (batch->columns[s].begin)
            batch->columns[s].begin[0] = 0;
    }
    batch->served = NULL;
    batch->ids = 0;
    batch->n_positions = 0;
    fr_batch_drop_records(batch);
    batch->dead_sequence = 0;
    batch->kafka_t_max_ms = 0;
    batch->born_mono_ns = 0;
    batch->end_of_stream = false;
    batch->unknown_slots = batch->unknown_keys = batch->excess_ids = 0;
}

/* Grows a label-major matrix; its rows move apart when the capacity grows. */
static float *widen(float *matrix, uint32_t rows, const struct fr_batch *batch, uint32_t capacity)
{
    size_t n;
    FR_CHECK(fr_mul_size(rows, capacity, &n));
    float *wide = fr_alloc(n ? n : 1, sizeof(*wide));
    for (uint32_t r = 0; batch->n_samples > 0 && r < rows; r++)
        memcpy(wide + (size_t)r * capacity, matrix + (size_t)r * batch->capacity_samples,
               batch->n_samples * sizeof(*wide));
    free(matrix);
    return wide;
}

void fr_batch_reserve(struct fr_batch *batch, uint32_t samples)
{
    if (samples <= batch->capacity_samples)
        return;
    uint32_t capacity = samples;
    if (batch->capacity_samples <= UINT32_MAX / 2 && capacity < 2 * batch->capacity_samples)
        capacity = 2 * batch->capacity_samples;
    batch->group_begin = fr_realloc(batch->group_begin, (size_t)capacity + 1, sizeof(*batch->group_begin));
    batch->group_of = fr_realloc(batch->group_of, capacity, sizeof(*batch->group_of));
    batch->keep = fr_realloc(batch->keep, capacity, sizeof(*batch->keep));
    batch->t_ms = fr_realloc(batch->t_ms, capacity, sizeof(*batch->t_ms));
    batch->origin = fr_realloc(batch->origin, capacity, sizeof(*batch->origin));
    batch->use = fr_realloc(batch->use, capacity, sizeof(*batch->use));
    batch->role = fr_realloc(batch->role, capacity, sizeof(*batch->role));
    batch->labels = widen(batch->labels, batch->n_labels, batch, capacity);
    batch->weights = widen(batch->weights, batch->n_labels, batch, capacity);
    if (batch->served)
        batch->served = batch->served_storage = widen(batch->served, batch->n_tasks, batch, capacity);
    else {
        free(batch->served_storage);
        batch->served_storage = NULL;
    }
    for (uint32_t s = 0; s < batch->n_slots; s++) {
        struct fr_column *column = &batch->columns[s];
        if (column->dim) {
            FR_CHECK(fr_mul_size(capacity, column->dim, &column->capacity_dense));
            column->dense = fr_realloc(column->dense, column->capacity_dense, sizeof(*column->dense));
        } else {
            column->begin = fr_realloc(column->begin, (size_t)capacity + 1, sizeof(*column->begin));
        }
        column->capacity_entries = capacity;
    }
    batch->capacity_samples = capacity;
}

void fr_column_reserve_keys(struct fr_column *column, size_t keys)
{
    if (keys <= column->capacity_keys)
        return;
    /* `begin` has 32 bits, which suffice because the configuration keeps batch_size * max_ids
     * below 2^32 */
    FR_CHECK(keys <= UINT32_MAX);
    size_t capacity = keys < 2 * column->capacity_keys ? 2 * column->capacity_keys : keys;
    column->capacity_keys = capacity < MIN_KEYS ? MIN_KEYS : capacity;
    column->keys = fr_realloc(column->keys, column->capacity_keys, sizeof(*column->keys));
}
