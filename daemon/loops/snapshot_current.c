/* The life of a written snapshot (snapshot_loop.h): CURRENT names it, the hook uploads it, commits
 * announce it, and older snapshots are removed. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "loops/snapshot_loop.h"

enum { QUOTED_MAX = 2200 };

enum fr_status fr_snapshots_read_offsets(struct fr_snapshot_loop *loop, const struct fr_snapshot *snapshot,
                                         struct fr_err *err)
{
    char path[PATH_MAX];
    struct fr_manifest manifest = {0};
    enum fr_status status = fr_snapshots_path(loop, snapshot->name, path, err);
    if (status == FR_OK)
        status = fr_manifest_read(path, &manifest, NULL, NULL, err);
    if (status != FR_OK)
        return status;
    fr_shared_snapshots_set_offsets(&loop->shared, manifest.delta_offsets, manifest.np);
    manifest.delta_offsets = NULL;
    fr_manifest_release(&manifest);
    return FR_OK;
}

enum fr_status fr_snapshots_set_current(struct fr_snapshot_loop *loop, const struct fr_snapshot *current,
                                        struct fr_err *err)
{
    enum fr_status status = current->name[0] ? fr_snapshots_read_offsets(loop, current, err) : FR_OK;
    if (status != FR_OK)
        return status;
    loop->current = *current;
    fr_shared_snapshots_set_current(&loop->shared, current->name, current->epoch);
    return FR_OK;
}

void fr_snapshots_forget_other_timelines(struct fr_snapshot_loop *loop, uint64_t timeline)
{
    const struct fr_snapshot none = {0};
    struct fr_err ignored = {0};
    if (loop->newest.timeline != timeline)
        loop->newest = none;
    if (loop->current.timeline != timeline)
        (void)!fr_snapshots_set_current(loop, &none, &ignored);
}

/* Lets commits announce the snapshot. */
static void announce(struct fr_snapshot_loop *loop, const struct fr_snapshot *snapshot)
{
    struct fr_announced_snapshot announced = {.bytes = snapshot->bytes, .sha256 = snapshot->sha256};
    snprintf(announced.name, sizeof(announced.name), "%s", snapshot->name);
    fr_shared_snapshots_announce(&loop->shared, &announced);
    fr_log(FR_LOG_INFO, "snapshot", "announced", "name=%s", snapshot->name);
}

/* ---- removal ---- */

static bool is_needed(const struct fr_snapshot_loop *loop, const char *name)
{
    return strcmp(name, loop->current.name) == 0 || strcmp(name, loop->newest.name) == 0 ||
           strcmp(name, loop->shared.announced.name) == 0; /* no lock: only this thread writes it */
}

bool fr_snapshots_is_own(const struct fr_snapshot_loop *loop, const char *name)
{
    size_t model = strlen(loop->context->conf->model);
    return strncmp(name, loop->context->conf->model, model) == 0 && name[model] == '-';
}

/* Whether a snapshot is damaged and can never be read again. A snapshot of a later version, or on a
 * disk that does not answer, is not. */
static bool is_damaged(const struct fr_snapshot *snapshot)
{
    return snapshot->unread == FR_E_INVALID || snapshot->unread == FR_E_CORRUPT || snapshot->unread == FR_E_NOT_FOUND;
}

/* Removes snapshots beyond the newest `keep` that can be read, and damaged ones at once. */
static enum fr_status remove_old(struct fr_snapshot_loop *loop, struct fr_err *err)
{
    char quoted[QUOTED_MAX];
    struct fr_snapshot *all = NULL;
    size_t n = 0, kept = 0;
    enum fr_status status = fr_snapshot_list(loop->dir, &all, &n, err);
    for (size_t i = 0; i < n; i++)
        kept += all[i].unread == FR_OK;
    for (size_t i = 0; i < n && status == FR_OK; i++) {
        bool damaged = is_damaged(&all[i]) && fr_snapshots_is_own(loop, all[i].name);
        bool old = all[i].unread == FR_OK && kept > loop->context->conf->snapshot.keep;
        if ((!damaged && !old) || is_needed(loop, all[i].name))
            continue;
        status = fr_snapshot_remove(loop->dir, all[i].name, err);
        kept -= old;
        if (status == FR_OK)
            fr_log(damaged ? FR_LOG_WARN : FR_LOG_INFO, "snapshot", "removed", "name=%s kept=%zu%s%s", all[i].name,
                   kept, damaged ? " reason=" : "",
                   damaged ? fr_log_quote(quoted, sizeof(quoted), all[i].problem) : "");
    }
    atomic_store(&loop->shared.kept, kept);
    free(all);
    return status;
}

/* ---- CURRENT and hook ---- */

void fr_snapshots_move_current(struct fr_snapshot_loop *loop)
{
    struct fr_publisher_status publisher;
    struct fr_err err = {0};
    struct fr_snapshot *newest = &loop->newest;
    if (!newest->name[0] || strcmp(newest->name, loop->current.name) == 0 ||
        fr_mono_ns(loop->context->clock) < loop->point_retry.next_ns || fr_trainer_held(loop->trainer))
        return;
    fr_publisher_get_status(loop->publisher, &publisher);
    if (publisher.acked < newest->epoch)
        return;
    enum fr_status status = fr_snapshot_set_current(loop->dir, newest->name, &err);
    if (status == FR_OK)
        status = fr_snapshots_set_current(loop, newest, &err);
    if (status == FR_E_INVALID || status == FR_E_CORRUPT || status == FR_E_NOT_FOUND)
        *newest = (struct fr_snapshot){0}; /* it was damaged or removed, so another one is taken */
    if (status == FR_OK) {
        fr_log(FR_LOG_INFO, "snapshot", "current", "name=%s", newest->name);
        status = remove_old(loop, &err);
    }
    if (status == FR_OK) {
        loop->point_retry = (struct fr_retry){0};
        return;
    }
    fr_snapshots_retry_later(loop, &loop->point_retry);
    fr_snapshots_report(loop, status, "current", &err);
}

static void hook_failed(struct fr_snapshot_loop *loop, const struct fr_err *err)
{
    atomic_fetch_add(&loop->shared.hook_failures, 1);
    fr_snapshots_retry_later(loop, &loop->hook_retry);
    fr_snapshots_report(loop, err->status, "hook", err);
}

enum fr_status fr_snapshots_upload(struct fr_snapshot_loop *loop, const struct fr_snapshot *snapshot,
                                   struct fr_err *err)
{
    char path[PATH_MAX];
    const struct fr_hook_command command = {.arguments = loop->context->conf->snapshot.hook,
                                            .n = loop->context->conf->snapshot.n_hook,
                                            .last = path,
                                            .timeout_ms = loop->context->conf->snapshot.hook_timeout_ms};
    loop->uploaded = *snapshot;
    enum fr_status status = fr_snapshots_path(loop, snapshot->name, path, err);
    return status == FR_OK ? fr_hook_start(&loop->hook, &command, loop->context->clock, err) : status;
}

void fr_snapshots_publish(struct fr_snapshot_loop *loop, bool uploaded)
{
    struct fr_err err = {0};
    enum fr_status status = FR_OK;
    if (fr_hook_runs(&loop->hook)) {
        status = fr_hook_poll(&loop->hook, loop->context->clock, &err);
        if (status == FR_OK) {
            loop->hook_retry = (struct fr_retry){0};
            fr_snapshots_report(loop, FR_OK, "hook", &err);
            announce(loop, &loop->uploaded);
        } else if (status != FR_AGAIN) {
            hook_failed(loop, &err);
        }
        return;
    }
    const struct fr_snapshot *current = &loop->current;
    if (!current->name[0] || strcmp(current->name, loop->shared.announced.name) == 0 ||
        fr_mono_ns(loop->context->clock) < loop->hook_retry.next_ns)
        return;
    if (loop->context->conf->snapshot.n_hook == 0 || uploaded) {
        announce(loop, current);
        return;
    }
    if (fr_snapshots_upload(loop, current, &err) != FR_OK)
        hook_failed(loop, &err);
}
