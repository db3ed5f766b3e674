/* The benchmarks' shared ground: options, report, the reference stream R16. Private to
 * tests/bench. R16: 26 id slots (Zipf 1.05 over FR_R16_IDS ids each, dim 16), 13 dense values,
 * 512-256-64-1, batches of 1024 (conf/bench_r16.yaml).
 *
 * Thread: the caller's. */
#ifndef FR_BENCH_H
#define FR_BENCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/status.h"
#include "batch/batch.h"
#include "conf/conf.h"
#include "samples/zipf.h"

enum {
    FR_R16_SLOTS = 26,
    FR_R16_IDS = 100000,
    FR_R16_DENSE = 13,
    FR_R16_PACK = 64,
    FR_R16_GROUP = 8,
    FR_R16_BLOCK = 512,
    FR_BENCH_REPEATS = 5
};

struct fr_bench {
    const char *source;  /* the source tree; NULL: not found */
    const char *config;  /* bench_r16.yaml */
    const char *brokers; /* NULL: start one */
    const char *program; /* this executable */
    uint64_t samples;    /* how many samples e2e trains */
    uint64_t rows;       /* rows of a large table; 0: the benchmark decides */
    uint64_t batches;    /* of tiers */
    uint32_t limit;      /* the one limit of tiers, percent; 0: all its limits */
    uint32_t ids;        /* different ids of each slot of R16's stream */
    uint32_t threads;
    struct fr_conf *conf;
    /* samples/s of the products alone, the faster backend; 0: not measured yet */
    double roof;
    double blas_roof;         /* the same with OpenBLAS */
    struct fr_buffer results; /* JSON objects, comma-separated */
    struct fr_buffer line;
    bool open; /* inside a result */
};

/* Writes a result, one logfmt line on stdout and one JSON object: begin with the name of the
 * measured thing, then its numbers and texts, the roof among them. */
void fr_bench_begin(struct fr_bench *bench, const char *name);
void fr_bench_number(struct fr_bench *bench, const char *name, double value);
void fr_bench_text(struct fr_bench *bench, const char *name, const char *value);
void fr_bench_end(struct fr_bench *bench);
void fr_bench_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));

double fr_bench_now(void);                          /* seconds, monotonic */
double fr_bench_cpu_seconds(void);                  /* of this process, all threads */
double fr_bench_thread_seconds(void);               /* processor time of the calling thread */
double fr_bench_median(double *values, uint32_t n); /* sorts the values */

/* Says on stderr why the benchmark of this name failed; returns FR_TOOL_FAILED. */
int fr_bench_fail(const char *name, const struct fr_err *err);
/* The path of another program of the same build: place is below the build folder, such as
 * "daemon/freshetd". False if it cannot be run. */
bool fr_bench_find_program(const struct fr_bench *bench, const char *place, char *out, size_t size);

/* Each returns FR_TOOL_OK or FR_TOOL_FAILED after a message. */
int fr_bench_gemm(struct fr_bench *bench);
int fr_bench_decode(struct fr_bench *bench);
int fr_bench_train(struct fr_bench *bench);
int fr_bench_batches(struct fr_bench *bench);
int fr_bench_shared(struct fr_bench *bench);
int fr_bench_e2e(struct fr_bench *bench);
int fr_bench_grow(struct fr_bench *bench);
int fr_bench_recovery(struct fr_bench *bench);
int fr_bench_snapshot(struct fr_bench *bench);
/* A part of it: training beside snapshots of so many bytes a second; head: of journal files. */
int fr_bench_beside(struct fr_bench *bench, struct fr_buffer *head, uint64_t rate);
int fr_bench_tiers(struct fr_bench *bench);
int fr_bench_epochs(struct fr_bench *bench);
int fr_bench_replica(struct fr_bench *bench);
int fr_bench_ranks(struct fr_bench *bench);
/* The roof alone: samples/s of the products, the best backend, all threads. */
double fr_bench_measure_roof(struct fr_bench *bench);

/* ---- R16 samples ---- */

struct fr_bench_r16 {
    struct fr_tool_zipf zipf;
    uint64_t seed, index;
};
void fr_bench_r16_init(struct fr_bench_r16 *stream, uint64_t seed, uint32_t ids);
void fr_bench_r16_release(struct fr_bench_r16 *stream);
/* Appends the next sample as MessagePack, form 1. */
void fr_bench_r16_append(struct fr_bench_r16 *stream, struct fr_buffer *out);
/* Appends a record: an array of FR_R16_PACK samples. */
void fr_bench_r16_append_record(struct fr_bench_r16 *stream, struct fr_buffer *out);
/* The same as an array of groups of FR_R16_GROUP that share the first half of their id slots; as a
 * packed block of FR_R16_BLOCK samples. */
void fr_bench_r16_append_groups(struct fr_bench_r16 *stream, struct fr_buffer *out);
void fr_bench_r16_append_block(struct fr_bench_r16 *stream, struct fr_buffer *out);
/* Makes the first n_batches full batches of the stream, which the caller frees, also after
 * FR_TOOL_FAILED. Their lanes have equal parts. In bench_train.c. */
int fr_bench_fill_batches(const struct fr_bench *bench, const struct fr_conf *conf, struct fr_batch **batches,
                          uint32_t n_batches);

#endif
