/* Capacity: if a table has more than `rows_max` rows, the rows trained longest ago go.
 *
 * The rank is the negative time since the row was trained. The store chooses the threshold from a
 * histogram of all rows' ranks, and judges rows with the watermark of that histogram. So a rank
 * means the same when it is counted and when it is judged.
 *
 * Thread: any; pure functions. The number of rows is known to the store only. */
#include "eviction/eviction.h"

#include "idle.h"

static double capacity_rank(const void *config, const struct fr_row_facts *facts, int64_t watermark_ms)
{
    (void)config;
    if (facts->seen_ms > watermark_ms)
        return 1; /* trained since the histogram's watermark: stays */
    return -(double)fr_idle_time(facts->seen_ms, watermark_ms);
}

struct fr_expiry_policy fr_expire_capacity_policy(const struct fr_expire_capacity *config)
{
    return (struct fr_expiry_policy){.name = "capacity",
                                     .reason = FR_ABSENT_CAPACITY,
                                     .rank = config->rows_max > 0 ? capacity_rank : NULL,
                                     .rows_max = config->rows_max,
                                     .config = config};
}
