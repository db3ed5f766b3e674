/* Scoring on the replica: the daemon's own decoder and network over the served rows (P12). A score
 * is the probability of the task's logit, the prediction itself for mse.
 *
 * Every occurrence is resolved by itself, without deduplication: the forward pass reads values by
 * occurrence, so the numbers are those of the trainer's deduplicated batch. A key without a row is
 * NULL, which the network takes as zeros.
 *
 * Owner: the replica's thread. It does not look at labels, weights or times. */
#include "replica_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"

uint32_t freshet_replica_tasks(const struct freshet_replica *replica)
{
    return replica->model ? replica->model->conf->n_tasks : 0;
}

const char *freshet_replica_task_name(const struct freshet_replica *replica, uint32_t task)
{
    return task < freshet_replica_tasks(replica) ? replica->model->conf->tasks[task].name : "";
}

const char *freshet_replica_trained_kernel(const struct freshet_replica *replica)
{
    return replica->model ? replica->model->kernel : "";
}

const char *freshet_replica_scoring_kernel(const struct freshet_replica *replica)
{
    return replica->model ? fr_graph_kernel(replica->model->graph) : "";
}

const char *freshet_replica_score_problem(const struct freshet_replica *replica)
{
    return replica->score_problem;
}

static void reserve_occurrences(struct fr_served_model *model, uint32_t table, size_t needed)
{
    if (needed <= model->table_rows_capacity[table])
        return;
    size_t capacity = model->table_rows_capacity[table] ? model->table_rows_capacity[table] : 256;
    while (capacity < needed)
        capacity *= 2;
    struct fr_table_rows *rows = &model->table_rows[table];
    rows->keys = fr_realloc(rows->keys, capacity, sizeof(*rows->keys));
    rows->rows = fr_realloc(rows->rows, capacity, sizeof(*rows->rows));
    rows->unique_of = fr_realloc(rows->unique_of, capacity, sizeof(*rows->unique_of));
    model->table_rows_capacity[table] = capacity;
}

static void resolve(struct fr_served_model *model)
{
    const struct fr_batch *batch = model->batch;
    for (uint32_t t = 0; t < model->n_tables; t++)
        model->table_rows[t].n_unique = model->table_rows[t].n_occurrences = 0;
    for (uint32_t s = 0; s < model->conf->n_slots; s++) {
        int32_t t = model->conf->slots[s].table;
        if (t == FR_NO_INDEX)
            continue;
        struct fr_table_rows *rows = &model->table_rows[t];
        uint32_t n = batch->columns[s].begin[fr_batch_entries(batch, s)], base = rows->n_occurrences;
        FR_CHECK(n <= UINT32_MAX - base);
        reserve_occurrences(model, (uint32_t)t, (size_t)base + n);
        model->rows.slot_base[s] = base;
        for (uint32_t i = 0; i < n; i++) {
            rows->keys[base + i] = batch->columns[s].keys[i];
            rows->rows[base + i] = fr_row_map_find(&model->tables[t].rows, batch->columns[s].keys[i]);
            rows->unique_of[base + i] = base + i;
        }
        rows->n_occurrences = rows->n_unique = base + n;
    }
}

static int problem(struct freshet_replica *replica, int status, const char *text)
{
    size_t size = strnlen(text, sizeof(replica->score_problem) - 1);
    memcpy(replica->score_problem, text, size);
    replica->score_problem[size] = 0;
    return status;
}

static int score(struct freshet_replica *replica, enum fr_format format, const void *bytes, size_t size, float *scores,
                 uint32_t *n_samples)
{
    struct fr_served_model *model = replica->model;
    if (!model || model->n_received < model->n_parameters)
        return problem(replica, FRESHET_E_NOT_READY, "the model and its dense parameters are not there yet");
    if (!model->decoders[format])
        model->decoders[format] = fr_decoder_new_scoring(model->conf, format);
    struct fr_record record = {.value = bytes, .size = size};
    const char *reason = "";
    uint32_t n = 0, room = *n_samples;
    if (fr_decode_record(model->decoders[format], &record, &n, &reason) != FR_OK)
        return problem(replica, FRESHET_E_INVALID, reason);
    *n_samples = n;
    if (n > room)
        return problem(replica, FRESHET_E_INVALID, "the record has more samples than there is room for scores");
    replica->score_problem[0] = '\0';
    if (n == 0)
        return FRESHET_OK;
    fr_batch_clear(model->batch);
    fr_decode_append(model->decoders[format], 0, n, model->batch);
    resolve(model);
    fr_graph_forward(model->graph, model->batch, &model->rows);
    for (uint32_t k = 0; k < model->conf->n_tasks; k++) {
        const float *logits = fr_graph_logits(model->graph, k);
        for (uint32_t i = 0; i < n; i++)
            scores[(size_t)i * model->conf->n_tasks + k] =
                model->conf->tasks[k].loss == FR_LOSS_MSE ? logits[i] : fr_sigmoidf(logits[i]);
    }
    return FRESHET_OK;
}

int freshet_replica_score_json(struct freshet_replica *replica, const char *json, size_t size, float *scores,
                               uint32_t *n_samples)
{
    return score(replica, FR_FORMAT_JSON, json, size, scores, n_samples);
}

int freshet_replica_score_msgpack(struct freshet_replica *replica, const void *bytes, size_t size, float *scores,
                                  uint32_t *n_samples)
{
    return score(replica, FR_FORMAT_MSGPACK, bytes, size, scores, n_samples);
}
