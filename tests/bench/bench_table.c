/* See bench_table.h. */
#include "bench_table.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/random.h"
#include "base/resident.h"
#include "graph/graph.h"

/* ---- the table ---- */

struct fr_batch *fr_bench_batch_new(const struct fr_conf *conf)
{
    struct fr_batch *batch = fr_batch_new(conf);
    for (uint32_t i = 0; i < batch->capacity_samples; i++) {
        batch->group_begin[i + 1] = i + 1;
        batch->group_of[i] = i;
        batch->keep[i] = 1.0f;
    }
    for (uint32_t s = 0; s < batch->n_slots; s++) {
        struct fr_column *column = &batch->columns[s];
        for (size_t i = 0; column->dim && i < (size_t)batch->capacity_samples * column->dim; i++)
            column->dense[i] = (float)fr_random_uniform(1, s, i, 0) - 0.5f;
        if (column->dim)
            continue;
        fr_column_reserve_keys(column, batch->capacity_samples);
        for (uint32_t i = 0; i < batch->capacity_samples; i++)
            column->begin[i + 1] = i + 1;
    }
    return batch;
}

void fr_bench_batch_refill(struct fr_batch *batch, int64_t t_ms)
{
    batch->n_samples = batch->n_groups = batch->capacity_samples;
    for (uint32_t i = 0; i < batch->n_samples; i++) {
        batch->t_ms[i] = t_ms;
        batch->use[i] = FR_USE_TRAIN | FR_USE_METRICS;
        batch->role[i] = FR_ROLE_TRAIN;
        for (uint32_t l = 0; l < batch->n_labels; l++) {
            batch->labels[(size_t)l * batch->capacity_samples + i] = i % 4 == 0;
            batch->weights[(size_t)l * batch->capacity_samples + i] = 1.0f;
        }
    }
    for (uint32_t s = 0; s < batch->n_slots; s++)
        batch->ids += batch->columns[s].keys ? batch->n_samples : 0;
}

static struct fr_store *new_store(struct fr_bench_table *table, const struct fr_conf *conf, int64_t idle_ms)
{
    struct fr_store_table spec = {.gate = fr_gate_count_policy(&table->gate),
                                  .pending_max = conf->tables[0].admit_count_max,
                                  .n_expiries = idle_ms > 0,
                                  .expire_every = conf->tables[0].expire_every,
                                  .expire_slice_rows = conf->tables[0].expire_slice_rows,
                                  .initial_capacity = conf->tables[0].initial_capacity};
    if (idle_ms > 0)
        spec.expiries[0] = fr_expire_idle_policy(&table->idle);
    memcpy(spec.name, conf->tables[0].name, sizeof(spec.name));
    fr_graph_row_layout(&conf->tables[0], &spec.layout);
    return fr_store_new(&(struct fr_store_options){
        .n_tables = 1, .tables = &spec, .seed = conf->seed, .pool = table->pool, .conf = conf});
}

void fr_bench_table_init(struct fr_bench_table *table, const struct fr_conf *conf, uint32_t threads, int64_t idle_ms)
{
    FR_CHECK(conf->n_tables == 1);
    *table = (struct fr_bench_table){
        .conf = conf, .gate = {.count = 1}, .idle = {.idle_ms = idle_ms}, .pool = fr_pool_new(threads)};
    table->store = new_store(table, conf, idle_ms);
    table->rows = fr_store_rows_new(table->store);
    table->batch = fr_bench_batch_new(conf);
    fr_bench_batch_refill(table->batch, 0);
    for (uint32_t s = 0; s < conf->n_slots; s++)
        table->n_keys += table->batch->columns[s].keys ? table->batch->n_samples : 0;
    fr_stage_init(&table->stage);
}

void fr_bench_table_release(struct fr_bench_table *table)
{
    fr_stage_release(&table->stage);
    fr_batch_free(table->batch);
    fr_store_rows_free(table->rows);
    fr_store_free(table->store);
    fr_pool_free(table->pool);
}

/* ---- batches ---- */

void fr_bench_table_fill_range(struct fr_bench_table *table, uint64_t first, uint64_t step)
{
    for (uint32_t s = 0; s < table->batch->n_slots; s++) {
        struct fr_column *column = &table->batch->columns[s];
        for (uint32_t i = 0; column->keys && i < table->batch->n_samples; i++, first += step)
            column->keys[i] = fr_bench_table_key(first);
    }
}

void fr_bench_table_fill_new(struct fr_bench_table *table)
{
    fr_bench_table_fill_range(table, table->n_made, 1);
    table->n_made += table->n_keys;
}

void fr_bench_table_fill_known(struct fr_bench_table *table, uint64_t n, uint64_t step)
{
    for (uint32_t s = 0; s < table->batch->n_slots; s++) {
        struct fr_column *column = &table->batch->columns[s];
        for (uint32_t i = 0; column->keys && i < table->batch->n_samples; i++)
            column->keys[i] = fr_bench_table_key(fr_random_u64(1, s, table->n_batches, i) % (n / step) * step);
    }
}

void fr_bench_table_plan(struct fr_bench_table *table, int64_t watermark_ms)
{
    fr_store_plan(table->store, table->batch, watermark_ms, table->rows);
    table->n_batches++;
}

void fr_bench_table_cut(struct fr_bench_table *table)
{
    fr_stage_clear(&table->stage);
    table->stage.epoch = ++table->epoch;
    table->stage.timeline = 1;
    fr_store_cut(table->store, &table->stage);
}

void fr_bench_table_drop_stage(struct fr_bench_table *table)
{
    fr_stage_release(&table->stage);
    fr_stage_init(&table->stage);
}

/* ---- times ---- */

uint64_t fr_bench_rss_bytes(void)
{
    malloc_trim(0);
    return fr_resident_bytes();
}

void fr_bench_times_release(struct fr_bench_times *times)
{
    free(times->wall);
    free(times->cpu);
    *times = (struct fr_bench_times){0};
}

void fr_bench_times_begin(struct fr_bench_times *times)
{
    if (times->n == times->capacity) {
        times->capacity = 2 * times->capacity + 1024;
        times->wall = fr_realloc(times->wall, times->capacity, sizeof(*times->wall));
        times->cpu = fr_realloc(times->cpu, times->capacity, sizeof(*times->cpu));
    }
    times->began_cpu = fr_bench_cpu_seconds();
    times->began_wall = fr_bench_now();
}

void fr_bench_times_end(struct fr_bench_times *times)
{
    times->wall[times->n] = fr_bench_now() - times->began_wall;
    times->cpu[times->n++] = fr_bench_cpu_seconds() - times->began_cpu;
}

static void report_times(struct fr_bench *bench, const char *what, double *seconds, size_t n)
{
    char name[64];
    double median = fr_bench_median(seconds, (uint32_t)n), p999 = seconds[(n * 999 + 999) / 1000 - 1];
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"ms_median", median * 1e3},
                   {"ms_p99", seconds[(n * 99 + 99) / 100 - 1] * 1e3},
                   {"ms_p999", p999 * 1e3},
                   {"ms_max", seconds[n - 1] * 1e3},
                   {"p999_by_median", p999 / median}};
    for (size_t i = 0; i < FR_ARRAY_LEN(numbers); i++) {
        snprintf(name, sizeof(name), "%s_%s", what, numbers[i].name);
        fr_bench_number(bench, name, numbers[i].value);
    }
}

void fr_bench_times_report(struct fr_bench_times *times, struct fr_bench *bench)
{
    fr_bench_number(bench, "batches", (double)times->n);
    report_times(bench, "wall", times->wall, times->n);
    report_times(bench, "cpu", times->cpu, times->n);
}
