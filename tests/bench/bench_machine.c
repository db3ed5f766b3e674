/* See bench_machine.h. */
#include "bench_machine.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "tool.h"

static bool admit_all(const void *config, uint32_t count)
{
    (void)config, (void)count;
    return true;
}

static bool forget_none(const void *config, int64_t seen_ms, int64_t watermark_ms)
{
    (void)config, (void)seen_ms, (void)watermark_ms;
    return false;
}

static struct fr_store *open_store(const struct fr_conf *conf, struct fr_pool *pool)
{
    struct fr_store_table tables[FR_TABLES_MAX];
    memset(tables, 0, sizeof(tables));
    for (uint32_t t = 0; t < conf->n_tables; t++) {
        memcpy(tables[t].name, conf->tables[t].name, sizeof(tables[t].name));
        fr_graph_row_layout(&conf->tables[t], &tables[t].layout);
        tables[t].gate = (struct fr_gate_policy){.name = "all", .admits = admit_all, .forgets = forget_none};
        tables[t].pending_max = conf->tables[t].admit_count_max;
        tables[t].initial_capacity = conf->tables[t].initial_capacity;
    }
    return fr_store_new(&(struct fr_store_options){
        .n_tables = conf->n_tables, .tables = tables, .seed = conf->seed, .pool = pool, .conf = conf});
}

void fr_bench_machine_init(struct fr_bench_machine *machine, const struct fr_conf *conf, uint32_t threads)
{
    *machine = (struct fr_bench_machine){.conf = conf, .pool = fr_pool_new(threads)};
    machine->graph = fr_graph_new(&(struct fr_graph_options){.conf = conf, .pool = machine->pool});
    machine->store = open_store(conf, machine->pool);
    machine->rows = fr_store_rows_new(machine->store);
    struct fr_auc_options auc = {.n_half_lives = 1, .half_life_ms = {3600000}};
    machine->auc = fr_auc_new(&auc);
    if (conf->insight.interval_ms > 0)
        machine->insight = fr_insight_new(&(struct fr_insight_options){conf, fr_clock_system(), machine->graph});
}

void fr_bench_machine_release(struct fr_bench_machine *machine)
{
    fr_auc_free(machine->auc);
    fr_insight_free(machine->insight);
    fr_store_rows_free(machine->rows);
    fr_store_free(machine->store);
    fr_graph_free(machine->graph);
    fr_pool_free(machine->pool);
}

static float *row_of(void *self, uint32_t table, uint64_t key)
{
    return fr_store_row_of(((const struct fr_bench_machine *)self)->store, table, key);
}

static enum fr_status train_batch(struct fr_bench_machine *m, const struct fr_batch *batch)
{
    int64_t watermark_ms = batch->t_ms[batch->n_samples - 1];
    uint64_t began_ns = fr_mono_ns(fr_clock_system());
    double at[FR_MACHINE_PHASES + 1] = {fr_bench_cpu_seconds()};
    fr_store_plan(m->store, batch, watermark_ms, m->rows);
    at[FR_MACHINE_FORWARD] = fr_bench_cpu_seconds();
    bool seen = m->insight && fr_insight_wants(m->insight, m->step_ns, m->n_trained);
    if (seen)
        fr_insight_forward(m->insight, batch, m->rows, watermark_ms);
    else
        fr_graph_forward(m->graph, batch, m->rows);
    at[FR_MACHINE_METRICS] = fr_bench_cpu_seconds();
    struct fr_auc_samples samples = {.count = batch->n_samples,
                                     .scores = fr_graph_logits(m->graph, 0),
                                     .labels = batch->labels,
                                     .t_ms = batch->t_ms,
                                     .watermark_ms = watermark_ms};
    fr_auc_add(m->auc, &samples);
    at[FR_MACHINE_UPDATE] = fr_bench_cpu_seconds();
    enum fr_status status = fr_graph_train(m->graph, batch, m->rows, NULL);
    if (seen && status == FR_OK)
        fr_insight_look(m->insight, batch, m->rows, watermark_ms);
    fr_store_slice(m->store, ++m->n_trained, watermark_ms);
    at[FR_MACHINE_PHASES] = fr_bench_cpu_seconds();
    for (int i = 0; i < FR_MACHINE_PHASES; i++)
        m->seconds[i] += at[i + 1] - at[i];
    uint64_t now_ns = fr_mono_ns(fr_clock_system());
    m->step_ns += now_ns - began_ns;
    if (m->insight && fr_insight_due(m->insight, now_ns))
        fr_insight_renew(m->insight, watermark_ms, m->step_ns, row_of, m);
    return status;
}

int fr_bench_machine_round(struct fr_bench_machine *machine, struct fr_batch *const *batches, uint32_t n, double *rate)
{
    uint64_t samples = 0;
    double begin = fr_bench_now();
    for (uint32_t b = 0; b < n; b++) {
        if (train_batch(machine, batches[b]) != FR_OK) {
            fputs("freshet-bench: a training step was not finite\n", stderr);
            return FR_TOOL_FAILED;
        }
        samples += batches[b]->n_samples;
    }
    *rate = (double)samples / (fr_bench_now() - begin);
    return FR_TOOL_OK;
}
