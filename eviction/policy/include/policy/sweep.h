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
 * The store keeps the state of sweeps in the section "expiry" (store/expiry_section.c).
 *
 * Thread: the owner loop; judge: the worker that handles the shard. */
#ifndef FR_POLICY_SWEEP_H
#define FR_POLICY_SWEEP_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/policy.h"

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
    const struct fr_expiry_policy *rules; /* of the table, borrowed; one with rows_max last */
    uint32_t n_rules, n_shards;
    uint64_t next;      /* slice that is due; 0: a new sweep begins with it */
    int64_t counted_ms; /* watermark at which ranks are counted in this sweep */
    struct fr_sweep_edge edge;
    bool over;                       /* more than rows_max rows when this slice began */
    bool changed;                    /* since the last cut */
    int64_t began_ms;                /* watermark at which this sweep began; not stored */
    int64_t swept_ms;                /* that of the last complete sweep; not stored */
    uint64_t (*bins)[FR_SWEEP_BINS]; /* [n_shards] of rows that stayed; NULL: no rule needs them */
};

struct fr_sweep *fr_sweep_open(const struct fr_expiry_policy *rules, uint32_t n_rules, uint32_t n_shards);
void fr_sweep_close(struct fr_sweep *sweep); /* NULL: nothing */
uint64_t fr_sweep_bytes(const struct fr_sweep *sweep);

/* The slice that is due, of a table that has so many rows now. A new sweep sets *slice_bits, the
 * table's division, to `bits`. */
uint64_t fr_sweep_begin_slice(struct fr_sweep *sweep, uint32_t *slice_bits, uint32_t bits, uint64_t rows,
                              int64_t watermark_ms);
/* The reason why a row goes; 0 when it stays and is counted. */
uint8_t fr_sweep_judge(const struct fr_sweep *sweep, uint32_t shard, uint64_t hash, const struct fr_row_facts *facts,
                       int64_t watermark_ms);
void fr_sweep_end_slice(struct fr_sweep *sweep, uint32_t slice_bits, uint64_t rows);

/* Bin of a rank, ascending as the rank falls. */
uint32_t fr_sweep_bin(double rank);
/* The edge below which `excess` rows of the histogram lie. */
struct fr_sweep_edge fr_sweep_find_edge(const uint64_t bins[FR_SWEEP_BINS], uint64_t excess);
/* The histogram of all shards; zeros where no rule needs one. */
void fr_sweep_sum(const struct fr_sweep *sweep, uint64_t sum[FR_SWEEP_BINS]);

#endif
