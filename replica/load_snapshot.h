/* Loading a snapshot, when asked and when the chain broke. Thread: the feeder's. */
#ifndef FR_REPLICA_LOAD_SNAPSHOT_H
#define FR_REPLICA_LOAD_SNAPSHOT_H

#include "replica_internal.h"

/* Loads the snapshot at `directory`, or the one that its CURRENT names. FR_E_STATE: it is not newer
 * than what is served. */
enum fr_status fr_replica_load_snapshot(struct freshet_replica *replica, const char *directory,
                                        struct fr_err *err) FR_MUST_CHECK;
/* Loads what leads on past the stop that a record met, from the folder of snapshots: CURRENT's, or
 * the one that a rewind names. False: there is none, or it was looked at before. */
bool fr_replica_reload(struct freshet_replica *replica, const struct fr_delta_record *record);

#endif
