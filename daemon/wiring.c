/* Makes each object of the service, gives it to its users, and ends and frees all objects in order.
 *
 * HTTP comes first, so that /healthz and /readyz answer during recovery (recovery_thread.c). What
 * the main thread does while the loops run is in run.c. */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/log.h"
#include "base/ranks.h"
#include "base/thread.h"
#include "documents.h"
#include "exchange/exchange.h"
#include "insight_documents.h"
#include "page/page.h"
#include "process_limits.h"
#include "progress.h"
#include "service.h"

/* ---- connections ---- */

/* Gives each loop the modules that exist. Called again when others have been made. */
static void wire_modules(struct fr_service *service)
{
    struct fr_loops *loops = &service->loops;
    const struct fr_service_rings *rings = &service->rings;
    loops->context = (struct fr_loop_context){service->conf, service->clock, service->http, &service->life};
    loops->publish.publisher = loops->durable.publisher = loops->upkeep.publisher = service->publisher;
    loops->fold.publisher = loops->snapshot.publisher = service->publisher;
    loops->publish.freshness = loops->durable.freshness = service->freshness;
    loops->ingest.ingest = loops->trainer.ingest = loops->durable.ingest = service->ingest;
    loops->trainer.trainer = loops->upkeep.trainer = loops->snapshot.trainer = service->trainer;
    loops->durable.durable = loops->upkeep.durable = loops->fold.durable = loops->snapshot.durable = service->durable;
    loops->replicas.durable = service->durable;
    loops->replicas.replicas = service->replicas;
    loops->durable.timings = loops->fold.timings = &service->timings;
    loops->trainer.cut_stages = loops->durable.cut_stages = rings->cut_stages;
    loops->durable.free_stages = rings->free_stages;
    loops->durable.exchange = loops->upkeep.exchange = service->options.exchange;
}

void fr_service_wire(struct fr_service *service)
{
    fr_lifecycle_init(&service->life);
    fr_loops_init(&service->loops);
    wire_modules(service);
}

/* ---- open ---- */

static void make_rings(struct fr_service_rings *rings, const struct fr_conf *conf)
{
    size_t batches = conf->ingest.ring_batches, touch_bytes = fr_limits_epoch_touch_bytes(conf);
    rings->full = fr_ring_new(batches);
    /* one that is being filled, one that is being trained */
    rings->empty = fr_ring_new(batches + 2);
    for (size_t i = 0; i < batches + 2; i++)
        FR_CHECK(fr_ring_try_push(rings->empty, fr_batch_new(conf)));
    rings->cut_stages = fr_ring_new(FR_STAGES);
    rings->free_stages = fr_ring_new(FR_STAGES);
    for (size_t i = 0; i < FR_STAGES; i++) {
        fr_stage_init(&rings->stages[i]);
        if (touch_bytes > 0)
            fr_stage_touch(&rings->stages[i], touch_bytes);
        FR_CHECK(fr_ring_try_push(rings->free_stages, &rings->stages[i]));
    }
}

static enum fr_status open_trainer(struct fr_service *service, struct fr_err *err)
{
    const struct fr_conf *conf = service->conf;
    size_t workers = fr_limits_workers(conf);
    service->pool = fr_pool_new(workers);
    if (fr_pool_workers(service->pool) < workers)
        return fr_err_set(err, FR_E_NO_MEMORY, "cannot start worker %zu of %zu: %s, or lower `threads`",
                          fr_pool_workers(service->pool) + 1, workers, FR_THREADS_SHORT);
    for (uint32_t i = 0; i < conf->n_tables; i++)
        fr_service_policies(&conf->tables[i], &service->policies.configs[i], &service->policies.of[i]);
    make_rings(&service->rings, conf);
    struct fr_loops *loops = &service->loops;
    struct fr_trainer_options options = {
        .conf = conf,
        .clock = service->clock,
        .pool = service->pool,
        .policies = service->policies.of,
        .stream = fr_loop_trainer_stream(&loops->trainer),
        .full = service->rings.full,
        .empty = service->rings.empty,
        .cut_stages = service->rings.cut_stages,
        .free_stages = service->rings.free_stages,
        .fold_wanted = &loops->fold.shared.wanted,
        .heartbeats = &loops->publish.shared.delta_checked,
        .epoch_wanted = &loops->publish.shared.epoch_wanted,
        .acknowledged = &loops->publish.shared.acknowledged,
        .dense_wanted = &loops->snapshot.shared.dense_wanted,
        .waits_for = &loops->durable.shared.waits_for,
        .freshness = service->freshness,
        .timings = &service->timings,
        .device = service->device.graph.queue ? &service->device.graph : NULL,
        .exchange = service->options.exchange,
    };
    service->trainer = fr_trainer_new(&options);
    return FR_OK;
}

static enum fr_status fix_end(void *self, const char *text, size_t size, struct fr_err *err)
{
    struct fr_service *service = self;
    if (!service->conf->ingest.lockstep)
        return FR_OK; /* --until end queries the ends in every run */
    return fr_durable_write_file(service->durable, "lockstep.end", text, size, err);
}

/* Returns how long the delta topic must keep records: back to the oldest kept snapshot, and,
 * while the newest snapshot is being taken, to the one before it. */
static int64_t retention_ms(const struct fr_conf *conf)
{
    return conf->export_.retention == FR_RETENTION_ALL ? 0
                                                       : conf->snapshot.every_ms * ((int64_t)conf->snapshot.keep + 1);
}

/* Whether new replicas begin with snapshots. If not, the topic alone has what a replica needs. In
 * lockstep every run must write the same records, so timelines never begin with a snapshot. */
static bool begins_with_snapshots(const struct fr_conf *conf)
{
    return conf->export_.retention == FR_RETENTION_SNAPSHOTS && !conf->ingest.lockstep;
}

/* Each rank sends the partitions of its domains, with the digests of all ranks. */
static void share_topic(struct fr_service *service, struct fr_publisher_options *publisher)
{
    struct fr_exchange *exchange = service->options.exchange;
    uint32_t n = fr_conf_domains(service->conf), each = publisher->partitions / n;
    struct fr_domains own = fr_rank_domains(fr_exchange_rank(exchange), fr_exchange_size(exchange), n);
    publisher->first_partition = own.first * each;
    publisher->end_partition = own.end * each;
    publisher->digests = (struct fr_publisher_digests){&service->loops.durable.digests, fr_shared_digests_get,
                                                       service->loops.durable.digests.first};
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
                                             .covers = fr_snapshots_covers,
                                             .self = &service->loops.snapshot,
                                             .stop_on_loss = conf->export_.on_loss == FR_DELTA_LOSS_STOP,
                                             /* every run writes the same records there */
                                             .max_backlog_bytes = conf->ingest.lockstep ? 0 : conf->export_.backlog_max,
                                             .backlog_rebases = conf->export_.on_backlog == FR_BACKLOG_REBASE,
                                             .properties = properties,
                                             .n_properties = conf->ingest.n_kafka};
    /* Consumers of HPS do not load our snapshots: a new timeline sends them all rows. */
    if (begins_with_snapshots(conf) && !hps)
        publisher.rewind = fr_rewind_ask;
    if (service->options.exchange)
        share_topic(service, &publisher);
    enum fr_status status = fr_publisher_new(&publisher, &service->publisher, err);
    if (status == FR_OK && conf->export_.acknowledgements && publisher.brokers)
        service->replicas = fr_replicas_new(&publisher, conf->export_.acknowledgement_topic);
    free(tables);
    free(properties);
    return status;
}

/* Reads the ends that an earlier start of this lockstep run has fixed, as a terminated text; empty:
 * none. A run from a savepoint may end elsewhere than the run that the savepoint was taken of. */
static enum fr_status read_fixed_ends(struct fr_service *service, struct fr_buffer *out, struct fr_err *err)
{
    bool other_ends = service->options.restore && service->options.until_end;
    if (!service->conf->ingest.lockstep || other_ends)
        return FR_OK;
    enum fr_status status = fr_durable_read_file(service->durable, "lockstep.end", out, err);
    if (status == FR_OK)
        fr_put_u8(out, 0);
    return status == FR_E_NOT_FOUND ? FR_OK : status;
}

static enum fr_status open_ingest(struct fr_service *service, struct fr_err *err)
{
    const struct fr_conf *conf = service->conf;
    struct fr_exchange *exchange = service->options.exchange;
    struct fr_domains lanes = {0, 0}; /* all */
    struct fr_buffer ends = {0};
    enum fr_status status = read_fixed_ends(service, &ends, err);
    if (exchange)
        lanes = fr_rank_domains(fr_exchange_rank(exchange), fr_exchange_size(exchange), fr_conf_domains(conf));
    struct fr_ingest_options ingest = {.conf = conf,
                                       .clock = service->clock,
                                       .positions = &service->loops.trainer.positions,
                                       .full = service->rings.full,
                                       .empty = service->rings.empty,
                                       .until_end = service->options.until_end || conf->ingest.lockstep,
                                       .until_ms = service->options.until_ms,
                                       .end_offsets = ends.size ? (const char *)ends.data : NULL,
                                       .epoch_wall_ms = service->recovery.epoch_wall_ms,
                                       .fix_end = fix_end,
                                       .fix_end_self = service,
                                       .skips = service->options.skips,
                                       .n_skips = service->options.n_skips,
                                       .lane_first = lanes.first,
                                       .lane_end = lanes.end};
    if (status == FR_OK)
        status = fr_ingest_new(&ingest, &service->ingest, err);
    fr_buffer_release(&ends);
    return status;
}

enum fr_status fr_service_open(struct fr_service *service, struct fr_err *err)
{
    fr_service_wire(service);
    service->documents = fr_documents_new();
    service->registry = fr_registry_new(service->conf->model);
    fr_timings_init(&service->timings, service->registry);
    service->freshness = fr_freshness_new(service->registry, &service->timings);
    struct fr_http_options http = {.host = service->conf->metrics.listen_host,
                                   .port = service->conf->metrics.listen_port,
                                   .hosts = (const char *const *)service->conf->metrics.hosts,
                                   .n_hosts = service->conf->metrics.n_hosts,
                                   .clock = service->clock,
                                   .registry = service->registry};
    http.assets = fr_page_assets(&http.n_assets);
    enum fr_status status = fr_http_new(&http, &service->http, err);
    if (status != FR_OK)
        return status;
    service->loops.context.http = service->http;
    fr_log(FR_LOG_INFO, "daemon", "http", "address=%s port=%u", service->conf->metrics.listen_host,
           fr_http_port(service->http));
    /* Each source has a series from the start, because an alert needs a 0 to compare with. */
    static const char *const sources[] = {"publisher", "ingest",  "trainer",      "watermark",
                                          "stream",    "numbers", "dead_letters", "log"};
    for (size_t i = 0; i < FR_ARRAY_LEN(sources); i++)
        fr_http_reason(service->http, sources[i], NULL);
    fr_documents_page_open(service);
    fr_documents_publish(service);
    if ((status = fr_service_open_device(&service->device, service->conf, err)) != FR_OK)
        return status;
    if ((status = open_trainer(service, err)) != FR_OK)
        return status;
    fr_documents_insight_open(service);
    fr_progress_start(service);
    if ((status = fr_service_recover(service, err)) != FR_OK)
        return status;
    wire_modules(service);
    if ((status = fr_snapshots_open(&service->loops.snapshot, err)) != FR_OK ||
        (status = open_ingest(service, err)) != FR_OK || (status = open_publisher(service, err)) != FR_OK)
        return status;
    wire_modules(service);
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

static void release_rings(struct fr_service_rings *rings)
{
    free_ring_batches(rings->full);
    free_ring_batches(rings->empty);
    fr_ring_free(rings->cut_stages);
    fr_ring_free(rings->free_stages);
    for (size_t i = 0; i < FR_STAGES; i++)
        fr_stage_release(&rings->stages[i]);
}

void fr_service_close(struct fr_service *service)
{
    atomic_store(&service->life.abandon, true);
    atomic_store(&service->life.stop_ingest, true);
    if (service->trainer)
        fr_trainer_stop(service->trainer);
    if (service->rings.cut_stages)
        fr_ring_close(service->rings.cut_stages);
    if (service->rings.free_stages)
        fr_ring_close(service->rings.free_stages);
    fr_loops_join(&service->loops);
    fr_http_free(service->http);
    fr_ingest_free(service->ingest);
    fr_publisher_free(service->publisher);
    fr_durable_close(service->durable);
    fr_trainer_free(service->trainer);
    fr_replicas_free(service->replicas); /* after the state: a client may take long to end */
    fr_service_close_device(&service->device);
    fr_pool_free(service->pool);
    release_rings(&service->rings);
    fr_freshness_free(service->freshness);
    fr_documents_free(service->documents);
    fr_registry_free(service->registry);
    fr_identity_release(&service->recovery.identity);
    fr_loops_release(&service->loops);
    fr_lifecycle_release(&service->life);
}
