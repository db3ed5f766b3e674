/* Recovery: the state directory is opened, made from a savepoint or continued in a new timeline,
 * and restored into the trainer, on a thread of its own, so that a signal can end it.
 *
 *   member                    written by                             read by
 *   done_bytes, total_bytes   recovery thread                        main thread (documents)
 *   stop                      main thread, when a signal came        recovery thread, main thread
 *   identity, epoch_wall_ms   recovery thread, until it is joined    main thread afterwards
 *
 * The atomics are sequentially consistent; progress is read as two numbers of about one moment. */
#ifndef FR_DAEMON_RECOVERY_THREAD_H
#define FR_DAEMON_RECOVERY_THREAD_H

#include <stdatomic.h>

#include "identity.h"

struct fr_service;

struct fr_recovery {
    _Atomic uint64_t done_bytes, total_bytes;
    atomic_bool stop;
    struct fr_identity identity;
    int64_t epoch_wall_ms; /* of the restored state's newest epoch; 0: none */
};

/* Main thread. Returns when the recovery thread ended: FR_OK, FR_E_CANCELLED after a signal, or why
 * the state cannot be used. Nothing is lost either way. */
enum fr_status fr_service_recover(struct fr_service *service, struct fr_err *err) FR_MUST_CHECK;

/* ---- restore.c, on the recovery thread ---- */

/* --restore: makes the state directory from a savepoint. */
enum fr_status fr_service_restore(struct fr_service *service, struct fr_err *err) FR_MUST_CHECK;
/* --new-timeline: the opened state continues in a new timeline. */
enum fr_status fr_service_new_timeline(struct fr_service *service, struct fr_err *err) FR_MUST_CHECK;

#endif
