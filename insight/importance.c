/* How much a slot matters, without training again: the batch is scored once more with the slot's
 * values exchanged, each sample's for those of the sample before it, and the AUC of these scores is
 * compared with that of the true ones, over the same samples (permutation importance: Breiman 2001;
 * here with a shift by one instead of a random order, so that nothing is drawn).
 *
 * The first entry of the batch has none before it: it reads the last one's values, and its samples
 * do not count. Only copies of row numbers and of the beginnings of entries are exchanged; no key
 * is looked up, counted, admitted or touched, and no row changes. The scores are those before the
 * batch's own step, as for the metrics. A slot that the network does not read has no importance.
 *
 * Owner: the owner loop. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "insight_private.h"

/* An exchange of a shared sequence may give a large group a long sequence. Beyond this many steps
 * for each sample's own, the slot is left out of this batch's exchanges, and its AUC is that of the
 * other batches. */
enum { STEPS_GROWTH_MAX = 4, STEPS_MIN = 1 << 16 };

void fr_insight_importance_init(struct fr_insight *insight)
{
    const struct fr_conf *conf = insight->conf;
    struct insight_importance *importance = &insight->importance;
    importance->as_of_ms = INT64_MIN;
    if (conf->insight.importance == 0 || fr_graph_runs_beside(insight->options.graph))
        return;
    for (uint32_t t = 0; t < conf->n_tasks && importance->n_tasks < FR_INSIGHT_TASKS; t++)
        if (fr_loss_prediction(conf->tasks[t].loss) != FR_PREDICTS_VALUE)
            importance->tasks[importance->n_tasks++] = t;
    size_t n = (size_t)importance->n_tasks * conf->n_slots;
    importance->with = fr_alloc(importance->n_tasks ? importance->n_tasks : 1, sizeof(*importance->with));
    importance->without = fr_alloc(n ? n : 1, sizeof(*importance->without));
    importance->with_exchanged = fr_alloc(conf->n_slots ? conf->n_slots : 1, sizeof(*importance->with_exchanged));
    importance->exchanged = fr_alloc(conf->n_slots ? conf->n_slots : 1, sizeof(*importance->exchanged));
    for (uint32_t s = 0; s < conf->n_slots && importance->n_tasks > 0; s++)
        if (fr_slot_has_steps(conf->slots[s].kind))
            importance->with_exchanged[s] = fr_alloc(importance->n_tasks, sizeof(**importance->with_exchanged));
    importance->columns = fr_alloc(conf->n_slots ? conf->n_slots : 1, sizeof(*importance->columns));
    importance->tables = fr_alloc(conf->n_tables ? conf->n_tables : 1, sizeof(*importance->tables));
}

void fr_insight_importance_release(struct fr_insight *insight)
{
    struct insight_importance *importance = &insight->importance;
    for (uint32_t s = 0; importance->with_exchanged && s < insight->conf->n_slots; s++)
        free(importance->with_exchanged[s]);
    free(importance->with_exchanged);
    free(importance->exchanged);
    free(importance->with);
    free(importance->without);
    free(importance->columns);
    free(importance->tables);
    free(importance->unique_of);
    free(importance->begin);
    free(importance->numbers);
}

/* Makes room for n elements of scratch, whose content is lost. */
static void *reserve(void *memory, size_t *capacity, size_t n, size_t size)
{
    if (n <= *capacity)
        return memory;
    free(memory);
    *capacity = n + n / 2;
    return fr_alloc(*capacity, size);
}

/* ---- scores ---- */

static void add_scores(struct fr_insight *insight, const struct fr_batch *batch, struct fr_decayed_auc *aucs)
{
    const struct insight_importance *importance = &insight->importance;
    for (uint32_t k = 0; k < importance->n_tasks; k++) {
        uint32_t task = importance->tasks[k];
        const float *logits = fr_graph_logits(insight->options.graph, task);
        for (uint32_t i = 0; i < batch->n_samples; i++) {
            float label;
            double weight;
            if (batch->group_of[i] > 0 && isfinite(logits[i]) &&
                fr_insight_counts(insight->conf, batch, task, i, &label, &weight))
                fr_decayed_auc_add(&aucs[k], logits[i], label, weight);
        }
    }
}

static void decay(struct fr_insight *insight, int64_t watermark_ms)
{
    struct insight_importance *importance = &insight->importance;
    double half_life_ms = (double)insight->conf->metrics.half_life_ms[insight->half_lives[FR_DRIFT_SHORT]];
    if (importance->as_of_ms != INT64_MIN && watermark_ms > importance->as_of_ms) {
        double factor = exp2(-(double)(watermark_ms - importance->as_of_ms) / half_life_ms);
        for (uint32_t k = 0; k < importance->n_tasks; k++)
            fr_decayed_auc_decay(&importance->with[k], factor);
        for (size_t i = 0; i < (size_t)importance->n_tasks * insight->conf->n_slots; i++)
            fr_decayed_auc_decay(&importance->without[i], factor);
        for (uint32_t s = 0; s < insight->conf->n_slots; s++)
            for (uint32_t k = 0; importance->with_exchanged[s] && k < importance->n_tasks; k++)
                fr_decayed_auc_decay(&importance->with_exchanged[s][k], factor);
    }
    importance->as_of_ms = watermark_ms;
}

/* ---- exchanges ---- */

/* Entry e of `to` has the numbers of entry e - 1 of `from`; entry 0 those of the last one. */
static void shift(const void *from, void *to, size_t n, size_t size)
{
    memcpy((char *)to + size, from, (n - 1) * size);
    memcpy(to, (const char *)from + (n - 1) * size, size);
}

static void exchange_dense(struct insight_importance *importance, const struct fr_column *from, uint32_t entries,
                           struct fr_column *to)
{
    size_t n = (size_t)entries * from->dim;
    importance->numbers = reserve(importance->numbers, &importance->capacity_numbers, n, sizeof(float));
    shift(from->dense, importance->numbers, entries, from->dim * sizeof(float));
    to->dense = importance->numbers;
}

/* Exchanges the ids of a column, in its own part of the copy of the table's unique_of. */
static void exchange_ids(struct insight_importance *importance, const struct fr_column *from, uint32_t entries,
                         const uint32_t *unique_of, struct fr_column *to, uint32_t *exchanged)
{
    uint32_t n = from->begin[entries], last = n - from->begin[entries - 1];
    importance->begin = reserve(importance->begin, &importance->capacity_begin, (size_t)entries + 1, sizeof(uint32_t));
    importance->begin[0] = 0;
    for (uint32_t e = 0; e < entries; e++)
        importance->begin[e + 1] = e == 0 ? last : from->begin[e] + last;
    to->begin = importance->begin;
    memcpy(exchanged, unique_of + (n - last), last * sizeof(*exchanged));
    memcpy(exchanged + last, unique_of, (n - last) * sizeof(*exchanged));
    if (!from->weights)
        return;
    importance->numbers = reserve(importance->numbers, &importance->capacity_numbers, n ? n : 1, sizeof(float));
    memcpy(importance->numbers, from->weights + (n - last), last * sizeof(float));
    memcpy(importance->numbers + last, from->weights, (n - last) * sizeof(float));
    to->weights = importance->numbers;
}

/* Whether the exchange would make more steps than the batch has memory for, when groups' sequences
 * are copied to each of their samples. */
static bool grows_too_much(const struct fr_batch *batch, const struct fr_column *column)
{
    uint64_t steps = 0, exchanged = 0;
    for (uint32_t g = 0; g < batch->n_groups && column->shared; g++) {
        uint64_t samples = batch->group_begin[g + 1] - batch->group_begin[g];
        uint32_t before = g > 0 ? g - 1 : batch->n_groups - 1;
        steps += samples * (column->begin[g + 1] - column->begin[g]);
        exchanged += samples * (column->begin[before + 1] - column->begin[before]);
    }
    return exchanged > STEPS_GROWTH_MAX * steps + STEPS_MIN;
}

/* Scores the batch with the values of slot s exchanged. false: they cannot be. */
static bool exchange_slot(struct fr_insight *insight, uint32_t s, const struct fr_batch *batch,
                          const struct fr_rows *rows)
{
    struct insight_importance *importance = &insight->importance;
    const struct fr_column *from = &batch->columns[s];
    uint32_t entries = fr_batch_entries(batch, s);
    struct fr_batch exchanged = *batch;
    struct fr_rows exchanged_rows = *rows;
    exchanged.columns = importance->columns;
    exchanged_rows.tables = importance->tables;
    memcpy(importance->columns, batch->columns, batch->n_slots * sizeof(*importance->columns));
    memcpy(importance->tables, rows->tables, rows->n_tables * sizeof(*importance->tables));
    int32_t t = insight->conf->slots[s].table;
    if (t == FR_NO_INDEX) {
        exchange_dense(importance, from, entries, &importance->columns[s]);
    } else {
        const struct fr_table_rows *table = &rows->tables[t];
        if (fr_slot_has_steps(insight->conf->slots[s].kind) && grows_too_much(batch, from))
            return false;
        importance->unique_of = reserve(importance->unique_of, &importance->capacity_unique,
                                        table->n_occurrences ? table->n_occurrences : 1, sizeof(uint32_t));
        memcpy(importance->unique_of, table->unique_of, table->n_occurrences * sizeof(uint32_t));
        importance->tables[t].unique_of = importance->unique_of;
        exchange_ids(importance, from, entries, table->unique_of + rows->slot_base[s], &importance->columns[s],
                     importance->unique_of + rows->slot_base[s]);
    }
    fr_graph_forward(insight->options.graph, &exchanged, &exchanged_rows);
    return true;
}

void fr_insight_importance_exchange(struct fr_insight *insight, const struct fr_batch *batch,
                                    const struct fr_rows *rows, int64_t watermark_ms)
{
    struct insight_importance *importance = &insight->importance;
    decay(insight, watermark_ms);
    for (uint32_t s = 0; s < insight->conf->n_slots; s++) {
        importance->exchanged[s] =
            fr_graph_reads_slot(insight->options.graph, s) && exchange_slot(insight, s, batch, rows);
        if (importance->exchanged[s])
            add_scores(insight, batch, importance->without + (size_t)s * importance->n_tasks);
    }
}

void fr_insight_importance_score(struct fr_insight *insight, const struct fr_batch *batch)
{
    struct insight_importance *importance = &insight->importance;
    add_scores(insight, batch, importance->with);
    for (uint32_t s = 0; s < insight->conf->n_slots; s++)
        if (importance->exchanged[s] && importance->with_exchanged[s])
            add_scores(insight, batch, importance->with_exchanged[s]);
}

/* ---- the document ---- */

void fr_insight_importance_json(const struct fr_insight *insight, uint32_t slot, struct fr_json *json)
{
    const struct insight_importance *importance = &insight->importance;
    fr_json_array(json, "importance");
    for (uint32_t k = 0; k < importance->n_tasks && fr_graph_reads_slot(insight->options.graph, slot); k++) {
        double weight, exchanged_weight;
        const struct fr_decayed_auc *own = importance->with_exchanged[slot];
        double with = fr_decayed_auc_result(own ? &own[k] : &importance->with[k], &weight);
        double without =
            fr_decayed_auc_result(&importance->without[(size_t)slot * importance->n_tasks + k], &exchanged_weight);
        fr_json_object(json, NULL);
        fr_json_text(json, "task", insight->conf->tasks[importance->tasks[k]].name);
        fr_json_number(json, "auc", with);
        fr_json_number(json, "without", without);
        fr_json_number(json, "importance", with - without);
        fr_json_number(json, "samples", exchanged_weight);
        fr_json_end(json);
    }
    fr_json_end(json);
}
