/* One turn of the fold loop (fold_loop.h): a fold when one is due and has room, otherwise
 * savepoints.
 *
 * Savepoints are taken on request (`freshet savepoint`), by `savepoint.every`, and at the end of
 * a drain. Each is of the newest durable epoch: this loop folds first and then links files. A
 * savepoint that cannot be made is reported (/healthz, log, answer to the request) and counted,
 * and changes nothing else; only a failed fold ends the service. Savepoints that were requested
 * by name stay until an operator removes them. Of the savepoints taken by policy, the newest
 * `savepoint.keep` stay. */
#include "loops/fold_loop.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/check.h"
#include "base/log.h"
#include "base/trace.h"
#include "durable/savepoint.h"

enum { LOOK_MS = 200, RETRY_MS_MIN = 1000, RETRY_MS_MAX = 60000, NS_PER_MS = 1000000, QUOTED_MAX = 2200 };

/* ---- folds ---- */

/* Folds everything that `before` shows as durable and not folded. */
static enum fr_status fold_all(struct fr_fold_loop *loop, const struct fr_durable_status *before, struct fr_err *err)
{
    const struct fr_clock *clock = loop->context->clock;
    struct fr_durable_status durable;
    uint64_t begin_ns = fr_mono_ns(clock);
    fr_log(FR_LOG_INFO, "fold", "begin", "from=%" PRIu64 " to=%" PRIu64 " bytes=%" PRIu64, before->folded + 1,
           before->epoch, before->unfolded_bytes);
    uint64_t traced_ns = fr_trace_begin();
    enum fr_status status = fr_durable_fold(loop->durable, err);
    fr_trace_end("fold", traced_ns);
    fr_durable_get_status(loop->durable, &durable);
    double seconds = (double)(fr_mono_ns(clock) - begin_ns) / 1e9;
    fr_timings_observe(loop->timings, FR_TIMING_FOLD, seconds);
    fr_log(FR_LOG_INFO, "fold", "end", "folded=%" PRIu64 " seconds=%.3f", durable.folded, seconds);
    return status;
}

/* Folds if there is room. A fold without room is not begun, or was given up, and is tried again. */
static enum fr_status fold_with_room(struct fr_fold_loop *loop, const struct fr_durable_status *durable, bool wanted,
                                     struct fr_err *err)
{
    const struct fr_loop_context *context = loop->context;
    uint64_t free_bytes = atomic_load(&loop->disk->free_bytes);
    enum fr_status status = FR_E_NO_SPACE;
    if (atomic_load(&loop->disk->reserve_bytes) > 0 && free_bytes < durable->unfolded_bytes)
        (void)fr_err_set(err, status, "a fold may write %" PRIu64 " bytes, and %" PRIu64 " are free",
                         durable->unfolded_bytes, free_bytes);
    else
        status = fold_all(loop, durable, err);
    if (status == FR_E_NO_SPACE) {
        if (wanted)
            atomic_store(&loop->shared.wanted, true);
        (void)fr_err_wrap(err, "make room under %s, then folding continues by itself", context->conf->state_dir);
        fr_retry_failed(context, &loop->retry, "fold", err);
        return FR_AGAIN;
    }
    if (status == FR_OK)
        fr_retry_succeeded(context, &loop->retry, "fold");
    return status == FR_OK ? FR_AGAIN : status;
}

/* ---- savepoints ---- */

static const char auto_begin[] = "auto-";

static bool is_auto(const char *name)
{
    return strncmp(name, auto_begin, sizeof(auto_begin) - 1) == 0;
}

/* Removes savepoints by policy beyond the newest `keep`. *newest_ms: when the newest of them was
 * taken; 0: there is none. */
static enum fr_status prune(struct fr_fold_loop *loop, size_t keep, int64_t *newest_ms, struct fr_err *err)
{
    const char *dir = loop->context->conf->state_dir;
    char(*names)[FR_SAVEPOINT_NAME_MAX] = NULL;
    size_t n = 0, n_auto = 0;
    enum fr_status status = fr_savepoint_names(dir, &names, &n, err);
    *newest_ms = 0;
    for (size_t i = n; i-- > 0 && status == FR_OK;) { /* names sort by epoch */
        char path[PATH_MAX];
        struct stat info;
        if (!is_auto(names[i]))
            continue;
        status = fr_savepoint_path(dir, names[i], path, err);
        if (status == FR_OK && ++n_auto == 1 && stat(path, &info) == 0)
            *newest_ms = (int64_t)info.st_mtim.tv_sec * 1000;
        if (status == FR_OK && n_auto > keep) {
            status = fr_savepoint_remove(path, err);
            fr_log(FR_LOG_INFO, "savepoint", "removed", "name=%s kept=%zu", names[i], keep);
        }
    }
    free(names);
    return status;
}

static enum fr_status fold_first(struct fr_fold_loop *loop, struct fr_err *err)
{
    struct fr_durable_status durable;
    fr_durable_get_status(loop->durable, &durable);
    return durable.epoch > durable.folded ? fold_all(loop, &durable, err) : FR_OK;
}

static enum fr_status take_savepoint(struct fr_fold_loop *loop, const char *name, struct fr_err *err)
{
    char path[PATH_MAX];
    struct fr_savepoint savepoint = {0};
    uint64_t begin_ns = fr_mono_ns(loop->context->clock);
    enum fr_status status = fr_savepoint_path(loop->context->conf->state_dir, name, path, err);
    if (status == FR_OK)
        status = fr_durable_savepoint(loop->durable, path, &savepoint, err);
    if (status == FR_OK)
        fr_log(FR_LOG_INFO, "savepoint", "taken",
               "name=%s timeline=%" PRIu64 " epoch=%" PRIu64 " bytes=%" PRIu64 " seconds=%.3f", name,
               savepoint.timeline, savepoint.epoch, savepoint.bytes,
               (double)(fr_mono_ns(loop->context->clock) - begin_ns) / 1e9);
    return status;
}

/* Counts and reports a savepoint that was taken, or why it was not. */
static void report_savepoint(struct fr_fold_loop *loop, enum fr_status status, const char *name,
                             const struct fr_err *err)
{
    fr_http_reason(loop->context->http, "savepoint", status == FR_OK ? NULL : err->text);
    if (status == FR_OK) {
        atomic_fetch_add(&loop->shared.savepoints, 1);
        return;
    }
    char quoted[QUOTED_MAX];
    atomic_fetch_add(&loop->shared.savepoint_failures, 1);
    fr_log(FR_LOG_WARN, "savepoint", "failed", "name=%s reason=%s", name,
           fr_log_quote(quoted, sizeof(quoted), err->text));
}

/* Waits longer before the folder of savepoints is read again, because reading or writing it
 * failed. */
static void retry_later(struct fr_fold_loop *loop)
{
    fr_retry_wait_longer(&loop->savepoints.retry, loop->context->clock, RETRY_MS_MIN, RETRY_MS_MAX);
}

static enum fr_status answer_request(struct fr_fold_loop *loop, const char *name, struct fr_err *err)
{
    struct fr_err reason = {0}, unanswered = {0};
    enum fr_status status = fold_first(loop, &reason);
    if (status != FR_OK && status != FR_E_NO_SPACE) {
        *err = reason;
        return status;
    }
    if (status == FR_OK)
        status = take_savepoint(loop, name, &reason);
    /* the savepoint was taken before a crash that left the request unanswered */
    if (status == FR_E_EXISTS)
        status = FR_OK;
    report_savepoint(loop, status, name, &reason);
    if (fr_savepoint_answer(loop->context->conf->state_dir, name, status == FR_OK ? NULL : reason.text, &unanswered) ==
        FR_OK) {
        loop->savepoints.retry = (struct fr_retry){0};
        return FR_OK;
    }
    report_savepoint(loop, unanswered.status, name, &unanswered); /* the request still exists */
    retry_later(loop);
    return FR_OK;
}

static enum fr_status take_by_policy(struct fr_fold_loop *loop, struct fr_err *err)
{
    char name[FR_SAVEPOINT_NAME_MAX];
    struct fr_err reason = {0};
    struct fr_durable_status durable;
    int64_t newest_ms = 0;
    enum fr_status status = fold_first(loop, &reason);
    if (status != FR_OK && status != FR_E_NO_SPACE) {
        *err = reason;
        return status;
    }
    fr_durable_get_status(loop->durable, &durable);
    snprintf(name, sizeof(name), "%s%020" PRIu64 "-%" PRIu64, auto_begin, durable.folded, durable.timeline);
    if (status == FR_OK)
        status = take_savepoint(loop, name, &reason);
    if (status == FR_E_EXISTS) /* nothing has changed since the last savepoint */
        status = FR_OK;
    if (status == FR_OK)
        status = prune(loop, loop->context->conf->savepoint.keep, &newest_ms, &reason);
    report_savepoint(loop, status, name, &reason);
    return FR_OK;
}

static enum fr_status step_savepoints(struct fr_fold_loop *loop, struct fr_err *err)
{
    const struct fr_conf *conf = loop->context->conf;
    uint64_t now_ns = fr_mono_ns(loop->context->clock);
    if (atomic_load(&loop->shared.last_savepoint) == FR_LAST_WANTED) {
        enum fr_status status = take_by_policy(loop, err);
        atomic_store(&loop->shared.last_savepoint, FR_LAST_DONE);
        return status;
    }
    if (loop->savepoints.looked_ns && now_ns - loop->savepoints.looked_ns < (uint64_t)LOOK_MS * NS_PER_MS)
        return FR_OK;
    if (now_ns < loop->savepoints.retry.next_ns)
        return FR_OK;
    loop->savepoints.looked_ns = now_ns ? now_ns : 1;
    char name[FR_SAVEPOINT_NAME_MAX];
    if (fr_savepoint_next_request(conf->state_dir, name))
        return answer_request(loop, name, err);
    if (conf->savepoint.every_ms == 0 || now_ns < loop->savepoints.due_ns)
        return FR_OK;
    /* The age of the newest savepoint counts even if an earlier process took it. */
    int64_t newest_ms = 0, now_ms = fr_wall_ms(loop->context->clock);
    struct fr_err reason = {0};
    enum fr_status status = prune(loop, SIZE_MAX, &newest_ms, &reason);
    int64_t wait_ms = newest_ms == 0 || newest_ms > now_ms ? 0 : newest_ms + conf->savepoint.every_ms - now_ms;
    bool due = status == FR_OK && wait_ms <= 0 && atomic_load(&loop->appended->epoch) > 0;
    loop->savepoints.due_ns = now_ns + (uint64_t)(due           ? conf->savepoint.every_ms
                                                  : wait_ms > 0 ? wait_ms
                                                                : LOOK_MS) *
                                           NS_PER_MS;
    if (status == FR_OK) {
        loop->savepoints.retry = (struct fr_retry){0};
    } else {
        report_savepoint(loop, status, "auto", &reason);
        retry_later(loop);
    }
    return due ? take_by_policy(loop, err) : FR_OK;
}

/* ---- the turn ---- */

enum fr_status fr_step_fold(struct fr_fold_loop *loop, struct fr_err *err)
{
    const struct fr_loop_context *context = loop->context;
    if (atomic_load(&context->life->abandon))
        return FR_EOF;
    if (fr_mono_ns(context->clock) < loop->retry.next_ns)
        return FR_AGAIN;
    /* The request is cleared before the durable epoch is read, so that every epoch that was durable
     * at the request is folded. */
    struct fr_publisher_status publisher;
    fr_publisher_get_status(loop->publisher, &publisher);
    bool wanted = atomic_exchange(&loop->shared.wanted, false) || publisher.fold_wanted;
    struct fr_durable_status durable;
    fr_durable_get_status(loop->durable, &durable);
    /* On a disk that is nearly full, folding saves room: the cold store holds each key only
     * once. */
    bool is_short = atomic_load(&loop->disk->free_bytes) < atomic_load(&loop->disk->reserve_bytes) &&
                    durable.unfolded_bytes >= FR_DISK_RESERVE;
    if (durable.unfolded_bytes >= context->conf->unfolded_max || is_short || (wanted && durable.epoch > durable.folded))
        return fold_with_room(loop, &durable, wanted, err);
    enum fr_status status = step_savepoints(loop, err);
    return status == FR_OK ? FR_AGAIN : status;
}
