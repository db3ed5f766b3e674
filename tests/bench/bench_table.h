/* One table of R16 in this process, without Kafka and network, for the benchmarks of the store: the
 * batches are columns of keys as a decoder would have made them, 26 slots of one id and 1024
 * samples. Rows are 16 values and a float of row-wise Adagrad, all keys are admitted. Private to
 * tests/bench. Thread: the caller's, and a pool of its own. */
#ifndef FR_BENCH_TABLE_H
#define FR_BENCH_TABLE_H

#include "base/hash.h"
#include "base/pool.h"
#include "bench.h"
#include "durable/durable.h"
#include "eviction/eviction.h"
#include "store/store.h"

enum { FR_TABLE_CUT_BATCHES = 20 };

struct fr_bench_table {
    const struct fr_conf *conf; /* borrowed */
    struct fr_pool *pool;
    struct fr_store *store;
    struct fr_rows *rows;
    struct fr_batch *batch;
    struct fr_stage stage; /* of the last cut */
    uint32_t n_keys;       /* of a batch */
    uint64_t n_made;       /* keys made by fr_bench_table_fill_new */
    uint64_t n_batches;    /* planned */
    uint64_t epoch;
    struct fr_gate_count gate;
    struct fr_expire_idle idle;
};

/* conf is that of R16, borrowed. idle_ms 0: rows never expire. */
void fr_bench_table_init(struct fr_bench_table *table, const struct fr_conf *conf, uint32_t threads, int64_t idle_ms);
void fr_bench_table_release(struct fr_bench_table *table);

/* A batch of whole samples that train, with an id in every slot that has a table: the caller writes
 * the keys. fr_bench_batch_refill makes it whole again after fr_batch_clear. */
struct fr_batch *fr_bench_batch_new(const struct fr_conf *conf);
void fr_bench_batch_refill(struct fr_batch *batch, int64_t t_ms);

/* Key number i of the table, from 0. */
static inline uint64_t fr_bench_table_key(uint64_t i)
{
    return fr_fmix64(i + 1);
}
/* The batch's keys become the next that no batch had; or those of numbers drawn from [0, n / step),
 * times step. */
void fr_bench_table_fill_new(struct fr_bench_table *table);
void fr_bench_table_fill_known(struct fr_bench_table *table, uint64_t n, uint64_t step);
/* The numbers from `first` on, `step` apart. */
void fr_bench_table_fill_range(struct fr_bench_table *table, uint64_t first, uint64_t step);
/* Plans the batch. */
void fr_bench_table_plan(struct fr_bench_table *table, int64_t watermark_ms);
/* Cuts the next epoch into table->stage. */
void fr_bench_table_cut(struct fr_bench_table *table);
/* Gives the stage's memory back, so that what the process holds is the store. */
void fr_bench_table_drop_stage(struct fr_bench_table *table);

/* ---- measured by batch ---- */

/* Seconds of many batches, by the clock and of the processor. */
struct fr_bench_times {
    double *wall, *cpu;
    size_t n, capacity;
    double began_wall, began_cpu;
};
void fr_bench_times_release(struct fr_bench_times *times);
void fr_bench_times_begin(struct fr_bench_times *times);
void fr_bench_times_end(struct fr_bench_times *times);
/* Median, p99, p99.9 and largest in milliseconds, and p99.9 by the median, of both; sorts them. */
void fr_bench_times_report(struct fr_bench_times *times, struct fr_bench *bench);

uint64_t fr_bench_rss_bytes(void); /* resident after what malloc keeps free was given back */

#endif
