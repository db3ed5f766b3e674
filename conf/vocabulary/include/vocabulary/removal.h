/* Reasons for the removal of a row: the store's counts, the delta format's `why`, the rules of
 * expiry. */
#ifndef FR_VOCABULARY_REMOVAL_H
#define FR_VOCABULARY_REMOVAL_H

#include <stdint.h>

#include "vocabulary/kinds.h"

/* The rules of expiry, in the order in which they are asked: KIND(name, text, number, rule). The
 * number stands in epochs, deltas and states and never changes. `rule` names the parameters, struct
 * fr_expire_<rule> below, the options that set them (conf/options.c) and the constructor
 * (eviction/eviction.h). A rule with rows_max comes last. */
#define FR_EXPIRIES(KIND)                                                                                              \
    KIND(FR_ABSENT_IDLE, "idle", 1, idle)                                                                              \
    KIND(FR_ABSENT_WEAK, "weak", 2, weak)                                                                              \
    KIND(FR_ABSENT_SCORE, "score", 3, score)                                                                           \
    KIND(FR_ABSENT_CAPACITY, "capacity", 4, capacity)
/* All reasons, with those that no rule has. */
#define FR_REMOVALS(KIND) FR_EXPIRIES(KIND) KIND(FR_ABSENT_MANUAL, "manual", 5, )

/* Parameters of the rules, as a table's configuration has them. Zeros: the table has no such
 * rule. */
struct fr_expire_idle {
    int64_t idle_ms; /* a row that was idle for longer goes */
};
struct fr_expire_weak {
    float norm; /* a row with a smaller norm goes */
};
struct fr_expire_score {
    float show_weight, click_weight; /* score = show_weight * shows + click_weight * clicks */
    float min;                       /* a row with a smaller score goes */
    /* event time since the row was last trained that halves its score; 0: no decay */
    int64_t half_life_ms;
};
struct fr_expire_capacity {
    uint64_t rows_max; /* rows that may stay */
};

/* SILENT: the key never had a published row (a forgotten pending key), so there is no tombstone. A
 * name cannot be in parentheses here. NOLINTNEXTLINE(bugprone-macro-parentheses) */
#define FR_REMOVAL_MEMBER(name, text, number, ...) name = number,
enum fr_absent_reason { FR_ABSENT_SILENT = 0, FR_REMOVALS(FR_REMOVAL_MEMBER) };

/* One term of a sum. NOLINTNEXTLINE(bugprone-macro-parentheses) */
#define FR_REMOVAL_ONE(...) +1
enum {
    FR_ABSENT_REASONS = 1 FR_REMOVALS(FR_REMOVAL_ONE), /* with SILENT */
    FR_EXPIRY_RULES = 0 FR_EXPIRIES(FR_REMOVAL_ONE),
};

static inline const char *fr_absent_reason_text(enum fr_absent_reason reason)
{
    switch (reason) {
    case FR_ABSENT_SILENT:
        return "silent";
        FR_REMOVALS(FR_KIND_TEXT)
    }
    return NULL;
}

#endif
