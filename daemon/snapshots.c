/* Snapshots beside training, by `snapshot.every`, on request (`freshet snapshot`) and at the end of
 * a drain, and what becomes of each: CURRENT names it, the hook uploads it, commits announce it,
 * another follows.
 *
 * A snapshot is of an epoch all of whose dense parameters are published, so that a replica that
 * begins with it holds what one that followed every epoch holds: cuts publish them while one is
 * waited for. Then everything durable is folded, by the fold thread, and the cold store of that
 * epoch is written out.
 *
 * Invariants: CURRENT moves only to a snapshot whose epoch the delta topic has acknowledged, while
 * publishing is not held; a snapshot is announced after CURRENT named it and its hook ended well.
 * What cannot be done is said (/healthz, log, answer to who asked), counted, and tried again; it
 * never ends the service. What CURRENT names or commits announce is never removed.
 *
 * Thread: the snapshot thread; a lock guards what others read. */
#include "service.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/check.h"
#include "base/file.h"
#include "base/log.h"
#include "base/trace.h"

enum {
    LOOK_MS = 200,
    WAIT_MS = 20,
    /* A cut comes at least every heartbeat (10 s) unless reading pauses; then a fold. */
    WAIT_MAX_MS = 120000,
    RETRY_MS_MIN = 1000, /* beside training; those of a drain are in service.h */
    RETRY_MS_MAX = 300000,
    NS_PER_MS = 1000000,
    QUOTED_MAX = 2200
};

/* ---- what others read ---- */

void fr_snapshots_announced(void *self, struct fr_announced_snapshot *out)
{
    struct fr_service *service = self;
    if (service->conf->ingest.lockstep) /* when one is announced depends on time */
        return;
    pthread_mutex_lock(&service->lock);
    *out = service->snapshots.announced;
    pthread_mutex_unlock(&service->lock);
}

bool fr_snapshots_cover(void *self, const int64_t *low, const int64_t *high, uint32_t partitions)
{
    struct fr_service *service = self;
    pthread_mutex_lock(&service->lock);
    const uint64_t *offsets = service->snapshots.offsets;
    bool covered = offsets && service->snapshots.n_offsets == partitions;
    for (uint32_t p = 0; p < partitions && covered; p++)
        covered = offsets[p] <= INT64_MAX && low[p] <= (int64_t)offsets[p] && (int64_t)offsets[p] <= high[p];
    pthread_mutex_unlock(&service->lock);
    return covered;
}

static enum fr_status path_of(const struct fr_service *service, const char *name, char out[PATH_MAX],
                              struct fr_err *err)
{
    int size = snprintf(out, PATH_MAX, "%s/%s", service->snapshots.dir, name);
    return size > 0 && size < PATH_MAX ? FR_OK : fr_err_set(err, FR_E_LIMIT, "snapshot.dir is too long");
}

enum fr_status fr_snapshots_begin_with(struct fr_service *service, const struct fr_snapshot *snapshot,
                                       struct fr_err *err)
{
    char path[PATH_MAX];
    struct fr_manifest manifest = {0};
    enum fr_status status = path_of(service, snapshot->name, path, err);
    if (status == FR_OK)
        status = fr_manifest_read(path, &manifest, NULL, NULL, err);
    if (status != FR_OK)
        return status;
    pthread_mutex_lock(&service->lock);
    free(service->snapshots.offsets);
    service->snapshots.offsets = manifest.delta_offsets;
    service->snapshots.n_offsets = manifest.delta_offsets ? manifest.np : 0;
    pthread_mutex_unlock(&service->lock);
    manifest.delta_offsets = NULL;
    fr_manifest_release(&manifest);
    return FR_OK;
}

/* CURRENT is this one; name "": none of this timeline's. */
static enum fr_status take_current(struct fr_service *service, const struct fr_snapshot *current, struct fr_err *err)
{
    enum fr_status status = current->name[0] ? fr_snapshots_begin_with(service, current, err) : FR_OK;
    if (status != FR_OK)
        return status;
    service->snapshots.current = *current;
    pthread_mutex_lock(&service->lock);
    snprintf(service->snapshots.current_name, sizeof(service->snapshots.current_name), "%s", current->name);
    pthread_mutex_unlock(&service->lock);
    atomic_store(&service->snapshots.current_epoch, current->epoch);
    return FR_OK;
}

void fr_snapshots_leave(struct fr_service *service, uint64_t timeline)
{
    const struct fr_snapshot none = {0};
    struct fr_err ignored = {0};
    if (service->snapshots.newest.timeline != timeline)
        service->snapshots.newest = none;
    if (service->snapshots.current.timeline != timeline)
        (void)!take_current(service, &none, &ignored);
}

static void announce(struct fr_service *service, const struct fr_snapshot *snapshot)
{
    struct fr_announced_snapshot announced = {.bytes = snapshot->bytes, .sha256 = snapshot->sha256};
    snprintf(announced.name, sizeof(announced.name), "%s", snapshot->name);
    pthread_mutex_lock(&service->lock);
    service->snapshots.announced = announced;
    pthread_mutex_unlock(&service->lock);
    fr_log(FR_LOG_INFO, "snapshot", "announced", "name=%s", snapshot->name);
}

/* ---- success and failure ---- */

void fr_snapshots_tell(struct fr_service *service, enum fr_status status, const char *what, const struct fr_err *err)
{
    char quoted[QUOTED_MAX];
    fr_http_reason(service->http, "snapshot", status == FR_OK ? NULL : err->text);
    pthread_mutex_lock(&service->lock);
    snprintf(service->snapshots.problem, sizeof(service->snapshots.problem), "%s", status == FR_OK ? "" : err->text);
    pthread_mutex_unlock(&service->lock);
    if (status != FR_OK)
        fr_log(FR_LOG_WARN, "snapshot", "failed", "what=%s reason=%s", what,
               fr_log_quote(quoted, sizeof(quoted), err->text));
}

static void retry_later(const struct fr_service *service, struct fr_retry *retry)
{
    bool ends = service->snapshots.ends;
    fr_service_wait_longer(retry, service->clock, ends ? FR_RETRY_MS_MIN : RETRY_MS_MIN,
                           ends ? FR_RETRY_MS_MAX : RETRY_MS_MAX);
}

/* A drain has export.drain_timeout for all its steps: they begin at once, however long the same
 * ones had failed before. */
static void begin_end(struct fr_service *service)
{
    service->snapshots.ends = true;
    service->snapshots.take_retry = (struct fr_retry){0};
    service->snapshots.point_retry = (struct fr_retry){0};
    service->snapshots.hook_retry = (struct fr_retry){0};
}

/* ---- taking one ---- */

static void goes_on(void *self)
{
    struct fr_service *service = self;
    fr_http_beat(service->http, service->loops[FR_LOOP_SNAPSHOT].beat);
}

/* Records come: the epoch is settled, and cuts go by export.dense_every again. */
static void writes_on(void *self)
{
    struct fr_service *service = self;
    atomic_store(&service->snapshots.dense_wanted, false);
    goes_on(service);
}

/* Until what is folded is that epoch or a later one; with 0 one whose parameters are all published,
 * and nothing durable is missing that was when this began. */
static enum fr_status await_fold(struct fr_service *service, uint64_t given, struct fr_err *err)
{
    uint64_t least = given ? given : atomic_load(&service->durable_epoch), begin_ns = fr_mono_ns(service->clock);
    while (!atomic_load(&service->abandon)) {
        struct fr_durable_status durable;
        fr_durable_get_status(service->durable, &durable);
        uint64_t since = given ? given : fr_trainer_dense_since(service->trainer);
        if (since > 0 && durable.folded >= since && durable.folded >= least)
            return FR_OK;
        if (since > 0 && durable.epoch >= since && durable.epoch > durable.folded)
            atomic_store(&service->fold_wanted, true);
        if (fr_mono_ns(service->clock) - begin_ns > (uint64_t)WAIT_MAX_MS * NS_PER_MS)
            return fr_err_set(err, FR_E_UNAVAILABLE,
                              "no epoch with all parameters was cut and folded within %d s: /readyz says why reading "
                              "or folding waits",
                              WAIT_MAX_MS / 1000);
        goes_on(service);
        nanosleep(&(struct timespec){.tv_nsec = WAIT_MS * (long)NS_PER_MS}, NULL);
    }
    return fr_err_set(err, FR_E_CANCELLED, "the daemon stops");
}

/* What is folded bounds what is written of it, about. */
static enum fr_status check_room(const struct fr_service *service, struct fr_err *err)
{
    struct fr_durable_status durable;
    uint64_t free_bytes = 0, need = 0;
    fr_durable_get_status(service->durable, &durable);
    need = durable.cold_bytes + atomic_load(&service->disk_reserve);
    enum fr_status status = fr_dir_make(service->snapshots.dir, err);
    if (status == FR_OK)
        status = fr_disk_free_bytes(service->snapshots.dir, &free_bytes, err);
    if (status == FR_OK && free_bytes < need)
        return fr_err_set(err, FR_E_NO_SPACE,
                          "%s has %" PRIu64 " bytes free, and a snapshot may need %" PRIu64
                          ": make room, or name another disk in snapshot.dir",
                          service->snapshots.dir, free_bytes, need);
    return status;
}

enum fr_status fr_snapshots_write(struct fr_service *service, uint64_t least, struct fr_snapshot *out,
                                  struct fr_err *err)
{
    const struct fr_conf *conf = service->conf;
    uint64_t *offsets = fr_alloc(conf->export_.partitions, sizeof(*offsets));
    /* Before the fold: what the topic has then is of epochs that are folded afterwards. */
    bool known = fr_publisher_offsets(service->publisher, offsets);
    enum fr_codec_quantize quantize = FR_CODEC_F32;
    if (conf->snapshot.quantize != FR_SNAPSHOT_AS_EXPORT)
        quantize = (enum fr_codec_quantize)(conf->snapshot.quantize - FR_SNAPSHOT_F32);
    struct fr_snapshot_options options = {.durable = service->durable,
                                          .clock = service->clock,
                                          .dir = service->snapshots.dir,
                                          .topic = conf->export_.topic,
                                          .quantize =
                                              conf->snapshot.quantize == FR_SNAPSHOT_AS_EXPORT ? NULL : &quantize,
                                          .rate = conf->snapshot.rate,
                                          .awaited = least > 0,
                                          .delta_offsets = known ? offsets : NULL,
                                          .n_delta_offsets = conf->export_.partitions,
                                          .stop = &service->abandon,
                                          .goes_on = writes_on,
                                          .self = service};
    enum fr_status status = check_room(service, err);
    atomic_store(&service->snapshots.dense_wanted, least == 0);
    if (status == FR_OK)
        status = await_fold(service, least, err);
    uint64_t begin_ns = fr_mono_ns(service->clock);
    uint64_t traced_ns = fr_trace_begin();
    if (status == FR_OK)
        status = fr_snapshot_write(&options, out, err);
    fr_trace_end("snapshot", traced_ns);
    atomic_store(&service->snapshots.dense_wanted, false);
    free(offsets);
    if (status != FR_OK)
        return status;
    double seconds = (double)(fr_mono_ns(service->clock) - begin_ns) / 1e9;
    atomic_fetch_add(&service->snapshots.taken, 1);
    atomic_store(&service->snapshots.bytes, out->bytes);
    atomic_store(&service->snapshots.millis, (uint64_t)(seconds * 1e3));
    fr_log(FR_LOG_INFO, "snapshot", "taken",
           "name=%s epoch=%" PRIu64 " rows=%" PRIu64 " bytes=%" PRIu64 " seconds=%.3f", out->name, out->epoch,
           out->rows, out->bytes, seconds);
    return FR_OK;
}

/* A snapshot of that epoch is there in the end. */
static enum fr_status take(struct fr_service *service, struct fr_snapshot *out, struct fr_err *err)
{
    enum fr_status status = FR_OK;
    if (atomic_load(&service->durable_epoch) == 0)
        status = fr_err_set(err, FR_E_NOT_FOUND, "nothing was trained yet: there is no epoch to take a snapshot of");
    if (status == FR_OK)
        status = fr_snapshots_write(service, 0, out, err);
    if (status == FR_E_EXISTS)
        status = FR_OK;
    if (status != FR_OK && status != FR_E_CANCELLED)
        atomic_fetch_add(&service->snapshots.failures, 1);
    if (status == FR_OK)
        service->snapshots.newest = *out;
    return status;
}

static void answer(struct fr_service *service, const char *id)
{
    struct fr_snapshot snapshot = {0};
    struct fr_err err = {0};
    char path[PATH_MAX] = "";
    enum fr_status status = take(service, &snapshot, &err);
    if (status == FR_OK)
        status = path_of(service, snapshot.name, path, &err);
    if (status != FR_E_CANCELLED) /* the next process takes it */
        fr_snapshots_tell(service, status, "request", &err);
    struct fr_err unsaid = {0};
    if (status != FR_E_CANCELLED &&
        fr_snapshot_answer(service->conf->state_dir, id, status == FR_OK ? path : NULL, err.text, &unsaid) != FR_OK)
        fr_snapshots_tell(service, unsaid.status, "answer", &unsaid);
}

/* ---- policy ---- */

/* Of the newest snapshot, also one of an earlier process; 0: none. */
static int64_t newest_ms(const struct fr_service *service)
{
    char path[PATH_MAX];
    struct stat info;
    struct fr_err ignored = {0};
    if (!service->snapshots.newest.name[0] ||
        path_of(service, service->snapshots.newest.name, path, &ignored) != FR_OK || stat(path, &info) != 0)
        return 0;
    return (int64_t)info.st_mtim.tv_sec * 1000 + info.st_mtim.tv_nsec / NS_PER_MS;
}

static void take_by_policy(struct fr_service *service)
{
    int64_t every_ms = service->conf->snapshot.every_ms, now_ms = fr_wall_ms(service->clock), last_ms = 0;
    uint64_t now_ns = fr_mono_ns(service->clock);
    if (every_ms == 0 || now_ns < service->snapshots.due_ns || now_ns < service->snapshots.take_retry.next_ns ||
        atomic_load(&service->durable_epoch) == 0 || fr_trainer_held(service->trainer) ||
        !atomic_load(&service->delta_checked)) /* where the topic is, the manifest says */
        return;
    last_ms = newest_ms(service);
    if (last_ms > 0 && last_ms <= now_ms && now_ms - last_ms < every_ms)
        return;
    struct fr_snapshot snapshot = {0};
    struct fr_err err = {0};
    enum fr_status status = take(service, &snapshot, &err);
    if (status == FR_E_CANCELLED)
        return;
    fr_snapshots_tell(service, status, "policy", &err);
    if (status == FR_OK) {
        service->snapshots.take_retry = (struct fr_retry){0};
        /* also when nothing changed, and the newest stays as old as it is */
        service->snapshots.due_ns = fr_mono_ns(service->clock) + (uint64_t)every_ms * NS_PER_MS;
    } else {
        retry_later(service, &service->snapshots.take_retry);
    }
}

/* snapshot.at_drain: of the last epoch, as replicas will find it for as long as the daemon is away:
 * CURRENT names it, and the hook ended well. It is tried for until main gives the drain up. */
static void take_last(struct fr_service *service)
{
    struct fr_snapshot snapshot = {0};
    struct fr_err err = {0};
    uint64_t last = atomic_load(&service->durable_epoch);
    if (atomic_load(&service->snapshots.last) != FR_LAST_WANTED)
        return;
    if (service->snapshots.newest.epoch < last) {
        if (fr_mono_ns(service->clock) < service->snapshots.take_retry.next_ns)
            return;
        enum fr_status status = take(service, &snapshot, &err);
        if (status != FR_E_CANCELLED)
            fr_snapshots_tell(service, status, "drain", &err);
        if (status != FR_OK)
            retry_later(service, &service->snapshots.take_retry);
    } else if (service->snapshots.current.epoch >= last &&
               strcmp(service->snapshots.announced.name, service->snapshots.current.name) == 0) {
        atomic_store(&service->snapshots.last, FR_LAST_DONE);
    }
}

static bool is_needed(const struct fr_service *service, const char *name)
{
    return strcmp(name, service->snapshots.current.name) == 0 || strcmp(name, service->snapshots.newest.name) == 0 ||
           strcmp(name, service->snapshots.announced.name) == 0; /* this thread alone writes it */
}

static bool is_own(const struct fr_service *service, const char *name)
{
    size_t model = strlen(service->conf->model);
    return strncmp(name, service->conf->model, model) == 0 && name[model] == '-';
}

/* Damaged: whatever is done it will not read. One of a later version, or on a disk that does not
 * answer, may. */
static bool is_damaged(const struct fr_snapshot *snapshot)
{
    return snapshot->unread == FR_E_INVALID || snapshot->unread == FR_E_CORRUPT || snapshot->unread == FR_E_NOT_FOUND;
}

/* Of those that read `keep` stay. What nobody can begin with goes at once. */
static enum fr_status remove_old(struct fr_service *service, struct fr_err *err)
{
    char quoted[QUOTED_MAX];
    struct fr_snapshot *all = NULL;
    size_t n = 0, kept = 0;
    enum fr_status status = fr_snapshot_list(service->snapshots.dir, &all, &n, err);
    for (size_t i = 0; i < n; i++)
        kept += all[i].unread == FR_OK;
    for (size_t i = 0; i < n && status == FR_OK; i++) {
        bool damaged = is_damaged(&all[i]) && is_own(service, all[i].name);
        bool old = all[i].unread == FR_OK && kept > service->conf->snapshot.keep;
        if ((!damaged && !old) || is_needed(service, all[i].name))
            continue;
        status = fr_snapshot_remove(service->snapshots.dir, all[i].name, err);
        kept -= old;
        if (status == FR_OK)
            fr_log(damaged ? FR_LOG_WARN : FR_LOG_INFO, "snapshot", "removed", "name=%s kept=%zu%s%s", all[i].name,
                   kept, damaged ? " reason=" : "",
                   damaged ? fr_log_quote(quoted, sizeof(quoted), all[i].problem) : "");
    }
    atomic_store(&service->snapshots.kept, kept);
    free(all);
    return status;
}

/* ---- CURRENT, hook, announcement ---- */

static void point(struct fr_service *service)
{
    struct fr_publisher_status publisher;
    struct fr_err err = {0};
    struct fr_snapshot *newest = &service->snapshots.newest;
    if (!newest->name[0] || strcmp(newest->name, service->snapshots.current.name) == 0 ||
        fr_mono_ns(service->clock) < service->snapshots.point_retry.next_ns || fr_trainer_held(service->trainer))
        return;
    fr_publisher_get_status(service->publisher, &publisher);
    if (publisher.acked < newest->epoch)
        return;
    enum fr_status status = fr_snapshot_point(service->snapshots.dir, newest->name, &err);
    if (status == FR_OK)
        status = take_current(service, newest, &err);
    if (status == FR_E_INVALID || status == FR_E_CORRUPT || status == FR_E_NOT_FOUND)
        *newest = (struct fr_snapshot){0}; /* damaged or removed since: another one is taken */
    if (status == FR_OK) {
        fr_log(FR_LOG_INFO, "snapshot", "current", "name=%s", newest->name);
        status = remove_old(service, &err);
    }
    if (status == FR_OK) {
        service->snapshots.point_retry = (struct fr_retry){0};
        return;
    }
    retry_later(service, &service->snapshots.point_retry);
    fr_snapshots_tell(service, status, "current", &err);
}

static void hook_failed(struct fr_service *service, const struct fr_err *err)
{
    atomic_fetch_add(&service->snapshots.hook_failures, 1);
    retry_later(service, &service->snapshots.hook_retry);
    fr_snapshots_tell(service, err->status, "hook", err);
}

/* Starts the hook, of which none runs. */
enum fr_status fr_snapshots_upload(struct fr_service *service, const struct fr_snapshot *snapshot, struct fr_err *err)
{
    char path[PATH_MAX];
    const struct fr_hook_command command = {.arguments = service->conf->snapshot.hook,
                                            .n = service->conf->snapshot.n_hook,
                                            .last = path,
                                            .timeout_ms = service->conf->snapshot.hook_timeout_ms};
    service->snapshots.uploaded = *snapshot;
    enum fr_status status = path_of(service, snapshot->name, path, err);
    return status == FR_OK ? fr_hook_start(&service->snapshots.hook, &command, service->clock, err) : status;
}

static void publish(struct fr_service *service)
{
    struct fr_err err = {0};
    enum fr_status status = FR_OK;
    if (fr_hook_runs(&service->snapshots.hook)) {
        status = fr_hook_poll(&service->snapshots.hook, service->clock, &err);
        if (status == FR_OK) {
            service->snapshots.hook_retry = (struct fr_retry){0};
            fr_snapshots_tell(service, FR_OK, "hook", &err);
            announce(service, &service->snapshots.uploaded);
        } else if (status != FR_AGAIN) {
            hook_failed(service, &err);
        }
        return;
    }
    const struct fr_snapshot *current = &service->snapshots.current;
    if (!current->name[0] || strcmp(current->name, service->snapshots.announced.name) == 0 ||
        fr_mono_ns(service->clock) < service->snapshots.hook_retry.next_ns)
        return;
    if (service->conf->snapshot.n_hook == 0 || fr_snapshots_is_rewind(service, current->name)) {
        announce(service, current);
        return;
    }
    if (fr_snapshots_upload(service, current, &err) != FR_OK)
        hook_failed(service, &err);
}

/* ---- begin, turn, end ---- */

static enum fr_status find_dir(struct fr_service *service, struct fr_err *err)
{
    const char *dir = service->conf->snapshot.dir;
    int size = dir ? snprintf(service->snapshots.dir, sizeof(service->snapshots.dir), "%s", dir) : 0;
    return size > 0 && (size_t)size < sizeof(service->snapshots.dir)
               ? FR_OK
               : fr_err_set(err, FR_E_INVALID, "snapshot.dir is too long");
}

enum fr_status fr_snapshots_open(struct fr_service *service, struct fr_err *err)
{
    char name[FR_MANIFEST_NAME_MAX];
    struct fr_snapshot *all = NULL;
    size_t n = 0, kept = 0;
    bool announced = false;
    struct fr_durable_status durable;
    enum fr_status status = find_dir(service, err);
    if (status == FR_OK)
        status = fr_snapshot_place(service->snapshots.dir, err);
    if (status == FR_OK)
        status = fr_snapshot_check_model(service->snapshots.dir, service->conf->model, err);
    if (status == FR_OK)
        status = fr_snapshot_sweep(service->snapshots.dir, err);
    if (status == FR_OK)
        status = fr_snapshot_list(service->snapshots.dir, &all, &n, err);
    if (status != FR_OK)
        return fr_err_wrap(err, "snapshots");
    fr_durable_get_status(service->durable, &durable);
    bool points = fr_snapshot_current(service->snapshots.dir, name);
    for (size_t i = 0; i < n; i++) {
        /* another model's, or of a history that this state is not: nobody begins with it */
        if (all[i].unread != FR_OK || !is_own(service, all[i].name) || all[i].timeline != durable.timeline ||
            all[i].epoch > durable.epoch)
            continue;
        service->snapshots.newest = all[i];
        struct fr_err ignored = {0};
        if (points && strcmp(all[i].name, name) == 0)
            (void)!take_current(service, &all[i], &ignored);
        announced |= strcmp(all[i].name, service->snapshots.announced.name) == 0 &&
                     memcmp(&all[i].sha256, &service->snapshots.announced.sha256, sizeof(all[i].sha256)) == 0;
    }
    if (!announced) /* gone since */
        service->snapshots.announced = (struct fr_announced_snapshot){0};
    for (size_t i = 0; i < n; i++)
        kept += all[i].unread == FR_OK;
    atomic_store(&service->snapshots.kept, kept);
    free(all);
    return FR_OK;
}

enum fr_status fr_snapshots_restore(struct fr_service *service, const uint8_t *section, size_t size)
{
    struct fr_arena arena = {.block_size = 4096};
    struct fr_announcement *announcement = fr_alloc(1, sizeof(*announcement));
    enum fr_status status = fr_announcement_parse(section, size, &arena, announcement);
    if (status == FR_OK) {
        service->snapshots.announced = announcement->snapshot;
        service->epoch_wall_ms = announcement->wall_ms;
    }
    free(announcement);
    fr_arena_release(&arena);
    return status;
}

void fr_snapshots_close(struct fr_service *service)
{
    free(service->snapshots.offsets);
    service->snapshots.offsets = NULL;
}

enum fr_status fr_step_snapshots(struct fr_service *service, struct fr_err *err)
{
    (void)err; /* nothing here ends the service */
    if (atomic_load(&service->abandon)) {
        fr_hook_end(&service->snapshots.hook);
        return FR_EOF;
    }
    uint64_t now_ns = fr_mono_ns(service->clock);
    /* a drain waits for each step */
    bool ends = atomic_load(&service->snapshots.last) == FR_LAST_WANTED;
    if (ends && !service->snapshots.ends)
        begin_end(service);
    if (!ends && service->snapshots.looked_ns && now_ns - service->snapshots.looked_ns < (uint64_t)LOOK_MS * NS_PER_MS)
        return FR_AGAIN;
    service->snapshots.looked_ns = now_ns ? now_ns : 1;
    char id[FR_SNAPSHOT_ID_MAX];
    if (fr_step_rewind(service))
        return FR_AGAIN;
    take_last(service);
    point(service);
    publish(service);
    if (fr_snapshot_next_request(service->conf->state_dir, id))
        answer(service, id);
    else
        take_by_policy(service);
    return FR_AGAIN;
}
