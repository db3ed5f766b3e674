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
    case FR_E_LIMIT:          /* named in the message: of the process, of a path, of a file */
    case FR_E_NO_DESCRIPTORS: /* a limit, too: a restart meets it again */
    case FR_E_EXISTS:
    case FR_E_NOT_FOUND: /* a file of the state, or a directory that state_dir goes through */
    case FR_E_CORRUPT:
    case FR_E_MISMATCH:
    case FR_E_LOST:
    case FR_E_NONFINITE:
    case FR_E_DENIED: /* owner or mode of what state_dir names, or a file system gone read-only */
        return FR_EXIT_OPERATOR;
    case FR_E_BUSY:
    case FR_E_NO_SPACE:
    case FR_E_NO_MEMORY: /* or threads */
    case FR_E_UNAVAILABLE:
    case FR_E_CANCELLED:
        return FR_EXIT_RETRY;
    default:
        return FR_EXIT_FAILURE;
    }
}
