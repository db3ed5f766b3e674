/* Ranks as processes that mpirun, srun or another launcher of MPI starts. MPI is in the plug-in
 * freshet-mpi.so, which is built where MPI's headers are and loaded by this call, so that a program
 * without ranks needs no MPI.
 *
 * Owns: fr_exchange_free ends MPI, after all ranks have called it; a process can open MPI once. If
 * a rank does not come to that within the deadline, or the job has failed, fr_exchange_free does
 * not return: the process ends.
 *
 * Thread: the exchange has a thread of its own, which makes all calls of MPI. The parts that an
 * owner sends are read by MPI where they are, until fr_exchange_receive returns without an error.
 *
 * Errors: those of exchange.h. MPI does not notice a rank that hangs, or a network that is cut off,
 * so every receive has this back end's deadline. FR_E_UNAVAILABLE names all ranks that have not
 * come, or has MPI's own text; the caller has a second to log it, then the job ends with code 75.
 * fr_exchange_stop ends the job at once by MPI_Abort, so the caller logs why before; if MPI has not
 * ended this process two seconds later, _exit does. The launcher kills the other ranks, so
 * FR_E_CANCELLED is only seen in this process. Open MPI's mpirun then exits with the code; MPICH's
 * does not keep it in all cases. */
#ifndef FR_EXCHANGE_MPI_H
#define FR_EXCHANGE_MPI_H

#include "base/machine.h"
#include "exchange/exchange.h"

struct fr_exchange_mpi_options {
    const char *plugin; /* path of freshet-mpi.so; NULL: it is searched (base/plugin.h) */
    /* the longest wait for a rank, also when the job ends; when it starts, 60 s at least */
    uint64_t deadline_ns;
    uint32_t workers; /* threads that are to compute in this process, for the warning below */
};

/* Joins the job that this process was started in; outside of one it is a job of one rank.
 * FR_E_NOT_FOUND, FR_E_MISMATCH: of the plug-in, with what to install. FR_E_UNAVAILABLE: not all
 * ranks have come, or MPI does not work. FR_E_LIMIT: the job has more than FR_RANKS_MAX ranks.
 * FR_E_STATE: MPI was opened before in this process. Logs a warning if
 * fr_exchange_affinity_warning has one. */
enum fr_status fr_exchange_mpi_open(const struct fr_exchange_mpi_options *options, struct fr_exchange **out,
                                    struct fr_err *err) FR_MUST_CHECK;

/* Returns whether a launcher has bound this process to fewer processors than it is to have workers,
 * as mpirun does without an option, and then writes what is wrong and what to do. Pure. */
bool fr_exchange_affinity_warning(const struct fr_machine *machine, uint32_t workers, char *text, size_t size);

#endif
