/* An attempt that depends on the outside world and is repeated until it succeeds: after
 * FR_RETRY_MS_MIN at first, after twice the time before at each further failure, and never after
 * more than FR_RETRY_MS_MAX. A `struct fr_retry` belongs to one loop and starts zeroed. */
#ifndef FR_DAEMON_LOOPS_RETRY_H
#define FR_DAEMON_LOOPS_RETRY_H

#include "loops/lifecycle.h"

enum {
    FR_RETRY_MS_MIN = 250,
    FR_RETRY_MS_MAX = 5000,
    /* Until the wait is this long (reached after 1.75 s), a failed start check is not reported as
     * trouble: a topic that was just created has no leader at first. */
    FR_RETRY_QUIET_MS = 2000,
};

struct fr_retry {
    uint64_t next_ns;             /* the next try is not made before this time */
    uint32_t wait_ms;             /* length of the present wait; 0: the last try succeeded */
    uint64_t since_ns;            /* when the first failed try of a check began; 0: none */
    unsigned long long logged_ns; /* time of the last line in the log; 0: none */
    uint64_t logged_text;         /* hash of the reason in that line */
};

/* Sets the time of the next try. least_ms, most_ms: bounds of the wait. */
void fr_retry_wait_longer(struct fr_retry *retry, const struct fr_clock *clock, uint32_t least_ms, uint32_t most_ms);
/* Sets the time of the next try and reports the reason under `source` in /healthz and the log until
 * fr_retry_succeeded. The log has a line when the reason changes and once a minute. */
void fr_retry_failed(const struct fr_loop_context *context, struct fr_retry *retry, const char *source,
                     const struct fr_err *err);
void fr_retry_succeeded(const struct fr_loop_context *context, struct fr_retry *retry, const char *source);

/* Whether a status comes from the outside world and may pass without a restart. */
bool fr_retry_may_pass(enum fr_status status);
/* Runs a check of the start when it is due. Returns FR_OK when the check succeeds, FR_AGAIN while
 * it is repeated, or an error that cannot pass without a restart. The reason of a failure is in
 * /readyz and the log at once, and in /healthz once the waits, or the tries (an unanswered request
 * takes seconds), have reached FR_RETRY_QUIET_MS. */
enum fr_status fr_retry_check(const struct fr_loop_context *context, struct fr_retry *retry, const char *source,
                              enum fr_status (*check)(void *self, struct fr_err *err), void *self,
                              struct fr_err *err) FR_MUST_CHECK;

#endif
