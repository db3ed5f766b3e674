/* The upkeep loop keeps the limits: how far the trainer may go, why reading has to wait, how much
 * of the disk stays free, and which epochs the journal may drop because they are acknowledged.
 *
 * Thread: `upkeep`, which owns everything except `shared`. */
#ifndef FR_DAEMON_LOOPS_UPKEEP_LOOP_H
#define FR_DAEMON_LOOPS_UPKEEP_LOOP_H

#include "loops/durable_loop.h"

enum {
    FR_DISK_LOOK_MS = 200, /* between two measurements of the free bytes */
    /* Bytes of the disk under state_dir that stay free in addition to what epochs, a fold and a
     * compaction may take: for marks, and for RocksDB's manifests and logs (three of 4 MiB). */
    FR_DISK_RESERVE = 16 << 20,
};
/* A compaction writes at most about this much before it removes what it read: 24 files of level 0,
 * of 256 MiB at most, and a base level of 4 GiB (cold_tuning.c). */
#define FR_COMPACTION_ROOM ((uint64_t)10 << 30)

/* The disk under state_dir. Written by the upkeep thread, read by the fold loop and the snapshot
 * loop; sequentially consistent. Both numbers are 0 until the disk was first measured. A reader
 * may see one number of the newest measurement and the other of the measurement before. */
struct fr_shared_disk {
    _Atomic uint64_t free_bytes;
    _Atomic uint64_t reserve_bytes; /* must stay free for reading to continue */
};

struct fr_upkeep_loop {
    struct fr_shared_disk shared;
    /* The loop is given these members and does not own them. */
    const struct fr_loop_context *context;
    struct fr_durable *durable;
    struct fr_publisher *publisher;
    struct fr_trainer *trainer;
    const struct fr_shared_durable *appended;
    struct fr_exchange *exchange; /* of a job of several ranks; NULL: one rank */
    /* The members below belong to the loop alone. */
    uint64_t acknowledged; /* the acknowledged epoch that was last passed to the journal */
    uint64_t disk_looked_ns;
    bool hold_reported; /* /healthz reports that publishing is held */
};

enum fr_status fr_step_upkeep(struct fr_upkeep_loop *loop, struct fr_err *err) FR_MUST_CHECK;

#endif
