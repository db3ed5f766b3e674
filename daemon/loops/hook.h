/* A command of the operator, run as a process of its own from a list of arguments, without a
 * shell. */
#ifndef FR_DAEMON_LOOPS_HOOK_H
#define FR_DAEMON_LOOPS_HOOK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/clock.h"
#include "base/status.h"

/* Zeroed: nothing runs. Owned by one thread. */
struct fr_hook {
    pid_t pid;
    uint64_t begin_ns;
    int64_t timeout_ms;
};

struct fr_hook_command {
    char *const *arguments; /* the first is an absolute path */
    uint32_t n;
    const char *last; /* one more argument after these */
    int64_t timeout_ms;
};

bool fr_hook_runs(const struct fr_hook *hook);
/* Starts the command in a process group of its own, with its output on this process's stderr and
 * without input. FR_E_NOT_FOUND, FR_E_DENIED, FR_E_IO: it did not start. */
enum fr_status fr_hook_start(struct fr_hook *hook, const struct fr_hook_command *command, const struct fr_clock *clock,
                             struct fr_err *err) FR_MUST_CHECK;
/* FR_AGAIN: the command runs. FR_OK: it ended with 0. FR_E_STATE: it ended with another status or
 * by a signal. FR_E_UNAVAILABLE: it was ended at its timeout. */
enum fr_status fr_hook_poll(struct fr_hook *hook, const struct fr_clock *clock, struct fr_err *err) FR_MUST_CHECK;
/* Ends the command if it runs. */
void fr_hook_end(struct fr_hook *hook);

#endif
