/* A sweep: the slices that together examine every row of a table once, and the state that is kept
 * from one slice to the next.
 *
 * The number of slices (2^k) changes between sweeps only, so every row is examined once a sweep. A
 * slice has at most expire_slice_rows rows, plus those added to its range since the sweep began.
 *
 * Capacity (a rule with rows_max): the ranks of the rows that stay are counted in a histogram,
 * computed at the watermark at which the sweep began. At the end of the sweep the number of rows
 * above rows_max is known. The edge of the next sweep is the bin that contains the last of that
 * many rows, counted from the lowest rank. In the next sweep, rows in bins beyond the edge go; in
 * the edge's own bin the necessary share of rows goes, drawn by key. No row goes while the table
 * has at most rows_max rows, and a row trained since the histogram's watermark stays. A table may
 * therefore exceed rows_max by the rows that, during the last two sweeps, were admitted, or were
 * due to go and were trained.
 *
 * The store saves the state of sweeps in the section "expiry" (store/expiry_section.c).
 *
 * Thread: the owner loop, except that the worker that handles a shard calls fr_sweep_judge. */
#ifndef FR_POLICY_SWEEP_H
#define FR_POLICY_SWEEP_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/policy.h"

/* Bin 0 has magnitudes below 1; each power of two above has 64 bins. */
enum { FR_SWEEP_FINE_BITS = 6, FR_SWEEP_BINS = 1 + (64 << FR_SWEEP_FINE_BITS) };
#define FR_SWEEP_ALL ((uint64_t)1 << 32) /* the share of all rows */

struct fr_sweep_edge {
    bool set; /* false: no row goes */
    uint32_t bin;
    uint64_t share;  /* of the rows in that bin, in units of 1 / FR_SWEEP_ALL */
    int64_t rank_ms; /* watermark at which ranks are computed */
};

struct fr_sweep {
    /* the table's rules, borrowed; a rule with rows_max is last */
    const struct fr_expiry_policy *rules;
    uint32_t n_rules, n_shards;
    uint64_t next;      /* the slice that is due; 0: this slice begins a new sweep */
    int64_t counted_ms; /* watermark at which the ranks of this sweep's histogram are computed */
    struct fr_sweep_edge edge;
    /* the table held more than rows_max rows when this slice began */
    bool over;
    bool changed;     /* whether a slice ran since the last cut */
    int64_t began_ms; /* watermark at which this sweep began; not stored */
    /* watermark at which the last complete sweep began; not stored */
    int64_t swept_ms;
    /* [n_shards], histograms of the rows that stayed; NULL: no rule needs them */
    uint64_t (*bins)[FR_SWEEP_BINS];
};

struct fr_sweep *fr_sweep_open(const struct fr_expiry_policy *rules, uint32_t n_rules, uint32_t n_shards);
void fr_sweep_close(struct fr_sweep *sweep); /* NULL does nothing */
uint64_t fr_sweep_bytes(const struct fr_sweep *sweep);

/* Begins the slice that is due and returns its number; `rows` is the number of rows of the table
 * now. If the slice begins a new sweep, *slice_bits, the table's division into slices, is set to
 * `bits`. */
uint64_t fr_sweep_begin_slice(struct fr_sweep *sweep, uint32_t *slice_bits, uint32_t bits, uint64_t rows,
                              int64_t watermark_ms);
/* The tombstone reason if the row goes; 0 if the row stays, which also counts it in the
 * histogram. */
uint8_t fr_sweep_judge(const struct fr_sweep *sweep, uint32_t shard, uint64_t hash, const struct fr_row_facts *facts,
                       int64_t watermark_ms);
void fr_sweep_end_slice(struct fr_sweep *sweep, uint32_t slice_bits, uint64_t rows);

/* Bin of a rank; the lower the rank, the higher the bin. */
uint32_t fr_sweep_bin(double rank);
/* The edge beyond which the `excess` lowest-ranked rows of the histogram lie. */
struct fr_sweep_edge fr_sweep_find_edge(const uint64_t bins[FR_SWEEP_BINS], uint64_t excess);
/* Sums the histograms of all shards; zeros if no rule needs a histogram. */
void fr_sweep_sum(const struct fr_sweep *sweep, uint64_t sum[FR_SWEEP_BINS]);

#endif
