/* Wiring: opens the state, recovers, builds rings and threads, and ends them in order.
 *
 * At the start HTTP comes first, so that /healthz and /readyz answer while recovering. What the
 * main thread does in between is in run.c. */
#include "service.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "base/thread.h"

enum { RECOVERY_TICK_MS = 10 }; /* what a start of an empty state may take longer */

int fr_exit_code(enum fr_status status)
{
    switch (status) {
    case FR_OK:
        return FR_EXIT_OK;
    case FR_E_INVALID:
    case FR_E_UNSUPPORTED:
        return FR_EXIT_CONFIG;
    case FR_E_LIMIT:          /* named in the message: of the process, of a path, of a file */
    case FR_E_NO_DESCRIPTORS: /* a limit, too: a restart meets it again */
    case FR_E_EXISTS:
    case FR_E_NOT_FOUND: /* a file of the state, or a directory that state_dir goes through */
    case FR_E_CORRUPT:
    case FR_E_MISMATCH:
    case FR_E_LOST:
    case FR_E_NONFINITE:
    case FR_E_DENIED: /* owner or mode of what state_dir names, or a file system gone read-only */
        return FR_EXIT_OPERATOR;
    case FR_E_BUSY:
    case FR_E_NO_SPACE:
    case FR_E_NO_MEMORY: /* or threads */
    case FR_E_UNAVAILABLE:
    case FR_E_CANCELLED:
        return FR_EXIT_RETRY;
    default:
        return FR_EXIT_FAILURE;
    }
}

void fr_service_fail(struct fr_service *service, const struct fr_err *err)
{
    pthread_mutex_lock(&service->lock);
    if (service->failure.status == FR_OK)
        service->failure = *err;
    pthread_mutex_unlock(&service->lock);
}

/* ---- stream positions, called by the trainer thread ---- */

static void stream_applied(void *self, const struct fr_batch *batch)
{
    struct fr_service *service = self;
    /* partitions found since the last batch */
    fr_ingest_adopt(service->ingest, &service->positions);
    fr_positions_apply(&service->positions, batch);
}

static enum fr_status stream_dead_letter(void *self, const struct fr_batch *batch, const struct fr_batch_record *record,
                                         const char *reason, uint64_t *number)
{
    struct fr_service *service = self;
    return fr_ingest_dead_letter(service->ingest, batch, record, reason, number);
}

static void stream_stage(void *self, struct fr_buffer *section)
{
    struct fr_service *service = self;
    fr_positions_encode(&service->positions, section);
}

static int compare_offsets(const void *left, const void *right)
{
    const struct fr_announced_offset *a = left, *b = right;
    int topic = strcmp(a->topic, b->topic);
    return topic ? topic : (a->partition > b->partition) - (a->partition < b->partition);
}

static uint32_t stream_offsets(void *self, struct fr_announced_offset **offsets)
{
    struct fr_service *service = self;
    uint32_t count = service->positions.count;
    if (count > service->offsets_capacity) {
        service->offsets = fr_realloc(service->offsets, count, sizeof(*service->offsets));
        service->offsets_capacity = count;
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct fr_partition_position *position = &service->positions.partitions[i];
        if (position->offset < 0)
            continue;
        struct fr_announced_offset *out = &service->offsets[n++];
        memset(out, 0, sizeof(*out));
        memcpy(out->topic, position->topic, sizeof(out->topic));
        out->partition = position->partition;
        out->next_offset = position->offset;
    }
    if (n > 1)
        qsort(service->offsets, n, sizeof(*service->offsets), compare_offsets);
    *offsets = service->offsets;
    return n;
}

/* ---- open ---- */

static void make_rings(struct fr_service *service)
{
    size_t batches = service->conf->ingest.ring_batches;
    service->full = fr_ring_new(batches);
    service->empty = fr_ring_new(batches + 2); /* one being filled, one being trained */
    for (size_t i = 0; i < batches + 2; i++)
        FR_CHECK(fr_ring_try_push(service->empty, fr_batch_new(service->conf)));
    service->cut_stages = fr_ring_new(FR_STAGES);
    service->free_stages = fr_ring_new(FR_STAGES);
    for (size_t i = 0; i < FR_STAGES; i++) {
        fr_stage_init(&service->stages[i]);
        if (fr_epoch_touch_bytes(service->conf) > 0)
            fr_stage_touch(&service->stages[i], fr_epoch_touch_bytes(service->conf));
        FR_CHECK(fr_ring_try_push(service->free_stages, &service->stages[i]));
    }
}

static enum fr_status restore_section(void *self, const char *name, const uint8_t *bytes, size_t size)
{
    struct fr_service *service = self;
    if (strcmp(name, FR_SECTION_TRAINING) == 0)
        return fr_identity_check(service, bytes, size);
    if (strcmp(name, "announce") == 0)
        return fr_snapshots_restore(service, bytes, size);
    if (strcmp(name, "positions") != 0)
        return FR_OK;
    return fr_positions_parse(bytes, size, &service->positions);
}

static void recovery_progress(void *self, uint64_t done, uint64_t total)
{
    struct fr_service *service = self;
    atomic_store(&service->recovered_bytes, done);
    atomic_store(&service->recover_bytes, total);
    fr_documents_publish(service);
}

/* Newest epochs that publisher and fold find in memory: as much as an epoch may be, within reason
 * (trainer/memory_limit.c expects that). */
static uint64_t epoch_keep_bytes(const struct fr_conf *conf)
{
    uint64_t most = 64 << 20;
    return conf->epoch_bytes_max < most ? conf->epoch_bytes_max : most;
}

static void fold_goes_on(void *self)
{
    struct fr_service *service = self;
    fr_http_beat(service->http, service->loops[FR_LOOP_FOLD].beat);
}

static enum fr_status open_state(struct fr_service *service, struct fr_err *err)
{
    struct fr_buffer head = {0};
    fr_identity_head(service->conf, fr_trainer_kernel(service->trainer), &head);
    /* Trim frees whole files and never the newest: a file that could reach journal_max alone would
     * pause reading for ever. journal_max is at least 2 * unfolded_max. */
    uint64_t file_max = service->conf->unfolded_max / 4;
    /* Lockstep runs are compared byte by byte; else nobody may know the order. */
    uint64_t salt = service->conf->ingest.lockstep ? fr_fmix64(service->conf->seed) : fr_order_random_salt();
    struct fr_durable_options options = {.dir = service->conf->state_dir,
                                         .journal_file_max =
                                             file_max < FR_JOURNAL_FILE_MAX ? file_max : FR_JOURNAL_FILE_MAX,
                                         .salt = salt,
                                         .fold_bytes = service->conf->unfolded_max,
                                         .keep_bytes = epoch_keep_bytes(service->conf),
                                         .touch_bytes = fr_epoch_touch_bytes(service->conf),
                                         .head = head.data,
                                         .head_size = head.size,
                                         .merged = fold_goes_on,
                                         .merged_self = service};
    enum fr_status status = fr_service_restore(service, err);
    if (status == FR_OK)
        status = fr_durable_open(&options, &service->durable, err);
    if (status == FR_OK)
        status = fr_service_new_timeline(service, err);
    fr_buffer_release(&head);
    if (status != FR_OK)
        return status;
    struct fr_durable_status durable;
    fr_durable_get_status(service->durable, &durable);
    if (durable.epoch == 0 && (status = fr_identity_write(service, err)) != FR_OK)
        return status;
    uint64_t begin_ns = fr_mono_ns(service->clock);
    struct fr_trainer_restore_options restore = {.first = FR_SECTION_TRAINING,
                                                 .other = restore_section,
                                                 .progress = recovery_progress,
                                                 .self = service,
                                                 .stop = &service->stop_recovery};
    status = fr_trainer_restore(service->trainer, service->durable, &restore, err);
    if (status != FR_OK && service->identity.err.status != FR_OK && err)
        *err = service->identity.err;
    if (status != FR_OK)
        return status;
    fr_identity_take_over(service);
    atomic_store(&service->durable_epoch, durable.epoch);
    atomic_store(&service->publishable, fr_trainer_publishable(service->trainer));
    fr_positions_copy(&service->positions, &service->durable_positions);
    atomic_store(&service->durable_wall_ms, fr_wall_ms(service->clock));
    atomic_store(&service->published_wall_ms, fr_wall_ms(service->clock));
    fr_log(FR_LOG_INFO, "daemon", "recovered",
           "epoch=%" PRIu64 " timeline=%" PRIu64 " folded=%" PRIu64 " acked=%" PRIu64 " seconds=%.3f", durable.epoch,
           durable.timeline, durable.folded, durable.acked, (double)(fr_mono_ns(service->clock) - begin_ns) / 1e9);
    return FR_OK;
}

/* Recovery on its own thread, while the caller's waits for signals: one ends it within moments, a
 * second one the process. Either way nothing is lost. Until it is joined, service is the thread's,
 * except the atomics and stop_ns. */
struct recovery {
    struct fr_service *service;
    enum fr_status status;
    struct fr_err err;
    atomic_bool done;
};

static void *recover_main(void *self)
{
    struct recovery *recovery = self;
    recovery->status = open_state(recovery->service, &recovery->err);
    atomic_store(&recovery->done, true);
    return NULL;
}

static enum fr_status recover(struct fr_service *service, struct fr_err *err)
{
    struct recovery recovery = {.service = service};
    pthread_t thread;
    if (!fr_thread_start(&thread, "recovery", recover_main, &recovery))
        return fr_err_set(err, FR_E_NO_MEMORY, "cannot start a thread for recovery: %s", FR_THREADS_SHORT);
    while (!atomic_load(&recovery.done)) {
        if (fr_service_stops(service, fr_signals_wait(RECOVERY_TICK_MS)) &&
            !atomic_exchange(&service->stop_recovery, true))
            fr_log(FR_LOG_INFO, "daemon", "recovery_stopped", "why=signal");
    }
    pthread_join(thread, NULL);
    if (recovery.status != FR_OK && err)
        *err = recovery.err;
    return recovery.status;
}

static enum fr_status open_trainer(struct fr_service *service, struct fr_err *err)
{
    const struct fr_conf *conf = service->conf;
    size_t workers = fr_limits_workers(conf);
    service->pool = fr_pool_new(workers);
    if (fr_pool_workers(service->pool) < workers)
        return fr_err_set(err, FR_E_NO_MEMORY, "cannot start worker %zu of %zu: %s, or lower `threads`",
                          fr_pool_workers(service->pool) + 1, workers, FR_THREADS_SHORT);
    for (uint32_t i = 0; i < service->conf->n_tables; i++)
        fr_service_policies(&service->conf->tables[i], &service->policy_configs[i], &service->policies[i]);
    make_rings(service);
    struct fr_trainer_options options = {
        .conf = conf,
        .clock = service->clock,
        .pool = service->pool,
        .policies = service->policies,
        .stream = {service, stream_applied, stream_stage, stream_offsets, stream_dead_letter, fr_snapshots_announced},
        .full = service->full,
        .empty = service->empty,
        .cut_stages = service->cut_stages,
        .free_stages = service->free_stages,
        .fold_wanted = &service->fold_wanted,
        .heartbeats = &service->delta_checked,
        .epoch_wanted = &service->epoch_wanted,
        .dense_wanted = &service->snapshots.dense_wanted,
        .waits_for = &service->waits_for,
        .freshness = service->freshness,
        .timings = &service->timings,
        .device = service->device.queue ? &service->device : NULL,
    };
    service->trainer = fr_trainer_new(&options);
    return FR_OK;
}

static enum fr_status fix_end(void *self, const char *text, size_t size, struct fr_err *err)
{
    struct fr_service *service = self;
    if (!service->conf->ingest.lockstep)
        return FR_OK; /* --until end asks anew in every run */
    return fr_durable_write_file(service->durable, "lockstep.end", text, size, err);
}

/* What is needed of the delta topic: back to the oldest kept snapshot, and to the one before while
 * the newest is taken. */
static int64_t retention_ms(const struct fr_conf *conf)
{
    return conf->export_.retention == FR_RETENTION_ALL ? 0
                                                       : conf->snapshot.every_ms * ((int64_t)conf->snapshot.keep + 1);
}

/* Else the topic alone has what a replica needs; in lockstep every run writes the same there. */
static bool begins_with_snapshots(const struct fr_conf *conf)
{
    return conf->export_.retention == FR_RETENTION_SNAPSHOTS && !conf->ingest.lockstep;
}

static enum fr_status open_publisher(struct fr_service *service, struct fr_err *err)
{
    const struct fr_conf *conf = service->conf;
    struct fr_publisher_property *properties = fr_alloc(conf->ingest.n_kafka + 1, sizeof(*properties));
    for (size_t i = 0; i < conf->ingest.n_kafka; i++)
        properties[i] = (struct fr_publisher_property){conf->ingest.kafka[i].name, conf->ingest.kafka[i].value,
                                                       conf->ingest.kafka[i].place};
    bool hps = conf->export_.format == FR_EXPORT_HPS;
    const char **tables = fr_alloc(conf->n_tables + 1, sizeof(*tables));
    for (uint32_t t = 0; t < conf->n_tables; t++)
        tables[t] = conf->tables[t].name;
    struct fr_publisher_options publisher = {.durable = service->durable,
                                             .clock = service->clock,
                                             .model = conf->model,
                                             .brokers = conf->export_.brokers,
                                             .topic = conf->export_.topic,
                                             .partitions = conf->export_.partitions,
                                             .n_hps_tables = hps ? conf->n_tables : 0,
                                             .hps_tables = tables,
                                             .create = conf->export_.create,
                                             .record_max = conf->export_.piece_max,
                                             .retention_ms = retention_ms(conf),
                                             .covers = fr_snapshots_cover,
                                             .self = service,
                                             .stop_on_loss = conf->export_.on_loss == FR_DELTA_LOSS_STOP,
                                             /* every run writes the same records there */
                                             .max_backlog_bytes = conf->ingest.lockstep ? 0 : conf->export_.backlog_max,
                                             .backlog_rebases = conf->export_.on_backlog == FR_BACKLOG_REBASE,
                                             .properties = properties,
                                             .n_properties = conf->ingest.n_kafka};
    /* consumers of HPS load no snapshot of ours: a new timeline brings them all rows */
    if (begins_with_snapshots(conf) && !hps)
        publisher.rewind = fr_snapshots_ask_rewind;
    enum fr_status status = fr_publisher_new(&publisher, &service->publisher, err);
    free(tables);
    free(properties);
    return status;
}

static enum fr_status open_streams(struct fr_service *service, struct fr_err *err)
{
    const struct fr_conf *conf = service->conf;
    const char *end = NULL;
    /* a run from a savepoint may be asked to end elsewhere than the one it was taken of */
    bool anew = service->restore && service->until_end;
    if (conf->ingest.lockstep && !anew) {
        enum fr_status status = fr_durable_read_file(service->durable, "lockstep.end", &service->end_offsets, err);
        if (status != FR_OK && status != FR_E_NOT_FOUND)
            return status;
        if (status == FR_OK) {
            fr_put_u8(&service->end_offsets, 0);
            end = (const char *)service->end_offsets.data;
        }
    }
    struct fr_ingest_options ingest = {.conf = conf,
                                       .clock = service->clock,
                                       .positions = &service->positions,
                                       .full = service->full,
                                       .empty = service->empty,
                                       .until_end = service->until_end || conf->ingest.lockstep,
                                       .until_ms = service->until_ms,
                                       .end_offsets = end,
                                       .epoch_wall_ms = service->epoch_wall_ms,
                                       .fix_end = fix_end,
                                       .fix_end_self = service,
                                       .skips = service->skips,
                                       .n_skips = service->n_skips};
    enum fr_status status = fr_ingest_new(&ingest, &service->ingest, err);
    return status == FR_OK ? open_publisher(service, err) : status;
}

enum fr_status fr_service_open(struct fr_service *service, struct fr_err *err)
{
    pthread_mutex_init(&service->lock, NULL);
    atomic_store(&service->phase, FR_PHASE_RECOVERING);
    service->registry = fr_registry_new(service->conf->model);
    fr_timings_init(&service->timings, service->registry);
    service->freshness = fr_freshness_new(service->registry, &service->timings);
    struct fr_http_options http = {.host = service->conf->metrics.listen_host,
                                   .port = service->conf->metrics.listen_port,
                                   .hosts = (const char *const *)service->conf->metrics.hosts,
                                   .n_hosts = service->conf->metrics.n_hosts,
                                   .clock = service->clock,
                                   .registry = service->registry};
    enum fr_status status = fr_http_new(&http, &service->http, err);
    if (status != FR_OK)
        return status;
    fr_log(FR_LOG_INFO, "daemon", "http", "address=%s port=%u", service->conf->metrics.listen_host,
           fr_http_port(service->http));
    /* Known before they ever say something: an alert needs a 0 to compare with. */
    static const char *const sources[] = {"publisher", "ingest",  "trainer",      "watermark",
                                          "stream",    "numbers", "dead_letters", "log"};
    for (size_t i = 0; i < FR_ARRAY_LEN(sources); i++)
        fr_http_reason(service->http, sources[i], NULL);
    fr_documents_publish(service);
    if ((status = fr_service_open_device(service, err)) != FR_OK)
        return status;
    if ((status = open_trainer(service, err)) != FR_OK)
        return status;
    fr_progress_start(service);
    if ((status = recover(service, err)) != FR_OK || (status = fr_snapshots_open(service, err)) != FR_OK ||
        (status = open_streams(service, err)) != FR_OK)
        return status;
    fr_documents_publish(service);
    return FR_OK;
}

static void free_ring_batches(struct fr_ring *ring)
{
    void *item;
    while (ring && fr_ring_pop(ring, &item, 0) == FR_OK)
        fr_batch_free(item);
    fr_ring_free(ring);
}

void fr_service_close(struct fr_service *service)
{
    atomic_store(&service->abandon, true);
    atomic_store(&service->stop_ingest, true);
    if (service->trainer)
        fr_trainer_stop(service->trainer);
    if (service->cut_stages)
        fr_ring_close(service->cut_stages);
    if (service->free_stages)
        fr_ring_close(service->free_stages);
    fr_loops_join(service);
    fr_http_free(service->http);
    fr_ingest_free(service->ingest);
    fr_publisher_free(service->publisher);
    fr_durable_close(service->durable);
    fr_trainer_free(service->trainer);
    fr_service_close_device(service);
    fr_pool_free(service->pool);
    free_ring_batches(service->full);
    free_ring_batches(service->empty);
    fr_ring_free(service->cut_stages);
    fr_ring_free(service->free_stages);
    for (size_t i = 0; i < FR_STAGES; i++)
        fr_stage_release(&service->stages[i]);
    fr_snapshots_close(service);
    fr_freshness_free(service->freshness);
    fr_documents_settled_release(&service->settled);
    fr_registry_free(service->registry);
    fr_positions_release(&service->positions);
    fr_positions_release(&service->durable_positions);
    free(service->offsets);
    fr_trainer_training_release(&service->identity.training);
    fr_buffer_release(&service->end_offsets);
}
