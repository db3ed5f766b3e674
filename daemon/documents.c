/* The documents behind /status, /auc and /readyz, made from snapshots on the main thread
 * (docs/http.md; series of /metrics: series.c). Nothing here takes a lock of the training path:
 * every module publishes copies. Undefined numbers are null. */
#include "service.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"

static const char HELD[] =
    "publishing is held after batches in a row of which nothing could train; it goes on after as many good ones (see "
    "/healthz)";

static void put_number(struct fr_buffer *out, const char *name, double value, const char *after)
{
    if (isfinite(value))
        fr_buffer_printf(out, "\"%s\":%.9g%s", name, value, after);
    else
        fr_buffer_printf(out, "\"%s\":null%s", name, after);
}

static void put_watermark(struct fr_buffer *out, int64_t watermark_ms)
{
    if (watermark_ms == INT64_MIN)
        fr_buffer_printf(out, "null");
    else
        fr_buffer_printf(out, "%" PRId64, watermark_ms);
}

static void document_auc(const struct fr_service *service, const struct fr_trainer_status *trainer, uint64_t timeline,
                         struct fr_buffer *out)
{
    const struct fr_conf *conf = service->conf;
    fr_buffer_printf(out, "{\"model\":\"%s\",\"tl\":%" PRIu64 ",\"epoch\":%" PRIu64 ",\"as_of_ms\":", conf->model,
                     timeline, trainer->epoch);
    put_watermark(out, trainer->history.watermark_ms);
    const char *half_lives[FR_AUC_HALF_LIVES_MAX];
    for (uint32_t h = 0; h < conf->metrics.n_half_lives; h++)
        half_lives[h] = conf->metrics.half_life_name[h];
    fr_buffer_printf(out, ",\"tasks\":{");
    for (uint32_t i = 0; i < trainer->history.n_tasks; i++) {
        fr_buffer_printf(out, "%s\"%s\":", i ? "," : "", trainer->history.tasks[i].name);
        fr_task_result_json(&trainer->tasks[i].result, half_lives, out);
    }
    fr_buffer_printf(out, "}}\n");
}

static const char *phase_name(int phase)
{
    static const char *const names[] = {"recovering", "running", "draining", "stopped"};
    return names[phase];
}

const struct fr_expiry_reason fr_documents_expiry[FR_EXPIRY_REASONS] = {
    {"idle", FR_ABSENT_IDLE}, {"weak", FR_ABSENT_WEAK}, {"score", FR_ABSENT_SCORE}, {"capacity", FR_ABSENT_CAPACITY}};

static void put_tables(const struct fr_trainer_status *trainer, struct fr_buffer *out)
{
    fr_buffer_printf(out, ",\"tables\":{");
    for (uint32_t i = 0; i < trainer->n_tables; i++) {
        const struct fr_store_table_stats *stats = &trainer->tables[i].stats;
        fr_buffer_printf(out,
                         "%s\"%s\":{\"rows\":{\"ram\":%" PRIu64 "},\"pending\":%" PRIu64 ",\"resident\":%" PRIu64
                         ",\"evictions\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"admitted\":%" PRIu64
                         ",\"rejected\":%" PRIu64 ",\"forgotten\":%" PRIu64 ",\"unremembered\":%" PRIu64
                         ",\"expired\":{",
                         i ? "," : "", trainer->tables[i].name, stats->counts.rows, stats->counts.pending,
                         stats->resident, stats->evictions, stats->bytes, stats->counts.admitted,
                         stats->counts.rejected, stats->counts.forgotten, stats->counts.unremembered);
        for (size_t r = 0; r < FR_EXPIRY_REASONS; r++)
            fr_buffer_printf(out, "%s\"%s\":%" PRIu64, r ? "," : "", fr_documents_expiry[r].name,
                             stats->counts.expired[fr_documents_expiry[r].reason]);
        fr_buffer_printf(out, "}}");
    }
    fr_buffer_printf(out, "}");
}

/* What counted for each task's loss; `problem`: why it learns nothing. */
static void put_tasks(const struct fr_trainer_status *trainer, struct fr_buffer *out)
{
    fr_buffer_printf(out, ",\"tasks\":{");
    for (uint32_t i = 0; i < trainer->history.n_tasks; i++) {
        const struct fr_trainer_task_counts *task = &trainer->history.tasks[i];
        fr_buffer_printf(out, "%s\"%s\":{\"samples\":%" PRIu64 ",\"pairs\":%" PRIu64 ",\"problem\":", i ? "," : "",
                         task->name, task->samples, task->pairs);
        fr_buffer_json_text(out, trainer->tasks[i].problem);
        fr_buffer_printf(out, "}");
    }
    fr_buffer_printf(out, "}");
}

/* Durable positions and P2 terms, lag against the end of the log as ingest last saw it. */
static void put_partitions(struct fr_service *service, const struct fr_ingest_status *ingest, struct fr_buffer *out)
{
    struct fr_positions positions = {0};
    fr_documents_positions(service, ingest, &positions);
    uint32_t at = 0;
    fr_buffer_printf(out, ",\"partitions\":[");
    for (uint32_t i = 0; i < positions.count; i++) {
        const struct fr_partition_position *p = &positions.partitions[i];
        const struct fr_ingest_partition *read = fr_documents_read_partition(ingest, p, &at);
        int64_t high = read ? read->high : -1;
        bool waits = read && read->waits;
        fr_buffer_printf(out, "%s{\"topic\":", i ? "," : "");
        fr_buffer_json_text(out, p->topic); /* of a file: its path */
        fr_buffer_printf(out, ",\"partition\":%d,\"offset\":%" PRId64 ",\"item\":%u,\"lag\":%" PRId64, p->partition,
                         p->offset, p->item,
                         high >= 0 && p->offset >= 0 ? (high > p->offset ? high - p->offset : 0) : -1);
        fr_buffer_printf(out, ",\"waits\":%s,\"transaction_ms\":%" PRId64, waits ? "true" : "false",
                         read ? read->transaction_ms : 0);
        fr_positions_put_ledger(p, out);
        fr_buffer_printf(out, ",\"skips\":[");
        for (uint32_t k = 0; k < p->n_skips; k++)
            fr_buffer_printf(out, "%s[%" PRId64 ",%" PRId64 "]", k ? "," : "", p->skips[k].first, p->skips[k].last);
        fr_buffer_printf(out, "]}");
    }
    fr_buffer_printf(out, "]");
    fr_positions_release(&positions);
}

/* Seconds, of what this process has seen, within a sixteenth. */
static void put_freshness(const struct fr_service *service, struct fr_buffer *out)
{
    static const char *const names[] = {"trained",         "durable",           "published", "arrival_trained",
                                        "arrival_durable", "arrival_published", "ingest_lag"};
    _Static_assert(FR_ARRAY_LEN(names) == FR_FRESH_SERIES, "a name each");
    fr_buffer_printf(out, ",\"freshness\":{");
    for (int i = 0; i < FR_FRESH_SERIES; i++) {
        fr_buffer_printf(out, "%s\"%s\":{", i ? "," : "", names[i]);
        put_number(out, "p50", fr_freshness_quantile(service->freshness, (enum fr_freshness_series)i, 0.5), ",");
        put_number(out, "p90", fr_freshness_quantile(service->freshness, (enum fr_freshness_series)i, 0.9), ",");
        put_number(out, "p99", fr_freshness_quantile(service->freshness, (enum fr_freshness_series)i, 0.99), "}");
    }
    fr_buffer_printf(out, "}");
}

static void put_malformed(const struct fr_ingest_status *ingest, struct fr_buffer *out)
{
    const struct fr_ingest_refusal *last = &ingest->last_malformed;
    fr_buffer_printf(out, ",\"malformed_kinds\":{");
    for (int kind = 0; kind < FR_MALFORMED_KINDS; kind++)
        fr_buffer_printf(out, "%s\"%s\":%" PRIu64, kind ? "," : "", fr_malformed_names[kind],
                         ingest->malformed_kinds[kind]);
    fr_buffer_printf(out, "},");
    put_number(out, "malformed_share", ingest->malformed_share, ",\"last_malformed\":");
    if (ingest->malformed == 0) {
        fr_buffer_printf(out, "null");
        return;
    }
    fr_buffer_printf(out, "{\"topic\":");
    fr_buffer_json_text(out, last->topic);
    fr_buffer_printf(out,
                     ",\"partition\":%" PRId32 ",\"offset\":%" PRId64 ",\"kind\":\"%s\",\"reason\":", last->partition,
                     last->offset, fr_malformed_names[last->kind]);
    fr_buffer_json_text(out, last->reason);
    fr_buffer_printf(out, "}");
}

/* Name -> how often it came to this process; "" is all names beyond the first few. */
static void put_unknown(struct fr_buffer *out, const char *what, const struct fr_unknown_names *names)
{
    fr_buffer_printf(out, ",\"%s\":{", what);
    for (uint32_t i = 0; i < names->n; i++) {
        fr_buffer_printf(out, i ? "," : "");
        fr_buffer_json_text(out, names->names[i]);
        fr_buffer_printf(out, ":%" PRIu64, names->counts[i]);
    }
    if (names->counts[FR_UNKNOWN_OTHERS] > 0)
        fr_buffer_printf(out, ",\"\":%" PRIu64, names->counts[FR_UNKNOWN_OTHERS]);
    fr_buffer_printf(out, "}");
}

static void put_ingest(const struct fr_snapshots *s, struct fr_buffer *out)
{
    fr_buffer_printf(out,
                     ",\"ingest\":{\"records\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"malformed\":%" PRIu64
                     ",\"future_timestamp\":%" PRIu64 ",\"future_clock\":%" PRIu64 ",\"dead_sent\":%" PRIu64
                     ",\"dead_failed\":%" PRIu64 ",\"dead_without_value\":%" PRIu64 ",\"lag_ms\":",
                     s->ingest.records, s->ingest.bytes, s->ingest.malformed, s->ingest.future_timestamp,
                     s->ingest.future_clock, s->ingest.dead_sent, s->ingest.dead_failed, s->ingest.dead_without_value);
    if (s->ingest.connected) /* else nobody knows */
        fr_buffer_printf(out, "%" PRId64, s->ingest.lag_ms);
    else
        fr_buffer_printf(out, "null");
    fr_buffer_printf(out, ",\"at_end\":%s,\"connected\":%s,\"problem\":", s->ingest.at_end ? "true" : "false",
                     s->ingest.connected ? "true" : "false");
    fr_buffer_json_text(out, s->ingest.problem);
    put_malformed(&s->ingest, out);
    fr_buffer_printf(out, "},\"ignored\":{\"unknown_names\":[");
    for (uint32_t i = 0; i < s->ingest.unknown.slots.n; i++) {
        fr_buffer_printf(out, i ? "," : "");
        fr_buffer_json_text(out, s->ingest.unknown.slots.names[i]);
    }
    fr_buffer_printf(out, "]");
    put_unknown(out, "slots", &s->ingest.unknown.slots);
    put_unknown(out, "keys", &s->ingest.unknown.keys);
    fr_buffer_printf(out, ",\"unknown_slots\":%" PRIu64 ",\"unknown_keys\":%" PRIu64 ",\"excess_ids\":%" PRIu64 "}",
                     s->trainer.history.unknown_slots, s->trainer.history.unknown_keys, s->trainer.history.excess_ids);
}

static void put_outbox(const struct fr_snapshots *s, struct fr_buffer *out)
{
    fr_buffer_printf(
        out,
        ",\"outbox\":{\"epochs\":%" PRIu64 ",\"in_flight_bytes\":%" PRIu64 ",\"records\":%" PRIu64 ",\"bytes\":%" PRIu64
        ",\"errors\":%" PRIu64 ",\"resent_epochs\":%" PRIu64 ",\"saturated\":%" PRIu64 ",\"lost_partitions\":%" PRIu64
        ",\"strays\":%" PRIu64 ",\"waiting_bytes\":%" PRIu64 ",\"backlog\":{\"merges\":%" PRIu64
        ",\"merged_epochs\":%" PRIu64 ",\"abandoned\":%" PRIu64 "},\"topic\":{\"begin\":%" PRIu64 ",\"looks\":%" PRIu64
        ",\"looked_ms\":%" PRIu64 "},\"problem\":",
        s->durable.epoch > s->publisher.acked ? s->durable.epoch - s->publisher.acked : 0, s->publisher.in_flight_bytes,
        s->publisher.records, s->publisher.bytes, s->publisher.errors, s->publisher.resent_epochs,
        s->publisher.saturated, s->publisher.lost_partitions, s->publisher.strays, s->waiting_bytes,
        s->publisher.backlog.merges, s->publisher.backlog.merged_epochs, s->publisher.backlog.abandoned,
        s->publisher.topic.begin, s->publisher.topic.looks, s->publisher.topic.looked_ms);
    fr_buffer_json_text(out, s->publisher.problem);
    fr_buffer_printf(out, "}");
}

static void put_times(struct fr_service *service, const struct fr_snapshots *s, struct fr_buffer *out)
{
    fr_buffer_printf(out, ",");
    put_number(out, "step_seconds", (double)s->trainer.run.step_ns / 1e9, ",");
    put_number(out, "plan_seconds", (double)s->trainer.run.plan_ns / 1e9, ",");
    put_number(out, "cut_seconds", (double)s->trainer.run.cut_ns / 1e9, ",");
    fr_buffer_printf(out, "\"journaled\":{\"epochs\":%" PRIu64 ",\"image_bytes\":%" PRIu64 ",",
                     atomic_load(&service->loops.durable.shared.appends),
                     atomic_load(&service->loops.durable.shared.image_bytes));
    put_number(out, "seconds", (double)atomic_load(&service->loops.durable.shared.append_ns) / 1e9, ",");
    put_number(out, "last_cut_to_durable_seconds",
               (double)atomic_load(&service->loops.durable.shared.cut_to_durable_ns) / 1e9, "}");
}

static void put_snapshots(struct fr_service *service, struct fr_buffer *out)
{
    struct fr_shared_snapshots *snapshots = &service->loops.snapshot.shared;
    char current[FR_MANIFEST_NAME_MAX];
    struct fr_announced_snapshot announced;
    fr_shared_snapshots_get_current(snapshots, current);
    fr_shared_snapshots_announced(snapshots, &announced);
    fr_buffer_printf(out,
                     ",\"snapshot\":{\"current\":\"%s\",\"announced\":\"%s\",\"kept\":%" PRIu64 ",\"taken\":%" PRIu64
                     ",\"failures\":%" PRIu64 ",\"hook_failures\":%" PRIu64 "}",
                     current, announced.name, atomic_load(&snapshots->kept), atomic_load(&snapshots->taken),
                     atomic_load(&snapshots->failures), atomic_load(&snapshots->hook_failures));
}

static void put_device(const struct fr_service *service, struct fr_buffer *out)
{
    fr_buffer_printf(out, ",\"device\":{\"name\":\"%s\",\"card\":", service->device.name);
    fr_buffer_json_text(out, service->device.card);
    fr_buffer_printf(out, ",\"reason\":");
    fr_buffer_json_text(out, service->device.reason);
    fr_buffer_printf(out, "}");
}

static void document_status(struct fr_service *service, const struct fr_snapshots *s, struct fr_buffer *out)
{
    const struct fr_conf *conf = service->conf;
    const struct fr_trainer_history *history = &s->trainer.history;
    fr_buffer_printf(out, "{\"version\":\"%s\",\"model\":\"%s\",\"phase\":\"%s\",\"kernel\":\"%s\"", FR_VERSION,
                     conf->model, phase_name(atomic_load(&service->life.phase)),
                     service->trainer ? fr_trainer_kernel(service->trainer) : "");
    put_device(service, out);
    fr_buffer_printf(out,
                     ",\"timeline\":%" PRIu64 ",\"epoch\":%" PRIu64 ",\"durable\":%" PRIu64 ",\"folded\":%" PRIu64
                     ",\"folding\":%s,\"sent\":%" PRIu64 ",\"acked\":%" PRIu64,
                     s->durable.timeline, s->trainer.epoch, s->durable.epoch, s->durable.folded,
                     s->durable.folding ? "true" : "false", s->publisher.sent, s->publisher.acked);
    fr_buffer_printf(out, ",\"journal\":{\"bytes\":%" PRIu64 ",\"unfolded_bytes\":%" PRIu64 ",\"first\":%" PRIu64 "}",
                     s->durable.journal_bytes, s->durable.unfolded_bytes, s->durable.journal_first);
    fr_buffer_printf(out, ",\"watermark_ms\":");
    put_watermark(out, history->watermark_ms);
    fr_buffer_printf(out,
                     ",\"batches\":%" PRIu64 ",\"samples\":{\"trained\":%" PRIu64 ",\"metrics_only\":%" PRIu64
                     ",\"masked\":%" PRIu64 ",\"quarantined\":%" PRIu64 "}",
                     history->batches, history->samples, history->metrics_only, history->masked,
                     history->quarantined_samples);
    put_ingest(s, out);
    put_outbox(s, out);
    put_snapshots(service, out);
    fr_buffer_printf(
        out, ",\"memory\":{\"store_bytes\":%" PRIu64 ",\"dirty_bytes\":%" PRIu64 ",\"limit\":%" PRIu64 "},\"paused\":",
        s->trainer.store_bytes, s->trainer.dirty_bytes, conf->memory_limit);
    fr_buffer_json_text(out, s->trainer.paused);
    fr_buffer_printf(out, ",\"held\":");
    fr_buffer_json_text(out, history->held ? HELD : "");
    fr_buffer_printf(out,
                     ",\"publishable\":%" PRIu64 ",\"quarantine\":{\"batches\":%" PRIu64 ",\"samples\":%" PRIu64
                     ",\"singly\":%" PRIu64 ",\"letters\":%" PRIu64 "}",
                     history->publishable, history->quarantined_batches, history->quarantined_samples,
                     history->quarantined_singly, s->trainer.run.quarantined_records);
    put_freshness(service, out);
    uint64_t unsaid, lost = fr_log_lost(&unsaid);
    fr_buffer_printf(out, ",\"log\":{\"lines_lost\":%" PRIu64 "}", lost);
    put_times(service, s, out);
    fr_buffer_printf(out, ",");
    put_number(out, "loss", s->trainer.run.last_loss, "");
    put_tasks(&s->trainer, out);
    put_tables(&s->trainer, out);
    put_partitions(service, &s->ingest, out);
    fr_buffer_printf(out, "}\n");
}

static void start_reason(struct fr_service *service, char *reason, size_t size)
{
    fr_lifecycle_get_starting(&service->life, reason, size);
    if (!reason[0])
        snprintf(reason, size, "starting");
}

static bool document_ready(struct fr_service *service, const struct fr_snapshots *s, struct fr_buffer *out)
{
    const struct fr_conf *conf = service->conf;
    int phase = atomic_load(&service->life.phase);
    char reason[1100] = "";
    if (phase == FR_PHASE_RECOVERING)
        snprintf(reason, sizeof(reason), "recovering");
    else if (phase == FR_PHASE_DRAINING)
        snprintf(reason, sizeof(reason), "draining");
    else if (!atomic_load(&service->loops.ingest.shared.started))
        start_reason(service, reason, sizeof(reason));
    else if (s->publisher.refused[0]) /* before what follows from it: a journal that is full */
        snprintf(reason, sizeof(reason), "publisher: %s", s->publisher.refused);
    else if (s->trainer.paused[0])
        snprintf(reason, sizeof(reason), "paused: %s", s->trainer.paused);
    else if (s->ingest.pause != FR_INGEST_READS)
        snprintf(reason, sizeof(reason), "paused: %s", s->ingest.problem);
    else if (fr_shared_durable_late(&service->loops.durable.shared, conf, service->clock, reason, sizeof(reason)))
        ; /* said */
    else if (s->ingest.problem[0] && (!s->ingest.connected || s->ingest.stands))
        snprintf(reason, sizeof(reason), "ingest: %s", s->ingest.problem);
    else if (s->ingest.lag_ms > conf->ingest.ready_lag_ms)
        snprintf(reason, sizeof(reason), "lag of %" PRId64 " ms is over ready_lag%s%s", s->ingest.lag_ms,
                 s->ingest.problem[0] ? ": " : "", s->ingest.problem);
    uint64_t total = atomic_load(&service->recovery.total_bytes);
    fr_buffer_printf(out, "{\"ready\":%s,\"reason\":", reason[0] ? "false" : "true");
    /* Ready with a part of the stream that waits: the text tells of it. */
    fr_buffer_json_text(out, reason[0] ? reason : s->ingest.problem);
    fr_buffer_printf(out, ",");
    put_number(out, "progress",
               total                          ? (double)atomic_load(&service->recovery.done_bytes) / (double)total
               : phase == FR_PHASE_RECOVERING ? 0
                                              : 1,
               "}\n");
    return reason[0] == '\0';
}

/* A history of before records were held against the clock, of lockstep, or a clock that was set
 * back. */
static bool watermark_ahead(const struct fr_service *service, const struct fr_snapshots *s, char *reason, size_t size)
{
    int64_t watermark_ms = s->trainer.history.watermark_ms, now_ms = fr_wall_ms(service->clock);
    if (s->ingest.pause == FR_INGEST_PAUSED_CLOCK) /* that says more */
        return false;
    if (service->conf->ingest.lockstep || watermark_ms <= now_ms ||
        watermark_ms - now_ms <= service->conf->ingest.future_max_ms)
        return false;
    snprintf(reason, size,
             "the watermark is %" PRId64
             " s ahead of this host's clock. Until the clock reaches it, rows expire too early and decayed metrics do "
             "not move. If the clock is wrong, set it (NTP); if it is right, train again from the beginning in another "
             "state_dir",
             (watermark_ms - now_ms) / 1000);
    return true;
}

static void publish(struct fr_service *service, const char *path, bool good, struct fr_buffer *body)
{
    fr_http_publish(service->http, path, good ? 200 : 503, "application/json", body->data, body->size);
    fr_buffer_clear(body);
}

void fr_documents_publish(struct fr_service *service)
{
    struct fr_snapshots *s = fr_alloc(1, sizeof(*s));
    struct fr_buffer body = {0};
    s->trainer.history.watermark_ms = INT64_MIN;
    s->trainer.run.last_loss = NAN;
    s->recovered = atomic_load(&service->life.phase) != FR_PHASE_RECOVERING;
    if (service->trainer)
        fr_trainer_get_status(service->trainer, &s->trainer);
    if (service->ingest)
        fr_ingest_get_status(service->ingest, &s->ingest);
    if (service->publisher)
        fr_publisher_get_status(service->publisher, &s->publisher);
    if (service->durable)
        fr_durable_get_status(service->durable, &s->durable);
    if (service->durable)
        s->waiting_bytes =
            fr_durable_span(service->durable, s->publisher.acked + 1, s->durable.epoch, UINT64_MAX, NULL);
    document_auc(service, &s->trainer, s->durable.timeline ? s->durable.timeline : 1, &body);
    publish(service, "/auc", true, &body);
    document_status(service, s, &body);
    publish(service, "/status", true, &body);
    s->ready = document_ready(service, s, &body);
    publish(service, "/readyz", s->ready, &body);
    fr_http_reason(service->http, "trainer", s->trainer.paused);
    char ahead[320];
    fr_http_reason(service->http, "watermark", watermark_ahead(service, s, ahead, sizeof(ahead)) ? ahead : NULL);
    /* Before that the start itself says why it waits. */
    fr_http_reason(service->http, "stream",
                   atomic_load(&service->loops.ingest.shared.started) ? s->ingest.problem : NULL);
    fr_documents_series(service, s);
    fr_ingest_status_release(&s->ingest);
    fr_buffer_release(&body);
    free(s);
}
