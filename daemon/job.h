/* A job of several ranks, as the daemon sees it: this process joins the job that a launcher of MPI
 * has started, and takes the parts of the configuration that are a rank's own.
 *
 * Thread: the main thread, before and after the service. */
#ifndef FR_DAEMON_JOB_H
#define FR_DAEMON_JOB_H

#include "conf/conf.h"
#include "exchange/exchange.h"

enum { FR_JOB_SETS = 2, FR_JOB_SET_BYTES = 1200 };

/* Joins the job with scale.ranks ranks. FR_E_INVALID: the launcher has started another number.
 * Other errors: those of fr_exchange_mpi_open. The caller frees *out, which after an error of the
 * job ends the process. */
enum fr_status fr_job_join(const struct fr_conf *conf, struct fr_exchange **out, struct fr_err *err) FR_MUST_CHECK;
/* Writes what a rank has of its own, as --set: below state_dir a directory of its own, and of
 * metrics.listen the port plus the number of the rank. false: a value is too long, or the port
 * above 65535; `problem` says which. */
bool fr_job_sets(const struct fr_conf *conf, uint32_t rank, char sets[FR_JOB_SETS][FR_JOB_SET_BYTES],
                 struct fr_buffer *problem);
/* Whether state_dir may hold the state of a job of this many ranks: nothing of another number of
 * ranks is there. FR_E_MISMATCH says what is, and what to do. */
enum fr_status fr_job_check_directory(const char *state_dir, uint32_t ranks, struct fr_err *err) FR_MUST_CHECK;

#endif
