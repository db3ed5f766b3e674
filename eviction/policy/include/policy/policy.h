/* Gate and expiry policies as the store calls them: small function tables that `eviction`
 * implements. The store never links eviction. Policies are pure functions of their arguments: they
 * read no clock and keep no state. What they need remembered the store keeps: in the entries, in a
 * sketch, in the state of a sweep. */
#ifndef FR_POLICY_POLICY_H
#define FR_POLICY_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "vocabulary/removal.h"

/* What the store keeps about keys without a row. */
enum fr_gate_memory {
    FR_GATE_ENTRIES, /* a pending entry per key: its exact count and when it was seen */
    FR_GATE_SKETCH,  /* counters that keys share: counts of at most FR_GATE_SKETCH_MAX, never low */
    FR_GATE_NOTHING, /* the count is of this batch only: its occurrences whose coin falls */
};

enum { FR_GATE_SKETCH_MAX = 15 };

/* Decides about a key without a row. */
struct fr_gate_policy {
    const char *name;
    enum fr_gate_memory memory;
    /* `count`: trained occurrences so far, this batch's included, as the memory knows them. */
    bool (*admits)(const void *config, uint32_t count);
    /* Says whether a pending key last seen at seen_ms is forgotten at watermark_ms. NULL unless
     * memory is entries. */
    bool (*forgets)(const void *config, int64_t seen_ms, int64_t watermark_ms);
    /* Says whether an occurrence's coin, uniform over 64 bits and the same in every run and form of
     * the batch, falls. NULL unless memory is nothing. */
    bool (*falls)(const void *config, uint64_t coin);
    uint64_t sketch_bytes;       /* of all shards, from above; sketch */
    int64_t sketch_half_life_ms; /* in event time; 0: counters are never halved; sketch */
    const void *config;
};

/* What expiry may look at. */
struct fr_row_facts {
    int64_t seen_ms; /* the watermark of the batch that last trained the row */
    uint64_t show;
    double click;
    /* as published, before quantization; NULL when no rule of the table says needs_values */
    const float *values;
    uint32_t n_values;
};

/* One rule: the row goes when its rank is below the threshold. A rank that is NaN never is. A table
 * has a list of rules; the first that says "goes" gives the tombstone its reason. */
struct fr_expiry_policy {
    const char *name;
    uint8_t reason; /* enum fr_absent_reason */
    bool needs_values;
    double (*rank)(const void *config, const struct fr_row_facts *facts, int64_t watermark_ms);
    double threshold;
    /* 0: the threshold is the one above. Else the store finds it, such that about rows_max rows
     * stay, from a histogram of the ranks of all rows (policy/sweep.h): rows with a
     * rank above 0 stay, and the others are told apart to 1/64 of its magnitude, from 1 on. Such a
     * rule comes last. */
    uint64_t rows_max;
    const void *config;
};

/* All of a table. */
struct fr_table_policies {
    struct fr_gate_policy gate;
    uint32_t n_expiries; /* 0: rows stay */
    struct fr_expiry_policy expiries[FR_EXPIRY_RULES];
};

#endif
