/* Measures each slot of a batch: presence, ids, rows; the steps of sampled rows.
 *
 * A shared column has an entry a group. Each entry counts as often as it has samples, so that all
 * forms of samples give the same numbers. Owner: the owner loop. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "insight_private.h"

static uint32_t value_floats(const struct fr_conf_table *table)
{
    uint32_t n = 0;
    for (uint32_t p = 0; p < table->n_parts; p++)
        n += table->parts[p].dim;
    return n;
}

void fr_insight_slots_init(struct fr_insight *insight)
{
    const struct fr_conf *conf = insight->conf;
    insight->slots = fr_alloc(conf->n_slots ? conf->n_slots : 1, sizeof(*insight->slots));
    bool on_device = fr_graph_runs_beside(insight->options.graph);
    for (uint32_t s = 0; s < conf->n_slots; s++)
        if (conf->slots[s].table != FR_NO_INDEX && !on_device)
            insight->slots[s].floats =
                fr_alloc((size_t)INSIGHT_STEPPED * value_floats(&conf->tables[conf->slots[s].table]), sizeof(float));
}

void fr_insight_slots_release(struct fr_insight *insight)
{
    for (uint32_t s = 0; insight->slots && s < insight->conf->n_slots; s++)
        free(insight->slots[s].floats);
    free(insight->slots);
    free(insight->samples);
    free(insight->groups);
}

/* ---- steps of rows ---- */

void fr_insight_slots_before(struct fr_insight *insight, const struct fr_batch *batch, const struct fr_rows *rows)
{
    const struct fr_conf *conf = insight->conf;
    insight->looks++;
    for (uint32_t s = 0; s < conf->n_slots; s++) {
        struct insight_slot *slot = &insight->slots[s];
        slot->n_stepped = 0;
        if (!slot->floats)
            continue;
        const struct fr_table_rows *table = &rows->tables[conf->slots[s].table];
        const struct fr_column *column = &batch->columns[s];
        uint32_t n = column->begin[fr_batch_entries(batch, s)];
        uint32_t floats = value_floats(&conf->tables[conf->slots[s].table]);
        for (uint32_t o = 0; o < n && slot->n_stepped < INSIGHT_STEPPED; o++) {
            uint32_t u = table->unique_of[rows->slot_base[s] + o];
            struct fr_sampled_key *key = table->rows[u] ? fr_insight_key_add(&slot->sample, table->keys[u]) : NULL;
            if (!key || key->look == insight->looks)
                continue;
            key->look = insight->looks;
            memcpy(slot->floats + (size_t)slot->n_stepped * floats, table->rows[u], floats * sizeof(float));
            slot->stepped[slot->n_stepped++] = u;
        }
    }
}

static float norm_of(const float *x, uint32_t n)
{
    double sum = 0.0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return (float)sqrt(sum);
}

/* The norm of a row's change by the norm it had; NaN: it was 0. */
static float update_of(const float *before, const float *after, uint32_t n)
{
    double change = 0.0, norm = 0.0;
    for (uint32_t i = 0; i < n; i++) {
        double d = (double)after[i] - (double)before[i];
        change += d * d;
        norm += (double)before[i] * (double)before[i];
    }
    return norm > 0.0 ? (float)sqrt(change / norm) : NAN;
}

static void look_at_steps(struct fr_insight *insight, uint32_t s, const struct fr_batch *batch,
                          const struct fr_rows *rows)
{
    struct insight_slot *slot = &insight->slots[s];
    uint32_t t = (uint32_t)insight->conf->slots[s].table, floats = value_floats(&insight->conf->tables[t]);
    for (uint32_t i = 0; i < slot->n_stepped; i++) {
        uint32_t u = slot->stepped[i];
        /* a key that came later may have taken the place */
        struct fr_sampled_key *key = fr_insight_key_find(&slot->sample, rows->tables[t].keys[u]);
        if (!key)
            continue;
        key->gradient = fr_graph_row_gradient(insight->options.graph, batch, rows, t, u);
        key->update = update_of(slot->floats + (size_t)i * floats, rows->tables[t].rows[u], floats);
    }
}

/* ---- entries ---- */

/* The weights of a batch's entries by buckets. One more bucket than there is takes numbers for
 * which there are no boundaries yet. */
struct spread {
    struct fr_drift_weights buckets[FR_DRIFT_CELLS + 1];
};

static void add_to_spread(struct spread *spread, uint32_t bucket, const struct insight_entry *entry)
{
    spread->buckets[bucket].all += entry->samples;
    spread->buckets[bucket].labelled += entry->labelled;
    spread->buckets[bucket].positives += entry->positives;
}

static void look_at_ids(struct fr_insight *insight, uint32_t s, const struct fr_batch *batch,
                        const struct fr_rows *rows, struct spread *spread)
{
    struct insight_slot *slot = &insight->slots[s];
    const struct fr_column *column = &batch->columns[s];
    const struct fr_table_rows *table = &rows->tables[insight->conf->slots[s].table];
    const uint32_t *unique_of = table->unique_of + rows->slot_base[s];
    const struct insight_entry *entries = column->shared ? insight->groups : insight->samples;
    for (uint32_t e = 0; e < fr_batch_entries(batch, s); e++) {
        uint32_t n = column->begin[e + 1] - column->begin[e];
        double samples = entries[e].samples;
        slot->window.samples += samples;
        slot->window.present += n > 0 ? samples : 0;
        slot->window.ids += n * samples;
        if (n == 0)
            add_to_spread(spread, FR_DRIFT_ABSENT, &entries[e]);
        for (uint32_t o = column->begin[e]; o < column->begin[e + 1]; o++) {
            uint32_t u = unique_of[o];
            uint64_t key = table->keys[u];
            bool known = table->rows[u] != NULL, made = known && table->served && !table->served[u];
            slot->window.unknown += known ? 0 : samples;
            slot->window.made += made ? samples : 0;
            fr_hot_keys_add(&slot->hot, key, (float)samples);
            add_to_spread(spread, fr_drift_bucket_of_key(key), &entries[e]);
            if (known)
                (void)fr_insight_key_add(&slot->sample, key);
        }
    }
}

/* The number of an entry: of a vector its norm; NaN: a number is missing. */
static float number_of(const struct fr_column *column, uint32_t entry)
{
    const float *x = column->dense + (size_t)entry * column->dim;
    return column->dim == 1 ? x[0] : norm_of(x, column->dim);
}

static void look_at_numbers(struct fr_insight *insight, uint32_t s, const struct fr_batch *batch, struct spread *spread)
{
    struct insight_slot *slot = &insight->slots[s];
    const struct fr_column *column = &batch->columns[s];
    const struct insight_entry *entries = column->shared ? insight->groups : insight->samples;
    for (uint32_t e = 0; e < fr_batch_entries(batch, s); e++) {
        float x = number_of(column, e);
        slot->window.samples += entries[e].samples;
        slot->window.present += isnan(x) ? 0 : entries[e].samples;
        add_to_spread(spread, fr_drift_bucket_of_number(&slot->drift, x), &entries[e]);
    }
}

/* What each sample and group counts for, before the slots are looked at. */
static void count_entries(struct fr_insight *insight, const struct fr_batch *batch)
{
    if (batch->n_samples > insight->capacity_entries) {
        insight->capacity_entries = batch->n_samples + batch->n_samples / 2;
        free(insight->samples);
        free(insight->groups);
        insight->samples = fr_alloc(insight->capacity_entries, sizeof(*insight->samples));
        insight->groups = fr_alloc(insight->capacity_entries, sizeof(*insight->groups));
    }
    for (uint32_t g = 0; g < batch->n_groups; g++) {
        struct insight_entry group = {0};
        for (uint32_t i = batch->group_begin[g]; i < batch->group_begin[g + 1]; i++) {
            float label;
            double weight;
            bool counts = insight->task != FR_NO_INDEX &&
                          fr_insight_counts(insight->conf, batch, (uint32_t)insight->task, i, &label, &weight);
            insight->samples[i] = (struct insight_entry){1.0, counts ? 1.0 : 0.0, counts ? (double)label : 0.0};
            group.samples += insight->samples[i].samples;
            group.labelled += insight->samples[i].labelled;
            group.positives += insight->samples[i].positives;
        }
        insight->groups[g] = group;
    }
}

void fr_insight_slots_look(struct fr_insight *insight, const struct fr_batch *batch, const struct fr_rows *rows,
                           bool stepped)
{
    count_entries(insight, batch);
    for (uint32_t s = 0; s < insight->conf->n_slots; s++) {
        struct insight_slot *slot = &insight->slots[s];
        struct insight_counts before = slot->window;
        struct spread spread = {0};
        if (insight->conf->slots[s].table == FR_NO_INDEX)
            look_at_numbers(insight, s, batch, &spread);
        else
            look_at_ids(insight, s, batch, rows, &spread);
        fr_drift_add(&slot->drift, spread.buckets);
        slot->before.samples += slot->window.samples - before.samples;
        slot->before.present += slot->window.present - before.present;
        if (stepped && slot->floats)
            look_at_steps(insight, s, batch, rows);
    }
}

void fr_insight_slots_decay(struct fr_insight *insight, const double factors[FR_DRIFT_AGES])
{
    for (uint32_t s = 0; s < insight->conf->n_slots; s++) {
        insight->slots[s].before.samples *= factors[FR_DRIFT_SHORT];
        insight->slots[s].before.present *= factors[FR_DRIFT_SHORT];
        fr_drift_decay(&insight->slots[s].drift, factors);
    }
}

void fr_insight_slots_begin_window(struct fr_insight *insight)
{
    for (uint32_t s = 0; s < insight->conf->n_slots; s++) {
        insight->slots[s].window = (struct insight_counts){0};
        fr_hot_keys_halve(&insight->slots[s].hot);
    }
}

/* ---- the document ---- */

static double share(double part, double whole)
{
    return whole > 0.0 ? part / whole : (double)NAN;
}

/* Leaves the keys with a row in memory in the sample, and writes what is known of them. */
static void put_sample(struct fr_insight *insight, uint32_t s, fr_insight_row_of *row_of, void *self,
                       struct fr_json *json)
{
    struct insight_slot *slot = &insight->slots[s];
    uint32_t t = (uint32_t)insight->conf->slots[s].table, floats = value_floats(&insight->conf->tables[t]), n = 0;
    float norms[FR_INSIGHT_KEYS], gradients[FR_INSIGHT_KEYS], updates[FR_INSIGHT_KEYS];
    bool keep[FR_INSIGHT_KEYS];
    for (uint32_t i = 0; i < slot->sample.n; i++) {
        const struct fr_sampled_key *key = &slot->sample.keys[i];
        const float *row = row_of(self, t, key->key);
        keep[i] = row != NULL;
        if (!row)
            continue;
        norms[n] = norm_of(row, floats);
        gradients[n] = key->gradient;
        updates[n++] = key->update;
    }
    fr_insight_key_keep(&slot->sample, keep);
    fr_json_u64(json, "keys", n);
    fr_insight_quantiles(json, "row_norm", norms, n);
    fr_insight_quantiles(json, "gradient_norm", gradients, n);
    fr_insight_quantiles(json, "update_ratio", updates, n);
}

static void put_hot(const struct fr_hot_keys *hot, const struct fr_conf_slot *slot, struct fr_json *json)
{
    uint32_t places[INSIGHT_HOT_SHOWN], n = fr_hot_keys_top(hot, places, INSIGHT_HOT_SHOWN);
    fr_json_array(json, "hot");
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = places[i];
        fr_json_object(json, NULL);
        if (slot->source == FR_SOURCE_CROSS)
            fr_json_null(json, "id");
        else
            fr_json_id(json, "id", fr_fmix64_inverse(hot->keys[at]) ^ slot->seed);
        fr_json_id(json, "key", hot->keys[at]);
        fr_json_number(json, "share", share((double)hot->counts[at], hot->total));
        fr_json_number(json, "error", share((double)hot->errors[at], hot->total));
        fr_json_end(json);
    }
    fr_json_end(json);
}

static void put_pair(struct fr_json *json, const char *name, double before, double now)
{
    fr_json_array(json, name);
    fr_json_number(json, NULL, before);
    fr_json_number(json, NULL, now);
    fr_json_end(json);
}

static void put_bucket(const struct fr_drift *drift, uint32_t b, const double all[FR_DRIFT_AGES], struct fr_json *json)
{
    const struct fr_drift_weights *before = &drift->of[FR_DRIFT_LONG][b], *now = &drift->of[FR_DRIFT_SHORT][b];
    fr_json_object(json, NULL);
    if (b == FR_DRIFT_ABSENT)
        fr_json_text(json, "bucket", "absent");
    else
        fr_json_u64(json, "bucket", b);
    put_pair(json, "values", share(before->all, all[FR_DRIFT_LONG]), share(now->all, all[FR_DRIFT_SHORT]));
    put_pair(json, "rate", share(before->positives, before->labelled), share(now->positives, now->labelled));
    fr_json_end(json);
}

static void put_drift(const struct fr_drift *drift, struct fr_json *json)
{
    double values[FR_DRIFT_CELLS] = {0}, positives[FR_DRIFT_CELLS] = {0}, all[FR_DRIFT_AGES] = {0};
    for (uint32_t age = 0; age < FR_DRIFT_AGES; age++)
        for (uint32_t b = 0; b < FR_DRIFT_CELLS; b++)
            all[age] += drift->of[age][b].all;
    fr_json_object(json, "drift");
    double index = fr_drift_index(drift, FR_DRIFT_VALUES, values);
    fr_json_number(json, "values", index);
    fr_json_number(json, "positives", fr_drift_index(drift, FR_DRIFT_POSITIVES, positives));
    fr_json_array(json, "buckets");
    for (uint32_t i = 0; i < INSIGHT_BUCKETS_SHOWN && !isnan(index); i++) {
        uint32_t most = 0;
        for (uint32_t b = 1; b < FR_DRIFT_CELLS; b++)
            most = values[b] + positives[b] > values[most] + positives[most] ? b : most;
        put_bucket(drift, most, all, json);
        values[most] = positives[most] = -1.0; /* shown; a term is never below 0 */
    }
    fr_json_end(json);
    fr_json_end(json);
}

void fr_insight_slots_json(struct fr_insight *insight, fr_insight_row_of *row_of, void *self, struct fr_json *json)
{
    const struct fr_conf *conf = insight->conf;
    fr_json_array(json, "slots");
    for (uint32_t s = 0; s < conf->n_slots; s++) {
        const struct fr_conf_slot *slot = &conf->slots[s];
        const struct insight_counts *counts = &insight->slots[s].window, *before = &insight->slots[s].before;
        bool has_rows = slot->table != FR_NO_INDEX, shows_absence = has_rows || fr_conf_slot_keeps_missing(slot);
        fr_json_object(json, NULL);
        fr_json_text(json, "name", slot->name);
        fr_json_text(json, "kind", fr_slot_kind_text(slot->kind));
        fr_json_text(json, "table", has_rows ? conf->tables[slot->table].name : NULL);
        fr_json_number(json, "present", shows_absence ? share(counts->present, counts->samples) : (double)NAN);
        fr_json_number(json, "present_before", shows_absence ? share(before->present, before->samples) : (double)NAN);
        fr_json_number(json, "ids", has_rows ? share(counts->ids, counts->samples) : (double)NAN);
        fr_json_number(json, "new", share(counts->made, counts->ids));
        fr_json_number(json, "unknown", share(counts->unknown, counts->ids));
        if (has_rows) {
            put_sample(insight, s, row_of, self, json);
            put_hot(&insight->slots[s].hot, slot, json);
        } else {
            static const char *const none[] = {"keys", "row_norm", "gradient_norm", "update_ratio", "hot"};
            for (size_t i = 0; i < FR_ARRAY_LEN(none); i++)
                fr_json_null(json, none[i]);
        }
        put_drift(&insight->slots[s].drift, json);
        fr_insight_importance_json(insight, s, json);
        fr_json_end(json);
    }
    fr_json_end(json);
}
