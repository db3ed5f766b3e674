/* `freshet-bench recovery`: a state directory back into memory.
 *
 * A table of row-wise Adagrad and dim 16 is written as the daemon writes one: cuts, journal, a
 * fold whenever 512 MiB are unfolded. Then the directory is opened and restored into an empty
 * store, from a page cache that has just seen all of it: once with everything folded, once with
 * the images of a fifth of the rows in the journal only. Three times each; the median counts. What
 * the images come to (head, floats, and 12 bytes of table and key) is the measure beside the
 * seconds; `walk` is the same without the store. Thread: the caller's, the walk's pool (as many
 * as --threads), and those of RocksDB. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "bench_recovery.h"
#include "process.h"
#include "store/section.h"
#include "tool.h"

enum { ROWS = 10000000, ROUNDS = 3, UNFOLDED_OF = 5, FOLD_BYTES = 512 << 20, KEY_BYTES = 12, LANES_MAX = 16 };

int fr_bench_recovery_open(struct fr_bench_recovery *recovery)
{
    struct fr_err err = {0};
    const struct fr_durable_options options = {.dir = recovery->directory,
                                               .head = recovery->head ? recovery->head->data : NULL,
                                               .head_size = recovery->head ? recovery->head->size : 0};
    enum fr_status status = fr_durable_open(&options, &recovery->durable, &err);
    return status == FR_OK ? FR_TOOL_OK : fr_bench_fail(recovery->name, &err);
}

void fr_bench_recovery_close(struct fr_bench_recovery *recovery)
{
    fr_durable_close(recovery->durable);
    recovery->durable = NULL;
}

/* ---- writing ---- */

/* The next epoch, durable and acknowledged; folds when it is time, or when `fold` asks for it. */
static enum fr_status write_epoch(struct fr_bench_recovery *recovery, bool fold, struct fr_err *err)
{
    struct fr_durable_status now;
    fr_bench_table_cut(&recovery->table);
    if (recovery->head)
        fr_announcement_encode(&(struct fr_announcement){.samples = recovery->table.n_made},
                               fr_stage_section(&recovery->table.stage, "announce"));
    enum fr_status status = fr_durable_append(recovery->durable, &recovery->table.stage, NULL, NULL, err);
    if (status == FR_OK)
        status = fr_durable_acknowledge(recovery->durable, recovery->table.epoch, err);
    fr_durable_get_status(recovery->durable, &now);
    if (status == FR_OK && (fold || now.unfolded_bytes >= FOLD_BYTES))
        status = fr_durable_fold(recovery->durable, err);
    return status;
}

int fr_bench_recovery_write(struct fr_bench_recovery *recovery, uint64_t rows)
{
    struct fr_err err = {0};
    struct fr_bench_table *table = &recovery->table;
    enum fr_status status = FR_OK;
    while (table->n_made < rows && status == FR_OK) {
        fr_bench_table_fill_new(table);
        fr_bench_table_plan(table, 0);
        bool last = table->n_made >= rows;
        if (last || table->n_batches % FR_TABLE_CUT_BATCHES == 0)
            status = write_epoch(recovery, last, &err);
    }
    return status == FR_OK ? FR_TOOL_OK : fr_bench_fail(recovery->name, &err);
}

/* Every UNFOLDED_OF-th row is trained again and not folded. */
static int write_unfolded(struct fr_bench_recovery *recovery)
{
    struct fr_err err = {0};
    struct fr_bench_table *table = &recovery->table;
    enum fr_status status = FR_OK;
    uint64_t numbers = (uint64_t)table->n_keys * UNFOLDED_OF;
    for (uint64_t first = 0; first + numbers <= table->n_made && status == FR_OK; first += numbers) {
        fr_bench_table_fill_range(table, first, UNFOLDED_OF);
        fr_bench_table_plan(table, 1);
        if (table->n_batches % FR_TABLE_CUT_BATCHES != 0 && first + 2 * numbers <= table->n_made)
            continue;
        fr_bench_table_cut(table);
        status = fr_durable_append(recovery->durable, &table->stage, NULL, NULL, &err);
    }
    return status == FR_OK ? FR_TOOL_OK : fr_bench_fail("recovery", &err);
}

/* ---- reading ---- */

/* What a thread counts, on a cache line of its own. */
struct lane {
    _Alignas(64) uint64_t images, bytes;
};

struct restored {
    struct fr_store *store; /* NULL: only counted */
    struct lane lanes[LANES_MAX];
    uint64_t images, bytes; /* of all lanes */
    enum fr_status begun;   /* of fr_store_restore_begin */
    struct fr_err err;
};

static enum fr_status restore_image(void *self, size_t thread, const struct fr_image *image)
{
    struct restored *restored = self;
    restored->lanes[thread].images++;
    restored->lanes[thread].bytes += image->size + KEY_BYTES;
    return restored->store ? fr_store_restore_image(restored->store, image) : FR_OK;
}

static enum fr_status restore_section(void *self, const char *name, const uint8_t *bytes, size_t size)
{
    struct restored *restored = self;
    enum fr_status status = restored->store ? fr_store_restore_section(restored->store, name, bytes, size) : FR_OK;
    return status == FR_E_NOT_FOUND ? FR_OK : status;
}

/* Makes room for all images, whose number the sections of the store name. */
static bool wants_cold(void *self)
{
    struct restored *restored = self;
    bool wants = true;
    if (restored->store)
        restored->begun = fr_store_restore_begin(restored->store, &wants, &restored->err);
    return wants;
}

static enum fr_status restore_into(struct fr_durable *durable, struct restored *restored, uint32_t threads,
                                   struct fr_err *err)
{
    struct fr_durable_status now;
    struct fr_restore_visitor visitor = {.self = restored,
                                         .image = restore_image,
                                         .section = restore_section,
                                         .wants_cold = wants_cold,
                                         .threads = threads};
    fr_durable_get_status(durable, &now);
    if (restored->store)
        fr_store_open_state(restored->store, now.salt, durable);
    enum fr_status status = fr_durable_restore(durable, &visitor, err);
    if (restored->begun != FR_OK) {
        status = restored->begun;
        *err = restored->err;
    }
    if (status == FR_OK && restored->store)
        status = fr_store_restore_end(restored->store, err);
    for (size_t i = 0; i < LANES_MAX; i++) {
        restored->images += restored->lanes[i].images;
        restored->bytes += restored->lanes[i].bytes;
    }
    return status;
}

enum fr_status fr_bench_recovery_read(struct fr_durable *durable, struct fr_store *store, uint32_t threads,
                                      uint64_t *bytes, struct fr_err *err)
{
    struct restored restored = {.store = store};
    enum fr_status status = restore_into(durable, &restored, threads, err);
    *bytes = restored.bytes;
    return status;
}

struct round {
    double open_seconds, walk_seconds, walk_cpu_seconds, seconds, cpu_seconds;
    double rss_bytes, kept_bytes;
    struct restored restored;
    uint64_t rows;
    struct fr_durable_status state;
};

/* Opens, walks once without a store, opens again and restores. */
static int measure(struct fr_bench_recovery *recovery, struct round *round)
{
    struct fr_err err = {0};
    struct fr_bench_table into;
    struct fr_store_table_stats stats;
    struct restored counted = {0};
    int result = fr_bench_recovery_open(recovery);
    if (result != FR_TOOL_OK)
        return result;
    double began = fr_bench_now(), cpu = fr_bench_cpu_seconds();
    enum fr_status status = restore_into(recovery->durable, &counted, recovery->bench->threads, &err);
    round->walk_seconds = fr_bench_now() - began;
    round->walk_cpu_seconds = fr_bench_cpu_seconds() - cpu;
    fr_bench_recovery_close(recovery);
    if (status != FR_OK)
        return fr_bench_fail("recovery", &err);

    fr_bench_table_init(&into, recovery->bench->conf, recovery->bench->threads, 0);
    round->restored = (struct restored){.store = into.store};
    double rss = (double)fr_bench_rss_bytes();
    cpu = fr_bench_cpu_seconds();
    began = fr_bench_now();
    result = fr_bench_recovery_open(recovery);
    double opened = fr_bench_now();
    round->open_seconds = opened - began;
    if (result == FR_TOOL_OK &&
        restore_into(recovery->durable, &round->restored, recovery->bench->threads, &err) != FR_OK)
        result = fr_bench_fail("recovery", &err);
    round->seconds = fr_bench_now() - began;
    round->cpu_seconds = fr_bench_cpu_seconds() - cpu;
    if (result == FR_TOOL_OK) {
        fr_durable_get_status(recovery->durable, &round->state);
        fr_store_stats(into.store, 0, &stats);
        round->rows = stats.counts.rows;
        round->kept_bytes = (double)fr_store_kept_bytes(into.store);
        round->rss_bytes = (double)fr_bench_rss_bytes() - rss;
    }
    fr_bench_recovery_close(recovery);
    fr_bench_table_release(&into);
    return result;
}

static double median_of(const struct round *rounds, size_t offset)
{
    double values[ROUNDS];
    for (int i = 0; i < ROUNDS; i++)
        memcpy(&values[i], (const char *)&rounds[i] + offset, sizeof(double));
    return fr_bench_median(values, ROUNDS);
}

static void report(struct fr_bench *bench, const char *name, const struct round *rounds)
{
    const struct round *last = &rounds[ROUNDS - 1];
    double gb = (double)last->restored.bytes * 1e-9, rows = (double)last->rows;
    double seconds = median_of(rounds, offsetof(struct round, seconds));
    double cpu = median_of(rounds, offsetof(struct round, cpu_seconds));
    fr_bench_begin(bench, name);
    fr_bench_number(bench, "threads", bench->threads);
    fr_bench_number(bench, "rows", rows);
    fr_bench_number(bench, "images", (double)last->restored.images);
    fr_bench_number(bench, "image_gb", gb);
    fr_bench_number(bench, "journal_mb", (double)last->state.journal_bytes * 1e-6);
    fr_bench_number(bench, "unfolded_mb", (double)last->state.unfolded_bytes * 1e-6);
    fr_bench_number(bench, "open_seconds", median_of(rounds, offsetof(struct round, open_seconds)));
    fr_bench_number(bench, "walk_seconds", median_of(rounds, offsetof(struct round, walk_seconds)));
    fr_bench_number(bench, "walk_cpu_seconds", median_of(rounds, offsetof(struct round, walk_cpu_seconds)));
    fr_bench_number(bench, "seconds", seconds);
    fr_bench_number(bench, "cpu_seconds", cpu);
    fr_bench_number(bench, "seconds_per_gb", seconds / gb);
    fr_bench_number(bench, "cpu_seconds_per_gb", cpu / gb);
    fr_bench_number(bench, "rows_per_second", rows / seconds);
    fr_bench_number(bench, "kept_bytes_per_row", last->kept_bytes / rows);
    fr_bench_number(bench, "rss_bytes_per_row", last->rss_bytes / rows);
    fr_bench_end(bench);
}

static int measure_rounds(struct fr_bench_recovery *recovery, const char *name)
{
    struct round rounds[ROUNDS] = {0};
    for (int i = 0; i < ROUNDS; i++) {
        int result = measure(recovery, &rounds[i]);
        if (result != FR_TOOL_OK)
            return result;
    }
    report(recovery->bench, name, rounds);
    return FR_TOOL_OK;
}

static int write_and_measure(struct fr_bench_recovery *recovery)
{
    uint64_t rows = recovery->bench->rows ? recovery->bench->rows : ROWS;
    fr_bench_progress("recovery: writing %llu rows", (unsigned long long)rows);
    int result = fr_bench_recovery_open(recovery);
    if (result == FR_TOOL_OK)
        result = fr_bench_recovery_write(recovery, rows);
    fr_bench_recovery_close(recovery);
    if (result == FR_TOOL_OK)
        result = measure_rounds(recovery, "recovery_folded");
    if (result != FR_TOOL_OK)
        return result;
    result = fr_bench_recovery_open(recovery);
    if (result == FR_TOOL_OK)
        result = write_unfolded(recovery);
    fr_bench_recovery_close(recovery);
    return result == FR_TOOL_OK ? measure_rounds(recovery, "recovery_unfolded") : result;
}

int fr_bench_recovery(struct fr_bench *bench)
{
    struct fr_bench_recovery *recovery = fr_alloc(1, sizeof(*recovery));
    recovery->bench = bench;
    recovery->name = "recovery";
    int result = FR_TOOL_FAILED;
    if (fr_bench_scratch_make(recovery->directory, sizeof(recovery->directory))) {
        fr_bench_table_init(&recovery->table, bench->conf, bench->threads, 0);
        result = write_and_measure(recovery);
        fr_bench_table_release(&recovery->table);
        fr_bench_scratch_remove(recovery->directory);
    } else {
        fputs("freshet-bench: no temporary directory could be made (TMPDIR)\n", stderr);
    }
    free(recovery);
    return result;
}
