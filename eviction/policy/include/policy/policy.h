/* Gate and expiry policies as the store calls them: small function tables that `eviction`
 * implements. The store never links eviction. Policies are pure functions of their arguments: they
 * read no clock and keep no state. The store keeps what a policy must remember: in entries, in a
 * sketch, in the state of a sweep. */
#ifndef FR_POLICY_POLICY_H
#define FR_POLICY_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "vocabulary/removal.h"

/* What the store remembers of keys without a row. */
enum fr_gate_memory {
    /* one pending entry for each key, with the exact count and the time at which the key was last
     * seen */
    FR_GATE_ENTRIES,
    FR_GATE_SKETCH, /* counters that keys share: counts up to FR_GATE_SKETCH_MAX, never too low */
    /* nothing; the count is that of this batch's occurrences for which `falls` is true */
    FR_GATE_NOTHING,
};

enum { FR_GATE_SKETCH_MAX = 15 };

/* Decides whether a key without a row gets one. */
struct fr_gate_policy {
    const char *name;
    enum fr_gate_memory memory;
    /* Whether a key is admitted. `count` is the number of its trained occurrences, this batch's
     * included, as `memory` counts them. */
    bool (*admits)(const void *config, uint32_t count);
    /* Whether a pending key last seen at seen_ms is forgotten at watermark_ms. NULL unless memory
     * is FR_GATE_ENTRIES. */
    bool (*forgets)(const void *config, int64_t seen_ms, int64_t watermark_ms);
    /* Whether an occurrence counts, given its coin: a number uniform over 64 bits, the same in
     * every run and however samples are divided into batches. NULL unless memory is
     * FR_GATE_NOTHING. */
    bool (*falls)(const void *config, uint64_t coin);
    uint64_t sketch_bytes; /* FR_GATE_SKETCH: most bytes of all shards together */
    /* FR_GATE_SKETCH: event time after which counters are halved; 0: never */
    int64_t sketch_half_life_ms;
    const void *config;
};

/* What a rule of expiry may read of a row. */
struct fr_row_facts {
    int64_t seen_ms; /* watermark of the batch that last trained the row */
    uint64_t show;
    double click;
    /* as published, before quantization; NULL unless a rule of the table has needs_values */
    const float *values;
    uint32_t n_values;
};

/* One rule: a row goes when its rank is below the threshold. A NaN rank is never below it. A table
 * has a list of rules; the first rule by which a row goes gives the tombstone its reason. */
struct fr_expiry_policy {
    const char *name;
    uint8_t reason; /* enum fr_absent_reason */
    bool needs_values;
    /* NULL: the table does not have the rule, and must not have the policy */
    double (*rank)(const void *config, const struct fr_row_facts *facts, int64_t watermark_ms);
    double threshold;
    /* 0: `threshold` applies. Otherwise the store chooses a threshold at which about rows_max rows
     * stay, from a histogram of the ranks of all rows (policy/sweep.h). Rows with a rank above 0
     * stay. Other ranks are distinguished to 1/64 of their magnitude, from magnitude 1 on. A rule
     * with rows_max must be the last one. */
    uint64_t rows_max;
    const void *config;
};

/* All policies of one table. */
struct fr_table_policies {
    struct fr_gate_policy gate;
    uint32_t n_expiries; /* 0: rows never expire */
    struct fr_expiry_policy expiries[FR_EXPIRY_RULES];
};

#endif
