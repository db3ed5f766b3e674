/* `freshet-bench decode`: R16 records (MessagePack) to batches of 1024 samples, one core, in the
 * forms that matter for speed: arrays of 64 sample maps, arrays of groups of 8 that share half of
 * the id slots, packed blocks of 512. Each has its own result; the first one's rate is compared
 * with the rate of the products, which says how many cores decode for a machine that does nothing
 * but multiply. Seconds are of this thread's processor time, so that other programs do not count.
 *
 * Thread: the caller's. */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "bench.h"
#include "decode/decoder.h"
#include "tool.h"

enum { SAMPLES = 1 << 17, BATCH = 1024, RECORDS_MAX = SAMPLES / FR_R16_PACK };

static const double measure_seconds = 1.0;

struct form {
    const char *name;
    void (*append)(struct fr_bench_r16 *stream, struct fr_buffer *out);
    uint32_t samples; /* of a record */
};

static const struct form forms[] = {
    {"decode", fr_bench_r16_append_record, FR_R16_PACK},
    {"decode_groups", fr_bench_r16_append_groups, FR_R16_PACK},
    {"decode_block", fr_bench_r16_append_block, FR_R16_BLOCK},
};

struct records {
    uint32_t n;
    struct fr_buffer bytes;
    size_t begin[RECORDS_MAX + 1];
};

/* One pass over all records. */
static int decode_all(const struct records *records, struct fr_decoder *decoder, struct fr_batch *batch)
{
    for (uint32_t r = 0; r < records->n; r++) {
        struct fr_record record = {.value = records->bytes.data + records->begin[r],
                                   .size = records->begin[r + 1] - records->begin[r]};
        uint32_t n = 0;
        const char *reason = "";
        if (fr_decode_record(decoder, &record, &n, &reason) != FR_OK) {
            fprintf(stderr, "freshet-bench: a record of the benchmark is malformed: %s\n", reason);
            return FR_TOOL_FAILED;
        }
        if (batch->n_samples + n > BATCH)
            fr_batch_clear(batch);
        fr_decode_append(decoder, 0, n, batch);
    }
    return FR_TOOL_OK;
}

static int measure(struct fr_bench *bench, const struct form *form, struct records *records)
{
    struct fr_decoder *decoder = fr_decoder_new(bench->conf);
    struct fr_batch *batch = fr_batch_new(bench->conf);
    double rates[FR_BENCH_REPEATS];
    int result = decode_all(records, decoder, batch);
    for (uint32_t i = 0; i < FR_BENCH_REPEATS && result == FR_TOOL_OK; i++) {
        double begin = fr_bench_thread_seconds(), end = begin;
        uint64_t samples = 0;
        while (end - begin < measure_seconds && result == FR_TOOL_OK) {
            result = decode_all(records, decoder, batch);
            samples += SAMPLES;
            end = fr_bench_thread_seconds();
        }
        rates[i] = (double)samples / (end - begin);
    }
    if (result == FR_TOOL_OK) {
        double rate = fr_bench_median(rates, FR_BENCH_REPEATS);
        double bytes = (double)records->bytes.size / (double)SAMPLES;
        fr_bench_begin(bench, form->name);
        fr_bench_number(bench, "samples_per_second_per_core", rate);
        fr_bench_number(bench, "bytes_per_sample", bytes);
        fr_bench_number(bench, "megabytes_per_second", rate * bytes * 1e-6);
        if (form == &forms[0]) {
            double roof = bench->roof > 0.0 ? bench->roof : fr_bench_measure_roof(bench);
            fr_bench_number(bench, "roof_samples_per_second", roof);
            fr_bench_number(bench, "cores_needed_at_the_roof", roof / rate);
        }
        fr_bench_end(bench);
    }
    fr_batch_free(batch);
    fr_decoder_free(decoder);
    return result;
}

int fr_bench_decode(struct fr_bench *bench)
{
    int result = FR_TOOL_OK;
    struct records *records = fr_alloc(1, sizeof(*records));
    for (size_t f = 0; f < FR_ARRAY_LEN(forms) && result == FR_TOOL_OK; f++) {
        struct fr_bench_r16 stream;
        fr_bench_progress("%s: one core, about %d s", forms[f].name, (int)measure_seconds * FR_BENCH_REPEATS + 1);
        fr_bench_r16_init(&stream, 1, bench->ids);
        fr_buffer_clear(&records->bytes);
        for (records->n = 0; records->n < SAMPLES / forms[f].samples; records->n++) {
            forms[f].append(&stream, &records->bytes);
            records->begin[records->n + 1] = records->bytes.size;
        }
        fr_bench_r16_release(&stream);
        result = measure(bench, &forms[f], records);
    }
    fr_buffer_release(&records->bytes);
    free(records);
    return result;
}
