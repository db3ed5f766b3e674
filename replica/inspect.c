/* Reads what is served: numbers, the calls that read through the handle, and the public dump
 * (docs/commands.md, "freshet dump").
 *
 * The dump sorts the keys of one table at a time: it needs 8 bytes per row of the largest table,
 * and one line. Values are written as they are held, which is as they were published.
 *
 * Owner: the calling thread. Nothing is changed. */
#include "reader.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "codec/dump.h"

void fr_replica_fill_info(const struct freshet_replica *replica, struct freshet_replica_info *info)
{
    info->memory_bytes = atomic_load_explicit(&replica->budget.held, memory_order_relaxed);
    info->newest_epoch = atomic_load_explicit(&replica->newest_epoch, memory_order_relaxed);
    if (info->epoch > 0)
        info->freshness_ms = fr_wall_ms(fr_clock_system()) - info->commit_wall_ms;
}

void freshet_replica_get_info(const struct freshet_replica *replica, struct freshet_replica_info *info)
{
    const struct fr_served *view = fr_views_newest(&replica->views);
    *info = replica->info;
    info->np = replica->np;
    if (view) {
        info->rows = view->info.rows;
        info->dense = view->info.dense;
        info->scorable = view->info.scorable;
    }
    fr_replica_fill_info(replica, info);
}

const char *freshet_version(void)
{
    return FR_VERSION;
}

const char *freshet_replica_model(const struct freshet_replica *replica)
{
    return replica->model_name;
}

uint64_t freshet_replica_scored(const struct freshet_replica *replica)
{
    const struct fr_views *views = &replica->views;
    uint64_t scored = 0;
    for (uint32_t i = 0; i < atomic_load(&views->n_readers); i++)
        scored += atomic_load_explicit(&views->readers[i].scored, memory_order_relaxed);
    return scored;
}

/* ---- calls that read through the handle ---- */

const char *freshet_replica_trained_kernel(const struct freshet_replica *replica)
{
    const struct fr_served *view = fr_views_newest(&replica->views);
    return view ? view->model->kernel : "";
}

const char *freshet_replica_scoring_kernel(const struct freshet_replica *replica)
{
    const struct fr_served *view = fr_views_newest(&replica->views);
    return view ? view->model->scoring_kernel : "";
}

uint32_t freshet_replica_tasks(const struct freshet_replica *replica)
{
    return freshet_reader_tasks(replica->own);
}

const char *freshet_replica_task_name(const struct freshet_replica *replica, uint32_t task)
{
    return freshet_reader_task_name(replica->own, task);
}

uint32_t freshet_replica_tables(const struct freshet_replica *replica)
{
    return freshet_reader_tables(replica->own);
}

const char *freshet_replica_table_name(const struct freshet_replica *replica, uint32_t table)
{
    return freshet_reader_table_name(replica->own, table);
}

uint32_t freshet_replica_parts(const struct freshet_replica *replica, uint32_t table)
{
    return freshet_reader_parts(replica->own, table);
}

const char *freshet_replica_part_name(const struct freshet_replica *replica, uint32_t table, uint32_t part)
{
    return freshet_reader_part_name(replica->own, table, part);
}

uint32_t freshet_replica_part_dim(const struct freshet_replica *replica, uint32_t table, uint32_t part)
{
    return freshet_reader_part_dim(replica->own, table, part);
}

int freshet_replica_row(const struct freshet_replica *replica, const char *table, const char *part, uint64_t key,
                        float *values, uint32_t *dim)
{
    uint8_t found = 0;
    float row[FR_DIM_MAX];
    struct freshet_lookup lookup = {
        .table = table, .part = part, .keys = &key, .n = 1, .found = &found, .values = row, .capacity = FR_DIM_MAX};
    int status = freshet_reader_lookup(replica->own, &lookup);
    if (status != FRESHET_OK)
        return status;
    if (!found)
        return FRESHET_E_NOT_FOUND;
    const uint32_t room = *dim;
    *dim = lookup.dim;
    if (lookup.dim > room)
        return FRESHET_E_INVALID;
    memcpy(values, row, lookup.dim * sizeof(float));
    return FRESHET_OK;
}

int freshet_replica_score_json(struct freshet_replica *replica, const char *json, size_t size, float *scores,
                               uint32_t *n_samples)
{
    return freshet_reader_score(replica->own, FRESHET_JSON, json, size, scores, n_samples);
}

int freshet_replica_score_msgpack(struct freshet_replica *replica, const void *bytes, size_t size, float *scores,
                                  uint32_t *n_samples)
{
    return freshet_reader_score(replica->own, FRESHET_MSGPACK, bytes, size, scores, n_samples);
}

const char *freshet_replica_score_problem(const struct freshet_replica *replica)
{
    return freshet_reader_problem(replica->own);
}

uint64_t freshet_replica_score_ignored(const struct freshet_replica *replica, char *names, size_t room)
{
    return freshet_reader_ignored(replica->own, names, room);
}

int freshet_replica_dump(const struct freshet_replica *replica,
                         int (*write)(void *self, const void *bytes, size_t size), void *self, uint64_t *hash)
{
    return freshet_reader_dump(replica->own, write, self, hash);
}

/* ---- the dump ---- */

static enum fr_status dump_table(struct fr_dump *dump, const struct fr_served *view, uint32_t t)
{
    const struct fr_conf_table *table = &view->model->conf->tables[t];
    uint64_t *keys = fr_alloc(view->tables[t].n_rows + 1, sizeof(*keys));
    enum fr_status status = FR_OK;
    fr_served_keys(&view->tables[t], keys);
    for (size_t i = 0; i < view->tables[t].n_rows && status == FR_OK; i++) {
        const float *row = fr_served_row(&view->tables[t], keys[i]);
        struct fr_dump_segment segments[FR_PARTS_MAX];
        FR_CHECK(row != NULL);
        for (uint32_t p = 0; p < table->n_parts; p++)
            segments[p] = (struct fr_dump_segment){table->parts[p].name, table->parts[p].dim,
                                                   row + view->model->layouts[t].parts[p].value_offset};
        status = fr_dump_row(dump, table->name, keys[i], segments, table->n_parts);
    }
    free(keys);
    return status;
}

/* Returns the indices of n things by ascending name; n is small. */
static uint32_t *order_by_name(size_t n, const char *(*name)(const struct fr_served_model *model, size_t i),
                               const struct fr_served_model *model)
{
    uint32_t *order = fr_alloc(n + 1, sizeof(*order));
    for (size_t i = 0; i < n; i++) {
        size_t at = i;
        for (; at > 0 && strcmp(name(model, order[at - 1]), name(model, i)) > 0; at--)
            order[at] = order[at - 1];
        order[at] = (uint32_t)i;
    }
    return order;
}

static const char *table_name(const struct fr_served_model *model, size_t i)
{
    return model->conf->tables[i].name;
}

static const char *parameter_name(const struct fr_served_model *model, size_t i)
{
    return model->parameters[i].name;
}

struct dumping {
    const struct fr_served *view;
    fr_dump_sink *write;
    void *self;
    uint64_t *hash;
    enum fr_status status;
};

static void run_dump(void *self)
{
    struct dumping *dumping = self;
    const struct fr_served *view = dumping->view;
    const struct fr_served_model *model = view->model;
    struct fr_dump dump;
    /* The values are quantized already. What is allocated here is freed with the run's memory. */
    fr_dump_init(&dump, FR_CODEC_F32, dumping->write, dumping->self);
    enum fr_status status = FR_OK;
    uint32_t *order = order_by_name(view->n_tables, table_name, model);
    for (uint32_t t = 0; t < view->n_tables && status == FR_OK; t++)
        status = dump_table(&dump, view, order[t]);
    order = order_by_name(model->n_parameters, parameter_name, model);
    for (size_t i = 0; i < model->n_parameters && status == FR_OK; i++) {
        const struct fr_parameter *parameter = &model->parameters[order[i]];
        const struct fr_served_dense *dense = view->parameters[order[i]];
        if (dense)
            status = fr_dump_dense(&dump, &(struct fr_delta_dense){parameter->name,
                                                                   parameter->n_dims,
                                                                   {parameter->shape[0], parameter->shape[1]},
                                                                   parameter->n_values,
                                                                   dense->values,
                                                                   parameter->exact});
    }
    if (status == FR_OK)
        status = fr_dump_end(
            &dump,
            &(struct fr_dump_end){view->info.timeline, view->info.epoch, view->info.watermark_ms, view->info.samples},
            dumping->hash);
    dumping->status = status;
}

int freshet_reader_dump(struct freshet_reader *reader, int (*write)(void *self, const void *bytes, size_t size),
                        void *self, uint64_t *hash)
{
    const struct fr_served *view = fr_reader_enter(reader);
    if (!view)
        return FRESHET_E_NOT_READY;
    /* charged to the handle's budget, and held during the dump only */
    struct fr_replica_memory memory = {.budget = &reader->replica->budget};
    struct dumping dumping = {.view = view, .write = write, .self = self, .hash = hash};
    bool given = fr_replica_memory_run(&memory, run_dump, &dumping);
    fr_replica_memory_release(&memory);
    fr_reader_leave(reader);
    if (!given)
        return FRESHET_E_NO_MEMORY;
    return dumping.status == FR_OK ? FRESHET_OK : FRESHET_E_INVALID;
}
