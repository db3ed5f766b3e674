/* `freshet bench batches`: what a sample costs in small batches. The same samples go through the data path of `bench
 * train` in batches of 8 to 1024; beside each rate stands the processor time of a sample, and how much more that is
 * than at the largest size.
 *
 * Processor time is that of all threads, waiting ones that spin included, and hardly depends on what else runs on the
 * machine. A product is made of whole chunks of 128 rows (DESIGN section 10), so below that size a dense layer costs by
 * the batch. Thread: the caller and a pool of its own. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/check.h"
#include "bench_machine.h"
#include "decode/decoder.h"
#include "tool.h"

enum { SAMPLES = 65536 };

static const uint32_t sizes[] = {1024, 512, 256, 128, 64, 32, 8}; /* the first is what the others are compared with */

static double processor_seconds(void)
{
    struct timespec now;
    int rc = clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    FR_CHECK(rc == 0);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* n batches of `size` samples each; the stream from its beginning. */
static int fill(const struct fr_conf *conf, uint32_t size, struct fr_batch **batches, uint32_t n)
{
    struct fr_decoder *decoder = fr_decoder_new(conf);
    struct fr_r16 stream;
    struct fr_buffer record = {0};
    uint32_t staged = 0, from = 0;
    int result = FR_TOOL_OK;
    fr_r16_init(&stream, 1);
    for (uint32_t b = 0; b < n; b++)
        batches[b] = fr_batch_new(conf);
    for (uint32_t b = 0; b < n && result == FR_TOOL_OK;) {
        if (from == staged) {
            const char *reason = "";
            fr_buffer_clear(&record);
            fr_r16_append_record(&stream, &record);
            struct fr_record r = {.value = record.data, .size = record.size};
            from = staged = 0;
            if (fr_decode_record(decoder, &r, &staged, &reason) != FR_OK) {
                fprintf(stderr, "freshet bench: a record of the benchmark is malformed: %s\n", reason);
                result = FR_TOOL_FAILED;
            }
        }
        uint32_t count = fr_decode_take(decoder, from, size - batches[b]->n_samples);
        fr_decode_append(decoder, from, count, batches[b]);
        from += count;
        b += batches[b]->n_samples == size;
    }
    fr_buffer_release(&record);
    fr_r16_release(&stream);
    fr_decoder_free(decoder);
    return result;
}

static int measure(struct fr_machine *machine, struct fr_batch *const *batches, uint32_t n, double *rate, double *cpu)
{
    double rates[FR_BENCH_REPEATS], costs[FR_BENCH_REPEATS], first;
    if (fr_machine_round(machine, batches, n, &first) != FR_TOOL_OK) /* admits every row and touches all memory */
        return FR_TOOL_FAILED;
    for (uint32_t i = 0; i < FR_BENCH_REPEATS; i++) {
        double begin = processor_seconds();
        if (fr_machine_round(machine, batches, n, &rates[i]) != FR_TOOL_OK)
            return FR_TOOL_FAILED;
        costs[i] = (processor_seconds() - begin) / SAMPLES;
    }
    *rate = fr_bench_median(rates, FR_BENCH_REPEATS);
    *cpu = fr_bench_median(costs, FR_BENCH_REPEATS);
    return FR_TOOL_OK;
}

static int measure_size(struct fr_bench *bench, uint32_t size, double *rate, double *cpu)
{
    uint32_t n = SAMPLES / size;
    struct fr_batch **batches = fr_alloc(n, sizeof(struct fr_batch *));
    struct fr_conf narrow = *bench->conf; /* batches of this size; the machine is the daemon's */
    struct fr_machine machine;
    narrow.ingest.batch_size = size;
    int result = fr_machine_init(&machine, bench->conf, bench->threads);
    if (result == FR_TOOL_OK)
        result = fill(&narrow, size, batches, n);
    if (result == FR_TOOL_OK)
        result = measure(&machine, batches, n, rate, cpu);
    for (uint32_t b = 0; b < n; b++)
        fr_batch_free(batches[b]);
    free(batches);
    fr_machine_release(&machine);
    return result;
}

int fr_bench_batches(struct fr_bench *bench)
{
    double largest = 0.0;
    for (size_t i = 0; i < FR_ARRAY_LEN(sizes); i++) {
        double rate, cpu;
        fr_bench_progress("batches: %d samples in batches of %u", SAMPLES, sizes[i]);
        if (measure_size(bench, sizes[i], &rate, &cpu) != FR_TOOL_OK)
            return FR_TOOL_FAILED;
        largest = i == 0 ? cpu : largest;
        fr_bench_begin(bench, "batches");
        fr_bench_number(bench, "batch_size", sizes[i]);
        fr_bench_number(bench, "threads", bench->threads);
        fr_bench_number(bench, "samples_per_second", rate);
        fr_bench_number(bench, "cpu_seconds_per_million", cpu * 1e6);
        fr_bench_number(bench, "ratio_to_largest", cpu / largest);
        fr_bench_end(bench);
    }
    return FR_TOOL_OK;
}
