/* `freshet-bench snapshot`: a snapshot of about 1 GB of state, a start from a savepoint of it, and
 * training beside a snapshot (bench_beside.c).
 *
 * The state is that of `bench recovery`: rows of 16 values and row-wise Adagrad, all folded. The
 * snapshot is written as the daemon writes it, in each form of values, without a limit and, in the
 * deltas' form of the sample configuration (f16), at the default `snapshot.rate`. The start from a
 * savepoint is what `freshetd --restore` does until it may train: links or copies, opening, all
 * rows into memory. Thread: the caller's, the restore's pool, those of RocksDB. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "bench_recovery.h"
#include "process.h"
#include "durable/savepoint.h"
#include "exporter/snapshot.h"
#include "tool.h"

enum { ROWS = 8500000, PARTITIONS = 4, PIECE_BYTES = 512 << 10, RATE = 64 << 20 };

static int fail(struct fr_err *err)
{
    return fr_bench_fail("snapshot", err);
}

/* As the daemon's: one table of one part. */
static void make_head(struct fr_buffer *out)
{
    static char cfg[] = "{}";
    struct fr_codec_table table = {.name = "t", .n_parts = 1, .value_floats = 16};
    snprintf(table.parts[0].name, sizeof(table.parts[0].name), "v");
    table.parts[0].dim = 16;
    struct fr_codec_settings settings = {.revision = FR_CODEC_REVISION,
                                         .np = PARTITIONS,
                                         .quantize = FR_CODEC_F16,
                                         .piece_max = PIECE_BYTES,
                                         .fp = 1,
                                         .model = "bench",
                                         .kernel = "none",
                                         .cfg = cfg,
                                         .cfg_size = sizeof(cfg) - 1,
                                         .n_tables = 1,
                                         .tables = &table};
    fr_codec_settings_encode(&settings, out);
}

static int take(struct fr_bench_recovery *recovery, enum fr_codec_quantize quantize, uint64_t rate, double state_gb)
{
    char dir[4200], name[64];
    struct fr_err err = {0};
    struct fr_snapshot taken;
    snprintf(dir, sizeof(dir), "%s/snapshots", recovery->directory);
    const struct fr_snapshot_options options = {.durable = recovery->durable,
                                                .clock = fr_clock_system(),
                                                .dir = dir,
                                                .topic = "bench.delta",
                                                .quantize = &quantize,
                                                .rate = rate};
    double began = fr_bench_now(), cpu = fr_bench_cpu_seconds();
    enum fr_status status = fr_snapshot_write(&options, &taken, &err);
    double seconds = fr_bench_now() - began, cpu_seconds = fr_bench_cpu_seconds() - cpu;
    char path[sizeof(dir) + FR_MANIFEST_NAME_MAX];
    if (status == FR_OK) {
        snprintf(path, sizeof(path), "%s/%s", dir, taken.name);
        began = fr_bench_now();
        status = fr_snapshot_check(path, &taken, &err);
    }
    double check_seconds = fr_bench_now() - began;
    if (status == FR_OK)
        status = fr_snapshot_remove(dir, taken.name, &err);
    if (status != FR_OK)
        return fail(&err);
    snprintf(name, sizeof(name), "snapshot_%s%s", fr_codec_quantize_name(quantize), rate ? "_at_rate" : "");
    fr_bench_begin(recovery->bench, name);
    fr_bench_number(recovery->bench, "rows", (double)taken.rows);
    fr_bench_number(recovery->bench, "state_gb", state_gb);
    fr_bench_number(recovery->bench, "snapshot_gb", (double)taken.bytes * 1e-9);
    fr_bench_number(recovery->bench, "seconds", seconds);
    fr_bench_number(recovery->bench, "cpu_seconds", cpu_seconds);
    fr_bench_number(recovery->bench, "seconds_per_gb", seconds / state_gb);
    fr_bench_number(recovery->bench, "check_seconds", check_seconds);
    fr_bench_end(recovery->bench);
    return FR_TOOL_OK;
}

/* A savepoint of what is open, and a new state of it until all rows are in memory. */
static int restore(struct fr_bench_recovery *recovery)
{
    char savepoint[4200], dir[4200];
    struct fr_err err = {0};
    struct fr_savepoint taken, begun;
    struct fr_bench_table into;
    uint64_t bytes = 0;
    snprintf(savepoint, sizeof(savepoint), "%s/savepoint", recovery->directory);
    snprintf(dir, sizeof(dir), "%s/restored", recovery->directory);
    double began = fr_bench_now();
    enum fr_status status = fr_durable_savepoint(recovery->durable, savepoint, &taken, &err);
    double savepoint_seconds = fr_bench_now() - began;
    fr_bench_recovery_close(recovery);
    if (status != FR_OK)
        return fail(&err);
    fr_bench_table_init(&into, recovery->bench->conf, recovery->bench->threads, 0);
    struct fr_durable *durable = NULL;
    double cpu = fr_bench_cpu_seconds();
    began = fr_bench_now();
    status = fr_savepoint_restore(savepoint, dir, NULL, NULL, &begun, &err);
    double made = fr_bench_now();
    if (status == FR_OK)
        status = fr_durable_open(&(struct fr_durable_options){.dir = dir}, &durable, &err);
    if (status == FR_OK)
        status = fr_bench_recovery_read(durable, into.store, recovery->bench->threads, &bytes, &err);
    double seconds = fr_bench_now() - began, gb = (double)bytes * 1e-9;
    cpu = fr_bench_cpu_seconds() - cpu;
    fr_durable_close(durable);
    fr_bench_table_release(&into);
    if (status != FR_OK)
        return fail(&err);
    fr_bench_begin(recovery->bench, "savepoint_restore");
    fr_bench_number(recovery->bench, "state_gb", gb);
    fr_bench_number(recovery->bench, "savepoint_seconds", savepoint_seconds);
    fr_bench_number(recovery->bench, "make_seconds", made - began);
    fr_bench_number(recovery->bench, "seconds", seconds);
    fr_bench_number(recovery->bench, "cpu_seconds", cpu);
    fr_bench_number(recovery->bench, "seconds_per_gb", seconds / gb);
    fr_bench_end(recovery->bench);
    return FR_TOOL_OK;
}

static int measure(struct fr_bench_recovery *recovery)
{
    uint64_t rows = recovery->bench->rows ? recovery->bench->rows : ROWS;
    fr_bench_progress("snapshot: writing %llu rows", (unsigned long long)rows);
    int result = fr_bench_recovery_open(recovery);
    if (result == FR_TOOL_OK)
        result = fr_bench_recovery_write(recovery, rows);
    if (result != FR_TOOL_OK)
        return result;
    /* head, floats, and 12 bytes of table and key */
    double gb = (double)rows * (FR_ROW_IMAGE_HEAD + 17 * sizeof(float) + 12) * 1e-9;
    for (int q = FR_CODEC_F32; q <= FR_CODEC_I8 && result == FR_TOOL_OK; q++)
        result = take(recovery, (enum fr_codec_quantize)q, 0, gb);
    if (result == FR_TOOL_OK)
        result = take(recovery, FR_CODEC_F16, RATE, gb);
    return result == FR_TOOL_OK ? restore(recovery) : result;
}

int fr_bench_snapshot(struct fr_bench *bench)
{
    struct fr_bench_recovery *recovery = fr_alloc(1, sizeof(*recovery));
    struct fr_buffer head = {0};
    make_head(&head);
    recovery->bench = bench;
    recovery->name = "snapshot";
    recovery->head = &head;
    int result = FR_TOOL_FAILED;
    if (fr_bench_scratch_make(recovery->directory, sizeof(recovery->directory))) {
        fr_bench_table_init(&recovery->table, bench->conf, bench->threads, 0);
        result = measure(recovery);
        fr_bench_recovery_close(recovery);
        fr_bench_table_release(&recovery->table);
        fr_bench_scratch_remove(recovery->directory);
    } else {
        fputs("freshet-bench: no temporary directory could be made (TMPDIR)\n", stderr);
    }
    if (result == FR_TOOL_OK)
        result = fr_bench_beside(bench, &head, RATE);
    fr_buffer_release(&head);
    free(recovery);
    return result;
}
