/* The snapshot with which a timeline begins: the publisher requests it, the snapshot thread writes
 * it, the hook uploads it, and a rewind on the topic names it, so that replicas load it and the
 * whole state need not go through the topic (docs/formats/deltas.md, "Timelines"). The stages are
 * drawn in shared_snapshots.h.
 *
 * A rewind is used only if replicas begin with snapshots (export.retention: snapshots), and never
 * in lockstep, because its records depend on time. After the first failure, or if a drain brings no
 * epoch that could carry the rewind, the request is refused and the publisher fills the topic with
 * the whole state.
 *
 * Threads: fr_rewind_ask on the publish thread, the rest on the snapshot thread. */
#include "loops/snapshot_loop.h"

#include <string.h>

#include "base/log.h"

bool fr_rewind_is_uploaded(const struct fr_snapshot_loop *loop, const char *name)
{
    int stage = atomic_load(&loop->shared.rewind.stage);
    return stage == FR_REWIND_READY && strcmp(loop->shared.rewind.snapshot.name, name) == 0;
}

/* Whether no further epoch follows. */
static bool has_ended(struct fr_snapshot_loop *loop)
{
    return atomic_load(&loop->context->life->phase) == FR_PHASE_DRAINING && atomic_load(&loop->trainer_thread->done) &&
           atomic_load(&loop->durable_thread->done);
}

enum fr_status fr_rewind_ask(void *self, uint64_t least, struct fr_publisher_rewind *out)
{
    struct fr_snapshot_loop *loop = self;
    const struct fr_snapshot *snapshot = &loop->shared.rewind.snapshot;
    switch ((enum fr_rewind_stage)atomic_load(&loop->shared.rewind.stage)) {
    case FR_REWIND_NONE:
        loop->shared.rewind.least = least;
        atomic_store(&loop->shared.rewind.stage, FR_REWIND_WANTED);
        return FR_AGAIN;
    case FR_REWIND_WANTED:
    case FR_REWIND_UPLOADS:
        return FR_AGAIN;
    case FR_REWIND_READY:
        if (has_ended(loop) && snapshot->epoch >= atomic_load(&loop->appended->publishable))
            return FR_E_NOT_FOUND;
        out->epoch = snapshot->epoch;
        memcpy(out->snapshot, snapshot->name, sizeof(out->snapshot));
        return FR_OK;
    case FR_REWIND_REFUSED:
        break;
    }
    return FR_E_NOT_FOUND;
}

static void end(struct fr_snapshot_loop *loop, enum fr_status status, const struct fr_err *err)
{
    if (status == FR_E_CANCELLED)
        return;
    fr_snapshots_report(loop, status, "rewind", err);
    atomic_store(&loop->shared.rewind.stage, status == FR_OK ? FR_REWIND_READY : FR_REWIND_REFUSED);
}

/* Checks that an existing snapshot of that name is ours. Another state may have begun a timeline of
 * the same number on another topic. */
static enum fr_status check_own(struct fr_snapshot_loop *loop, const struct fr_snapshot *snapshot, struct fr_err *err)
{
    struct fr_sha256 digest;
    if (fr_durable_digest(loop->durable, snapshot->epoch, &digest) == FR_OK &&
        fr_sha256_u64(&digest) == snapshot->digest)
        return FR_OK;
    return fr_err_set(err, FR_E_MISMATCH, "%s in snapshot.dir is of another history", snapshot->name);
}

static void make(struct fr_snapshot_loop *loop)
{
    struct fr_snapshot *snapshot = &loop->shared.rewind.snapshot;
    struct fr_durable_status durable;
    struct fr_err err = {0};
    fr_durable_get_status(loop->durable, &durable);
    fr_snapshots_forget_other_timelines(loop, durable.timeline);
    enum fr_status status = fr_snapshots_write(loop, loop->shared.rewind.least, snapshot, &err);
    if (status == FR_E_EXISTS)
        status = check_own(loop, snapshot, &err);
    if (status == FR_OK)
        status = fr_snapshots_read_offsets(loop, snapshot, &err);
    if (status == FR_OK)
        loop->newest = *snapshot;
    if (status != FR_OK || loop->context->conf->snapshot.n_hook == 0) {
        end(loop, status, &err);
        return;
    }
    status = fr_snapshots_upload(loop, snapshot, &err);
    if (status != FR_OK)
        end(loop, status, &err);
    else
        atomic_store(&loop->shared.rewind.stage, FR_REWIND_UPLOADS);
}

bool fr_rewind_step(struct fr_snapshot_loop *loop)
{
    struct fr_err err = {0};
    enum fr_status status = FR_AGAIN;
    switch ((enum fr_rewind_stage)atomic_load(&loop->shared.rewind.stage)) {
    case FR_REWIND_WANTED:
        if (!fr_hook_runs(&loop->hook)) {
            make(loop);
            return true;
        }
        return false; /* the hook of an earlier snapshot must end first */
    case FR_REWIND_UPLOADS:
        status = fr_hook_poll(&loop->hook, loop->context->clock, &err);
        if (status != FR_AGAIN)
            end(loop, status, &err);
        return true;
    case FR_REWIND_NONE:
    case FR_REWIND_READY:
    case FR_REWIND_REFUSED:
        break;
    }
    return false;
}
