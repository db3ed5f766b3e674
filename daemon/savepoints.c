/* Savepoints beside training: on request (`freshet savepoint`), by `savepoint.every`, and at the
 * end of a drain. Each is of the newest durable epoch: the fold thread folds first and then links.
 *
 * Invariants: a savepoint that cannot be made is said (/healthz, log, answer to who asked) and
 * counted, and changes nothing else; only a failed fold ends the service. Savepoints that were
 * asked for by name stay until somebody removes them; of those by policy `savepoint.keep` stay.
 *
 * Thread: the fold thread. */
#include "service.h"

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

/* The time of the newest savepoint by policy, 0 when there is none; older ones than `keep` go. */
static enum fr_status look_at_kept(struct fr_service *service, size_t keep, int64_t *newest_ms, struct fr_err *err)
{
    const char *dir = service->conf->state_dir;
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

static enum fr_status fold_all(struct fr_service *service, struct fr_err *err)
{
    struct fr_durable_status durable;
    fr_durable_get_status(service->durable, &durable);
    return durable.epoch > durable.folded ? fr_service_fold(service, &durable, err) : FR_OK;
}

static enum fr_status take(struct fr_service *service, const char *name, struct fr_err *err)
{
    char path[PATH_MAX];
    struct fr_savepoint savepoint = {0};
    uint64_t begin_ns = fr_mono_ns(service->clock);
    enum fr_status status = fr_savepoint_path(service->conf->state_dir, name, path, err);
    if (status == FR_OK)
        status = fr_durable_savepoint(service->durable, path, &savepoint, err);
    if (status == FR_OK)
        fr_log(FR_LOG_INFO, "savepoint", "taken",
               "name=%s timeline=%" PRIu64 " epoch=%" PRIu64 " bytes=%" PRIu64 " seconds=%.3f", name,
               savepoint.timeline, savepoint.epoch, savepoint.bytes,
               (double)(fr_mono_ns(service->clock) - begin_ns) / 1e9);
    return status;
}

/* What was made or not: counted, told. */
static void tell(struct fr_service *service, enum fr_status status, const char *name, const struct fr_err *err)
{
    fr_http_reason(service->http, "savepoint", status == FR_OK ? NULL : err->text);
    if (status == FR_OK) {
        atomic_fetch_add(&service->savepoints, 1);
        return;
    }
    char quoted[QUOTED_MAX];
    atomic_fetch_add(&service->savepoint_failures, 1);
    fr_log(FR_LOG_WARN, "savepoint", "failed", "name=%s reason=%s", name,
           fr_log_quote(quoted, sizeof(quoted), err->text));
}

static enum fr_status answer_request(struct fr_service *service, const char *name, struct fr_err *err)
{
    struct fr_err reason = {0}, unsaid = {0};
    enum fr_status status = fold_all(service, &reason);
    if (status != FR_OK && status != FR_E_NO_SPACE) {
        *err = reason;
        return status;
    }
    if (status == FR_OK)
        status = take(service, name, &reason);
    if (status == FR_E_EXISTS) /* taken before a crash, and not answered */
        status = FR_OK;
    tell(service, status, name, &reason);
    if (fr_savepoint_answer(service->conf->state_dir, name, status == FR_OK ? NULL : reason.text, &unsaid) == FR_OK) {
        service->savepoint_retry = (struct fr_retry){0};
        return FR_OK;
    }
    tell(service, unsaid.status, name, &unsaid); /* the request is still there */
    fr_service_wait_longer(&service->savepoint_retry, service->clock, RETRY_MS_MIN, RETRY_MS_MAX);
    return FR_OK;
}

static enum fr_status take_by_policy(struct fr_service *service, struct fr_err *err)
{
    char name[FR_SAVEPOINT_NAME_MAX];
    struct fr_err reason = {0};
    struct fr_durable_status durable;
    int64_t newest_ms = 0;
    enum fr_status status = fold_all(service, &reason);
    if (status != FR_OK && status != FR_E_NO_SPACE) {
        *err = reason;
        return status;
    }
    fr_durable_get_status(service->durable, &durable);
    snprintf(name, sizeof(name), "%s%020" PRIu64 "-%" PRIu64, auto_begin, durable.folded, durable.timeline);
    if (status == FR_OK)
        status = take(service, name, &reason);
    if (status == FR_E_EXISTS) /* nothing changed since */
        status = FR_OK;
    if (status == FR_OK)
        status = look_at_kept(service, service->conf->savepoint.keep, &newest_ms, &reason);
    tell(service, status, name, &reason);
    return FR_OK;
}

enum fr_status fr_step_savepoints(struct fr_service *service, struct fr_err *err)
{
    const struct fr_conf *conf = service->conf;
    uint64_t now_ns = fr_mono_ns(service->clock);
    if (atomic_load(&service->last_savepoint) == FR_LAST_WANTED) {
        enum fr_status status = take_by_policy(service, err);
        atomic_store(&service->last_savepoint, FR_LAST_DONE);
        return status;
    }
    if (service->savepoints_looked_ns && now_ns - service->savepoints_looked_ns < (uint64_t)LOOK_MS * NS_PER_MS)
        return FR_OK;
    if (now_ns < service->savepoint_retry.next_ns)
        return FR_OK;
    service->savepoints_looked_ns = now_ns ? now_ns : 1;
    char name[FR_SAVEPOINT_NAME_MAX];
    if (fr_savepoint_next_request(conf->state_dir, name))
        return answer_request(service, name, err);
    if (conf->savepoint.every_ms == 0 || now_ns < service->savepoint_due_ns)
        return FR_OK;
    /* How long ago the last one was, also one of an earlier process. */
    int64_t newest_ms = 0, now_ms = fr_wall_ms(service->clock);
    struct fr_err reason = {0};
    enum fr_status status = look_at_kept(service, SIZE_MAX, &newest_ms, &reason);
    int64_t wait_ms = newest_ms == 0 || newest_ms > now_ms ? 0 : newest_ms + conf->savepoint.every_ms - now_ms;
    bool due = status == FR_OK && wait_ms <= 0 && atomic_load(&service->durable_epoch) > 0;
    service->savepoint_due_ns = now_ns + (uint64_t)(due           ? conf->savepoint.every_ms
                                                    : wait_ms > 0 ? wait_ms
                                                                  : LOOK_MS) *
                                             NS_PER_MS;
    if (status == FR_OK) {
        service->savepoint_retry = (struct fr_retry){0};
    } else {
        tell(service, status, "auto", &reason);
        fr_service_wait_longer(&service->savepoint_retry, service->clock, RETRY_MS_MIN, RETRY_MS_MAX);
    }
    return due ? take_by_policy(service, err) : FR_OK;
}
