/* Gate and expiry policies as the store calls them: small function tables that `eviction`
 * implements. The store never links eviction. Policies are pure functions of their arguments: they
 * read no clock and keep no state, which lives in the entries. */
#ifndef FR_POLICY_POLICY_H
#define FR_POLICY_POLICY_H

#include <stdbool.h>
#include <stdint.h>

/* Decides about a key without a row. `count` is its trained occurrences so far, this batch's
 * included. */
struct fr_gate_policy {
    const char *name;
    bool (*admits)(const void *config, uint32_t count);
    /* Says whether a pending key last seen at seen_ms is forgotten at watermark_ms. */
    bool (*forgets)(const void *config, int64_t seen_ms, int64_t watermark_ms);
    const void *config;
};

/* What expiry may look at. */
struct fr_row_facts {
    int64_t seen_ms;
    uint64_t show;
    double click;
};

struct fr_expiry_policy {
    const char *name;
    uint8_t reason; /* the delta format's `why` */
    bool (*expires)(const void *config, const struct fr_row_facts *facts, int64_t watermark_ms);
    const void *config;
};

#endif
