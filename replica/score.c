/* Scoring on the replica: the daemon's own decoder and network over the served rows (P12). A score
 * is the probability of the task's logit, or the prediction itself for mse.
 *
 * Every occurrence is looked up separately, without deduplication. The forward pass reads values by
 * occurrence, so the numbers equal those of the trainer's deduplicated batch. A key without a row
 * is NULL, which the network reads as zeros.
 *
 * A reader has its own network, because activations cannot be shared. Parameter values are copied
 * into the network when they differ from those of the last score.
 *
 * Owner: the reader's thread. Labels, weights and times are not used. */
#include "reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"

/* ---- the network ---- */

struct making {
    struct fr_scorer *scorer;
    const struct fr_conf *conf;
};

static void make_scorer(void *self)
{
    const struct making *making = self;
    struct fr_scorer *scorer = making->scorer;
    const struct fr_conf *conf = making->conf;
    struct fr_graph *graph = fr_graph_new(&(struct fr_graph_options){.conf = conf, .scoring_only = true});
    scorer->parameters = fr_graph_parameters(graph);
    scorer->n_parameters = fr_graph_parameter_count(graph);
    scorer->serials = fr_alloc(scorer->n_parameters + 1, sizeof(*scorer->serials));
    scorer->batch = fr_batch_new(conf);
    scorer->found.tables = fr_alloc(conf->n_tables + 1u, sizeof(*scorer->found.tables));
    scorer->found.capacity = fr_alloc(conf->n_tables + 1u, sizeof(*scorer->found.capacity));
    scorer->found.rows = (struct fr_rows){.n_tables = conf->n_tables,
                                          .tables = scorer->found.tables,
                                          .n_slots = conf->n_slots,
                                          .slot_base = fr_alloc(conf->n_slots + 1u, sizeof(uint32_t))};
    scorer->graph = graph;
}

void fr_reader_forget(struct freshet_reader *reader)
{
    fr_replica_memory_release(&reader->scorer.memory);
    reader->scorer = (struct fr_scorer){.memory.budget = &reader->replica->budget};
}

static void take_values(struct fr_scorer *scorer, const struct fr_served *view)
{
    for (size_t i = 0; i < scorer->n_parameters; i++) {
        const struct fr_served_dense *dense = view->parameters[i];
        if (dense->serial == scorer->serials[i])
            continue;
        FR_CHECK(dense->n == scorer->parameters[i].n_values);
        memcpy(scorer->parameters[i].values, dense->values, dense->n * sizeof(float));
        scorer->serials[i] = dense->serial;
    }
}

/* ---- rows ---- */

static void reserve_occurrences(struct fr_scorer *scorer, uint32_t table, size_t needed)
{
    size_t capacity = scorer->found.capacity[table] ? scorer->found.capacity[table] : 256;
    if (needed <= scorer->found.capacity[table])
        return;
    while (capacity < needed)
        capacity *= 2;
    struct fr_table_rows *rows = &scorer->found.tables[table];
    rows->keys = fr_realloc(rows->keys, capacity, sizeof(*rows->keys));
    rows->rows = fr_realloc(rows->rows, capacity, sizeof(*rows->rows));
    rows->unique_of = fr_realloc(rows->unique_of, capacity, sizeof(*rows->unique_of));
    scorer->found.capacity[table] = capacity;
}

static void resolve(struct fr_scorer *scorer, const struct fr_served *view)
{
    const struct fr_batch *batch = scorer->batch;
    const struct fr_conf *conf = view->model->conf;
    for (uint32_t t = 0; t < conf->n_tables; t++)
        scorer->found.tables[t].n_unique = scorer->found.tables[t].n_occurrences = 0;
    for (uint32_t s = 0; s < conf->n_slots; s++) {
        int32_t t = conf->slots[s].table;
        if (t == FR_NO_INDEX)
            continue;
        struct fr_table_rows *rows = &scorer->found.tables[t];
        uint32_t n = batch->columns[s].begin[fr_batch_entries(batch, s)], base = rows->n_occurrences;
        FR_CHECK(n <= UINT32_MAX - base);
        reserve_occurrences(scorer, (uint32_t)t, (size_t)base + n);
        scorer->found.rows.slot_base[s] = base;
        for (uint32_t i = 0; i < n; i++) {
            rows->keys[base + i] = batch->columns[s].keys[i];
            rows->unique_of[base + i] = base + i;
        }
        fr_served_rows(&view->tables[t], batch->columns[s].keys, n, rows->rows + base);
        rows->n_occurrences = rows->n_unique = base + n;
    }
}

/* ---- scores ---- */

static int problem(struct freshet_reader *reader, int status, const char *text)
{
    size_t size = strnlen(text, sizeof(reader->problem) - 1);
    memcpy(reader->problem, text, size);
    reader->problem[size] = 0;
    return status;
}

struct scoring {
    struct fr_scorer *scorer;
    const struct fr_served *view;
    enum fr_format format;
    struct fr_record record;
    float *scores;
    uint32_t room, n;
    uint64_t ignored;
    const char *reason; /* "": the record was scored */
};

static float score_of(enum fr_prediction prediction, float logit)
{
    switch (prediction) {
    case FR_PREDICTS_VALUE:
        return logit;
    case FR_PREDICTS_PROBABILITY:
        break;
    }
    return fr_sigmoidf(logit);
}

static void run_score(void *self)
{
    struct scoring *scoring = self;
    const struct fr_conf *conf = scoring->view->model->conf;
    struct fr_scorer *scorer = scoring->scorer;
    if (!scorer->graph)
        make_scorer(&(struct making){scorer, conf});
    struct fr_decoder **decoder = &scorer->decoders[scoring->format];
    if (!*decoder)
        *decoder = fr_decoder_new_scoring(conf, scoring->format);
    if (fr_decode_record(*decoder, &scoring->record, &scoring->n, &scoring->reason) != FR_OK)
        return;
    scoring->reason = scoring->n > scoring->room ? "the record has more samples than there is room for scores" : "";
    if (scoring->n == 0 || scoring->reason[0])
        return;
    take_values(scorer, scoring->view);
    fr_batch_clear(scorer->batch);
    fr_decode_append(*decoder, 0, scoring->n, scorer->batch);
    scoring->ignored = scorer->batch->unknown_slots;
    resolve(scorer, scoring->view);
    fr_graph_forward(scorer->graph, scorer->batch, &scorer->found.rows);
    for (uint32_t k = 0; k < conf->n_tasks; k++) {
        const float *logits = fr_graph_logits(scorer->graph, k);
        for (uint32_t i = 0; i < scoring->n; i++)
            scoring->scores[(size_t)i * conf->n_tasks + k] =
                score_of(fr_loss_prediction(conf->tasks[k].loss), logits[i]);
    }
}

/* If memory is refused in the middle of a score, the decoder, the batch and the network may be half
 * changed. They are freed, and the next score makes new ones. */
static int score(struct freshet_reader *reader, struct scoring *scoring, uint32_t *n_samples)
{
    if (!fr_replica_memory_run(&reader->scorer.memory, run_score, scoring)) {
        fr_reader_forget(reader);
        return problem(reader, FRESHET_E_NO_MEMORY, "memory to score the record was refused; score fewer samples");
    }
    reader->ignored = scoring->reason[0] ? 0 : scoring->ignored;
    if (scoring->n > scoring->room || !scoring->reason[0])
        *n_samples = scoring->n;
    if (!scoring->reason[0]) {
        /* One thread writes: no other addition can be lost between the load and the store. */
        _Atomic uint64_t *scored = &reader->place->scored;
        uint64_t before = atomic_load_explicit(scored, memory_order_relaxed);
        atomic_store_explicit(scored, before + scoring->n, memory_order_relaxed);
    }
    return problem(reader, scoring->reason[0] ? FRESHET_E_INVALID : FRESHET_OK, scoring->reason);
}

int freshet_reader_score(struct freshet_reader *reader, enum freshet_format format, const void *bytes, size_t size,
                         float *scores, uint32_t *n_samples)
{
    reader->ignored = 0;
    if (format != FRESHET_JSON && format != FRESHET_MSGPACK)
        return problem(reader, FRESHET_E_INVALID, "the format is neither FRESHET_JSON nor FRESHET_MSGPACK");
    const struct fr_served *view = fr_reader_enter(reader);
    int status = FRESHET_E_NOT_READY;
    if (view && view->info.scorable) {
        struct scoring scoring = {.scorer = &reader->scorer,
                                  .view = view,
                                  .format = format == FRESHET_JSON ? FR_FORMAT_JSON : FR_FORMAT_MSGPACK,
                                  .record = {.value = bytes, .size = size},
                                  .scores = scores,
                                  .room = *n_samples,
                                  .reason = ""};
        status = score(reader, &scoring, n_samples);
    } else {
        (void)problem(reader, status, "the model and its dense parameters are not there yet");
    }
    fr_reader_leave(reader);
    return status;
}

const char *freshet_reader_problem(struct freshet_reader *reader)
{
    return reader->problem;
}

uint64_t freshet_reader_ignored(struct freshet_reader *reader, char *names, size_t room)
{
    size_t size = 0;
    if (room)
        names[0] = 0;
    for (size_t f = 0; f < 2; f++) {
        const struct fr_decoder *decoder = reader->scorer.decoders[f];
        const struct fr_unknown_names *unknown = decoder ? &fr_decoder_unknown(decoder)->slots : NULL;
        for (uint32_t i = 0; unknown && i < unknown->n && size + 1 < room; i++) {
            int more = snprintf(names + size, room - size, "%s%s", size ? " " : "", unknown->names[i]);
            size = size + (size_t)more < room ? size + (size_t)more : room - 1;
        }
    }
    return reader->ignored;
}
