/* Writes one snapshot (snapshot_loop.h): checks for room, waits for the fold of its epoch, and
 * writes the files. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/check.h"
#include "base/file.h"
#include "base/log.h"
#include "base/trace.h"
#include "loops/snapshot_loop.h"

enum {
    WAIT_MS = 20,
    /* Limit of the wait for a fold. A cut comes at least every heartbeat (10 s) unless reading
     * pauses, and a fold follows the cut. */
    WAIT_MAX_MS = 120000,
    RETRY_MS_MIN = 1000, /* during training; a drain uses the bounds of retry.h */
    RETRY_MS_MAX = 300000,
    NS_PER_MS = 1000000,
    QUOTED_MAX = 2200
};

enum fr_status fr_snapshots_path(const struct fr_snapshot_loop *loop, const char *name, char out[PATH_MAX],
                                 struct fr_err *err)
{
    int size = snprintf(out, PATH_MAX, "%s/%s", loop->dir, name);
    return size > 0 && size < PATH_MAX ? FR_OK : fr_err_set(err, FR_E_LIMIT, "snapshot.dir is too long");
}

void fr_snapshots_report(struct fr_snapshot_loop *loop, enum fr_status status, const char *what,
                         const struct fr_err *err)
{
    char quoted[QUOTED_MAX];
    fr_http_reason(loop->context->http, "snapshot", status == FR_OK ? NULL : err->text);
    fr_shared_snapshots_set_problem(&loop->shared, status == FR_OK ? "" : err->text);
    if (status != FR_OK)
        fr_log(FR_LOG_WARN, "snapshot", "failed", "what=%s reason=%s", what,
               fr_log_quote(quoted, sizeof(quoted), err->text));
}

void fr_snapshots_retry_later(const struct fr_snapshot_loop *loop, struct fr_retry *retry)
{
    bool ends = loop->ends;
    fr_retry_wait_longer(retry, loop->context->clock, ends ? FR_RETRY_MS_MIN : RETRY_MS_MIN,
                         ends ? FR_RETRY_MS_MAX : RETRY_MS_MAX);
}

static void beat(void *self)
{
    struct fr_snapshot_loop *loop = self;
    fr_http_beat(loop->context->http, loop->thread->beat);
}

/* Called after each record. With the first one the epoch is decided, so cuts follow
 * export.dense_every again. */
static void write_progress(void *self)
{
    struct fr_snapshot_loop *loop = self;
    atomic_store(&loop->shared.dense_wanted, false);
    beat(loop);
}

/* Waits until the folded epoch is at least `given`. If `given` is 0, waits until all parameters
 * of the folded epoch are published and it includes every epoch that was durable when the wait
 * began. */
static enum fr_status await_fold(struct fr_snapshot_loop *loop, uint64_t given, struct fr_err *err)
{
    uint64_t least = given ? given : atomic_load(&loop->appended->epoch), begin_ns = fr_mono_ns(loop->context->clock);
    while (!atomic_load(&loop->context->life->abandon)) {
        struct fr_durable_status durable;
        fr_durable_get_status(loop->durable, &durable);
        uint64_t since = given ? given : fr_trainer_dense_since(loop->trainer);
        if (since > 0 && durable.folded >= since && durable.folded >= least)
            return FR_OK;
        if (since > 0 && durable.epoch >= since && durable.epoch > durable.folded)
            atomic_store(&loop->fold->wanted, true);
        if (fr_mono_ns(loop->context->clock) - begin_ns > (uint64_t)WAIT_MAX_MS * NS_PER_MS)
            return fr_err_set(err, FR_E_UNAVAILABLE,
                              "no epoch with all parameters was cut and folded within %d s: /readyz shows why "
                              "reading or folding waits",
                              WAIT_MAX_MS / 1000);
        beat(loop);
        nanosleep(&(struct timespec){.tv_nsec = WAIT_MS * (long)NS_PER_MS}, NULL);
    }
    return fr_err_set(err, FR_E_CANCELLED, "the daemon stops");
}

/* Checks for room on the disk. A snapshot is at most about as large as the cold store. */
static enum fr_status check_room(const struct fr_snapshot_loop *loop, struct fr_err *err)
{
    struct fr_durable_status durable;
    uint64_t free_bytes = 0, need = 0;
    fr_durable_get_status(loop->durable, &durable);
    need = durable.cold_bytes + atomic_load(&loop->disk->reserve_bytes);
    enum fr_status status = fr_dir_make(loop->dir, err);
    if (status == FR_OK)
        status = fr_disk_free_bytes(loop->dir, &free_bytes, err);
    if (status == FR_OK && free_bytes < need)
        return fr_err_set(err, FR_E_NO_SPACE,
                          "%s has %" PRIu64 " bytes free, and a snapshot may need %" PRIu64
                          ": make room, or name another disk in snapshot.dir",
                          loop->dir, free_bytes, need);
    return status;
}

enum fr_status fr_snapshots_write(struct fr_snapshot_loop *loop, uint64_t least, struct fr_snapshot *out,
                                  struct fr_err *err)
{
    const struct fr_conf *conf = loop->context->conf;
    uint64_t *offsets = fr_alloc(conf->export_.partitions, sizeof(*offsets));
    /* Read before the fold, so that no record before these offsets is later than the folded
     * epoch. */
    bool known = fr_publisher_offsets(loop->publisher, offsets);
    enum fr_codec_quantize quantize = FR_CODEC_F32;
    if (conf->snapshot.quantize != FR_SNAPSHOT_AS_EXPORT)
        quantize = (enum fr_codec_quantize)(conf->snapshot.quantize - FR_SNAPSHOT_F32);
    struct fr_snapshot_options options = {.durable = loop->durable,
                                          .clock = loop->context->clock,
                                          .dir = loop->dir,
                                          .topic = conf->export_.topic,
                                          .quantize =
                                              conf->snapshot.quantize == FR_SNAPSHOT_AS_EXPORT ? NULL : &quantize,
                                          .rate = conf->snapshot.rate,
                                          .awaited = least > 0,
                                          .delta_offsets = known ? offsets : NULL,
                                          .n_delta_offsets = conf->export_.partitions,
                                          .stop = &loop->context->life->abandon,
                                          .progress = write_progress,
                                          .self = loop};
    enum fr_status status = check_room(loop, err);
    atomic_store(&loop->shared.dense_wanted, least == 0);
    if (status == FR_OK)
        status = await_fold(loop, least, err);
    uint64_t begin_ns = fr_mono_ns(loop->context->clock);
    uint64_t traced_ns = fr_trace_begin();
    if (status == FR_OK)
        status = fr_snapshot_write(&options, out, err);
    fr_trace_end("snapshot", traced_ns);
    atomic_store(&loop->shared.dense_wanted, false);
    free(offsets);
    if (status != FR_OK)
        return status;
    double seconds = (double)(fr_mono_ns(loop->context->clock) - begin_ns) / 1e9;
    atomic_fetch_add(&loop->shared.taken, 1);
    atomic_store(&loop->shared.bytes, out->bytes);
    atomic_store(&loop->shared.millis, (uint64_t)(seconds * 1e3));
    fr_log(FR_LOG_INFO, "snapshot", "taken",
           "name=%s epoch=%" PRIu64 " rows=%" PRIu64 " bytes=%" PRIu64 " seconds=%.3f", out->name, out->epoch,
           out->rows, out->bytes, seconds);
    return FR_OK;
}

enum fr_status fr_snapshots_take(struct fr_snapshot_loop *loop, struct fr_snapshot *out, struct fr_err *err)
{
    enum fr_status status = FR_OK;
    if (atomic_load(&loop->appended->epoch) == 0)
        status = fr_err_set(err, FR_E_NOT_FOUND, "nothing was trained yet: there is no epoch to take a snapshot of");
    if (status == FR_OK)
        status = fr_snapshots_write(loop, 0, out, err);
    if (status == FR_E_EXISTS)
        status = FR_OK;
    if (status != FR_OK && status != FR_E_CANCELLED)
        atomic_fetch_add(&loop->shared.failures, 1);
    if (status == FR_OK)
        loop->newest = *out;
    return status;
}
