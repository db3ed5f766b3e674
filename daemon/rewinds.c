/* A snapshot for a timeline that begins: the publisher asks for one, the snapshot thread writes it,
 * the hook uploads it, and the topic names it in a rewind, so that replicas load it and the whole
 * state need not go through the topic (docs/formats/deltas.md, "Timelines").
 *
 * Only where replicas begin with snapshots (export.retention: snapshots), and live: what is written
 * when depends on time. With the first failure, or when a drain brings no epoch that could carry
 * the rewind, the publisher is told so and fills the topic as ever.
 *
 * Threads: the publisher asks, the snapshot thread makes; `stage` hands over between them. */
#include "service.h"

#include <string.h>

#include "base/log.h"

bool fr_snapshots_is_rewind(const struct fr_service *service, const char *name)
{
    int stage = atomic_load(&service->snapshots.rewind.stage);
    return stage == FR_REWIND_READY && strcmp(service->snapshots.rewind.snapshot.name, name) == 0;
}

/* Nothing is cut any more. */
static bool has_ended(struct fr_service *service)
{
    return atomic_load(&service->phase) == FR_PHASE_DRAINING && atomic_load(&service->loops[FR_LOOP_TRAINER].done) &&
           atomic_load(&service->loops[FR_LOOP_DURABLE].done);
}

enum fr_status fr_snapshots_ask_rewind(void *self, uint64_t least, struct fr_publisher_rewind *out)
{
    struct fr_service *service = self;
    const struct fr_snapshot *snapshot = &service->snapshots.rewind.snapshot;
    switch ((enum fr_rewinding)atomic_load(&service->snapshots.rewind.stage)) {
    case FR_REWIND_NONE:
        service->snapshots.rewind.least = least;
        atomic_store(&service->snapshots.rewind.stage, FR_REWIND_WANTED);
        return FR_AGAIN;
    case FR_REWIND_WANTED:
    case FR_REWIND_UPLOADS:
        return FR_AGAIN;
    case FR_REWIND_READY:
        if (has_ended(service) && snapshot->epoch >= atomic_load(&service->publishable))
            return FR_E_NOT_FOUND;
        out->epoch = snapshot->epoch;
        memcpy(out->snapshot, snapshot->name, sizeof(out->snapshot));
        return FR_OK;
    case FR_REWIND_REFUSED:
        break;
    }
    return FR_E_NOT_FOUND;
}

static void end(struct fr_service *service, enum fr_status status, const struct fr_err *err)
{
    if (status == FR_E_CANCELLED)
        return;
    fr_snapshots_tell(service, status, "rewind", err);
    atomic_store(&service->snapshots.rewind.stage, status == FR_OK ? FR_REWIND_READY : FR_REWIND_REFUSED);
}

/* One of that name may be another state's that took the same number elsewhere. */
static enum fr_status check_own(struct fr_service *service, const struct fr_snapshot *snapshot, struct fr_err *err)
{
    struct fr_sha256 digest;
    if (fr_durable_digest(service->durable, snapshot->epoch, &digest) == FR_OK &&
        fr_sha256_u64(&digest) == snapshot->digest)
        return FR_OK;
    return fr_err_set(err, FR_E_MISMATCH, "%s in snapshot.dir is of another history", snapshot->name);
}

static void make(struct fr_service *service)
{
    struct fr_snapshot *snapshot = &service->snapshots.rewind.snapshot;
    struct fr_durable_status durable;
    struct fr_err err = {0};
    fr_durable_get_status(service->durable, &durable);
    fr_snapshots_leave(service, durable.timeline);
    enum fr_status status = fr_snapshots_write(service, service->snapshots.rewind.least, snapshot, &err);
    if (status == FR_E_EXISTS)
        status = check_own(service, snapshot, &err);
    if (status == FR_OK)
        status = fr_snapshots_begin_with(service, snapshot, &err);
    if (status == FR_OK)
        service->snapshots.newest = *snapshot;
    if (status != FR_OK || service->conf->snapshot.n_hook == 0) {
        end(service, status, &err);
        return;
    }
    status = fr_snapshots_upload(service, snapshot, &err);
    if (status != FR_OK)
        end(service, status, &err);
    else
        atomic_store(&service->snapshots.rewind.stage, FR_REWIND_UPLOADS);
}

bool fr_step_rewind(struct fr_service *service)
{
    struct fr_err err = {0};
    enum fr_status status = FR_AGAIN;
    switch ((enum fr_rewinding)atomic_load(&service->snapshots.rewind.stage)) {
    case FR_REWIND_WANTED:
        if (!fr_hook_runs(&service->snapshots.hook)) {
            make(service);
            return true;
        }
        return false; /* the hook of one before ends first */
    case FR_REWIND_UPLOADS:
        status = fr_hook_poll(&service->snapshots.hook, service->clock, &err);
        if (status != FR_AGAIN)
            end(service, status, &err);
        return true;
    case FR_REWIND_NONE:
    case FR_REWIND_READY:
    case FR_REWIND_REFUSED:
        break;
    }
    return false;
}
