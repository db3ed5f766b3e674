/* `freshet-bench grow`: what a table costs while it grows, is swept and shrinks.
 *
 * grow_rows: bytes of a row at several sizes, by what the store counts (index and rows) and by
 * what the process holds beyond an empty store. grow: the times of a plan of 26,624 keys that are
 * all new, from a million rows on. sweep: a batch of known keys and the slice after it, while
 * expiry looks once at every row and none goes. expire: the same while nine rows in ten go, and
 * memory before and after. There is no network beside a batch, which would hide the rest, and an
 * epoch is cut every 20 batches outside of what is timed.
 *
 * Processor time is that of all threads and hardly depends on what else runs on the machine. p99.9
 * of a batch should be at most three times its median: nothing a batch meets may be a pause.
 * Thread: the caller's and a pool of its own. */
#include "base/check.h"
#include "bench_table.h"
#include "tool.h"

enum {
    GROW_ROWS = 30000000,
    SWEEP_ROWS = 10000000, /* at most */
    FROM_ROWS = 1000000,   /* smaller tables are not timed */
    IDLE_MS = 3600000,
    KEPT_OF = 10, /* one row in so many stays */
    SWEEPS_MAX = 8,
};

static const uint32_t millions[] = {1, 2, 3, 5, 7, 10, 14, 15, 20, 30, 50, 100};

struct memory {
    uint64_t rss, kept, all, rows;
};

static struct memory look(struct fr_bench_table *table)
{
    struct fr_store_table_stats stats;
    fr_store_stats(table->store, 0, &stats);
    fr_bench_table_drop_stage(table);
    return (struct memory){.rss = fr_bench_rss_bytes(),
                           .kept = fr_store_kept_bytes(table->store),
                           .all = fr_store_bytes(table->store),
                           .rows = stats.counts.rows};
}

static void report_size(struct fr_bench *bench, struct fr_bench_table *table, uint64_t rss_empty)
{
    struct memory now = look(table);
    double rows = (double)now.rows;
    fr_bench_begin(bench, "grow_rows");
    fr_bench_number(bench, "rows", rows);
    fr_bench_number(bench, "kept_bytes_per_row", (double)now.kept / rows);
    fr_bench_number(bench, "store_bytes_per_row", (double)now.all / rows);
    fr_bench_number(bench, "rss_bytes_per_row", (double)(now.rss - rss_empty) / rows);
    fr_bench_end(bench);
}

static void cut_in_turn(struct fr_bench_table *table)
{
    if (table->n_batches % FR_TABLE_CUT_BATCHES == 0)
        fr_bench_table_cut(table);
}

/* New keys up to `rows`; bench NULL: nothing is reported. */
static void grow(struct fr_bench *bench, struct fr_bench_table *table, uint64_t rows, uint64_t rss_empty)
{
    struct fr_bench_times times = {0};
    size_t next = 0;
    while (table->n_made < rows) {
        bool timed = bench && table->n_made >= FROM_ROWS;
        fr_bench_table_fill_new(table);
        if (timed)
            fr_bench_times_begin(&times);
        fr_bench_table_plan(table, 0);
        if (timed)
            fr_bench_times_end(&times);
        cut_in_turn(table);
        while (bench && next < FR_ARRAY_LEN(millions) && table->n_made >= UINT64_C(1000000) * millions[next]) {
            report_size(bench, table, rss_empty);
            next++;
        }
    }
    if (times.n > 0) {
        fr_bench_begin(bench, "grow");
        fr_bench_number(bench, "rows", (double)table->n_made);
        fr_bench_number(bench, "threads", bench->threads);
        fr_bench_number(bench, "keys_per_batch", table->n_keys);
        fr_bench_times_report(&times, bench);
        fr_bench_end(bench);
    }
    fr_bench_times_release(&times);
}

struct sweep {
    int64_t watermark_ms;
    uint64_t known, step; /* the batches' keys: see fr_bench_table_fill_known */
    uint64_t until;       /* rows left; 0: slices have been everywhere */
    struct fr_bench_times times;
};

static void run_sweep(struct fr_bench_table *table, struct sweep *sweep)
{
    const struct fr_conf_table *spec = &table->conf->tables[0];
    struct fr_store_table_stats stats;
    uint64_t slices = 1;
    while (table->n_made / slices > spec->expire_slice_rows)
        slices *= 2;
    uint64_t most = slices * spec->expire_every * (sweep->until ? SWEEPS_MAX : 1);
    for (uint64_t i = 0; i < most; i++) {
        fr_bench_table_fill_known(table, sweep->known, sweep->step);
        fr_bench_times_begin(&sweep->times);
        fr_bench_table_plan(table, sweep->watermark_ms);
        fr_store_slice(table->store, table->n_batches, sweep->watermark_ms);
        fr_bench_times_end(&sweep->times);
        cut_in_turn(table);
        fr_store_stats(table->store, 0, &stats);
        if (stats.counts.rows <= sweep->until)
            break;
    }
}

static void report_sweep(struct fr_bench *bench, const char *name, struct sweep *sweep, const struct memory *before,
                         const struct memory *after)
{
    fr_bench_begin(bench, name);
    fr_bench_number(bench, "threads", bench->threads);
    fr_bench_number(bench, "rows_before", (double)before->rows);
    fr_bench_number(bench, "rows_after", (double)after->rows);
    fr_bench_number(bench, "kept_mb_before", (double)before->kept * 1e-6);
    fr_bench_number(bench, "kept_mb_after", (double)after->kept * 1e-6);
    fr_bench_number(bench, "rss_mb_before", (double)before->rss * 1e-6);
    fr_bench_number(bench, "rss_mb_after", (double)after->rss * 1e-6);
    fr_bench_times_report(&sweep->times, bench);
    fr_bench_end(bench);
    fr_bench_times_release(&sweep->times);
}

/* Touches one row in KEPT_OF; those are the known keys of the sweep. */
static void touch_some(struct fr_bench_table *table, struct sweep *sweep)
{
    uint64_t numbers = (uint64_t)KEPT_OF * table->n_keys;
    for (; sweep->known + numbers <= table->n_made; sweep->known += numbers) {
        fr_bench_table_fill_range(table, sweep->known, KEPT_OF);
        fr_bench_table_plan(table, sweep->watermark_ms);
        cut_in_turn(table);
    }
    sweep->step = KEPT_OF;
    sweep->until = sweep->known / KEPT_OF;
}

static void shrink(struct fr_bench *bench, struct fr_bench_table *table)
{
    struct sweep all = {.known = table->n_made, .step = 1}, most = {.watermark_ms = 2 * (int64_t)IDLE_MS};
    struct memory before = look(table), after;
    fr_bench_progress("grow: a sweep over %llu rows of which none goes", (unsigned long long)before.rows);
    run_sweep(table, &all);
    after = look(table);
    report_sweep(bench, "sweep", &all, &before, &after);

    fr_bench_progress("grow: all rows but one in %d expire", KEPT_OF);
    touch_some(table, &most);
    before = look(table);
    run_sweep(table, &most);
    fr_bench_table_cut(table); /* says what went, so that it may be forgotten */
    after = look(table);
    report_sweep(bench, "expire", &most, &before, &after);
}

int fr_bench_grow(struct fr_bench *bench)
{
    struct fr_bench_table table;
    uint64_t rows = bench->rows ? bench->rows : GROW_ROWS;
    fr_bench_progress("grow: new keys up to %llu rows", (unsigned long long)rows);
    fr_bench_table_init(&table, bench->conf, bench->threads, 0);
    uint64_t rss_empty = fr_bench_rss_bytes();
    grow(bench, &table, rows, rss_empty);
    fr_bench_table_release(&table);

    fr_bench_table_init(&table, bench->conf, bench->threads, IDLE_MS);
    grow(NULL, &table, rows < SWEEP_ROWS ? rows : SWEEP_ROWS, 0);
    shrink(bench, &table);
    fr_bench_table_release(&table);
    return FR_TOOL_OK;
}
