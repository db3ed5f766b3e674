/* `freshet-bench train`: the daemon's data path after the decoder in this process, without Kafka
 * (bench_machine.h).
 *
 * Batches decoded beforehand go through what the owner loop does with each of them. Rows are all
 * admitted before the clock starts, as in a service that has been up for a while. Thread: the
 * caller and a pool of its own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "bench_machine.h"
#include "decode/decoder.h"
#include "tool.h"

enum { BATCHES = 512 };

/* With scale.domains over 1 the lanes of a batch have equal parts of it, as from partitions that
 * are equally long. */
static void divide_into_lanes(struct fr_batch *batch)
{
    for (uint32_t lane = 1; lane < batch->n_lanes; lane++)
        batch->lane_begin[lane] = (uint32_t)((uint64_t)batch->n_groups * lane / batch->n_lanes);
}

int fr_bench_fill_batches(const struct fr_bench *bench, const struct fr_conf *conf, struct fr_batch **batches,
                          uint32_t n_batches)
{
    struct fr_decoder *decoder = fr_decoder_new(conf);
    struct fr_bench_r16 stream;
    struct fr_buffer record = {0};
    fr_bench_r16_init(&stream, 1, bench->ids);
    int result = FR_TOOL_OK;
    for (uint32_t b = 0; b < n_batches; b++) {
        batches[b] = fr_batch_new(conf);
        while (batches[b]->n_samples < conf->ingest.batch_size && result == FR_TOOL_OK) {
            uint32_t n = 0;
            const char *reason = "";
            fr_buffer_clear(&record);
            fr_bench_r16_append_record(&stream, &record);
            struct fr_record r = {.value = record.data, .size = record.size};
            if (fr_decode_record(decoder, &r, &n, &reason) == FR_OK) {
                fr_decode_append(decoder, 0, n, batches[b]);
            } else {
                fprintf(stderr, "freshet-bench: a record of the benchmark is malformed: %s\n", reason);
                result = FR_TOOL_FAILED;
            }
        }
        divide_into_lanes(batches[b]);
    }
    fr_buffer_release(&record);
    fr_bench_r16_release(&stream);
    fr_decoder_free(decoder);
    return result;
}

static int measure_training(struct fr_bench_machine *m, struct fr_batch *const *batches, double *rate)
{
    double rates[FR_BENCH_REPEATS + 1];
    /* round 0 admits every row and touches all memory */
    for (uint32_t i = 0; i <= FR_BENCH_REPEATS; i++) {
        if (i == 1)
            memset(m->seconds, 0, sizeof(m->seconds));
        if (fr_bench_machine_round(m, batches, BATCHES, &rates[i]) != FR_TOOL_OK)
            return FR_TOOL_FAILED;
    }
    *rate = fr_bench_median(rates + 1, FR_BENCH_REPEATS);
    return FR_TOOL_OK;
}

/* The roof is that of R16's products: another model has none. */
static void report_training(struct fr_bench *bench, const struct fr_bench_machine *m, double rate)
{
    static const char *const names[] = {[FR_MACHINE_PLAN] = "plan",
                                        [FR_MACHINE_FORWARD] = "forward",
                                        [FR_MACHINE_METRICS] = "metrics",
                                        [FR_MACHINE_UPDATE] = "backward_and_update"};
    bool is_r16 = strcmp(bench->conf->model, "bench_r16") == 0;
    double roof = !is_r16 ? 0.0 : bench->roof > 0.0 ? bench->roof : fr_bench_measure_roof(bench);
    double samples = (double)FR_BENCH_REPEATS * BATCHES * bench->conf->ingest.batch_size, all = 0.0;
    fr_bench_begin(bench, "train");
    fr_bench_text(bench, "kernel", fr_graph_kernel(m->graph));
    fr_bench_number(bench, "threads", bench->threads);
    fr_bench_number(bench, "samples_per_second", rate);
    if (is_r16) {
        fr_bench_number(bench, "roof_samples_per_second", roof);
        fr_bench_number(bench, "ratio_to_roof", rate / roof);
    }
    for (int i = 0; i < FR_MACHINE_PHASES; i++) {
        char name[64];
        snprintf(name, sizeof(name), "%s_cpu_microseconds_per_sample", names[i]);
        fr_bench_number(bench, name, m->seconds[i] * 1e6 / samples);
        all += m->seconds[i];
    }
    fr_bench_number(bench, "cpu_microseconds_per_sample", all * 1e6 / samples);
    fr_bench_end(bench);
}

int fr_bench_train(struct fr_bench *bench)
{
    fr_bench_progress("train: %d batches of %u, %d rounds and one to warm up", BATCHES, bench->conf->ingest.batch_size,
                      FR_BENCH_REPEATS);
    struct fr_batch **batches = fr_alloc(BATCHES, sizeof(struct fr_batch *));
    struct fr_bench_machine machine;
    double rate = 0.0;
    fr_bench_machine_init(&machine, bench->conf, bench->threads);
    int result = fr_bench_fill_batches(bench, bench->conf, batches, BATCHES);
    if (result == FR_TOOL_OK)
        result = measure_training(&machine, batches, &rate);
    if (result == FR_TOOL_OK)
        report_training(bench, &machine, rate);
    for (uint32_t b = 0; b < BATCHES; b++)
        fr_batch_free(batches[b]);
    free(batches);
    fr_bench_machine_release(&machine);
    return result;
}
