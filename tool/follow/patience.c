/* See patience.h. Reasons for the times: a lost leader is replaced within seconds, and a busy
 * broker needs a few more. A topic that does not exist is mostly a misspelled name, so it is
 * reported soon. Thread: one. */
#include "follow/patience.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"

enum { PASSING_MS = 30000, ABSENT_MS = 2000, RETRY_MS = 200, LOG_INTERVAL_S = 10 };

static uint64_t elapsed_ms(struct fr_tool_patience *patience)
{
    uint64_t now_ns = fr_mono_ns(fr_clock_system());
    if (patience->since_ns == 0)
        patience->since_ns = now_ns;
    return (now_ns - patience->since_ns) / 1000000u;
}

/* Returns whether the time for an outage is over. */
static bool is_over(struct fr_tool_patience *patience, enum fr_status status)
{
    uint64_t limit_ms = !patience->found && patience->absent_ms > 0 ? (uint64_t)patience->absent_ms
                        : status == FR_E_NOT_FOUND                  ? ABSENT_MS
                                                                    : PASSING_MS;
    return !patience->endless && elapsed_ms(patience) >= limit_ms;
}

static void pause_in_outage(struct fr_tool_patience *patience, const char *command, const struct fr_err *err)
{
    char quoted[600];
    if (fr_log_due(&patience->logged_ns, fr_mono_ns(fr_clock_system()), LOG_INTERVAL_S * 1000000000ull))
        fr_log(FR_LOG_WARN, command, "waiting", "reason=%s", fr_log_quote(quoted, sizeof(quoted), err->text));
    nanosleep(&(struct timespec){.tv_nsec = RETRY_MS * 1000000L}, NULL);
}

enum fr_status fr_tool_follow_step(struct fr_follower *follower, struct fr_tool_patience *patience, const char *command,
                                   struct fr_followed *out, struct fr_err *err)
{
    enum fr_status status = fr_follower_step(follower, FR_TOOL_STEP_MS, out, err);
    if (status == FR_E_UNAVAILABLE || status == FR_E_NOT_FOUND) {
        if (is_over(patience, status))
            return status;
        pause_in_outage(patience, command, err);
        fr_follower_reopen(follower);
        return FR_AGAIN;
    }
    patience->found = true;
    if (status != FR_AGAIN || patience->endless || fr_follower_ended(follower)) {
        patience->since_ns = 0;
        return status;
    }
    if (!is_over(patience, FR_E_UNAVAILABLE))
        return FR_AGAIN;
    struct fr_err outage = {0};
    bool known = fr_follower_waits(follower, &outage);
    return fr_err_set(err, FR_E_UNAVAILABLE, "no record arrived for %d s although the topic is not read to its end: %s",
                      PASSING_MS / 1000, known ? outage.text : "check the brokers, then try again");
}
