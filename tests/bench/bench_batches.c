/* `freshet-bench batches`: what a sample costs in small batches. The same samples go through the
 * data path of `bench train` in batches of 8 to 1024; beside each rate stands the processor time of
 * a sample, and how much more that is than at the largest size.
 *
 * Processor time is that of all threads, waiting ones that spin included, and hardly depends on
 * what else runs on the machine. A product is made of whole chunks of 128 rows
 * (docs/architecture.md, "Exactness"), so below that size a dense layer costs by the batch. Thread:
 * the caller and a pool of its own. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/check.h"
#include "bench_machine.h"
#include "decode/decoder.h"
#include "tool.h"

enum { SAMPLES = 65536 };

/* the first is what the others are compared with */
static const uint32_t sizes[] = {1024, 512, 256, 128, 64, 32, 8};

/* n batches of `size` samples each; the stream from its beginning. */
static int fill(const struct fr_conf *conf, uint32_t size, struct fr_batch **batches, uint32_t n)
{
    struct fr_decoder *decoder = fr_decoder_new(conf);
    struct fr_bench_r16 stream;
    struct fr_buffer record = {0};
    uint32_t staged = 0, from = 0;
    int result = FR_TOOL_OK;
    fr_bench_r16_init(&stream, 1, FR_R16_IDS);
    for (uint32_t b = 0; b < n; b++)
        batches[b] = fr_batch_new(conf);
    for (uint32_t b = 0; b < n && result == FR_TOOL_OK;) {
        if (from == staged) {
            const char *reason = "";
            fr_buffer_clear(&record);
            fr_bench_r16_append_record(&stream, &record);
            struct fr_record r = {.value = record.data, .size = record.size};
            from = staged = 0;
            if (fr_decode_record(decoder, &r, &staged, &reason) != FR_OK) {
                fprintf(stderr, "freshet-bench: a record of the benchmark is malformed: %s\n", reason);
                result = FR_TOOL_FAILED;
            }
        }
        uint32_t count = fr_decode_take(decoder, from, size - batches[b]->n_samples);
        fr_decode_append(decoder, from, count, batches[b]);
        from += count;
        b += batches[b]->n_samples == size;
    }
    fr_buffer_release(&record);
    fr_bench_r16_release(&stream);
    fr_decoder_free(decoder);
    return result;
}

struct run {
    uint32_t size, n;
    struct fr_batch **batches;
    double rate, cpu; /* the best rate; the least processor seconds of a sample */
};

static int prepare(const struct fr_conf *conf, struct run *run)
{
    struct fr_conf narrow = *conf; /* small batches of little memory; the machine is the daemon's */
    narrow.ingest.batch_size = run->size;
    run->n = SAMPLES / run->size;
    run->batches = fr_alloc(run->n, sizeof(struct fr_batch *));
    run->cpu = INFINITY;
    return fill(&narrow, run->size, run->batches, run->n);
}

static int measure(struct fr_bench_machine *machine, struct run *run)
{
    double rate, begin = fr_bench_cpu_seconds();
    if (fr_bench_machine_round(machine, run->batches, run->n, &rate) != FR_TOOL_OK)
        return FR_TOOL_FAILED;
    double cpu = (fr_bench_cpu_seconds() - begin) / SAMPLES;
    run->cpu = cpu < run->cpu ? cpu : run->cpu;
    run->rate = rate > run->rate ? rate : run->rate;
    return FR_TOOL_OK;
}

/* Sizes take turns, so that whatever disturbs the machine for a while disturbs them all. */
static int measure_all(struct fr_bench_machine *machine, struct run *runs, size_t n)
{
    double rate;
    /* admits every row, touches memory */
    int result = fr_bench_machine_round(machine, runs[0].batches, runs[0].n, &rate);
    for (uint32_t i = 0; i < FR_BENCH_REPEATS; i++)
        for (size_t k = 0; k < n && result == FR_TOOL_OK; k++)
            result = measure(machine, &runs[k]);
    return result;
}

static void report(struct fr_bench *bench, const struct run *run, const struct run *largest)
{
    fr_bench_begin(bench, "batches");
    fr_bench_number(bench, "batch_size", run->size);
    fr_bench_number(bench, "threads", bench->threads);
    fr_bench_number(bench, "samples_per_second", run->rate);
    fr_bench_number(bench, "cpu_microseconds_per_sample", run->cpu * 1e6);
    fr_bench_number(bench, "ratio_to_largest", run->cpu / largest->cpu);
    fr_bench_end(bench);
}

int fr_bench_batches(struct fr_bench *bench)
{
    struct run runs[FR_ARRAY_LEN(sizes)] = {{0}};
    struct fr_bench_machine machine;
    fr_bench_progress("batches: %d samples in batches of 8 to 1024, the best of %d rounds", SAMPLES, FR_BENCH_REPEATS);
    int result = FR_TOOL_OK;
    fr_bench_machine_init(&machine, bench->conf, bench->threads);
    for (size_t i = 0; i < FR_ARRAY_LEN(sizes) && result == FR_TOOL_OK; i++) {
        runs[i].size = sizes[i];
        result = prepare(bench->conf, &runs[i]);
    }
    if (result == FR_TOOL_OK)
        result = measure_all(&machine, runs, FR_ARRAY_LEN(sizes));
    for (size_t i = 0; i < FR_ARRAY_LEN(sizes); i++) {
        if (result == FR_TOOL_OK)
            report(bench, &runs[i], &runs[0]);
        for (uint32_t b = 0; b < runs[i].n; b++)
            fr_batch_free(runs[i].batches[b]);
        free(runs[i].batches);
    }
    fr_bench_machine_release(&machine);
    return result;
}
