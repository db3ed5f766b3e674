/* Which exit code a failure ends the process with (docs/commands.md, "Exit codes"). */
#include "exit_code.h"

int fr_exit_code(enum fr_status status)
{
    switch (status) {
    case FR_OK:
        return FR_EXIT_OK;
    case FR_E_INVALID:
    case FR_E_UNSUPPORTED:
        return FR_EXIT_CONFIG;
    /* the message names the limit: of the process, of a path, or of a file */
    case FR_E_LIMIT:
    case FR_E_NO_DESCRIPTORS: /* a limit, too, which a restart would reach again */
    case FR_E_EXISTS:
    case FR_E_NOT_FOUND: /* a file of the state, or a directory that state_dir goes through */
    case FR_E_CORRUPT:
    case FR_E_MISMATCH:
    case FR_E_LOST:
    case FR_E_NONFINITE:
    /* owner or mode of what state_dir names, or a file system that became read-only */
    case FR_E_DENIED:
        return FR_EXIT_OPERATOR;
    case FR_E_BUSY:
    case FR_E_NO_SPACE:
    case FR_E_NO_MEMORY: /* the process has no memory or no threads left */
    case FR_E_UNAVAILABLE:
    case FR_E_CANCELLED:
        return FR_EXIT_RETRY;
    default:
        return FR_EXIT_FAILURE;
    }
}
