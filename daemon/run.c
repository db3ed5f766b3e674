/* The work of the main thread while the service runs: it waits for signals, publishes the
 * documents, notices a failure, and drains.
 *
 * A drain goes in this order: ingest stops polling; the trainer cuts its last epoch; the durable
 * thread makes it durable; the publisher waits for the acknowledgements; the last savepoint and the
 * last snapshot are taken. All of it has export.drain_timeout. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "documents.h"
#include "notify.h"
#include "progress.h"
#include "service.h"
#include "signals.h"

enum { END_LOOK_MS = 20 }; /* the end may be noticed late by this time */

/* Waits for a turn of the main loop, or until training ends. Returns the signal that was
 * received, or 0. */
static int wait_turn(struct fr_service *service)
{
    bool ended = fr_loops_done(&service->loops, FR_LOOP_TRAINER);
    int signal_number = fr_signals_wait(END_LOOK_MS);
    for (long ms = END_LOOK_MS; ms < FR_TICK_MS && signal_number == 0; ms += END_LOOK_MS) {
        if (!ended && fr_loops_done(&service->loops, FR_LOOP_TRAINER))
            break;
        signal_number = fr_signals_wait(END_LOOK_MS);
    }
    return signal_number;
}

bool fr_service_stops(struct fr_service *service, int signal_number)
{
    uint64_t now_ns = fr_mono_ns(service->clock);
    if (signal_number == SIGTERM && service->stop_ns &&
        now_ns - service->stop_ns >= (uint64_t)FR_SECOND_SIGNAL_MS * 1000000u) {
        fr_log_last(FR_LOG_WARN, "daemon", "exit_now", "why=second_signal");
        _exit(FR_EXIT_RETRY);
    }
    if (signal_number == SIGTERM && !service->stop_ns)
        service->stop_ns = now_ns ? now_ns : 1;
    return signal_number == SIGTERM || signal_number == SIGQUIT;
}

static void begin_drain(struct fr_service *service, const char *why)
{
    if (atomic_exchange(&service->life.phase, FR_PHASE_DRAINING) >= FR_PHASE_DRAINING)
        return;
    fr_log(FR_LOG_INFO, "daemon", "drain", "why=%s", why);
    fr_notify("STOPPING=1\nSTATUS=draining");
    atomic_store(&service->life.stop_ingest, true);
    fr_trainer_stop(service->trainer);
}

/* Whether every durable epoch that is not held back is acknowledged on the delta topic. */
static bool all_published(struct fr_service *service)
{
    struct fr_publisher_status publisher;
    fr_publisher_get_status(service->publisher, &publisher);
    return publisher.acked >= atomic_load(&service->loops.durable.shared.publishable);
}

/* savepoint.at_drain: requests the last savepoint once. Returns whether the fold thread has taken
 * it or reported why not. */
static bool last_savepoint_taken(struct fr_service *service)
{
    if (!service->conf->savepoint.at_drain)
        return true;
    int none = FR_LAST_NONE;
    (void)atomic_compare_exchange_strong(&service->loops.fold.shared.last_savepoint, &none, FR_LAST_WANTED);
    return atomic_load(&service->loops.fold.shared.last_savepoint) == FR_LAST_DONE;
}

/* snapshot.at_drain: requests the last snapshot once. Returns whether CURRENT names a snapshot of
 * the last epoch and it is uploaded. While publishing is held none is taken, because no replica may
 * begin with that epoch. */
static bool last_snapshot_named(struct fr_service *service)
{
    uint64_t durable = atomic_load(&service->loops.durable.shared.epoch);
    if (!service->conf->snapshot.at_drain || durable == 0 ||
        atomic_load(&service->loops.durable.shared.publishable) < durable)
        return true;
    int none = FR_LAST_NONE;
    (void)atomic_compare_exchange_strong(&service->loops.snapshot.shared.last, &none, FR_LAST_WANTED);
    return atomic_load(&service->loops.snapshot.shared.last) == FR_LAST_DONE;
}

/* Returns FR_OK, or FR_E_NONFINITE if epochs stay unpublished because publishing is held. */
static enum fr_status drained(struct fr_service *service, struct fr_err *err)
{
    uint64_t durable = atomic_load(&service->loops.durable.shared.epoch),
             publishable = atomic_load(&service->loops.durable.shared.publishable);
    if (publishable >= durable)
        return FR_OK;
    return fr_err_set(
        err, FR_E_NONFINITE,
        "drained, but publishing is held after %d batches in a row of which nothing could train: epochs %" PRIu64
        " to %" PRIu64 " are durable and not on %s. Lower the learning rates or look for broken dense "
        "values in the stream, then start again: they are published after %d good batches in a row",
        FR_QUARANTINE_STREAK_MAX, publishable + 1, durable, service->conf->export_.topic, FR_QUARANTINE_STREAK_MAX);
}

/* Describes a drain in which every epoch was published, but the last savepoint or the last
 * snapshot is missing. */
static enum fr_status last_copies_timed_out(struct fr_service *service, struct fr_err *err)
{
    char problem[FR_SNAPSHOT_PROBLEM_MAX], current[FR_MANIFEST_NAME_MAX];
    struct fr_shared_snapshots *snapshots = &service->loops.snapshot.shared;
    const struct fr_conf *conf = service->conf;
    if (!last_savepoint_taken(service))
        return fr_err_set(
            err, FR_E_UNAVAILABLE,
            "export.drain_timeout passed while the savepoint of savepoint.at_drain was taken; every epoch "
            "is %s and nothing is lost: take it now with `freshet savepoint --state-dir %s`",
            conf->ingest.brokers ? "published" : "durable", conf->state_dir);
    fr_shared_snapshots_get_texts(snapshots, current, problem);
    bool as_export = conf->snapshot.quantize == FR_SNAPSHOT_AS_EXPORT;
    bool online = conf->ingest.brokers;
    char topic[256] = "", kept[384] = "";
    if (online) {
        snprintf(topic, sizeof(topic), " --topic %s", conf->export_.topic);
        snprintf(kept, sizeof(kept), ", and replicas that begin later need what %s still keeps", conf->export_.topic);
    }
    /* The state of the snapshot comes last, so that a text that is too long is not cut in the
     * command. */
    return fr_err_set(err, FR_E_UNAVAILABLE,
                      "export.drain_timeout passed before the snapshot of the last epoch was written, named by CURRENT "
                      "and uploaded. Every epoch is %s and nothing is lost, but CURRENT names %s%s: take it now with "
                      "`freshet snapshot --state-dir %s --dir %s%s%s%s` and upload it yourself (snapshot.hook does not "
                      "run), or start the daemon again. Raise export.drain_timeout above the time that writing and "
                      "uploading a snapshot takes. State of the snapshot: %s",
                      online ? "published" : "durable", current[0] ? current : "no snapshot", kept, conf->state_dir,
                      conf->snapshot.dir, topic, as_export ? "" : " --quantize ",
                      as_export ? "" : fr_snapshot_quantize_text(conf->snapshot.quantize),
                      problem[0] ? problem : "under way");
}

/* Describes a drain after which an epoch is not durable, or training has not ended; the next
 * start reads the records again. */
static enum fr_status not_durable(struct fr_service *service, struct fr_err *err)
{
    struct fr_ingest_status ingest;
    struct fr_shared_durable *durable = &service->loops.durable.shared;
    const char *what = atomic_load(&durable->waits_for);
    fr_ingest_get_status(service->ingest, &ingest);
    if (!atomic_load(&durable->waiting_cut_ns))
        what = "its last batch";
    else if (!what)
        what = "the disk under state_dir";
    enum fr_status status =
        fr_err_set(err, FR_E_UNAVAILABLE,
                   "drain_timeout passed before epoch %" PRIu64 " was durable: it waits for %s%s%s%s; nothing is lost: "
                   "the next start reads its records again",
                   atomic_load(&durable->epoch) + 1, what, ingest.problem[0] ? " (" : "", ingest.problem,
                   ingest.problem[0] ? ")" : "");
    fr_ingest_status_release(&ingest);
    return status;
}

enum fr_status fr_service_drain_timed_out(struct fr_service *service, struct fr_err *err)
{
    struct fr_publisher_status publisher;
    if (!fr_loops_done(&service->loops, FR_LOOP_TRAINER) || !fr_loops_done(&service->loops, FR_LOOP_DURABLE))
        return not_durable(service, err);
    if (all_published(service))
        return last_copies_timed_out(service, err);
    fr_publisher_get_status(service->publisher, &publisher);
    if (publisher.refused[0]) /* waiting longer would not help */
        return fr_err_set(err, FR_E_MISMATCH,
                          "drain_timeout passed with epoch %" PRIu64 " durable and %" PRIu64
                          " acknowledged on %s: %s, then start again and the rest is sent; nothing is lost",
                          atomic_load(&service->loops.durable.shared.epoch), publisher.acked,
                          service->conf->export_.topic, publisher.refused);
    return fr_err_set(err, FR_E_UNAVAILABLE,
                      "drain_timeout passed with epoch %" PRIu64 " durable and %" PRIu64
                      " acknowledged on %s (%s); nothing is lost: start again "
                      "when the broker answers and the rest is sent",
                      atomic_load(&service->loops.durable.shared.epoch), publisher.acked, service->conf->export_.topic,
                      publisher.problem[0] ? publisher.problem : "no error from the broker");
}

/* Reports to the service manager: a sign of life for its watchdog while no loop is stuck, and a
 * request for more time during a drain. READY is repeated, because the first message is lost if the
 * manager's queue was full. */
static void notify_turn(struct fr_service *service)
{
    if (fr_http_live(service->http))
        fr_notify(atomic_load(&service->life.phase) == FR_PHASE_DRAINING ? "WATCHDOG=1\n" FR_NOTIFY_EXTEND
                                                                         : "READY=1\nWATCHDOG=1");
}

enum fr_status fr_service_run(struct fr_service *service, struct fr_err *err)
{
    atomic_store(&service->life.phase, FR_PHASE_RUNNING);
    enum fr_status status = fr_loops_start(&service->loops, err);
    if (status != FR_OK)
        return status;
    struct fr_progress progress = {0};
    uint64_t drain_begin_ns = 0;
    fr_notify("READY=1\nSTATUS=running");
    if (atomic_load(&service->recovery.stop)) /* recovery ended before it noticed the signal */
        begin_drain(service, "signal");
    for (;;) {
        int signal_number = wait_turn(service);
        fr_documents_publish(service);
        fr_progress_log(&progress, service);
        notify_turn(service);
        if (fr_lifecycle_failed(&service->life, err))
            return err->status;
        if (signal_number == SIGHUP)
            fr_log(FR_LOG_WARN, "daemon", "reload",
                   "note=\"reloading is not in this version; restart to change the configuration\"");
        if (fr_service_stops(service, signal_number))
            begin_drain(service, "signal");
        if (fr_loops_done(&service->loops, FR_LOOP_TRAINER))
            begin_drain(service, "end_of_stream");
        if (atomic_load(&service->life.phase) != FR_PHASE_DRAINING)
            continue;
        uint64_t now_ns = fr_mono_ns(service->clock);
        if (!drain_begin_ns)
            drain_begin_ns = now_ns;
        bool finished =
            fr_loops_done(&service->loops, FR_LOOP_TRAINER) && fr_loops_done(&service->loops, FR_LOOP_DURABLE);
        if (finished && all_published(service) && last_savepoint_taken(service) && last_snapshot_named(service))
            return drained(service, err);
        if (now_ns - drain_begin_ns > (uint64_t)service->conf->export_.drain_timeout_ms * 1000000u)
            return fr_service_drain_timed_out(service, err);
    }
}
