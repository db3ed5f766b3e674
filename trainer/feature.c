/* Answers questions about one id (trainer/feature.h). A mutex guards question and answer and is
 * held while they are copied; the owner loop reads one atomic in each turn, and takes the mutex
 * only when a question is open. */
#include "trainer/feature.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "numerics/transform_values.h"
#include "trainer_private.h"

enum { PAIR = 2 }; /* samples: one with the id alone, and one with nothing */

void fr_trainer_questions_init(struct fr_trainer *trainer)
{
    struct fr_questions *questions = &trainer->questions;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&questions->lock, NULL);
    pthread_cond_init(&questions->answered, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

void fr_trainer_questions_release(struct fr_trainer *trainer)
{
    pthread_mutex_destroy(&trainer->questions.lock);
    pthread_cond_destroy(&trainer->questions.answered);
}

/* ---- the asker ---- */

enum fr_status fr_trainer_feature(struct fr_trainer *trainer, const struct fr_feature_question *question,
                                  uint64_t wait_ns, struct fr_feature *out, struct fr_err *err)
{
    struct fr_questions *questions = &trainer->questions;
    if (trainer->ranks.n > 1)
        return fr_err_set(err, FR_E_UNSUPPORTED, "a job of several ranks does not answer questions about one id");
    struct timespec deadline = fr_clock_deadline(wait_ns);
    enum fr_status status = FR_AGAIN;
    pthread_mutex_lock(&questions->lock);
    if (!atomic_load(&questions->open)) {
        questions->question = *question;
        questions->answer = out;
        questions->err = err;
        atomic_store(&questions->open, true);
        int waited = 0;
        while (atomic_load(&questions->open) && waited != ETIMEDOUT)
            waited = pthread_cond_timedwait(&questions->answered, &questions->lock, &deadline);
        if (!atomic_load(&questions->open))
            status = questions->status;
        questions->answer = NULL; /* the asker's memory is not written after this call */
        questions->err = NULL;
    }
    pthread_mutex_unlock(&questions->lock);
    return status;
}

/* ---- the owner loop ---- */

/* A batch of two samples that have nothing but what the columns begin with. */
struct pair {
    struct fr_batch batch;
    struct fr_rows rows;
    uint32_t begin[PAIR + 1], no_ids[PAIR + 1];
    uint32_t unique, group_of[PAIR], group_begin[PAIR + 1];
    uint64_t key;
    float *row;
};

static void fill_dense(const struct fr_conf_slot *slot, struct fr_column *column)
{
    float missing[2];
    fr_transform_missing(slot, missing);
    column->dim = fr_conf_slot_numbers(slot);
    column->dense = fr_alloc((size_t)PAIR * column->dim, sizeof(float));
    for (uint32_t i = 0; i < PAIR * column->dim; i++)
        column->dense[i] = fr_conf_slot_keeps_missing(slot) ? NAN : missing[i % column->dim % 2];
}

/* The first sample has the row's id in its slot, the second one has nothing. */
static void make_pair(const struct fr_conf *conf, const struct fr_feature_question *question, struct pair *pair)
{
    struct fr_batch *batch = &pair->batch;
    pair->begin[1] = pair->begin[2] = 1;
    pair->group_of[1] = pair->group_begin[1] = 1;
    pair->group_begin[2] = PAIR;
    pair->key = question->key;
    batch->n_samples = batch->n_groups = PAIR;
    batch->group_begin = pair->group_begin;
    batch->group_of = pair->group_of;
    batch->n_slots = conf->n_slots;
    batch->columns = fr_alloc(conf->n_slots, sizeof(*batch->columns));
    for (uint32_t s = 0; s < conf->n_slots; s++) {
        if (conf->slots[s].table == FR_NO_INDEX)
            fill_dense(&conf->slots[s], &batch->columns[s]);
        else
            batch->columns[s].begin = s == question->slot ? pair->begin : pair->no_ids;
        batch->columns[s].keys = &pair->key;
    }
    pair->rows.n_tables = conf->n_tables;
    pair->rows.n_slots = conf->n_slots;
    pair->rows.slot_base = fr_alloc(conf->n_slots, sizeof(uint32_t));
    pair->rows.tables = fr_alloc(conf->n_tables ? conf->n_tables : 1, sizeof(*pair->rows.tables));
    for (uint32_t t = 0; t < conf->n_tables; t++)
        pair->rows.tables[t].unique_of = &pair->unique;
    struct fr_table_rows *table = &pair->rows.tables[conf->slots[question->slot].table];
    table->n_unique = table->n_occurrences = 1;
    table->keys = &pair->key;
    table->rows = &pair->row;
}

static void release_pair(const struct fr_conf *conf, struct pair *pair)
{
    for (uint32_t s = 0; s < conf->n_slots; s++)
        free(pair->batch.columns[s].dense);
    free(pair->batch.columns);
    free(pair->rows.slot_base);
    free(pair->rows.tables);
}

/* The graph's last forward pass is not needed any more between two batches. */
static void score_pair(struct fr_trainer *trainer, const struct fr_feature_question *question, float *row,
                       struct fr_feature *out)
{
    struct pair pair = {.row = row};
    make_pair(trainer->conf, question, &pair);
    fr_graph_forward(trainer->graph, &pair.batch, &pair.rows);
    for (uint32_t t = 0; t < trainer->conf->n_tasks; t++) {
        const float *logits = fr_graph_logits(trainer->graph, t);
        out->contribution[t] = logits[0] - logits[1];
    }
    out->contributes = true;
    release_pair(trainer->conf, &pair);
}

static enum fr_status answer(struct fr_trainer *trainer, const struct fr_feature_question *question,
                             struct fr_feature *out, struct fr_err *err)
{
    uint32_t table = (uint32_t)trainer->conf->slots[question->slot].table;
    struct fr_row_layout layout;
    fr_graph_row_layout(&trainer->conf->tables[table], &layout);
    FR_CHECK(layout.value_floats <= FR_ARRAY_LEN(out->values));
    float *row = fr_alloc(layout.row_floats, sizeof(*row));
    out->watermark_ms = trainer->history.watermark_ms;
    out->n_values = 0;
    out->contributes = false;
    enum fr_status status = fr_store_read_key(trainer->store, table, question->key, &out->key, row, err);
    if (status == FR_OK && out->key.state == FR_KEY_ROW) {
        out->n_values = layout.value_floats;
        memcpy(out->values, row, layout.value_floats * sizeof(*row));
        if (!fr_graph_runs_beside(trainer->graph))
            score_pair(trainer, question, row, out);
    }
    free(row);
    return status;
}

void fr_trainer_answer(struct fr_trainer *trainer)
{
    struct fr_questions *questions = &trainer->questions;
    if (!atomic_load_explicit(&questions->open, memory_order_relaxed))
        return;
    pthread_mutex_lock(&questions->lock);
    struct fr_feature_question question = questions->question;
    bool wanted = questions->answer != NULL;
    pthread_mutex_unlock(&questions->lock);

    /* without the mutex: a row that is read from a slow disk holds up no asker beyond its time */
    struct fr_feature *found = fr_alloc(1, sizeof(*found));
    struct fr_err err = {0};
    enum fr_status status = wanted ? answer(trainer, &question, found, &err) : FR_AGAIN;

    pthread_mutex_lock(&questions->lock);
    if (questions->answer) {
        *questions->answer = *found;
        *questions->err = err;
        questions->status = status;
    }
    atomic_store(&questions->open, false);
    pthread_cond_signal(&questions->answered);
    pthread_mutex_unlock(&questions->lock);
    free(found);
}
