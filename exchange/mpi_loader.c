/* Loads the plug-in freshet-mpi.so and makes its back end an exchange: see exchange/mpi.h. The
 * plug-in is never unloaded, because MPI leaves threads and handlers in the process. */
#include "exchange/mpi.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/log.h"
#include "base/plugin.h"
#include "mpi_plugin.h"

enum { TEXT_BYTES = 1024 };

static const struct fr_plugin plugin = {.name = "MPI",
                                        .file = "freshet-mpi.so",
                                        .build_folder = "../exchange/mpi/",
                                        .function = FR_MPI_PLUGIN,
                                        .version = FR_MPI_API};

bool fr_exchange_affinity_warning(const struct fr_machine *machine, uint32_t workers, char *text, size_t size)
{
    if (machine->allowed >= workers || machine->allowed >= machine->online)
        return false;
    snprintf(text, size,
             "%" PRIu32 " workers share %" PRIu32 " of the %" PRIu32
             " processors, because the launcher has bound this rank to them: start mpirun with --bind-to none, or with "
             "--map-by numa:PE=%" PRIu32 " if ranks are to have processors of their own",
             workers, machine->allowed, machine->online, workers);
    return true;
}

static void warn(const char *text)
{
    char quoted[2 * TEXT_BYTES];
    fr_log_surely(FR_LOG_WARN, "exchange", "mpi", "reason=%s", fr_log_quote(quoted, sizeof(quoted), text));
}

enum fr_status fr_exchange_mpi_open(const struct fr_exchange_mpi_options *options, struct fr_exchange **out,
                                    struct fr_err *err)
{
    char text[TEXT_BYTES];
    const void *interface = NULL;
    void *library = NULL;
    enum fr_status status = fr_plugin_load(&plugin, options->plugin, &library, &interface, err);
    if (status == FR_E_NOT_FOUND)
        fr_err_wrap(err, "several ranks need MPI: install Open MPI (Debian: openmpi-bin) and freshet-mpi.so, which the "
                         "build makes if mpicc is there (libopenmpi-dev)");
    if (status != FR_OK)
        return status;
    const struct fr_mpi_api *api = interface;
    struct fr_exchange *exchange = fr_alloc(1, sizeof(*exchange));
    status = api->open(&(struct fr_mpi_options){options->deadline_ns, warn}, exchange, err);
    if (status != FR_OK) {
        free(exchange);
        return status;
    }
    if (fr_exchange_affinity_warning(fr_machine(), options->workers, text, sizeof(text)))
        warn(text);
    *out = exchange;
    return FR_OK;
}
