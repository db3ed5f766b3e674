/* Loads a snapshot on request, and when the chain broke. Thread: the feeder's. */
#ifndef FR_REPLICA_LOAD_SNAPSHOT_H
#define FR_REPLICA_LOAD_SNAPSHOT_H

#include "replica_internal.h"

/* Loads the snapshot at `directory`, or the one that the CURRENT file in it names. FR_E_STATE: it
 * is not newer than what is served. */
enum fr_status fr_replica_load_snapshot(struct freshet_replica *replica, const char *directory,
                                        struct fr_err *err) FR_MUST_CHECK;
/* After a record stopped the replica, loads from the snapshot folder the snapshot that ends the
 * stop: the one in CURRENT, or the one that a rewind names. False: there is none, or it was tried
 * before. */
bool fr_replica_reload(struct freshet_replica *replica, const struct fr_delta_record *record);

#endif
