/* Recovery opens the state, compares it with the configuration, and restores the trainer, the
 * stream positions and the newest announcement.
 *
 * Recovery has a thread of its own while the main thread waits for signals: one signal ends
 * recovery within moments, a second one ends the process, and nothing is lost in either case.
 * Until the thread is joined it owns the service, except the atomics of `struct fr_recovery`
 * and stop_ns. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/order.h"
#include "base/thread.h"
#include "documents.h"
#include "durable/agreement.h"
#include "exchange/exchange.h"
#include "notify.h"
#include "process_limits.h"
#include "service.h"
#include "signals.h"

enum { TICK_MS = 10 };       /* the start of an empty state may take longer by this time */
enum { DIGESTS_MAX = 1024 }; /* in one message of a rank, which has 32 KiB then */

/* Restores the newest epoch's announcement: the snapshot, and when the epoch was cut. */
static enum fr_status restore_announcement(struct fr_service *service, const uint8_t *section, size_t size)
{
    struct fr_arena arena = {.block_size = 4096};
    struct fr_announcement *announcement = fr_alloc(1, sizeof(*announcement));
    enum fr_status status = fr_announcement_parse(section, size, &arena, announcement);
    if (status == FR_OK) {
        fr_shared_snapshots_announce(&service->loops.snapshot.shared, &announcement->snapshot);
        service->recovery.epoch_wall_ms = announcement->wall_ms;
    }
    free(announcement);
    fr_arena_release(&arena);
    return status;
}

static enum fr_status restore_section(void *self, const char *name, const uint8_t *bytes, size_t size)
{
    struct fr_service *service = self;
    if (strcmp(name, FR_SECTION_TRAINING) == 0)
        return fr_identity_check(&service->recovery.identity, service->conf, service->durable, bytes, size);
    if (strcmp(name, "announce") == 0)
        return restore_announcement(service, bytes, size);
    if (strcmp(name, "positions") != 0)
        return FR_OK;
    return fr_positions_parse(bytes, size, &service->loops.trainer.positions);
}

static void show_progress(void *self, uint64_t done, uint64_t total)
{
    struct fr_service *service = self;
    atomic_store(&service->recovery.done_bytes, done);
    atomic_store(&service->recovery.total_bytes, total);
    fr_documents_publish(service);
}

/* Returns how many bytes of the newest epochs are kept in memory for the publisher and the fold:
 * those of the largest epoch, up to 64 MiB (trainer/memory_limit.c counts them). */
static uint64_t epoch_keep_bytes(const struct fr_conf *conf)
{
    uint64_t most = 64 << 20;
    return conf->epoch_bytes_max < most ? conf->epoch_bytes_max : most;
}

static void beat_of_fold(void *self)
{
    struct fr_service *service = self;
    fr_http_beat(service->http, service->loops.threads[FR_LOOP_FOLD].beat);
}

/* ---- the states of several ranks ---- */

static enum fr_status agree_epochs(void *self, const struct fr_durable_ends *ends, uint64_t *keep, struct fr_err *err)
{
    const struct fr_service *service = self;
    struct fr_exchange *exchange = service->options.exchange;
    struct fr_durable_ends all[FR_RANKS_MAX];
    enum fr_status status = fr_exchange_gather(exchange, ends, sizeof(*ends), all, err);
    if (status == FR_OK)
        status = fr_durable_agree(all, fr_exchange_size(exchange), keep, err);
    if (status == FR_OK && (ends->mark < *keep || ends->journal > *keep))
        fr_log(FR_LOG_INFO, "daemon", "epochs_agreed",
               "rank=%" PRIu32 " epoch=%" PRIu64 " marked=%" PRIu64 " in_journal=%" PRIu64, fr_exchange_rank(exchange),
               *keep, ends->mark, ends->journal);
    return status;
}

static enum fr_status all_prepared(void *self, struct fr_err *err)
{
    const struct fr_service *service = self;
    uint8_t nothing = 0, all[FR_RANKS_MAX];
    return fr_exchange_gather(service->options.exchange, &nothing, sizeof(nothing), all, err);
}

/* Adds the digests of `n` epochs from `epoch` on, of which all ranks have theirs in the journal. */
static enum fr_status share_digests(struct fr_service *service, uint64_t epoch, uint32_t n, struct fr_err *err)
{
    struct fr_exchange *exchange = service->options.exchange;
    uint32_t ranks = fr_exchange_size(exchange);
    struct fr_sha256 *own = fr_alloc(n, sizeof(*own)), *all = fr_alloc((size_t)n * ranks, sizeof(*all));
    enum fr_status status = FR_OK;
    for (uint32_t i = 0; i < n && status == FR_OK; i++)
        if ((status = fr_durable_digest(service->durable, epoch + i, &own[i])) != FR_OK)
            (void)fr_err_set(err, status, "epoch %" PRIu64 " is not in the journal of rank %" PRIu32, epoch + i,
                             fr_exchange_rank(exchange));
    if (status == FR_OK)
        status = fr_exchange_gather(exchange, own, n * sizeof(*own), all, err);
    for (uint32_t i = 0; i < n && status == FR_OK; i++) {
        struct fr_sha256 of_ranks[FR_RANKS_MAX], joined;
        for (uint32_t r = 0; r < ranks; r++)
            of_ranks[r] = all[(size_t)r * n + i];
        joined = fr_durable_join_digests(of_ranks, ranks);
        fr_shared_digests_add(&service->loops.durable.digests, epoch + i, &joined);
    }
    free(own);
    free(all);
    return status;
}

/* Finds the digests of all epochs that all journals have, and the one before. An epoch that a rank
 * no longer has is acknowledged by all ranks. */
static enum fr_status find_digests(struct fr_service *service, struct fr_err *err)
{
    struct fr_durable_status durable;
    uint64_t first[FR_RANKS_MAX], from = 0;
    fr_durable_get_status(service->durable, &durable);
    uint64_t own = durable.journal_first > 0 ? durable.journal_first - 1 : durable.epoch;
    enum fr_status status = fr_exchange_gather(service->options.exchange, &own, sizeof(own), first, err);
    for (uint32_t r = 0; status == FR_OK && r < fr_exchange_size(service->options.exchange); r++)
        from = first[r] > from ? first[r] : from;
    if (status == FR_OK && from > durable.epoch)
        status = fr_err_set(err, FR_E_CORRUPT, "a rank says that its journal begins after epoch %" PRIu64 ", its last",
                            durable.epoch);
    fr_shared_digests_begin(&service->loops.durable.digests, from);
    while (status == FR_OK && from <= durable.epoch) {
        uint64_t left = durable.epoch - from + 1;
        uint32_t n = left < DIGESTS_MAX ? (uint32_t)left : DIGESTS_MAX;
        status = share_digests(service, from, n, err);
        from += n;
    }
    return status;
}

/* The states of all ranks have one salt, because keys are sent in its order: that of rank 0. */
static enum fr_status agree_salt(const struct fr_service *service, struct fr_durable_options *options,
                                 struct fr_err *err)
{
    uint64_t salts[FR_RANKS_MAX] = {options->salt}, own = options->salt;
    enum fr_status status = fr_durable_read_salt(options->dir, &own, err);
    if (status == FR_OK || status == FR_E_NOT_FOUND)
        status = fr_exchange_gather(service->options.exchange, &own, sizeof(own), salts, err);
    options->salt = salts[0];
    return status;
}

static enum fr_status open_state(struct fr_service *service, struct fr_durable_options *options, struct fr_err *err)
{
    struct fr_exchange *exchange = service->options.exchange;
    const struct fr_durable_job job = {service, agree_epochs, all_prepared};
    if (!exchange)
        return fr_durable_open(options, &service->durable, err);
    options->job = &job;
    enum fr_status status = agree_salt(service, options, err);
    if (status == FR_OK)
        status = fr_durable_open(options, &service->durable, err);
    options->job = NULL;
    if (status != FR_OK)
        return status;
    struct fr_durable_status opened;
    fr_durable_get_status(service->durable, &opened);
    if (opened.salt == options->salt)
        return find_digests(service, err);
    return fr_err_set(err, FR_E_MISMATCH,
                      "the state of rank %" PRIu32 " in %s is not of the job of rank 0: its keys have another order; "
                      "start each rank with its own directory, or remove those of a start that failed",
                      fr_exchange_rank(exchange), options->dir);
}

static enum fr_status open_durable(struct fr_service *service, struct fr_err *err)
{
    const struct fr_conf *conf = service->conf;
    struct fr_buffer head = {0};
    fr_identity_head(conf, fr_trainer_kernel(service->trainer), &head);
    /* A trim frees whole files and never the newest one. A single file that could reach journal_max
     * would pause reading for ever. journal_max is at least 2 * unfolded_max. */
    uint64_t file_max = conf->unfolded_max / 4;
    /* Lockstep runs are compared byte by byte. Otherwise the order must not be guessable. */
    uint64_t salt = conf->ingest.lockstep ? fr_fmix64(conf->seed) : fr_order_random_salt();
    struct fr_durable_options options = {.dir = conf->state_dir,
                                         .journal_file_max =
                                             file_max < FR_JOURNAL_FILE_MAX ? file_max : FR_JOURNAL_FILE_MAX,
                                         .salt = salt,
                                         .fold_bytes = conf->unfolded_max,
                                         .keep_bytes = epoch_keep_bytes(conf),
                                         .touch_bytes = fr_limits_epoch_touch_bytes(conf),
                                         .head = head.data,
                                         .head_size = head.size,
                                         .merged = beat_of_fold,
                                         .merged_self = service};
    enum fr_status status = open_state(service, &options, err);
    fr_buffer_release(&head);
    return status;
}

static enum fr_status restore_trainer(struct fr_service *service, struct fr_err *err)
{
    const struct fr_identity *identity = &service->recovery.identity;
    struct fr_trainer_restore_options restore = {.first = FR_SECTION_TRAINING,
                                                 .other = restore_section,
                                                 .progress = show_progress,
                                                 .self = service,
                                                 .stop = &service->recovery.stop};
    enum fr_status status = fr_trainer_restore(service->trainer, service->durable, &restore, err);
    if (status != FR_OK && identity->err.status != FR_OK && err)
        *err = identity->err;
    return status;
}

/* Sets the first values of what the loops share. */
static void begin_shared(struct fr_service *service, uint64_t epoch)
{
    struct fr_shared_durable *durable = &service->loops.durable.shared;
    atomic_store(&durable->epoch, epoch);
    atomic_store(&durable->publishable, fr_trainer_publishable(service->trainer));
    fr_shared_durable_set_positions(durable, &service->loops.trainer.positions);
    atomic_store(&durable->wall_ms, fr_wall_ms(service->clock));
    atomic_store(&service->loops.publish.shared.published_wall_ms, fr_wall_ms(service->clock));
}

static enum fr_status recover(struct fr_service *service, struct fr_err *err)
{
    enum fr_status status = fr_service_restore(service, err);
    if (status == FR_OK)
        status = open_durable(service, err);
    if (status == FR_OK)
        status = fr_service_new_timeline(service, err);
    if (status != FR_OK)
        return status;
    struct fr_durable_status durable;
    fr_durable_get_status(service->durable, &durable);
    if (durable.epoch == 0 && (status = fr_identity_write(service->conf, service->durable, err)) != FR_OK)
        return status;
    uint64_t begin_ns = fr_mono_ns(service->clock);
    if ((status = restore_trainer(service, err)) != FR_OK)
        return status;
    fr_identity_adopt_changes(&service->recovery.identity, service->conf, service->clock, service->trainer);
    begin_shared(service, durable.epoch);
    fr_log(FR_LOG_INFO, "daemon", "recovered",
           "epoch=%" PRIu64 " timeline=%" PRIu64 " folded=%" PRIu64 " acked=%" PRIu64 " seconds=%.3f", durable.epoch,
           durable.timeline, durable.folded, durable.acked, (double)(fr_mono_ns(service->clock) - begin_ns) / 1e9);
    return FR_OK;
}

/* ---- the recovery thread ---- */

struct recovering {
    struct fr_service *service;
    enum fr_status status;
    struct fr_err err;
    atomic_bool done;
};

static void *recover_main(void *self)
{
    struct recovering *recovering = self;
    recovering->status = recover(recovering->service, &recovering->err);
    atomic_store(&recovering->done, true);
    return NULL;
}

enum fr_status fr_service_recover(struct fr_service *service, struct fr_err *err)
{
    struct recovering recovering = {.service = service};
    pthread_t thread;
    if (!fr_thread_start(&thread, "recovery", recover_main, &recovering))
        return fr_err_set(err, FR_E_NO_MEMORY, "cannot start a thread for recovery: %s", FR_THREADS_SHORT);
    uint64_t notified_ns = 0;
    while (!atomic_load(&recovering.done)) {
        uint64_t now_ns = fr_mono_ns(service->clock);
        if (now_ns - notified_ns >= FR_NOTIFY_EXTEND_MS * UINT64_C(1000000)) {
            fr_notify("STATUS=recovering\n" FR_NOTIFY_EXTEND);
            notified_ns = now_ns;
        }
        if (fr_service_stops(service, fr_signals_wait(TICK_MS)) && !atomic_exchange(&service->recovery.stop, true))
            fr_log(FR_LOG_INFO, "daemon", "recovery_stopped", "why=signal");
    }
    pthread_join(thread, NULL);
    if (recovering.status != FR_OK && err)
        *err = recovering.err;
    return recovering.status;
}
