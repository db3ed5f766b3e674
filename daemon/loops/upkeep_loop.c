/* One turn of the upkeep loop (upkeep_loop.h).
 *
 * A fold may take long, so this thread checks the limits every 20 ms while one runs, before it
 * waits for any disk. Limits include the epochs that are cut and not yet in the journal, and the
 * open epoch (fr_trainer_produced_bytes), because a pause does not undo them. The trainer stops by
 * itself at the limits it was given (fr_trainer_allow).
 *
 * The disk must keep room for the epochs that are not appended yet, for a fold of all unfolded
 * epochs, for a compaction, and FR_DISK_RESERVE. Below that, reading pauses, and continues by
 * itself when there is room. If something else fills the disk, an append waits and is tried again
 * (durable_loop.c), and no fold is begun (fold_loop.c). */
#include "loops/upkeep_loop.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/file.h"

enum { NS_PER_MS = 1000000 };

/* One reading of the limits. `appended` is read first, so that an epoch that becomes durable in
 * between is counted twice rather than missed. */
struct reading {
    uint64_t appended;
    struct fr_durable_status durable;
    uint64_t coming; /* produced and not appended: the disk needs room for it */
};

static void read_limits(const struct fr_upkeep_loop *loop, struct reading *out)
{
    out->appended = atomic_load(&loop->appended->appended_bytes);
    fr_durable_get_status(loop->durable, &out->durable);
    uint64_t produced = fr_trainer_produced_bytes(loop->trainer);
    out->coming = produced > out->appended ? produced - out->appended : 0;
}

static uint64_t until(uint64_t bytes, uint64_t limit)
{
    return bytes < limit ? limit - bytes : 0;
}

static void text_of_journal(const struct fr_durable_status *durable, bool held, char *text, size_t size)
{
    if (held)
        snprintf(text, size,
                 "journal_max: the journal holds %" PRIu64 " bytes, because publishing is held after non-finite "
                 "numbers; mend the model or the stream and restart with a larger journal_max",
                 durable->journal_bytes);
    else
        snprintf(text, size,
                 "journal_max: the journal holds %" PRIu64 " bytes; epochs up to %" PRIu64 " of %" PRIu64
                 " are acknowledged. Look at the delta topic",
                 durable->journal_bytes, durable->acked, durable->epoch);
}

/* Gives the trainer the limits of the journal. The trainer stops by itself at these limits,
 * however late the next turn of this loop is. When everything is acknowledged no pause can
 * shorten the journal, and what waits for a fold has a limit of its own. */
static void allow(struct fr_upkeep_loop *loop, const struct reading *now, bool held)
{
    char text[256];
    const struct fr_conf *conf = loop->context->conf;
    const struct fr_durable_status *durable = &now->durable;
    uint64_t more = until(durable->unfolded_bytes, 2 * conf->unfolded_max);
    uint64_t journal = until(durable->journal_bytes, conf->journal_max);
    enum fr_pause why = FR_PAUSE_UNFOLDED;
    if (durable->acked < durable->epoch && journal <= more) {
        more = journal;
        why = FR_PAUSE_JOURNAL;
        text_of_journal(durable, held, text, sizeof(text));
    } else {
        snprintf(text, sizeof(text),
                 "unfolded_max: %" PRIu64 " journal bytes wait for a fold; the disk under state_dir is the bottleneck",
                 durable->unfolded_bytes);
    }
    fr_trainer_allow(loop->trainer, now->appended + more, why, text);
}

/* Returns the other reasons why reading must wait. */
static enum fr_pause pressure(const struct fr_upkeep_loop *loop, const struct reading *now, char *text, size_t size)
{
    const struct fr_durable_status *durable = &now->durable;
    uint64_t free_bytes = atomic_load(&loop->shared.free_bytes), reserve = atomic_load(&loop->shared.reserve_bytes);
    if (durable->level0_files >= FR_LEVEL0_FILES_MAX) {
        snprintf(text, size,
                 "the cold store has %" PRIu64 " files to compact; the disk under state_dir is the bottleneck",
                 durable->level0_files);
        return FR_PAUSE_COMPACTION;
    }
    if (free_bytes < reserve) {
        snprintf(text, size,
                 "the disk under state_dir has %" PRIu64 " bytes free, and %" PRIu64
                 " have to stay free for epochs, a fold and compactions; make room, then reading continues by itself",
                 free_bytes, reserve);
        return FR_PAUSE_DISK;
    }
    return FR_PAUSE_NONE;
}

static enum fr_status measure_disk(struct fr_upkeep_loop *loop, const struct reading *now, struct fr_err *err)
{
    const struct fr_durable_status *durable = &now->durable;
    uint64_t now_ns = fr_mono_ns(loop->context->clock), free_bytes = 0;
    if (loop->disk_looked_ns && now_ns - loop->disk_looked_ns < (uint64_t)FR_DISK_LOOK_MS * NS_PER_MS)
        return FR_OK;
    loop->disk_looked_ns = now_ns ? now_ns : 1;
    enum fr_status status = fr_disk_free_bytes(loop->context->conf->state_dir, &free_bytes, err);
    if (status != FR_OK)
        return status;
    uint64_t compaction = durable->cold_bytes < FR_COMPACTION_ROOM ? durable->cold_bytes : FR_COMPACTION_ROOM;
    atomic_store(&loop->shared.free_bytes, free_bytes);
    atomic_store(&loop->shared.reserve_bytes, FR_DISK_RESERVE + now->coming + durable->unfolded_bytes + compaction);
    return FR_OK;
}

/* Reports once that publishing is held, and once that it continues. */
static void report_hold(struct fr_upkeep_loop *loop, bool held)
{
    if (held == loop->hold_reported)
        return;
    loop->hold_reported = held;
    char text[256];
    snprintf(
        text, sizeof(text),
        "publishing is held: %d batches in a row gave non-finite numbers and nothing of them could train; lower the "
        "learning rates or look for broken dense values. Publishing continues after %d good batches in a row",
        FR_QUARANTINE_STREAK_MAX, FR_QUARANTINE_STREAK_MAX);
    fr_http_reason(loop->context->http, "numbers", held ? text : NULL);
}

static enum fr_status acknowledge(struct fr_upkeep_loop *loop, struct fr_err *err)
{
    struct fr_publisher_status publisher;
    fr_publisher_get_status(loop->publisher, &publisher);
    uint64_t acked = publisher.acked;
    if (loop->exchange) {
        /* the journals of all ranks are needed for the digests of what any rank has to send */
        uint64_t all = fr_trainer_acknowledged(loop->trainer);
        acked = all < acked ? all : acked;
    }
    if (acked == loop->acknowledged)
        return FR_OK;
    loop->acknowledged = acked;
    return fr_durable_acknowledge(loop->durable, acked, err);
}

enum fr_status fr_step_upkeep(struct fr_upkeep_loop *loop, struct fr_err *err)
{
    if (atomic_load(&loop->context->life->abandon)) {
        /* The last acknowledgement of a drain. If noting it fails, the next start reads the
         * topic. */
        (void)acknowledge(loop, err);
        return FR_EOF;
    }
    struct reading now;
    char text[256] = "";
    read_limits(loop, &now);
    enum fr_status status = measure_disk(loop, &now, err);
    bool held = fr_trainer_held(loop->trainer);
    allow(loop, &now, held);
    report_hold(loop, held);
    enum fr_pause why = pressure(loop, &now, text, sizeof(text));
    fr_trainer_pause(loop->trainer, why, text);
    if (status == FR_OK)
        status = acknowledge(loop, err);
    return status == FR_OK ? FR_AGAIN : status;
}
