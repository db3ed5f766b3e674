/* A command of the operator's as a process of its own: an argument list, never a shell's string. */
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
    const char *last; /* appended */
    int64_t timeout_ms;
};

bool fr_hook_runs(const struct fr_hook *hook);
/* In a process group of its own, with its output on this process's stderr and no input.
 * FR_E_NOT_FOUND, FR_E_DENIED, FR_E_IO: it did not start. */
enum fr_status fr_hook_start(struct fr_hook *hook, const struct fr_hook_command *command, const struct fr_clock *clock,
                             struct fr_err *err) FR_MUST_CHECK;
/* FR_AGAIN: it runs. FR_OK: it ended with 0. FR_E_STATE: with something else; FR_E_UNAVAILABLE: its
 * time was over, and it was ended. */
enum fr_status fr_hook_poll(struct fr_hook *hook, const struct fr_clock *clock, struct fr_err *err) FR_MUST_CHECK;
/* Ends it if it runs. */
void fr_hook_end(struct fr_hook *hook);

#endif
