/* Savepoints during training: on request (`freshet savepoint`), by `savepoint.every`, and at the
 * end of a drain. Each is of the newest durable epoch: the fold thread folds first and then links
 * files.
 *
 * Invariants: a savepoint that cannot be made is reported (/healthz, log, answer to the request)
 * and counted, and changes nothing else; only a failed fold ends the service. Savepoints that were
 * requested by name stay until somebody removes them; of those by policy `savepoint.keep` stay.
 *
 * Thread: the fold thread. */
#include "loops/fold_loop.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/check.h"
#include "base/log.h"
#include "durable/savepoint.h"

enum { LOOK_MS = 200, RETRY_MS_MIN = 1000, RETRY_MS_MAX = 60000, NS_PER_MS = 1000000, QUOTED_MAX = 2200 };

static const char auto_begin[] = "auto-";

static bool is_auto(const char *name)
{
    return strncmp(name, auto_begin, sizeof(auto_begin) - 1) == 0;
}

/* Removes savepoints by policy beyond the newest `keep`; *newest_ms: the time of the newest one, or
 * 0 when there is none. */
static enum fr_status prune(struct fr_fold_loop *loop, size_t keep, int64_t *newest_ms, struct fr_err *err)
{
    const char *dir = loop->context->conf->state_dir;
    char(*names)[FR_SAVEPOINT_NAME_MAX] = NULL;
    size_t n = 0, n_auto = 0;
    enum fr_status status = fr_savepoint_names(dir, &names, &n, err);
    *newest_ms = 0;
    for (size_t i = n; i-- > 0 && status == FR_OK;) { /* names of epochs: the newest is the last */
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
    return durable.epoch > durable.folded ? fr_fold_all(loop, &durable, err) : FR_OK;
}

static enum fr_status take(struct fr_fold_loop *loop, const char *name, struct fr_err *err)
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
static void report(struct fr_fold_loop *loop, enum fr_status status, const char *name, const struct fr_err *err)
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

/* The folder of savepoints failed. */
static void look_later(struct fr_fold_loop *loop)
{
    fr_retry_wait_longer(&loop->savepoints.retry, loop->context->clock, RETRY_MS_MIN, RETRY_MS_MAX);
}

static enum fr_status answer_request(struct fr_fold_loop *loop, const char *name, struct fr_err *err)
{
    struct fr_err reason = {0}, unsaid = {0};
    enum fr_status status = fold_first(loop, &reason);
    if (status != FR_OK && status != FR_E_NO_SPACE) {
        *err = reason;
        return status;
    }
    if (status == FR_OK)
        status = take(loop, name, &reason);
    if (status == FR_E_EXISTS) /* taken before a crash, and not answered */
        status = FR_OK;
    report(loop, status, name, &reason);
    if (fr_savepoint_answer(loop->context->conf->state_dir, name, status == FR_OK ? NULL : reason.text, &unsaid) ==
        FR_OK) {
        loop->savepoints.retry = (struct fr_retry){0};
        return FR_OK;
    }
    report(loop, unsaid.status, name, &unsaid); /* the request is still there */
    look_later(loop);
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
        status = take(loop, name, &reason);
    if (status == FR_E_EXISTS) /* nothing changed since */
        status = FR_OK;
    if (status == FR_OK)
        status = prune(loop, loop->context->conf->savepoint.keep, &newest_ms, &reason);
    report(loop, status, name, &reason);
    return FR_OK;
}

enum fr_status fr_step_savepoints(struct fr_fold_loop *loop, struct fr_err *err)
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
    /* How long ago the last one was, also one of an earlier process. */
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
        report(loop, status, "auto", &reason);
        look_later(loop);
    }
    return due ? take_by_policy(loop, err) : FR_OK;
}
