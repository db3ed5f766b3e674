/* Weak expiry: a row goes when the L2 norm of its published values, over all its parts, is below
 * `norm`. What such a row adds to any sum is small too, so serving without it changes little.
 *
 * A row begins with its first values and may be weak before it was ever trained, so the norm should
 * be below that of first values. A row that begins with zeros (FTRL) goes in the first slice,
 * unless training has made it larger before. The sum is computed in double, in the order of the
 * values. Optimizer state is not read.
 *
 * Thread: any; pure functions, independent of time. */
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
                                     .rank = config->norm > 0 ? weak_rank : NULL,
                                     .threshold = (double)config->norm,
                                     .config = config};
}
