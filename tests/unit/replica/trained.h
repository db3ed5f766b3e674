/* A network that learned from records in this process, and the delta records that carry it to a
 * replica.
 *
 * Sample i of group g has the same values in every form: user_id, history, clicks and age depend on
 * the group, all other slots on the sample. Keys with key % 7 == 3 get no row. Slots are those of
 * graph/networks.h. */
#ifndef REPLICA_TRAINED_H
#define REPLICA_TRAINED_H

#include <inttypes.h>
#include "case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/hash.h"
#include "codec/codec.h"
#include "decode/decoder.h"
#include "freshet/replica.h"
#include "graph/graph.h"

enum { GROUPS = 12, GROUP = 5, SAMPLES = GROUPS * GROUP, ROWS_MAX = 1024, TABLES = 2, NP = 3 };

enum form { FORM_SAMPLES, FORM_GROUPS, FORM_BLOCK, FORMS };

struct trained {
    struct fr_conf *conf;
    struct fr_graph *graph;
    struct fr_decoder *decoder;
    struct fr_batch *batch;
    struct fr_rows rows;
    struct row_table {
        struct fr_row_layout layout;
        uint32_t n;
        uint64_t keys[ROWS_MAX];
        float *rows;
    } tables[TABLES];
    uint64_t saturated;
};

/* ---- records ---- */

enum value { IDS, STEPS, NUMBERS };
static const struct slot_form {
    const char *name;
    enum value value;
    uint32_t ids, dim; /* ids 0 .. ids - 1 */
    bool shared;
} slot_forms[] = {{"user_id", IDS, 40, 0, true},   {"history", STEPS, 30, 0, true}, {"clicks", STEPS, 30, 0, true},
                  {"age", NUMBERS, 0, 2, true},    {"item_id", IDS, 30, 0, false},  {"noise", STEPS, 30, 0, false},
                  {"price", NUMBERS, 0, 2, false}, {"hour", NUMBERS, 0, 1, false},  {"copy", NUMBERS, 0, 4, false}};
enum { SLOT_FORMS = sizeof(slot_forms) / sizeof(slot_forms[0]) };

static inline uint64_t drawn(size_t slot, uint64_t number, uint64_t i)
{
    return fr_fmix64(number * 1000 + slot * 40 + i + 1) >> 16;
}

static inline void put_value(struct fr_buffer *out, size_t slot, uint64_t number)
{
    const struct slot_form *form = &slot_forms[slot];
    uint64_t kind = drawn(slot, number, 0) % 8;
    if (kind == 0) {
        fr_buffer_printf(out, "null");
    } else if (form->value == NUMBERS) {
        for (uint32_t i = 0; i < form->dim; i++)
            fr_buffer_printf(out, "%s%.4f", i ? "," : "[", (double)(drawn(slot, number, 1 + i) % 20001) / 1e4 - 1.0);
        fr_buffer_printf(out, "]");
    } else if (form->value == IDS && kind > 2) {
        fr_buffer_printf(out, "%" PRIu64, drawn(slot, number, 1) % form->ids);
    } else {
        uint64_t n = form->value == STEPS ? drawn(slot, number, 1) % 8 : 3;
        fr_buffer_printf(out, kind == 1 ? "{\"i\":[" : "[");
        for (uint64_t i = 0; i < n; i++)
            fr_buffer_printf(out, "%s%" PRIu64, i ? "," : "", drawn(slot, number, 2 + i) % form->ids);
        if (kind == 1) {
            fr_buffer_printf(out, "],\"w\":[");
            for (uint64_t i = 0; i < n; i++)
                fr_buffer_printf(out, "%s%.3f", i ? "," : "", (double)(drawn(slot, number, 20 + i) % 2000) / 1e3 - 0.5);
        }
        fr_buffer_printf(out, kind == 1 ? "]}" : "]");
    }
}

/* "slot":value,.. of the shared slots (number: the group's) or of the others (the sample's). */
static inline void put_slots(struct fr_buffer *out, bool shared, uint64_t number, bool first)
{
    for (size_t s = 0; s < SLOT_FORMS; s++) {
        if (slot_forms[s].shared != shared)
            continue;
        fr_buffer_printf(out, "%s\"%s\":", first ? "" : ",", slot_forms[s].name);
        put_value(out, s, number);
        first = false;
    }
}

static inline void put_label(struct fr_buffer *out, int label, uint64_t sample)
{
    uint64_t roll = drawn(30, sample, (uint64_t)label);
    fr_buffer_printf(out, roll % 5 == 0 && label == 1 ? "null" : roll % 3 == 0 ? "1" : "0");
}

static inline void put_sample(struct fr_buffer *out, bool plain, uint64_t sample)
{
    fr_buffer_printf(out, "{\"f\":{");
    if (plain)
        put_slots(out, true, sample / GROUP, true);
    put_slots(out, false, sample, !plain);
    fr_buffer_printf(out, "},\"y\":{\"click\":");
    put_label(out, 0, sample);
    fr_buffer_printf(out, ",\"buy\":");
    put_label(out, 1, sample);
    fr_buffer_printf(out, "}}");
}

static inline void put_columns(struct fr_buffer *out, bool shared, uint64_t begin, uint64_t end)
{
    bool first = true;
    for (size_t s = 0; s < SLOT_FORMS; s++) {
        if (slot_forms[s].shared != shared)
            continue;
        fr_buffer_printf(out, "%s\"%s\":[", first ? "" : ",", slot_forms[s].name);
        for (uint64_t i = begin; i < end; i++) {
            fr_buffer_printf(out, i > begin ? "," : "");
            put_value(out, s, i);
        }
        fr_buffer_printf(out, "]");
        first = false;
    }
}

static inline void put_block(struct fr_buffer *out, uint64_t first, uint64_t groups)
{
    fr_buffer_printf(out, "{\"n\":%" PRIu64 ",\"cols\":{", groups * GROUP);
    put_columns(out, false, first * GROUP, (first + groups) * GROUP);
    fr_buffer_printf(out, "},\"shared\":{");
    put_columns(out, true, first, first + groups);
    fr_buffer_printf(out, "},\"g\":[");
    for (uint64_t g = 0; g < groups; g++)
        fr_buffer_printf(out, "%s%d", g ? "," : "", GROUP);
    for (int label = 0; label < 2; label++) {
        fr_buffer_printf(out, label ? "],\"buy\":[" : "],\"y\":{\"click\":[");
        for (uint64_t i = first * GROUP; i < (first + groups) * GROUP; i++) {
            fr_buffer_printf(out, i > first * GROUP ? "," : "");
            put_label(out, label, i);
        }
    }
    fr_buffer_printf(out, "]}}");
}

/* One record of the groups [first, first + groups). */
static inline void put_record(struct fr_buffer *out, enum form form, uint64_t first, uint64_t groups)
{
    out->size = 0;
    if (form == FORM_BLOCK) {
        put_block(out, first, groups);
        return;
    }
    for (uint64_t g = first; g < first + groups; g++) {
        fr_buffer_printf(out, g > first ? "," : "[");
        if (form == FORM_GROUPS) {
            fr_buffer_printf(out, "{\"shared\":{");
            put_slots(out, true, g, true);
            fr_buffer_printf(out, "},\"items\":[");
        }
        for (uint64_t i = g * GROUP; i < (g + 1) * GROUP; i++) {
            fr_buffer_printf(out, i > g * GROUP ? "," : "");
            put_sample(out, form == FORM_SAMPLES, i);
        }
        fr_buffer_printf(out, form == FORM_GROUPS ? "]}" : "");
    }
    fr_buffer_printf(out, "]");
}

/* ---- training ---- */

static inline struct trained *trained_new(const char *text, const char *quantize)
{
    struct trained *self = fr_alloc(1, sizeof(*self));
    struct fr_buffer problems = {0};
    const char *sets[] = {"ingest.format=json", quantize};
    struct fr_conf_load_options options = {.path = "trained.yaml", .text = text, .sets = sets, .n_sets = 2};
    if (fr_conf_load(&options, &self->conf, &problems) != FR_OK)
        fail_msg("%.*s", (int)problems.size, (const char *)problems.data);
    fr_buffer_release(&problems);
    self->graph = fr_graph_new(&(struct fr_graph_options){.conf = self->conf});
    self->decoder = fr_decoder_new(self->conf);
    self->batch = fr_batch_new(self->conf);
    assert_true(self->conf->n_tables <= TABLES);
    for (uint32_t t = 0; t < self->conf->n_tables; t++) {
        struct row_table *table = &self->tables[t];
        fr_graph_row_layout(&self->conf->tables[t], &table->layout);
        table->rows = fr_alloc_aligned(64, (size_t)ROWS_MAX * table->layout.row_floats * sizeof(float));
    }
    self->rows.n_tables = self->conf->n_tables;
    self->rows.n_slots = self->conf->n_slots;
    self->rows.tables = fr_alloc(self->rows.n_tables, sizeof(*self->rows.tables));
    self->rows.slot_base = fr_alloc(self->rows.n_slots, sizeof(*self->rows.slot_base));
    return self;
}

static inline void release_rows(struct fr_table_rows *rows)
{
    free(rows->keys);
    free(rows->rows);
    free(rows->unique_of);
    free(rows->occ);
    free(rows->occ_begin);
    free(rows->occ_from);
    *rows = (struct fr_table_rows){0};
}

static inline void trained_free(struct trained *self)
{
    for (uint32_t t = 0; t < self->rows.n_tables; t++) {
        release_rows(&self->rows.tables[t]);
        free(self->tables[t].rows);
    }
    free(self->rows.tables);
    free(self->rows.slot_base);
    fr_batch_free(self->batch);
    fr_decoder_free(self->decoder);
    fr_graph_free(self->graph);
    fr_conf_free(self->conf);
    free(self);
}

/* The key's row, made when it is new; NULL for keys that never get one. */
static inline float *row_of(struct row_table *table, uint64_t key)
{
    const struct fr_row_layout *layout = &table->layout;
    if (key % 7 == 3)
        return NULL;
    for (uint32_t r = 0; r < table->n; r++)
        if (table->keys[r] == key)
            return table->rows + (size_t)r * layout->row_floats;
    assert_true(table->n < ROWS_MAX);
    float *row = table->rows + (size_t)table->n * layout->row_floats;
    table->keys[table->n++] = key;
    for (uint32_t i = 0; i < layout->value_floats; i++)
        row[i] = (float)((double)(fr_fmix64(key + i) % 1000) / 2500.0 - 0.2);
    for (uint32_t p = 0; p < layout->n_parts; p++)
        for (uint32_t i = 0; i < layout->parts[p].state_floats; i++)
            row[layout->parts[p].state_offset + i] = layout->parts[p].state_initial;
    return row;
}

static inline void add_occurrence(struct fr_table_rows *rows, struct row_table *table, uint64_t key)
{
    uint32_t u = 0;
    while (u < rows->n_unique && rows->keys[u] != key)
        u++;
    if (u == rows->n_unique) {
        rows->keys[u] = key;
        rows->rows[u] = row_of(table, key);
        rows->n_unique += 1;
    }
    rows->unique_of[rows->n_occurrences++] = u;
}

static inline void add_slot(struct trained *self, uint32_t s, uint32_t number, uint32_t *from)
{
    uint32_t t = (uint32_t)self->conf->slots[s].table;
    const struct fr_column *column = &self->batch->columns[s];
    struct fr_table_rows *rows = &self->rows.tables[t];
    self->rows.slot_base[s] = rows->n_occurrences;
    for (uint32_t e = 0; e < fr_batch_entries(self->batch, s); e++)
        for (uint32_t i = column->begin[e]; i < column->begin[e + 1]; i++) {
            from[rows->n_occurrences] = number << FR_ENTRY_BITS | e;
            add_occurrence(rows, &self->tables[t], column->keys[i]);
        }
}

/* As the store's plan does: every key of the batch once, its occurrences slot by slot. */
static inline void resolve(struct trained *self)
{
    for (uint32_t t = 0; t < self->rows.n_tables; t++) {
        struct fr_table_rows *rows = &self->rows.tables[t];
        release_rows(rows);
        size_t n = 1;
        for (uint32_t s = 0; s < self->conf->n_slots; s++)
            if (self->conf->slots[s].table == (int32_t)t)
                n += self->batch->columns[s].begin[fr_batch_entries(self->batch, s)];
        rows->keys = fr_alloc(n, sizeof(*rows->keys));
        rows->rows = fr_alloc(n, sizeof(*rows->rows));
        rows->unique_of = fr_alloc(n, sizeof(*rows->unique_of));
        rows->occ = fr_alloc(n, sizeof(*rows->occ));
        rows->occ_begin = fr_alloc(n + 1, sizeof(*rows->occ_begin));
        rows->occ_from = fr_alloc(n, sizeof(*rows->occ_from));
        uint32_t *from = fr_alloc(n, sizeof(*from)), n_slots = 0, end = 0;
        for (uint32_t s = 0; s < self->conf->n_slots; s++)
            if (self->conf->slots[s].table == (int32_t)t)
                add_slot(self, s, n_slots++, from);
        for (uint32_t u = 0; u < rows->n_unique; u++) {
            rows->occ_begin[u] = end;
            for (uint32_t o = 0; o < rows->n_occurrences; o++)
                if (rows->unique_of[o] == u) {
                    rows->occ_from[end] = from[o];
                    rows->occ[end++] = o;
                }
        }
        rows->occ_begin[rows->n_unique] = end;
        free(from);
    }
}

/* The trainer's forward pass over one record. */
static inline void forward(struct trained *self, const struct fr_buffer *record)
{
    struct fr_record input = {.value = record->data, .size = record->size, .timestamp_ms = 1700000000000};
    const char *reason = "";
    uint32_t n = 0;
    if (fr_decode_record(self->decoder, &input, &n, &reason) != FR_OK)
        fail_msg("%.*s\n%s", (int)record->size, (const char *)record->data, reason);
    fr_batch_clear(self->batch);
    fr_decode_append(self->decoder, 0, n, self->batch);
    resolve(self);
    fr_graph_forward(self->graph, self->batch, &self->rows);
}

/* `batches` batches, form after form. */
static inline void train(struct trained *self, int batches)
{
    struct fr_buffer record = {0};
    for (int b = 0; b < batches; b++) {
        double loss = 0;
        put_record(&record, (enum form)(b % FORMS), (uint64_t)b * GROUPS, GROUPS);
        forward(self, &record);
        assert_int_equal(fr_graph_train(self->graph, self->batch, &self->rows, &loss), FR_OK);
        assert_true(loss > 0);
    }
    fr_buffer_release(&record);
}

/* ---- to the replica ---- */

static inline int row_before(const void *a, const void *b)
{
    const struct fr_delta_row *x = a, *y = b;
    if (x->table != y->table)
        return x->table < y->table ? -1 : 1;
    return x->key < y->key ? -1 : x->key > y->key;
}

static inline enum fr_status feed_replica(void *self, uint32_t partition, uint32_t piece, const void *bytes,
                                          size_t size)
{
    struct freshet_event event;
    (void)piece;
    if (freshet_replica_feed(self, partition, bytes, size, &event) != FRESHET_OK)
        fail_msg("%s", event.problem);
    return FR_OK;
}

static inline struct fr_codec_settings settings_of(const struct trained *self, struct fr_buffer *cfg)
{
    fr_conf_model_json(self->conf, cfg);
    struct fr_codec_settings settings = {.revision = FR_CODEC_REVISION,
                                         .np = NP,
                                         .quantize =
                                             self->conf->export_.quantize == FR_QUANT_F16 ? FR_CODEC_F16 : FR_CODEC_F32,
                                         .fp = fr_conf_fingerprint(self->conf),
                                         .cfg = (char *)cfg->data,
                                         .cfg_size = cfg->size,
                                         .n_tables = self->conf->n_tables,
                                         .tables = fr_alloc(TABLES, sizeof(*settings.tables))};
    snprintf(settings.model, sizeof(settings.model), "%s", self->conf->model);
    snprintf(settings.kernel, sizeof(settings.kernel), "%s", fr_graph_kernel(self->graph));
    for (uint32_t t = 0; t < settings.n_tables; t++) {
        const struct fr_conf_table *table = &self->conf->tables[t];
        snprintf(settings.tables[t].name, sizeof(settings.tables[t].name), "%s", table->name);
        settings.tables[t].n_parts = table->n_parts;
        settings.tables[t].value_floats = self->tables[t].layout.value_floats;
        for (uint32_t p = 0; p < table->n_parts; p++) {
            snprintf(settings.tables[t].parts[p].name, FR_NAME_MAX, "%s", table->parts[p].name);
            settings.tables[t].parts[p].dim = table->parts[p].dim;
        }
    }
    return settings;
}

struct sent_epoch {
    uint64_t number; /* 1: with the model record */
    uint64_t piece_max;
    fr_delta_sink *sink;
    void *self;
};

static inline uint64_t digest_of(uint64_t epoch)
{
    return epoch ? 1000 + epoch : 0;
}

/* All rows and all dense parameters as one epoch's records. */
static inline void write_epoch(struct trained *self, const struct sent_epoch *sent)
{
    struct fr_buffer cfg = {0};
    struct fr_codec_settings settings = settings_of(self, &cfg);
    settings.piece_max = sent->piece_max;
    struct fr_delta_row *rows = fr_alloc(TABLES * ROWS_MAX, sizeof(*rows));
    size_t n_rows = 0, n_dense = fr_graph_parameter_count(self->graph);
    for (uint32_t t = 0; t < self->conf->n_tables; t++)
        for (uint32_t r = 0; r < self->tables[t].n; r++)
            rows[n_rows++] =
                (struct fr_delta_row){.key = self->tables[t].keys[r],
                                      .table = t,
                                      .values = self->tables[t].rows + (size_t)r * self->tables[t].layout.row_floats};
    qsort(rows, n_rows, sizeof(*rows), row_before);
    struct fr_delta_dense *dense = fr_alloc(n_dense, sizeof(*dense));
    const struct fr_parameter *parameters = fr_graph_parameters(self->graph);
    for (size_t i = 0; i < n_dense; i++)
        dense[i] = (struct fr_delta_dense){.name = parameters[i].name,
                                           .n_dims = parameters[i].n_dims,
                                           .shape = {parameters[i].shape[0], parameters[i].shape[1]},
                                           .n_values = parameters[i].n_values,
                                           .values = parameters[i].values,
                                           .exact = parameters[i].exact};
    struct fr_delta_epoch epoch = {.timeline = 1,
                                   .epoch = sent->number,
                                   .from = sent->number,
                                   .digest = digest_of(sent->number),
                                   .previous = digest_of(sent->number - 1),
                                   .with_model = sent->number == 1,
                                   .rows = rows,
                                   .n_rows = n_rows,
                                   .dense = dense,
                                   .n_dense = n_dense,
                                   .commit = {.wm_ms = 1700000000000, .t_ms = 1700000000000}};
    assert_int_equal(fr_delta_write(&settings, &epoch, sent->sink, sent->self, &self->saturated), FR_OK);
    free(rows);
    free(dense);
    free(settings.tables);
    fr_buffer_release(&cfg);
}

/* Returns a replica that was fed epoch 1. */
static inline struct freshet_replica *serve(struct trained *self)
{
    struct freshet_replica *replica = NULL;
    assert_int_equal(freshet_replica_new(&(struct freshet_replica_options){0}, &replica), FRESHET_OK);
    write_epoch(self, &(struct sent_epoch){.number = 1, .piece_max = 8192, .sink = feed_replica, .self = replica});
    struct freshet_replica_info info;
    freshet_replica_get_info(replica, &info);
    assert_true(info.scorable && info.rows > 20 && info.dense == fr_graph_parameter_count(self->graph));
    return replica;
}

#endif
