/* The interface of the plug-in freshet-mpi.so. The plug-in has its own copy of base, so it neither
 * logs nor ends the process by a check that the program would report: it gives texts. */
#ifndef FR_EXCHANGE_MPI_PLUGIN_H
#define FR_EXCHANGE_MPI_PLUGIN_H

#include "backend.h"

enum { FR_MPI_API = 1 };
#define FR_MPI_PLUGIN "fr_mpi_plugin"

struct fr_mpi_options {
    uint64_t deadline_ns;
    /* Gets the text of an error that no call can return. Thread: any. */
    void (*report)(const char *text);
};

struct fr_mpi_api {
    uint32_t version;
    /* Fills backend, self, rank and size of `out`. */
    enum fr_status (*open)(const struct fr_mpi_options *options, struct fr_exchange *out, struct fr_err *err);
};

#endif
