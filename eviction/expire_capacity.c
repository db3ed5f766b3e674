/* Capacity: of more than `rows_max` rows those that were trained longest ago go.
 *
 * The rank is the negative time since the row was trained. The store finds the threshold from a
 * histogram of all rows' ranks and judges with the watermark of that histogram, so
 * a rank means the same when it is counted and when it is judged.
 *
 * Thread: any; pure functions. It does not know how many rows there are. */
#include "eviction/eviction.h"

#include "idle.h"

static double capacity_rank(const void *config, const struct fr_row_facts *facts, int64_t watermark_ms)
{
    (void)config;
    if (facts->seen_ms > watermark_ms)
        return 1; /* trained since: stays */
    return -(double)fr_idle_time(facts->seen_ms, watermark_ms);
}

struct fr_expiry_policy fr_expire_capacity_policy(const struct fr_expire_capacity *config)
{
    return (struct fr_expiry_policy){.name = "capacity",
                                     .reason = FR_ABSENT_CAPACITY,
                                     .rank = capacity_rank,
                                     .rows_max = config->rows_max,
                                     .config = config};
}
