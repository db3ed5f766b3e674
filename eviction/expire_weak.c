/* Weak expiry: a row goes when the L2 norm of its published values, over all its parts, is smaller
 * than `norm`: what it adds to any sum is then small too, and serving without it changes little.
 *
 * A row begins at its first values and may be weak before it was ever trained, so the norm should
 * lie below that of first values; a table that begins with zeros (FTRL) loses a row at the first
 * slice unless its gate or a gradient made it larger. The sum is in double, in the order of the
 * values. Optimizer state is not looked at.
 *
 * Thread: any; pure functions. It does not know time. */
#include "eviction/eviction.h"

#include <math.h>

static double weak_rank(const void *config, const struct fr_row_facts *facts, int64_t watermark_ms)
{
    (void)config, (void)watermark_ms;
    double sum = 0;
    for (uint32_t i = 0; i < facts->n_values; i++)
        sum += (double)facts->values[i] * (double)facts->values[i];
    return sqrt(sum);
}

struct fr_expiry_policy fr_expire_weak_policy(const struct fr_expire_weak *config)
{
    return (struct fr_expiry_policy){.name = "weak",
                                     .reason = FR_ABSENT_WEAK,
                                     .needs_values = true,
                                     .rank = weak_rank,
                                     .threshold = (double)config->norm,
                                     .config = config};
}
