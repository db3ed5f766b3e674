/* A sweep: the slices that together look at every row of a table once, and what is remembered from
 * one to the next.
 *
 * The division into slices (k) changes between sweeps only, so that every row is looked at once a
 * sweep, and a slice is at most expire_slice_rows and what came to it since the sweep began.
 *
 * Capacity (a rule with rows_max): the ranks of rows that stay are counted in a histogram, at the
 * watermark at which the sweep began. At its end it is known by how many rows the table exceeds
 * rows_max; the bin in which that many rows of the lowest ranks end is the edge of the next sweep.
 * Rows of bins beyond the edge go, and of the edge's own bin the share that is needed, drawn by
 * key. Nothing goes while the table is not over rows_max, and a row trained since the histogram's
 * watermark stays. So a table has at most rows_max rows, and those that were admitted, or trained
 * though they were to go, in the last two sweeps.
 *
 * The state of sweeps is the section "expiry", of epochs in which a slice ran.
 *
 * Thread: the owner loop; judge: the worker that handles the shard. */
#ifndef FR_STORE_SWEEP_H
#define FR_STORE_SWEEP_H

#include "tables.h"

/* Below 1, then 64 to each power of two of the rank's magnitude. */
enum { FR_SWEEP_FINE_BITS = 6, FR_SWEEP_BINS = 1 + (64 << FR_SWEEP_FINE_BITS) };
#define FR_SWEEP_ALL ((uint64_t)1 << 32) /* a share */

struct fr_sweep_edge {
    bool set; /* else nothing goes */
    uint32_t bin;
    uint64_t share;  /* of that bin, of FR_SWEEP_ALL */
    int64_t rank_ms; /* watermark at which ranks are told */
};

struct fr_sweep {
    uint64_t next;      /* slice that is due; 0: a new sweep begins with it */
    int64_t counted_ms; /* watermark at which ranks are counted in this sweep */
    struct fr_sweep_edge edge;
    bool over;                       /* the table is, at this slice */
    bool changed;                    /* since the last cut */
    int64_t began_ms;                /* watermark at which this sweep began; not kept */
    int64_t swept_ms;                /* and the last one that is done; not kept */
    uint64_t (*bins)[FR_SWEEP_BINS]; /* [FR_SHARDS] of rows that stayed; NULL: no rule needs them */
};

void fr_sweep_open(struct fr_table *table);
void fr_sweep_close(struct fr_table *table);
uint64_t fr_sweep_bytes(const struct fr_table *table);

/* The slice that is due. A new sweep takes its division from `bits`. */
uint64_t fr_sweep_begin_slice(struct fr_table *table, uint32_t bits, int64_t watermark_ms);
/* The reason why a row goes, FR_ABSENT_SILENT when it stays and is counted. */
uint8_t fr_sweep_judge(const struct fr_table *table, uint32_t shard, uint64_t hash, const struct fr_row_facts *facts,
                       int64_t watermark_ms);
void fr_sweep_end_slice(struct fr_table *table);

/* Bin of a rank, ascending as the rank falls. */
uint32_t fr_sweep_bin(double rank);
/* The edge below which `excess` rows of the histogram lie. */
struct fr_sweep_edge fr_sweep_find_edge(const uint64_t bins[FR_SWEEP_BINS], uint64_t excess);

/* Stages the section when a slice ran since the last cut. */
void fr_sweep_cut(struct fr_store *store, struct fr_stage *stage);

#endif
