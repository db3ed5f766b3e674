/* Exit codes of the daemon (docs/commands.md, "Exit codes"), from which a supervisor knows whether
 * a restart can help. */
#ifndef FR_DAEMON_EXIT_CODE_H
#define FR_DAEMON_EXIT_CODE_H

#include "base/status.h"

enum {
    FR_EXIT_OK = 0,
    FR_EXIT_FAILURE = 1,
    FR_EXIT_CONFIG = 2,
    FR_EXIT_OPERATOR = 3,
    FR_EXIT_RETRY = 75,
};

int fr_exit_code(enum fr_status status);

#endif
