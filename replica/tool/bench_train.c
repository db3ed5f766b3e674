/* `freshet bench train`: the daemon's data path behind the decoder in this process, without Kafka.
 *
 * Batches decoded beforehand go through what the owner loop does with each of them: plan, forward, AUC, backward,
 * updates, expiry slice. Rows are all admitted before the clock starts, as in a service that has been up for a while;
 * cuts and publishing are not in it (they are in e2e). Thread: the caller and a pool of its own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/pool.h"
#include "bench.h"
#include "decode/decoder.h"
#include "graph/graph.h"
#include "metrics/auc.h"
#include "store/store.h"
#include "tool.h"

enum { BATCHES = 512 };

static int decode_failed(const char *reason)
{
    fprintf(stderr, "freshet bench: a record of the benchmark is malformed: %s\n", reason);
    return FR_TOOL_FAILED;
}

/* ---- train ---- */

struct machine {
    const struct fr_conf *conf;
    struct fr_pool *pool;
    struct fr_graph *graph;
    struct fr_store *store;
    struct fr_rows *rows;
    struct fr_auc *auc;
    struct fr_batch *batches[BATCHES];
    uint64_t n_trained; /* batches */
    double plan_seconds, forward_seconds, measure_seconds, update_seconds;
};

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
        struct fr_row_layout layout;
        fr_row_layout_of(&conf->tables[t], &layout);
        memcpy(tables[t].name, conf->tables[t].name, sizeof(tables[t].name));
        tables[t].n_parts = conf->tables[t].n_parts;
        for (uint32_t p = 0; p < conf->tables[t].n_parts; p++)
            tables[t].parts[p] = (struct fr_store_part){.value_offset = layout.parts[p].value_offset,
                                                        .dim = layout.parts[p].dim,
                                                        .state_offset = layout.parts[p].state_offset,
                                                        .state_floats = layout.parts[p].state_floats,
                                                        .state_initial = layout.parts[p].state_initial,
                                                        .init = conf->tables[t].parts[p].init};
        tables[t].value_floats = layout.value_floats;
        tables[t].row_floats = layout.row_floats;
        tables[t].gate = (struct fr_gate_policy){.name = "all", .admits = admit_all, .forgets = forget_none};
        tables[t].pending_max = conf->tables[t].admit_count_max;
    }
    return fr_store_new(&(struct fr_store_options){
        .n_tables = conf->n_tables, .tables = tables, .seed = conf->seed, .pool = pool, .conf = conf});
}

static int fill_batches(struct machine *m)
{
    struct fr_decoder *decoder = fr_decoder_new(m->conf);
    struct fr_r16 stream;
    struct fr_buffer record = {0};
    fr_r16_init(&stream, 1);
    int result = FR_TOOL_OK;
    for (uint32_t b = 0; b < BATCHES; b++) {
        m->batches[b] = fr_batch_new(m->conf);
        while (m->batches[b]->n_samples < m->conf->ingest.batch_size && result == FR_TOOL_OK) {
            uint32_t n = 0;
            const char *reason = "";
            fr_buffer_clear(&record);
            fr_r16_append_record(&stream, &record);
            struct fr_record r = {.value = record.data, .size = record.size};
            if (fr_decode_record(decoder, &r, &n, &reason) != FR_OK)
                result = decode_failed(reason);
            else
                fr_decode_append(decoder, 0, n, m->batches[b]);
        }
    }
    fr_buffer_release(&record);
    fr_r16_release(&stream);
    fr_decoder_free(decoder);
    return result;
}

static enum fr_status train_batch(struct machine *m, const struct fr_batch *batch)
{
    int64_t watermark_ms = batch->t_ms[batch->n_samples - 1];
    double begin = fr_bench_now();
    fr_store_plan(m->store, batch, watermark_ms, m->rows);
    double planned = fr_bench_now();
    fr_graph_forward(m->graph, batch, m->rows);
    double forwarded = fr_bench_now();
    struct fr_auc_samples samples = {.count = batch->n_samples,
                                     .scores = fr_graph_logits(m->graph, 0),
                                     .labels = batch->labels,
                                     .t_ms = batch->t_ms,
                                     .watermark_ms = watermark_ms};
    fr_auc_add(m->auc, &samples);
    double measured = fr_bench_now();
    enum fr_status status = fr_graph_train(m->graph, batch, m->rows, NULL);
    fr_store_slice(m->store, ++m->n_trained, watermark_ms);
    m->plan_seconds += planned - begin;
    m->forward_seconds += forwarded - planned;
    m->measure_seconds += measured - forwarded;
    m->update_seconds += fr_bench_now() - measured;
    return status;
}

static int measure_training(struct machine *m, double *rate)
{
    double rates[FR_BENCH_REPEATS];
    for (uint32_t i = 0; i <= FR_BENCH_REPEATS; i++) { /* round 0 admits every row and touches all memory */
        if (i == 1)
            m->plan_seconds = m->forward_seconds = m->measure_seconds = m->update_seconds = 0.0;
        uint64_t samples = 0;
        double begin = fr_bench_now();
        for (uint32_t b = 0; b < BATCHES; b++) {
            if (train_batch(m, m->batches[b]) != FR_OK) {
                fputs("freshet bench: a training step was not finite\n", stderr);
                return FR_TOOL_FAILED;
            }
            samples += m->batches[b]->n_samples;
        }
        if (i > 0)
            rates[i - 1] = (double)samples / (fr_bench_now() - begin);
    }
    *rate = fr_bench_median(rates, FR_BENCH_REPEATS);
    return FR_TOOL_OK;
}

static void report_training(struct fr_bench *bench, const struct machine *m, double rate)
{
    double roof = bench->roof > 0.0 ? bench->roof : fr_bench_measure_roof(bench);
    double all = m->plan_seconds + m->forward_seconds + m->measure_seconds + m->update_seconds;
    fr_bench_begin(bench, "train");
    fr_bench_text(bench, "kernel", fr_graph_kernel(m->graph));
    fr_bench_number(bench, "threads", bench->threads);
    fr_bench_number(bench, "samples_per_second", rate);
    fr_bench_number(bench, "roof_samples_per_second", roof);
    fr_bench_number(bench, "ratio_to_roof", rate / roof);
    fr_bench_number(bench, "plan_share", m->plan_seconds / all);
    fr_bench_number(bench, "forward_share", m->forward_seconds / all);
    fr_bench_number(bench, "metrics_share", m->measure_seconds / all);
    fr_bench_number(bench, "backward_and_update_share", m->update_seconds / all);
    fr_bench_end(bench);
}

int fr_bench_train(struct fr_bench *bench)
{
    fr_bench_progress("train: %d batches of %u, %d rounds and one to warm up", BATCHES, bench->conf->ingest.batch_size,
                      FR_BENCH_REPEATS);
    struct machine *m = fr_alloc(1, sizeof(*m));
    m->conf = bench->conf;
    m->pool = fr_pool_new(bench->threads);
    struct fr_err err = {0};
    int result = FR_TOOL_FAILED;
    struct fr_graph_options graph = {.conf = m->conf, .pool = m->pool};
    if (fr_graph_new(&graph, &m->graph, &err) == FR_OK) {
        m->store = open_store(m->conf, m->pool);
        m->rows = fr_store_rows_new(m->store);
        struct fr_auc_options auc = {.n_half_lives = 1, .half_life_ms = {3600000}};
        m->auc = fr_auc_new(&auc);
        double rate = 0.0;
        result = fill_batches(m);
        if (result == FR_TOOL_OK)
            result = measure_training(m, &rate);
        if (result == FR_TOOL_OK)
            report_training(bench, m, rate);
        fr_auc_free(m->auc);
        fr_store_rows_free(m->rows);
        fr_store_free(m->store);
    } else {
        fprintf(stderr, "freshet bench: %s\n", err.text);
    }
    for (uint32_t b = 0; b < BATCHES; b++)
        fr_batch_free(m->batches[b]);
    fr_graph_free(m->graph);
    fr_pool_free(m->pool);
    free(m);
    return result;
}
