/* Looking at what is served: numbers, single rows, and the public dump (DESIGN section 9).
 *
 * The dump sorts the keys of one table at a time: it needs 8 bytes a row of the largest table
 * besides one line. Values are written as held, which is as published.
 *
 * Owner: the replica's thread. It does not change anything. */
#include "replica_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "codec/dump.h"

void freshet_replica_get_info(const struct freshet_replica *replica, struct freshet_replica_info *info)
{
    *info = replica->info;
    info->np = replica->np;
    info->memory_bytes = replica->budget.held;
    const struct fr_served_model *model = replica->model;
    for (uint32_t t = 0; model && t < model->n_tables; t++)
        info->rows += model->tables[t].rows.n_rows;
    info->dense = model ? (uint32_t)model->n_received : 0;
    info->scorable = model && model->n_received == model->scorer.n_parameters;
}

int freshet_replica_row(const struct freshet_replica *replica, const char *table, const char *part, uint64_t key,
                        float *values, uint32_t *dim)
{
    const struct fr_served_model *model = replica->model;
    if (!model)
        return FRESHET_E_NOT_READY;
    int t = fr_served_model_table(model, (struct fr_delta_text){table, strlen(table)});
    const float *row = t < 0 ? NULL : fr_row_map_find(&model->tables[t].rows, key);
    for (uint32_t p = 0; row && p < model->conf->tables[t].n_parts; p++) {
        if (strcmp(model->conf->tables[t].parts[p].name, part) != 0)
            continue;
        const uint32_t room = *dim;
        *dim = model->conf->tables[t].parts[p].dim;
        if (*dim > room)
            return FRESHET_E_INVALID;
        memcpy(values, row + model->tables[t].layout.parts[p].value_offset, *dim * sizeof(float));
        return FRESHET_OK;
    }
    return FRESHET_E_NOT_FOUND;
}

uint32_t freshet_replica_tables(const struct freshet_replica *replica)
{
    return replica->model ? replica->model->n_tables : 0;
}

const char *freshet_replica_table_name(const struct freshet_replica *replica, uint32_t table)
{
    return table < freshet_replica_tables(replica) ? replica->model->conf->tables[table].name : "";
}

uint32_t freshet_replica_parts(const struct freshet_replica *replica, uint32_t table)
{
    return table < freshet_replica_tables(replica) ? replica->model->conf->tables[table].n_parts : 0;
}

const char *freshet_replica_part_name(const struct freshet_replica *replica, uint32_t table, uint32_t part)
{
    return part < freshet_replica_parts(replica, table) ? replica->model->conf->tables[table].parts[part].name : "";
}

uint32_t freshet_replica_part_dim(const struct freshet_replica *replica, uint32_t table, uint32_t part)
{
    return part < freshet_replica_parts(replica, table) ? replica->model->conf->tables[table].parts[part].dim : 0;
}

struct dump_target {
    int (*write)(void *self, const void *bytes, size_t size);
    void *self;
};

static enum fr_status write_dump(void *self, const void *bytes, size_t size)
{
    const struct dump_target *target = self;
    return target->write(target->self, bytes, size) == 0 ? FR_OK : FR_E_IO;
}

static enum fr_status dump_table(struct fr_dump *dump, const struct fr_served_model *model, uint32_t t)
{
    const struct fr_conf_table *table = &model->conf->tables[t];
    uint64_t *keys = fr_row_map_sorted_keys(&model->tables[t].rows);
    enum fr_status status = FR_OK;
    for (size_t i = 0; i < model->tables[t].rows.n_rows && status == FR_OK; i++) {
        const float *row = fr_row_map_find(&model->tables[t].rows, keys[i]);
        struct fr_dump_segment segments[FR_PARTS_MAX];
        for (uint32_t p = 0; p < table->n_parts; p++)
            segments[p] = (struct fr_dump_segment){table->parts[p].name, table->parts[p].dim,
                                                   row + model->tables[t].layout.parts[p].value_offset};
        status = fr_dump_row(dump, table->name, keys[i], segments, table->n_parts);
    }
    free(keys);
    return status;
}

/* Indices of n things by ascending name; n is small. */
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
    return model->scorer.parameters[i].name;
}

struct dumping {
    const struct freshet_replica *replica;
    struct dump_target target;
    uint64_t *hash;
    enum fr_status status;
};

static void run_dump(void *self)
{
    struct dumping *dumping = self;
    const struct freshet_replica *replica = dumping->replica;
    const struct fr_served_model *model = replica->model;
    struct fr_dump dump;
    /* The values are quantized already. What is allocated here goes with the run's memory. */
    fr_dump_init(&dump, FR_CODEC_F32, write_dump, &dumping->target);
    enum fr_status status = FR_OK;
    uint32_t *order = order_by_name(model->n_tables, table_name, model);
    for (uint32_t t = 0; t < model->n_tables && status == FR_OK; t++)
        status = dump_table(&dump, model, order[t]);
    order = order_by_name(model->scorer.n_parameters, parameter_name, model);
    for (size_t i = 0; i < model->scorer.n_parameters && status == FR_OK; i++) {
        const struct fr_parameter *parameter = &model->scorer.parameters[order[i]];
        if (model->received[order[i]])
            status = fr_dump_dense(&dump, &(struct fr_delta_dense){parameter->name,
                                                                   parameter->n_dims,
                                                                   {parameter->shape[0], parameter->shape[1]},
                                                                   parameter->n_values,
                                                                   parameter->values,
                                                                   parameter->exact});
    }
    if (status == FR_OK)
        status = fr_dump_end(&dump,
                             &(struct fr_dump_end){replica->info.timeline, replica->info.epoch,
                                                   replica->info.watermark_ms, replica->info.samples},
                             dumping->hash);
    dumping->status = status;
}

int freshet_replica_dump(const struct freshet_replica *replica,
                         int (*write)(void *self, const void *bytes, size_t size), void *self, uint64_t *hash)
{
    if (!replica->model)
        return FRESHET_E_NOT_READY;
    /* of the handle's budget, and held during the dump only; the rest of a const handle stays */
    struct fr_replica_memory memory = {.budget = replica->model->memory.budget};
    struct dumping dumping = {.replica = replica, .target = {write, self}, .hash = hash};
    bool given = fr_replica_memory_run(&memory, run_dump, &dumping);
    fr_replica_memory_release(&memory);
    if (!given)
        return FRESHET_E_NO_MEMORY;
    return dumping.status == FR_OK ? FRESHET_OK : FRESHET_E_INVALID;
}
