/* Attempts that are repeated after a growing wait (retry.h). */
#include "loops/retry.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"

enum { LOG_AGAIN_MS = 60000, NS_PER_MS = 1000000 };

bool fr_retry_may_pass(enum fr_status status)
{
    return status == FR_E_UNAVAILABLE || status == FR_E_DENIED || status == FR_E_NO_SPACE;
}

void fr_retry_wait_longer(struct fr_retry *retry, const struct fr_clock *clock, uint32_t least_ms, uint32_t most_ms)
{
    retry->wait_ms = retry->wait_ms == 0 ? least_ms : 2 * retry->wait_ms;
    if (retry->wait_ms > most_ms)
        retry->wait_ms = most_ms;
    retry->next_ns = fr_mono_ns(clock) + (uint64_t)retry->wait_ms * NS_PER_MS;
}

/* Reports the reason of a failure: to /healthz if `trouble`, and to the log if the reason has
 * changed or a minute has passed. */
static void report(const struct fr_loop_context *context, struct fr_retry *retry, const char *source,
                   const struct fr_err *err, bool trouble)
{
    char quoted[1100];
    if (trouble)
        fr_http_reason(context->http, source, err->text);
    uint64_t text = fr_xxh3(err->text, strlen(err->text));
    bool due = fr_log_due(&retry->logged_ns, fr_mono_ns(context->clock), (uint64_t)LOG_AGAIN_MS * NS_PER_MS);
    if (!due && text == retry->logged_text)
        return;
    retry->logged_text = text;
    fr_log(trouble ? FR_LOG_WARN : FR_LOG_INFO, source, "retry", "in_ms=%" PRIu32 " reason=%s", retry->wait_ms,
           fr_log_quote(quoted, sizeof(quoted), err->text));
}

void fr_retry_failed(const struct fr_loop_context *context, struct fr_retry *retry, const char *source,
                     const struct fr_err *err)
{
    fr_retry_wait_longer(retry, context->clock, FR_RETRY_MS_MIN, FR_RETRY_MS_MAX);
    report(context, retry, source, err, true);
}

void fr_retry_succeeded(const struct fr_loop_context *context, struct fr_retry *retry, const char *source)
{
    if (retry->wait_ms == 0)
        return;
    *retry = (struct fr_retry){0};
    fr_http_reason(context->http, source, NULL);
    fr_log(FR_LOG_INFO, source, "retry_end", "effect=\"the failure has passed\"");
}

/* Sets why the start waits and for how long, because the reason alone does not change while a
 * broker hangs. */
static void set_starting(const struct fr_loop_context *context, const struct fr_retry *retry, const char *why)
{
    char text[sizeof(context->life->starting)];
    uint64_t seconds = (fr_mono_ns(context->clock) - retry->since_ns) / 1000000000u;
    if (seconds == 0)
        snprintf(text, sizeof(text), "%s", why);
    else
        snprintf(text, sizeof(text), "%.900s (tried again for %" PRIu64 " s)", why, seconds);
    fr_lifecycle_set_starting(context->life, text);
}

enum fr_status fr_retry_check(const struct fr_loop_context *context, struct fr_retry *retry, const char *source,
                              enum fr_status (*check)(void *self, struct fr_err *err), void *self, struct fr_err *err)
{
    if (fr_mono_ns(context->clock) < retry->next_ns)
        return FR_AGAIN;
    uint64_t begin_ns = fr_mono_ns(context->clock);
    enum fr_status status = check(self, err);
    if (status == FR_OK) {
        fr_lifecycle_set_starting(context->life, "");
        fr_http_reason(context->http, source, NULL);
    }
    if (status != FR_AGAIN && !fr_retry_may_pass(status))
        return status;
    fr_retry_wait_longer(retry, context->clock, FR_RETRY_MS_MIN, FR_RETRY_MS_MAX);
    if (status == FR_AGAIN)
        return FR_AGAIN;
    if (!retry->since_ns)
        retry->since_ns = begin_ns ? begin_ns : 1;
    uint64_t tried_ms = (fr_mono_ns(context->clock) - retry->since_ns) / NS_PER_MS;
    set_starting(context, retry, err->text);
    report(context, retry, source, err, retry->wait_ms >= FR_RETRY_QUIET_MS || tried_ms >= FR_RETRY_QUIET_MS);
    return FR_AGAIN;
}
