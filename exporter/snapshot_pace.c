/* The share of the processors that writing a snapshot takes (snapshot_pace.h). Owner: one
 * thread. */
#include "snapshot_pace.h"

void fr_snapshot_pace_init(struct fr_snapshot_pace *pace, double processors, const struct fr_snapshot_times *now)
{
    *pace = (struct fr_snapshot_pace){.processors = processors, .last = *now, .began_ns = now->mono_ns};
}

uint64_t fr_snapshot_pace_end(struct fr_snapshot_pace *pace, const struct fr_snapshot_times *now)
{
    double elapsed = (double)(now->mono_ns - pace->last.mono_ns);
    double own = (double)(now->thread_ns - pace->last.thread_ns);
    double others = (double)(now->process_ns - pace->last.process_ns) - own;
    pace->last = *now;
    if (others * 100.0 < elapsed * pace->processors * FR_SNAPSHOT_PACE_BUSY_PERCENT)
        return now->mono_ns;
    return pace->began_ns + (uint64_t)(own * FR_SNAPSHOT_PACE_SHARE / pace->processors);
}

void fr_snapshot_pace_begin(struct fr_snapshot_pace *pace, uint64_t mono_ns)
{
    pace->began_ns = mono_ns;
}
