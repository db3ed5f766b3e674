/* The served model: made from a `model` record, and compared with rows, drop and dense records,
 * which must fit it.
 *
 * Checking and applying are separate: an epoch is checked as a whole before any of it is applied,
 * so that what is served is always the state of one epoch. Segments are matched to parts by name,
 * parameters by name and shape.
 *
 * Owner: the feeder. Epochs and partitions have no meaning in this file. */
#include "replica_internal.h"

#include <inttypes.h>
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

/* ---- creation and release ---- */

struct making {
    struct fr_served_model *model;
    struct fr_delta_text cfg;
    struct fr_err *err;
    enum fr_status status;
};

static void parse_conf(void *self)
{
    struct making *making = self;
    making->status = fr_conf_model_parse(making->cfg.bytes, making->cfg.size, &making->model->conf, making->err);
}

/* Only the network's names and shapes are needed here, not its values. */
static void list_parameters(void *self)
{
    struct fr_served_model *model = self;
    struct fr_graph *graph = fr_graph_new(&(struct fr_graph_options){.conf = model->conf, .scoring_only = true});
    model->n_parameters = fr_graph_parameter_count(graph);
    model->scoring_kernel = fr_graph_kernel(graph);
    model->parameters = fr_alloc(model->n_parameters + 1, sizeof(*model->parameters));
    memcpy(model->parameters, fr_graph_parameters(graph), model->n_parameters * sizeof(*model->parameters));
    for (size_t i = 0; i < model->n_parameters; i++)
        model->parameters[i].values = model->parameters[i].published = NULL;
    fr_graph_free(graph);
}

static void make_tables(void *self)
{
    struct fr_served_model *model = self;
    model->filled = fr_alloc(model->n_parameters + 1, sizeof(*model->filled));
    model->layouts = fr_alloc(model->conf->n_tables + 1u, sizeof(*model->layouts));
    for (uint32_t t = 0; t < model->conf->n_tables; t++)
        fr_graph_row_layout(&model->conf->tables[t], &model->layouts[t]);
}

enum fr_status fr_served_model_new(const struct fr_delta_record *record, struct fr_replica_memory *memory,
                                   struct fr_served_model **out, struct fr_err *err)
{
    struct fr_delta_text cfg = record->model_record.cfg, kernel = record->model_record.kernel;
    struct fr_sha256 sha = fr_sha256(cfg.bytes, cfg.size);
    if (fr_sha256_u64(&sha) != record->fp)
        return fr_err_set(err, FR_E_INVALID, "the model record's cfg does not have its fingerprint");
    struct fr_served_model *model = fr_replica_memory_try(memory, _Alignof(struct fr_served_model), sizeof(*model));
    if (!model)
        return fr_err_set(err, FR_E_NO_MEMORY, "memory for the model was refused");
    model->fp = record->fp;
    model->memory.budget = memory->budget;
    size_t kernel_size = kernel.size < sizeof(model->kernel) ? kernel.size : sizeof(model->kernel) - 1;
    memcpy(model->kernel, kernel.bytes, kernel_size);
    struct making making = {.model = model, .cfg = cfg, .err = err};
    bool given = fr_replica_memory_run(&model->memory, parse_conf, &making);
    if (given && making.status != FR_OK) {
        fr_served_model_free(model);
        return fr_err_wrap(err, "the model record is not understood");
    }
    given = given && fr_replica_memory_run(&model->memory, list_parameters, model) &&
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
    fr_replica_memory_release(&model->memory);
    free(model);
}

bool fr_served_same_parts(const struct fr_conf_table *a, const struct fr_conf_table *b)
{
    if (strcmp(a->name, b->name) != 0 || a->n_parts != b->n_parts)
        return false;
    for (uint32_t p = 0; p < a->n_parts; p++)
        if (strcmp(a->parts[p].name, b->parts[p].name) != 0 || a->parts[p].dim != b->parts[p].dim)
            return false;
    return true;
}

/* ---- names ---- */

int fr_served_model_table(const struct fr_served_model *model, struct fr_delta_text name)
{
    for (uint32_t t = 0; t < model->conf->n_tables; t++)
        if (text_is(name, model->conf->tables[t].name))
            return (int)t;
    return -1;
}

int fr_served_model_part(const struct fr_conf_table *table, struct fr_delta_text name)
{
    for (uint32_t p = 0; p < table->n_parts; p++)
        if (text_is(name, table->parts[p].name))
            return (int)p;
    return -1;
}

int fr_served_model_parameter(const struct fr_served_model *model, struct fr_delta_text name)
{
    for (size_t i = 0; i < model->n_parameters; i++)
        if (text_is(name, model->parameters[i].name))
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
        int p = fr_served_model_part(table, record->rows.segments[s].part);
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
    int i = fr_served_model_parameter(model, name);
    if (i < 0)
        return fr_err_set(err, FR_E_INVALID, "dense parameter %.*s, which the model does not have", print_size(name),
                          name.bytes);
    const struct fr_parameter *parameter = &model->parameters[i];
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

enum fr_status fr_served_model_check_filled(const struct fr_served_model *model, bool all, struct fr_err *err)
{
    for (size_t i = 0; i < model->n_parameters; i++) {
        const struct fr_parameter *parameter = &model->parameters[i];
        if (model->filled[i] != parameter->n_values && (model->filled[i] != 0 || all))
            return fr_err_set(err, FR_E_INVALID, "dense parameter %s has %" PRIu64 " of its %zu elements",
                              parameter->name, model->filled[i], parameter->n_values);
    }
    return FR_OK;
}
