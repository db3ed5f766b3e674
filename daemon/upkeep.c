/* What keeps the limits: why reading has to wait, when journal files are acknowledged and trimmed,
 * when epochs are folded, and how much of the disk stays free. One turn of the upkeep thread and
 * one of the fold thread, as steps.c says of all of them.
 *
 * A fold takes as long as it takes. So the upkeep thread looks at the limits beside it, every 20
 * ms, before it waits for any disk. Limits count what is on its way, too: epochs cut and not yet in
 * the journal, and the open one (fr_trainer_produced_bytes), because a pause does not take them
 * back. The trainer stops by itself where they lie (fr_trainer_allow).
 *
 * The disk. What stays free is what is on its way, what a fold of all unfolded epochs may write,
 * what a compaction may, and FR_DISK_RESERVE. Reading pauses below that, and goes on by itself.
 * Should somebody else fill the disk, an append waits and is tried again (steps.c), and no fold
 * is begun. */
#include "service.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/trace.h"

enum { NS_PER_MS = 1000000 };

/* A look at the limits. `appended` is read before the rest: an epoch that becomes durable in
 * between counts twice, and never not at all. */
struct look {
    uint64_t appended;
    struct fr_durable_status durable;
    uint64_t coming; /* produced and not appended: the disk needs room for it */
};

static void look(const struct fr_service *service, struct look *out)
{
    out->appended = atomic_load(&service->appended_bytes);
    fr_durable_get_status(service->durable, &out->durable);
    uint64_t produced = fr_trainer_produced_bytes(service->trainer);
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

/* Where the journal's limits lie: the trainer stops there by itself, however late the next look is.
 * With everything acknowledged no pause can shorten the journal; what waits for a fold has its own
 * limit. */
static void allow(struct fr_service *service, const struct look *at, bool held)
{
    char text[256];
    const struct fr_durable_status *durable = &at->durable;
    uint64_t more = until(durable->unfolded_bytes, 2 * service->conf->unfolded_max);
    uint64_t journal = until(durable->journal_bytes, service->conf->journal_max);
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
    fr_trainer_allow(service->trainer, at->appended + more, why, text);
}

/* Why else reading has to wait. */
static enum fr_pause pressure(const struct fr_service *service, const struct look *at, char *text, size_t size)
{
    const struct fr_durable_status *durable = &at->durable;
    uint64_t free_bytes = atomic_load(&service->disk_free), reserve = atomic_load(&service->disk_reserve);
    if (durable->level0_files >= FR_LEVEL0_FILES_MAX) {
        snprintf(text, size,
                 "the cold store has %" PRIu64 " files to compact; the disk under state_dir is the bottleneck",
                 durable->level0_files);
        return FR_PAUSE_COMPACTION;
    }
    if (free_bytes < reserve) {
        snprintf(text, size,
                 "the disk under state_dir has %" PRIu64 " bytes free, and %" PRIu64
                 " have to stay free for epochs, a fold and compactions; make room, then reading goes on by itself",
                 free_bytes, reserve);
        return FR_PAUSE_DISK;
    }
    return FR_PAUSE_NONE;
}

static enum fr_status look_at_disk(struct fr_service *service, const struct look *at, struct fr_err *err)
{
    const struct fr_durable_status *durable = &at->durable;
    uint64_t now_ns = fr_mono_ns(service->clock), free_bytes = 0;
    if (service->disk_looked_ns && now_ns - service->disk_looked_ns < (uint64_t)FR_DISK_LOOK_MS * NS_PER_MS)
        return FR_OK;
    service->disk_looked_ns = now_ns ? now_ns : 1;
    enum fr_status status = fr_disk_free_bytes(service->conf->state_dir, &free_bytes, err);
    if (status != FR_OK)
        return status;
    uint64_t compaction = durable->cold_bytes < FR_COMPACTION_ROOM ? durable->cold_bytes : FR_COMPACTION_ROOM;
    atomic_store(&service->disk_free, free_bytes);
    atomic_store(&service->disk_reserve, FR_DISK_RESERVE + at->coming + durable->unfolded_bytes + compaction);
    return FR_OK;
}

/* Publishing is held or goes on again: said once. */
static void tell_hold(struct fr_service *service, bool held)
{
    if (held == service->hold_told)
        return;
    service->hold_told = held;
    char text[256];
    snprintf(
        text, sizeof(text),
        "publishing is held: %d batches in a row gave non-finite numbers and nothing of them could train; lower the "
        "learning rates or look for broken dense values. It goes on after %d good batches in a row",
        FR_QUARANTINE_STREAK_MAX, FR_QUARANTINE_STREAK_MAX);
    fr_http_reason(service->http, "numbers", held ? text : NULL);
}

static enum fr_status acknowledge(struct fr_service *service, struct fr_err *err)
{
    struct fr_publisher_status publisher;
    fr_publisher_get_status(service->publisher, &publisher);
    if (publisher.acked == service->acknowledged)
        return FR_OK; /* fewer than before when the topic lost some */
    service->acknowledged = publisher.acked;
    return fr_durable_acknowledge(service->durable, publisher.acked, err);
}

enum fr_status fr_step_upkeep(struct fr_service *service, struct fr_err *err)
{
    if (atomic_load(&service->abandon)) {
        /* the last of a drain; when it fails the mark is older, and a start looks at the topic */
        (void)acknowledge(service, err);
        return FR_EOF;
    }
    struct look at;
    char text[256] = "";
    look(service, &at);
    enum fr_status status = look_at_disk(service, &at, err);
    bool held = fr_trainer_held(service->trainer);
    allow(service, &at, held);
    tell_hold(service, held);
    enum fr_pause why = pressure(service, &at, text, sizeof(text));
    fr_trainer_pause(service->trainer, why, text);
    if (status == FR_OK)
        status = acknowledge(service, err);
    return status == FR_OK ? FR_AGAIN : status;
}

bool fr_service_epoch_late(struct fr_service *service, char *text, size_t size)
{
    uint64_t cut_ns = atomic_load(&service->waiting_cut_ns), now_ns = fr_mono_ns(service->clock);
    if (!cut_ns || now_ns < cut_ns || now_ns - cut_ns < fr_trainer_late_ns(service->conf))
        return false;
    const char *what = atomic_load(&service->waits_for);
    snprintf(text, size, "epoch %" PRIu64 " is not durable %.1f s after its cut: it waits for %s",
             atomic_load(&service->durable_epoch) + 1, (double)(now_ns - cut_ns) / 1e9,
             what ? what : "the disk under state_dir");
    return true;
}

/* ---- fold ---- */

enum fr_status fr_service_fold(struct fr_service *service, const struct fr_durable_status *before, struct fr_err *err)
{
    struct fr_durable_status durable;
    uint64_t begin_ns = fr_mono_ns(service->clock);
    fr_log(FR_LOG_INFO, "fold", "begin", "from=%" PRIu64 " to=%" PRIu64 " bytes=%" PRIu64, before->folded + 1,
           before->epoch, before->unfolded_bytes);
    uint64_t traced_ns = fr_trace_begin();
    enum fr_status status = fr_durable_fold(service->durable, err);
    fr_trace_end("fold", traced_ns);
    fr_durable_get_status(service->durable, &durable);
    double seconds = (double)(fr_mono_ns(service->clock) - begin_ns) / 1e9;
    fr_timings_observe(&service->timings, FR_TIMING_FOLD, seconds);
    fr_log(FR_LOG_INFO, "fold", "end", "folded=%" PRIu64 " seconds=%.3f", durable.folded, seconds);
    return status;
}

enum fr_status fr_step_fold(struct fr_service *service, struct fr_err *err)
{
    if (atomic_load(&service->abandon))
        return FR_EOF;
    if (fr_mono_ns(service->clock) < service->fold_retry.next_ns)
        return FR_AGAIN;
    /* Taken before the look at what is durable: an epoch that is durable when the wish comes is
     * folded. */
    struct fr_publisher_status publisher;
    fr_publisher_get_status(service->publisher, &publisher);
    bool wanted = atomic_exchange(&service->fold_wanted, false) || publisher.fold_wanted;
    struct fr_durable_status durable;
    fr_durable_get_status(service->durable, &durable);
    uint64_t free_bytes = atomic_load(&service->disk_free), reserve = atomic_load(&service->disk_reserve);
    /* On a short disk what the journal has of it is better off folded, where a key stands once. */
    bool is_short = free_bytes < reserve && durable.unfolded_bytes >= FR_DISK_RESERVE;
    bool due =
        durable.unfolded_bytes >= service->conf->unfolded_max || is_short || (wanted && durable.epoch > durable.folded);
    enum fr_status status = FR_E_NO_SPACE;
    if (!due)
        return (status = fr_step_savepoints(service, err)) == FR_OK ? FR_AGAIN : status;
    if (reserve > 0 && free_bytes < durable.unfolded_bytes)
        (void)fr_err_set(err, status, "a fold may write %" PRIu64 " bytes, and %" PRIu64 " are free",
                         durable.unfolded_bytes, free_bytes);
    else
        status = fr_service_fold(service, &durable, err);
    if (status == FR_E_NO_SPACE) {
        if (wanted)
            atomic_store(&service->fold_wanted, true);
        (void)fr_err_wrap(err, "make room under %s, then it goes on by itself", service->conf->state_dir);
        fr_service_retry_later(service, &service->fold_retry, "fold", err);
        return FR_AGAIN;
    }
    if (status == FR_OK)
        fr_service_retry_good(service, &service->fold_retry, "fold");
    return status == FR_OK ? FR_AGAIN : status;
}
