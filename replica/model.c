/* The served model: what a `model` record makes, what rows, drop and dense records change.
 *
 * Checking and applying are apart: an epoch is checked whole before any of it is applied, so that
 * what is served is always the state of one epoch. Segments are matched to parts by name,
 * parameters by name and shape.
 *
 * Owner: the replica's thread. It does not know epochs or partitions. */
#include "replica_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"

static bool text_is(struct fr_delta_text text, const char *name)
{
    return text.size == strlen(name) && memcmp(text.bytes, name, text.size) == 0;
}

static int print_size(struct fr_delta_text text)
{
    return text.size > 100 ? 100 : (int)text.size;
}

/* ---- life ---- */

struct making {
    struct fr_served_model *model;
    struct fr_scorer *scorer;
    const struct fr_conf *conf;
    struct fr_delta_text cfg;
    struct fr_err *err;
    enum fr_status status;
};

static void parse_conf(void *self)
{
    struct making *making = self;
    making->status = fr_conf_model_parse(making->cfg.bytes, making->cfg.size, &making->model->conf, making->err);
}

static void make_scorer(void *self)
{
    const struct making *making = self;
    struct fr_scorer *scorer = making->scorer;
    const struct fr_conf *conf = making->conf;
    scorer->graph = fr_graph_new(&(struct fr_graph_options){.conf = conf, .scoring_only = true});
    scorer->parameters = fr_graph_parameters(scorer->graph);
    scorer->n_parameters = fr_graph_parameter_count(scorer->graph);
    scorer->batch = fr_batch_new(conf);
    scorer->table_rows = fr_alloc(conf->n_tables + 1u, sizeof(*scorer->table_rows));
    scorer->table_rows_capacity = fr_alloc(conf->n_tables + 1u, sizeof(*scorer->table_rows_capacity));
    scorer->rows = (struct fr_rows){.n_tables = conf->n_tables,
                                    .tables = scorer->table_rows,
                                    .n_slots = conf->n_slots,
                                    .slot_base = fr_alloc(conf->n_slots + 1u, sizeof(uint32_t))};
}

bool fr_served_scorer_make(struct fr_scorer *scorer, const struct fr_conf *conf, struct fr_replica_budget *budget)
{
    struct making making = {.scorer = scorer, .conf = conf};
    *scorer = (struct fr_scorer){.memory.budget = budget};
    if (fr_replica_memory_run(&scorer->memory, make_scorer, &making))
        return true;
    fr_replica_memory_release(&scorer->memory);
    return false;
}

static void make_tables(void *self)
{
    struct fr_served_model *model = self;
    model->received = fr_alloc(model->scorer.n_parameters + 1, sizeof(*model->received));
    model->filled = fr_alloc(model->scorer.n_parameters + 1, sizeof(*model->filled));
    model->tables = fr_alloc(model->conf->n_tables + 1u, sizeof(*model->tables));
    model->n_tables = model->conf->n_tables;
    for (uint32_t t = 0; t < model->n_tables; t++) {
        fr_graph_row_layout(&model->conf->tables[t], &model->tables[t].layout);
        fr_row_map_init(&model->tables[t].rows, model->tables[t].layout.value_floats);
    }
}

enum fr_status fr_served_model_new(const struct fr_delta_record *record, struct fr_replica_budget *budget,
                                   struct fr_served_model **out, struct fr_err *err)
{
    struct fr_delta_text cfg = record->model_record.cfg, kernel = record->model_record.kernel;
    struct fr_sha256 sha = fr_sha256(cfg.bytes, cfg.size);
    if (fr_sha256_u64(&sha) != record->fp)
        return fr_err_set(err, FR_E_INVALID, "the model record's cfg does not have its fingerprint");
    struct fr_served_model *model = fr_alloc(1, sizeof(*model));
    model->fp = record->fp;
    model->memory.budget = budget;
    size_t kernel_size = kernel.size < sizeof(model->kernel) ? kernel.size : sizeof(model->kernel) - 1;
    memcpy(model->kernel, kernel.bytes, kernel_size);
    struct making making = {.model = model, .cfg = cfg, .err = err};
    bool given = fr_replica_memory_run(&model->memory, parse_conf, &making);
    if (given && making.status != FR_OK) {
        fr_served_model_free(model);
        return fr_err_wrap(err, "the model record is not understood");
    }
    given = given && fr_served_scorer_make(&model->scorer, model->conf, budget) &&
            fr_replica_memory_run(&model->memory, make_tables, model);
    if (!given) {
        fr_served_model_free(model);
        return fr_err_set(err, FR_E_NO_MEMORY, "memory for the model was refused");
    }
    *out = model;
    return FR_OK;
}

void fr_served_model_free(struct fr_served_model *model)
{
    if (!model)
        return;
    for (uint32_t t = 0; t < model->n_tables; t++)
        fr_row_map_release(&model->tables[t].rows);
    fr_replica_memory_release(&model->scorer.memory);
    fr_replica_memory_release(&model->memory);
    free(model);
}

/* ---- rows of an older model ---- */

static bool same_parts(const struct fr_conf_table *a, const struct fr_conf_table *b)
{
    if (strcmp(a->name, b->name) != 0 || a->n_parts != b->n_parts)
        return false;
    for (uint32_t p = 0; p < a->n_parts; p++)
        if (strcmp(a->parts[p].name, b->parts[p].name) != 0 || a->parts[p].dim != b->parts[p].dim)
            return false;
    return true;
}

void fr_served_model_swap_rows(struct fr_served_model *model, struct fr_served_model *old)
{
    for (uint32_t t = 0; t < model->n_tables; t++)
        for (uint32_t o = 0; o < old->n_tables; o++)
            if (same_parts(&model->conf->tables[t], &old->conf->tables[o])) {
                struct fr_row_map rows = model->tables[t].rows;
                model->tables[t].rows = old->tables[o].rows;
                old->tables[o].rows = rows;
            }
}

int fr_served_model_table(const struct fr_served_model *model, struct fr_delta_text name)
{
    for (uint32_t t = 0; t < model->n_tables; t++)
        if (text_is(name, model->conf->tables[t].name))
            return (int)t;
    return -1;
}

static int find_part(const struct fr_conf_table *table, struct fr_delta_text name)
{
    for (uint32_t p = 0; p < table->n_parts; p++)
        if (text_is(name, table->parts[p].name))
            return (int)p;
    return -1;
}

static int find_parameter(const struct fr_served_model *model, struct fr_delta_text name)
{
    for (size_t i = 0; i < model->scorer.n_parameters; i++)
        if (text_is(name, model->scorer.parameters[i].name))
            return (int)i;
    return -1;
}

/* ---- an epoch's records ---- */

static enum fr_status check_rows(const struct fr_served_model *model, const struct fr_delta_record *record,
                                 struct fr_err *err)
{
    struct fr_delta_text name = record->rows.table;
    int t = fr_served_model_table(model, name);
    if (t < 0)
        return fr_err_set(err, FR_E_INVALID, "rows of table %.*s, which the model does not have", print_size(name),
                          name.bytes);
    const struct fr_conf_table *table = &model->conf->tables[t];
    uint32_t seen = 0;
    for (uint32_t s = 0; s < record->rows.n_segments; s++) {
        int p = find_part(table, record->rows.segments[s].part);
        if (p < 0 || (seen >> p & 1u) || record->rows.segments[s].dim != table->parts[p].dim)
            return fr_err_set(err, FR_E_INVALID, "rows of table %s do not have the model's parts", table->name);
        seen |= 1u << p;
    }
    if (record->rows.n_segments != table->n_parts)
        return fr_err_set(err, FR_E_INVALID, "rows of table %s do not have all of the model's parts", table->name);
    return FR_OK;
}

static enum fr_status check_dense(struct fr_served_model *model, const struct fr_delta_record *record,
                                  struct fr_err *err)
{
    struct fr_delta_text name = record->dense.name;
    int i = find_parameter(model, name);
    if (i < 0)
        return fr_err_set(err, FR_E_INVALID, "dense parameter %.*s, which the model does not have", print_size(name),
                          name.bytes);
    const struct fr_parameter *parameter = &model->scorer.parameters[i];
    bool same = record->dense.n_dims == parameter->n_dims && record->dense.shape[0] == parameter->shape[0] &&
                (parameter->n_dims == 1 || record->dense.shape[1] == parameter->shape[1]);
    if (!same)
        return fr_err_set(err, FR_E_INVALID, "dense parameter %s has another shape than in the model", parameter->name);
    if (record->dense.offset != model->filled[i])
        return fr_err_set(err, FR_E_INVALID, "chunks of dense parameter %s do not follow one another", parameter->name);
    model->filled[i] += record->dense.n_values;
    return FR_OK;
}

enum fr_status fr_served_model_check(struct fr_served_model *model, const struct fr_delta_record *record,
                                     struct fr_err *err)
{
    switch (record->kind) {
    case FR_DELTA_ROWS:
        return check_rows(model, record, err);
    case FR_DELTA_DROP:
        if (fr_served_model_table(model, record->drop.table) < 0)
            return fr_err_set(err, FR_E_INVALID, "tombstones of table %.*s, which the model does not have",
                              print_size(record->drop.table), record->drop.table.bytes);
        return FR_OK;
    case FR_DELTA_DENSE:
        return check_dense(model, record, err);
    case FR_DELTA_MODEL:
    case FR_DELTA_REWIND:
    case FR_DELTA_COMMIT:
    case FR_DELTA_UNKNOWN:
        break;
    }
    return FR_OK;
}

static void apply_rows(struct fr_served_model *model, const struct fr_delta_record *record)
{
    int t = fr_served_model_table(model, record->rows.table);
    FR_CHECK(t >= 0);
    uint32_t offsets[FR_CODEC_PARTS_MAX];
    for (uint32_t s = 0; s < record->rows.n_segments; s++) {
        int p = find_part(&model->conf->tables[t], record->rows.segments[s].part);
        FR_CHECK(p >= 0);
        offsets[s] = model->tables[t].layout.parts[p].value_offset;
    }
    for (uint32_t r = 0; r < record->rows.n_rows; r++) {
        float *row = fr_row_map_put(&model->tables[t].rows, fr_load_u64(record->rows.keys + (size_t)r * 8));
        for (uint32_t s = 0; s < record->rows.n_segments; s++)
            fr_delta_segment_row(record, s, r, row + offsets[s]);
    }
}

void fr_served_model_apply(struct fr_served_model *model, const struct fr_delta_record *record)
{
    if (record->kind == FR_DELTA_ROWS) {
        apply_rows(model, record);
    } else if (record->kind == FR_DELTA_DROP) {
        int t = fr_served_model_table(model, record->drop.table);
        FR_CHECK(t >= 0);
        for (uint32_t r = 0; r < record->drop.n_rows; r++)
            fr_row_map_erase(&model->tables[t].rows, fr_load_u64(record->drop.keys + (size_t)r * 8));
    } else if (record->kind == FR_DELTA_DENSE) {
        int i = find_parameter(model, record->dense.name);
        FR_CHECK(i >= 0);
        FR_CHECK(record->dense.offset + record->dense.n_values <= model->scorer.parameters[i].n_values);
        fr_delta_dense_values(record, model->scorer.parameters[i].values + record->dense.offset);
        model->n_received += !model->received[i];
        model->received[i] = true;
    }
}
