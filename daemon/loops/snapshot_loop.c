/* One turn of the snapshot loop (snapshot_loop.h): requests, the policy, the last snapshot of a
 * drain; and reading snapshot.dir at the start. */
#include "loops/snapshot_loop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { LOOK_MS = 200, NS_PER_MS = 1000000 };

/* ---- requests and policy ---- */

static void answer(struct fr_snapshot_loop *loop, const char *id)
{
    struct fr_snapshot snapshot = {0};
    struct fr_err err = {0};
    char path[PATH_MAX] = "";
    enum fr_status status = fr_snapshots_take(loop, &snapshot, &err);
    if (status == FR_OK)
        status = fr_snapshots_path(loop, snapshot.name, path, &err);
    if (status != FR_E_CANCELLED) /* a cancelled request is left to the next process */
        fr_snapshots_report(loop, status, "request", &err);
    struct fr_err unsaid = {0};
    if (status != FR_E_CANCELLED && fr_snapshot_answer(loop->context->conf->state_dir, id,
                                                       status == FR_OK ? path : NULL, err.text, &unsaid) != FR_OK)
        fr_snapshots_report(loop, unsaid.status, "answer", &unsaid);
}

/* Returns when the newest snapshot was written, by this process or an earlier one; 0: there is
 * none. */
static int64_t newest_ms(const struct fr_snapshot_loop *loop)
{
    char path[PATH_MAX];
    struct stat info;
    struct fr_err ignored = {0};
    if (!loop->newest.name[0] || fr_snapshots_path(loop, loop->newest.name, path, &ignored) != FR_OK ||
        stat(path, &info) != 0)
        return 0;
    return (int64_t)info.st_mtim.tv_sec * 1000 + info.st_mtim.tv_nsec / NS_PER_MS;
}

static void take_by_policy(struct fr_snapshot_loop *loop)
{
    int64_t every_ms = loop->context->conf->snapshot.every_ms, now_ms = fr_wall_ms(loop->context->clock), last_ms = 0;
    uint64_t now_ns = fr_mono_ns(loop->context->clock);
    if (every_ms == 0 || now_ns < loop->due_ns || now_ns < loop->take_retry.next_ns ||
        atomic_load(&loop->appended->epoch) == 0 || fr_trainer_held(loop->trainer) ||
        !atomic_load(&loop->publish->delta_checked)) /* the manifest needs offsets of the topic */
        return;
    last_ms = newest_ms(loop);
    if (last_ms > 0 && last_ms <= now_ms && now_ms - last_ms < every_ms)
        return;
    struct fr_snapshot snapshot = {0};
    struct fr_err err = {0};
    enum fr_status status = fr_snapshots_take(loop, &snapshot, &err);
    if (status == FR_E_CANCELLED)
        return;
    fr_snapshots_report(loop, status, "policy", &err);
    if (status == FR_OK) {
        loop->take_retry = (struct fr_retry){0};
        /* even if nothing has changed and the newest snapshot stays */
        loop->due_ns = fr_mono_ns(loop->context->clock) + (uint64_t)every_ms * NS_PER_MS;
    } else {
        fr_snapshots_retry_later(loop, &loop->take_retry);
    }
}

/* snapshot.at_drain: takes a snapshot of the last epoch, which replicas begin with while the daemon
 * is away. It is done when CURRENT names it and its hook has ended with 0, and is tried until the
 * main thread gives up the drain. */
static void take_last(struct fr_snapshot_loop *loop)
{
    struct fr_snapshot snapshot = {0};
    struct fr_err err = {0};
    uint64_t last = atomic_load(&loop->appended->epoch);
    if (atomic_load(&loop->shared.last) != FR_LAST_WANTED)
        return;
    if (loop->newest.epoch < last) {
        if (fr_mono_ns(loop->context->clock) < loop->take_retry.next_ns)
            return;
        enum fr_status status = fr_snapshots_take(loop, &snapshot, &err);
        if (status != FR_E_CANCELLED)
            fr_snapshots_report(loop, status, "drain", &err);
        if (status != FR_OK)
            fr_snapshots_retry_later(loop, &loop->take_retry);
    } else if (loop->current.epoch >= last && strcmp(loop->shared.announced.name, loop->current.name) == 0) {
        atomic_store(&loop->shared.last, FR_LAST_DONE);
    }
}

/* A drain has export.drain_timeout for all its steps, so they begin at once even if the same steps
 * had failed before. */
static void begin_end(struct fr_snapshot_loop *loop)
{
    loop->ends = true;
    loop->take_retry = (struct fr_retry){0};
    loop->point_retry = (struct fr_retry){0};
    loop->hook_retry = (struct fr_retry){0};
}

/* ---- start and turn ---- */

static enum fr_status find_dir(struct fr_snapshot_loop *loop, struct fr_err *err)
{
    const char *dir = loop->context->conf->snapshot.dir;
    int size = dir ? snprintf(loop->dir, sizeof(loop->dir), "%s", dir) : 0;
    return size > 0 && (size_t)size < sizeof(loop->dir) ? FR_OK
                                                        : fr_err_set(err, FR_E_INVALID, "snapshot.dir is too long");
}

enum fr_status fr_snapshots_open(struct fr_snapshot_loop *loop, struct fr_err *err)
{
    char name[FR_MANIFEST_NAME_MAX];
    struct fr_snapshot *all = NULL;
    size_t n = 0, kept = 0;
    bool announced = false;
    struct fr_durable_status durable;
    enum fr_status status = find_dir(loop, err);
    if (status == FR_OK)
        status = fr_snapshot_check_place(loop->dir, err);
    if (status == FR_OK)
        status = fr_snapshot_check_model(loop->dir, loop->context->conf->model, err);
    if (status == FR_OK)
        status = fr_snapshot_sweep(loop->dir, err);
    if (status == FR_OK)
        status = fr_snapshot_list(loop->dir, &all, &n, err);
    if (status != FR_OK)
        return fr_err_wrap(err, "snapshots");
    fr_durable_get_status(loop->durable, &durable);
    bool points = fr_snapshot_current(loop->dir, name);
    for (size_t i = 0; i < n; i++) {
        /* Of another model or another history, so no replica of this state begins with it. */
        if (all[i].unread != FR_OK || !fr_snapshots_is_own(loop, all[i].name) || all[i].timeline != durable.timeline ||
            all[i].epoch > durable.epoch)
            continue;
        loop->newest = all[i];
        struct fr_err ignored = {0};
        if (points && strcmp(all[i].name, name) == 0)
            (void)!fr_snapshots_set_current(loop, &all[i], &ignored);
        announced |= strcmp(all[i].name, loop->shared.announced.name) == 0 &&
                     memcmp(&all[i].sha256, &loop->shared.announced.sha256, sizeof(all[i].sha256)) == 0;
    }
    if (!announced) /* the announced snapshot was removed */
        loop->shared.announced = (struct fr_announced_snapshot){0};
    for (size_t i = 0; i < n; i++)
        kept += all[i].unread == FR_OK;
    atomic_store(&loop->shared.kept, kept);
    free(all);
    return FR_OK;
}

bool fr_snapshots_covers(void *self, const int64_t *low, const int64_t *high, uint32_t partitions)
{
    struct fr_shared_snapshots *shared = &((struct fr_snapshot_loop *)self)->shared;
    pthread_mutex_lock(&shared->lock);
    const uint64_t *offsets = shared->offsets;
    bool covered = offsets && shared->n_offsets == partitions;
    for (uint32_t p = 0; p < partitions && covered; p++)
        covered = offsets[p] <= INT64_MAX && low[p] <= (int64_t)offsets[p] && (int64_t)offsets[p] <= high[p];
    pthread_mutex_unlock(&shared->lock);
    return covered;
}

enum fr_status fr_step_snapshot(struct fr_snapshot_loop *loop, struct fr_err *err)
{
    (void)err; /* no failure of this loop ends the service */
    if (atomic_load(&loop->context->life->abandon)) {
        fr_hook_end(&loop->hook);
        return FR_EOF;
    }
    uint64_t now_ns = fr_mono_ns(loop->context->clock);
    /* A drain waits for each step, so no turn is skipped. */
    bool ends = atomic_load(&loop->shared.last) == FR_LAST_WANTED;
    if (ends && !loop->ends)
        begin_end(loop);
    if (!ends && loop->looked_ns && now_ns - loop->looked_ns < (uint64_t)LOOK_MS * NS_PER_MS)
        return FR_AGAIN;
    loop->looked_ns = now_ns ? now_ns : 1;
    char id[FR_SNAPSHOT_ID_MAX];
    if (fr_rewind_step(loop))
        return FR_AGAIN;
    take_last(loop);
    fr_snapshots_move_current(loop);
    fr_snapshots_publish(loop, fr_rewind_is_uploaded(loop, loop->current.name));
    if (fr_snapshot_next_request(loop->context->conf->state_dir, id))
        answer(loop, id);
    else
        take_by_policy(loop);
    return FR_AGAIN;
}
