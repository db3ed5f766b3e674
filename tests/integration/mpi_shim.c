/* Says when MPI_Abort is called, and makes MPI fail, when this library is preloaded (LD_PRELOAD).
 * FRESHET_MPI_HANG=1: MPI_Abort does not return and does nothing; FRESHET_MPI_FAIL=n: the n-th
 * MPI_Isend, counted from 1, returns an error. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int MPI_Abort(MPI_Comm comm, int code)
{
    dprintf(STDOUT_FILENO, "MPI_Abort is called with %d\n", code);
    while (getenv("FRESHET_MPI_HANG"))
        pause();
    return PMPI_Abort(comm, code);
}

int MPI_Isend(const void *bytes, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request)
{
    static int calls; /* one thread makes them all */
    const char *fail = getenv("FRESHET_MPI_FAIL");
    if (fail && ++calls == atoi(fail))
        return PMPI_Comm_call_errhandler(comm, MPI_ERR_NO_MEM) == MPI_SUCCESS ? MPI_ERR_NO_MEM : MPI_ERR_OTHER;
    return PMPI_Isend(bytes, n, type, to, tag, comm, request);
}
