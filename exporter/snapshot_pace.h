/* Keeps a thread that nothing waits for to a small share of the processors while the rest of its
 * process keeps them busy. Priority alone does not: training leaves gaps at the ends of its loops,
 * and what runs in them takes caches and wakes with it.
 *
 * The thread works in pieces. At the end of each piece it asks when the next one may begin, so that
 * it stays within its share of the time since this piece began. While the process leaves processors
 * idle there is no limit.
 *
 * Owner: one thread. The caller provides the times. */
#ifndef FR_EXPORTER_SNAPSHOT_PACE_H
#define FR_EXPORTER_SNAPSHOT_PACE_H

#include <stdint.h>

enum {
    /* the thread's share of the processors is 1 / this */
    FR_SNAPSHOT_PACE_SHARE = 32,
    /* the rest of the process keeps the processors busy if it uses at least this percentage of
     * them */
    FR_SNAPSHOT_PACE_BUSY_PERCENT = 75,
};

struct fr_snapshot_times {
    uint64_t mono_ns, process_ns, thread_ns; /* clock; processor time of the process, the thread */
};

struct fr_snapshot_pace {
    double processors;
    struct fr_snapshot_times last; /* at the end of the last piece */
    uint64_t began_ns;             /* when this piece began */
};

void fr_snapshot_pace_init(struct fr_snapshot_pace *pace, double processors, const struct fr_snapshot_times *now);
/* Ends a piece. Returns the time, on the same clock, from which on the next one may begin. */
uint64_t fr_snapshot_pace_end(struct fr_snapshot_pace *pace, const struct fr_snapshot_times *now);
/* Begins the next piece. */
void fr_snapshot_pace_begin(struct fr_snapshot_pace *pace, uint64_t mono_ns);

#endif
