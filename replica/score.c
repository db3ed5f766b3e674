/* Scoring on the replica: the daemon's own decoder and network over the served rows (P12). A score
 * is the probability of the task's logit, the prediction itself for mse.
 *
 * Every occurrence is resolved by itself, without deduplication: the forward pass reads values by
 * occurrence, so the numbers are those of the trainer's deduplicated batch. A key without a row is
 * NULL, which the network takes as zeros.
 *
 * Owner: the replica's thread. It does not look at labels, weights or times. */
#include "replica_internal.h"

#include <stdio.h>
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
    return replica->model ? fr_graph_kernel(replica->model->scorer.graph) : "";
}

const char *freshet_replica_score_problem(const struct freshet_replica *replica)
{
    return replica->score_problem;
}

uint64_t freshet_replica_score_ignored(const struct freshet_replica *replica, char *names, size_t room)
{
    size_t size = 0;
    if (room)
        names[0] = 0;
    for (size_t f = 0; replica->model && !replica->model->scorer_broken && f < 2; f++) {
        const struct fr_decoder *decoder = replica->model->scorer.decoders[f];
        const struct fr_unknown_slots *unknown = decoder ? fr_decoder_unknown(decoder) : NULL;
        for (uint32_t i = 0; unknown && i < unknown->n && size + 1 < room; i++) {
            int more = snprintf(names + size, room - size, "%s%s", size ? " " : "", unknown->names[i]);
            size = size + (size_t)more < room ? size + (size_t)more : room - 1;
        }
    }
    return replica->score_ignored;
}

static void reserve_occurrences(struct fr_scorer *scorer, uint32_t table, size_t needed)
{
    if (needed <= scorer->table_rows_capacity[table])
        return;
    size_t capacity = scorer->table_rows_capacity[table] ? scorer->table_rows_capacity[table] : 256;
    while (capacity < needed)
        capacity *= 2;
    struct fr_table_rows *rows = &scorer->table_rows[table];
    rows->keys = fr_realloc(rows->keys, capacity, sizeof(*rows->keys));
    rows->rows = fr_realloc(rows->rows, capacity, sizeof(*rows->rows));
    rows->unique_of = fr_realloc(rows->unique_of, capacity, sizeof(*rows->unique_of));
    scorer->table_rows_capacity[table] = capacity;
}

static void resolve(struct fr_served_model *model)
{
    struct fr_scorer *scorer = &model->scorer;
    const struct fr_batch *batch = scorer->batch;
    for (uint32_t t = 0; t < model->n_tables; t++)
        scorer->table_rows[t].n_unique = scorer->table_rows[t].n_occurrences = 0;
    for (uint32_t s = 0; s < model->conf->n_slots; s++) {
        int32_t t = model->conf->slots[s].table;
        if (t == FR_NO_INDEX)
            continue;
        struct fr_table_rows *rows = &scorer->table_rows[t];
        uint32_t n = batch->columns[s].begin[fr_batch_entries(batch, s)], base = rows->n_occurrences;
        FR_CHECK(n <= UINT32_MAX - base);
        reserve_occurrences(scorer, (uint32_t)t, (size_t)base + n);
        scorer->rows.slot_base[s] = base;
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

struct scoring {
    struct fr_served_model *model;
    enum fr_format format;
    struct fr_record record;
    float *scores;
    uint32_t room, n;
    uint64_t ignored;
    const char *reason; /* "": scored */
};

static void run_score(void *self)
{
    struct scoring *scoring = self;
    const struct fr_conf *conf = scoring->model->conf;
    struct fr_scorer *scorer = &scoring->model->scorer;
    struct fr_decoder **decoder = &scorer->decoders[scoring->format];
    if (!*decoder)
        *decoder = fr_decoder_new_scoring(conf, scoring->format);
    if (fr_decode_record(*decoder, &scoring->record, &scoring->n, &scoring->reason) != FR_OK)
        return;
    scoring->reason = scoring->n > scoring->room ? "the record has more samples than there is room for scores" : "";
    if (scoring->n == 0 || scoring->reason[0])
        return;
    fr_batch_clear(scorer->batch);
    fr_decode_append(*decoder, 0, scoring->n, scorer->batch);
    scoring->ignored = scorer->batch->unknown_slots;
    resolve(scoring->model);
    fr_graph_forward(scorer->graph, scorer->batch, &scorer->rows);
    for (uint32_t k = 0; k < conf->n_tasks; k++) {
        const float *logits = fr_graph_logits(scorer->graph, k);
        for (uint32_t i = 0; i < scoring->n; i++)
            scoring->scores[(size_t)i * conf->n_tasks + k] =
                conf->tasks[k].loss == FR_LOSS_MSE ? logits[i] : fr_sigmoidf(logits[i]);
    }
}

/* Where memory was refused in the middle of a score, decoder, batch and network stand in the middle
 * of a change; the values of the parameters do not. */
static bool mend_scorer(struct fr_served_model *model, struct fr_replica_budget *budget)
{
    struct fr_scorer fresh, *old = &model->scorer;
    if (!model->scorer_broken)
        return true;
    if (!fr_served_scorer_make(&fresh, model->conf, budget))
        return false;
    for (size_t i = 0; i < fresh.n_parameters; i++)
        memcpy(fresh.parameters[i].values, old->parameters[i].values, old->parameters[i].n_values * sizeof(float));
    fr_replica_memory_release(&old->memory);
    *old = fresh;
    fr_replica_memory_moved(&old->memory);
    model->scorer_broken = false;
    return true;
}

static int score(struct freshet_replica *replica, enum fr_format format, const void *bytes, size_t size, float *scores,
                 uint32_t *n_samples)
{
    struct fr_served_model *model = replica->model;
    replica->score_ignored = 0;
    if (!model || model->n_received < model->scorer.n_parameters)
        return problem(replica, FRESHET_E_NOT_READY, "the model and its dense parameters are not there yet");
    struct scoring scoring = {.model = model,
                              .format = format,
                              .record = {.value = bytes, .size = size},
                              .scores = scores,
                              .room = *n_samples,
                              .reason = ""};
    if (!mend_scorer(model, &replica->budget))
        return problem(replica, FRESHET_E_NO_MEMORY, "memory to score was refused");
    if (!fr_replica_memory_run(&model->scorer.memory, run_score, &scoring)) {
        model->scorer_broken = true;
        return problem(replica, FRESHET_E_NO_MEMORY, "memory to score the record was refused; score fewer samples");
    }
    replica->score_ignored = scoring.reason[0] ? 0 : scoring.ignored;
    if (scoring.n > scoring.room || !scoring.reason[0])
        *n_samples = scoring.n;
    return problem(replica, scoring.reason[0] ? FRESHET_E_INVALID : FRESHET_OK, scoring.reason);
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
