/* Reasons for the removal of a row: the store's counts, the delta format's `why`, the rules of
 * expiry. */
#ifndef FR_VOCABULARY_REMOVAL_H
#define FR_VOCABULARY_REMOVAL_H

#include "vocabulary/kinds.h"

/* KIND(name, text, number, by): the number stands in epochs, deltas and states and never changes;
 * by is RULE if a rule of expiry removes the row, and COMMAND if an operator does. */
#define FR_REMOVALS(KIND)                                                                                              \
    KIND(FR_ABSENT_IDLE, "idle", 1, RULE)                                                                              \
    KIND(FR_ABSENT_WEAK, "weak", 2, RULE)                                                                              \
    KIND(FR_ABSENT_SCORE, "score", 3, RULE)                                                                            \
    KIND(FR_ABSENT_CAPACITY, "capacity", 4, RULE) /* rows_max */                                                       \
    KIND(FR_ABSENT_MANUAL, "manual", 5, COMMAND)

/* SILENT: the key never had a published row (a forgotten pending key), so there is no tombstone. A
 * name cannot be in parentheses here. NOLINTNEXTLINE(bugprone-macro-parentheses) */
#define FR_REMOVAL_MEMBER(name, text, number, by) name = number,
enum fr_absent_reason { FR_ABSENT_SILENT = 0, FR_REMOVALS(FR_REMOVAL_MEMBER) };

/* Expands to the argument if a rule of expiry has the reason. */
#define FR_REMOVAL_BY_RULE(...) __VA_ARGS__
#define FR_REMOVAL_BY_COMMAND(...)
/* One term of a sum. NOLINTNEXTLINE(bugprone-macro-parentheses) */
#define FR_REMOVAL_ONE(name, text, number, by) +1
#define FR_REMOVAL_ONE_RULE(name, text, number, by) FR_REMOVAL_BY_##by(+1)
enum {
    FR_ABSENT_REASONS = 1 FR_REMOVALS(FR_REMOVAL_ONE), /* with SILENT */
    FR_EXPIRY_RULES = 0 FR_REMOVALS(FR_REMOVAL_ONE_RULE),
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
