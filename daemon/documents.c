/* The documents /status, /auc and /readyz (docs/http.md; series of /metrics: series.c). Nothing
 * here takes a lock of the training path: every module publishes copies. Undefined numbers are
 * null. */
#include "documents.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/log.h"
#include "replica_documents.h"
#include "service.h"

struct fr_documents *fr_documents_new(void)
{
    return fr_alloc(1, sizeof(struct fr_documents));
}

void fr_documents_free(struct fr_documents *documents)
{
    if (documents) {
        fr_documents_shown_release(&documents->history);
        fr_documents_page_release(&documents->page);
    }
    free(documents);
}

/* ---- several members of one kind ---- */

struct count {
    const char *name;
    uint64_t value;
};

static void put_counts(struct fr_json *json, const struct count *counts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        fr_json_u64(json, counts[i].name, counts[i].value);
}

/* Writes an object that has only counts. */
static void put_object(struct fr_json *json, const char *name, const struct count *counts, size_t n)
{
    fr_json_object(json, name);
    put_counts(json, counts, n);
    fr_json_end(json);
}

#define COUNTS(...) (const struct count[]){__VA_ARGS__}, FR_ARRAY_LEN(((const struct count[]){__VA_ARGS__}))

static void put_watermark(struct fr_json *json, const char *name, int64_t watermark_ms)
{
    if (watermark_ms == INT64_MIN)
        fr_json_null(json, name);
    else
        fr_json_i64(json, name, watermark_ms);
}

/* ---- /auc ---- */

static void document_auc(const struct fr_service *service, const struct fr_trainer_status *trainer, uint64_t timeline,
                         struct fr_json *json)
{
    const struct fr_conf *conf = service->conf;
    const char *half_lives[FR_AUC_HALF_LIVES_MAX];
    for (uint32_t h = 0; h < conf->metrics.n_half_lives; h++)
        half_lives[h] = conf->metrics.half_life_name[h];
    fr_json_object(json, NULL);
    fr_json_text(json, "model", conf->model);
    put_counts(json, COUNTS({"tl", timeline}, {"epoch", trainer->epoch}));
    put_watermark(json, "as_of_ms", trainer->history.watermark_ms);
    fr_json_object(json, "tasks");
    for (uint32_t i = 0; i < trainer->history.n_tasks; i++)
        fr_task_result_json(json, trainer->history.tasks[i].name, &trainer->tasks[i].result, half_lives);
    fr_json_end(json);
    fr_json_end(json);
}

/* ---- /status ---- */

static void put_table(struct fr_json *json, const struct fr_trainer_table_status *table)
{
    const struct fr_store_table_stats *stats = &table->stats;
    const struct fr_store_counts *counts = &stats->counts;
    fr_json_object(json, table->name);
    put_object(json, "rows", COUNTS({"ram", counts->rows}));
    put_counts(json,
               COUNTS({"pending", counts->pending}, {"resident", stats->resident}, {"evictions", stats->evictions},
                      {"bytes", stats->bytes}, {"admitted", counts->admitted}, {"rejected", counts->rejected},
                      {"forgotten", counts->forgotten}, {"unremembered", counts->unremembered}));
    fr_json_object(json, "expired");
    for (size_t r = 0; r < FR_EXPIRY_RULES; r++)
        fr_json_u64(json, fr_documents_expiry[r].name, counts->expired[fr_documents_expiry[r].reason]);
    fr_json_end(json);
    fr_json_end(json);
}

/* Writes what counted for each task's loss. `problem`: why the task learns nothing. */
static void put_tasks(struct fr_json *json, const struct fr_trainer_status *trainer)
{
    fr_json_object(json, "tasks");
    for (uint32_t i = 0; i < trainer->history.n_tasks; i++) {
        const struct fr_trainer_task_counts *task = &trainer->history.tasks[i];
        fr_json_object(json, task->name);
        put_counts(json, COUNTS({"samples", task->samples}, {"pairs", task->pairs}));
        fr_json_text(json, "problem", trainer->tasks[i].problem);
        fr_json_end(json);
    }
    fr_json_end(json);
}

/* Writes a partition. Its lag is measured to the end of the log as ingest last saw it; -1:
 * unknown. */
static void put_partition(struct fr_json *json, const struct fr_partition_position *p,
                          const struct fr_ingest_partition *read)
{
    int64_t high = read ? read->high : -1;
    fr_json_object(json, NULL);
    fr_json_text(json, "topic", p->topic); /* the topic of a file is its path */
    fr_json_i64(json, "partition", p->partition);
    fr_json_i64(json, "offset", p->offset);
    fr_json_u64(json, "item", p->item);
    fr_json_i64(json, "lag", high >= 0 && p->offset >= 0 ? (high > p->offset ? high - p->offset : 0) : -1);
    fr_json_bool(json, "waits", read && read->waits);
    fr_json_i64(json, "transaction_ms", read ? read->transaction_ms : 0);
    for (size_t k = 0; k < FR_LEDGER_TERMS; k++)
        fr_json_u64(json, fr_positions_ledger[k].name, p->ledger[k]);
    fr_json_array(json, "skips");
    for (uint32_t k = 0; k < p->n_skips; k++) {
        fr_json_array(json, NULL);
        fr_json_i64(json, NULL, p->skips[k].first);
        fr_json_i64(json, NULL, p->skips[k].last);
        fr_json_end(json);
    }
    fr_json_end(json);
    fr_json_end(json);
}

static void put_partitions(struct fr_json *json, struct fr_service *service, const struct fr_ingest_status *ingest)
{
    struct fr_positions positions = {0};
    uint32_t at = 0;
    fr_documents_positions(service, ingest, &positions);
    fr_json_array(json, "partitions");
    for (uint32_t i = 0; i < positions.count; i++)
        put_partition(json, &positions.partitions[i],
                      fr_documents_read_partition(ingest, &positions.partitions[i], &at));
    fr_json_end(json);
    fr_positions_release(&positions);
}

/* Writes quantiles of this process in seconds, exact to a sixteenth. */
static void put_freshness(struct fr_json *json, const struct fr_freshness *freshness)
{
    static const char *const names[] = {"trained",         "durable",           "published", "arrival_trained",
                                        "arrival_durable", "arrival_published", "ingest_lag"};
    static const struct {
        const char *name;
        double share;
    } quantiles[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}};
    _Static_assert(FR_ARRAY_LEN(names) == FR_FRESH_SERIES, "a name each");
    fr_json_object(json, "freshness");
    for (int i = 0; i < FR_FRESH_SERIES; i++) {
        fr_json_object(json, names[i]);
        for (size_t q = 0; q < FR_ARRAY_LEN(quantiles); q++)
            fr_json_number(json, quantiles[q].name,
                           fr_freshness_quantile(freshness, (enum fr_freshness_series)i, quantiles[q].share));
        fr_json_end(json);
    }
    fr_json_end(json);
}

static void put_malformed(struct fr_json *json, const struct fr_ingest_status *ingest)
{
    const struct fr_ingest_refusal *last = &ingest->last_malformed;
    fr_json_object(json, "malformed_kinds");
    for (int kind = 0; kind < FR_MALFORMED_KINDS; kind++)
        fr_json_u64(json, fr_malformed_names[kind], ingest->malformed_kinds[kind]);
    fr_json_end(json);
    fr_json_number(json, "malformed_share", ingest->malformed_share);
    if (ingest->malformed == 0) {
        fr_json_null(json, "last_malformed");
        return;
    }
    fr_json_object(json, "last_malformed");
    fr_json_text(json, "topic", last->topic);
    fr_json_i64(json, "partition", last->partition);
    fr_json_i64(json, "offset", last->offset);
    fr_json_text(json, "kind", fr_malformed_names[last->kind]);
    fr_json_text(json, "reason", last->reason);
    fr_json_end(json);
}

static void put_ingest(struct fr_json *json, const struct fr_ingest_status *ingest)
{
    fr_json_object(json, "ingest");
    put_counts(json, COUNTS({"records", ingest->records}, {"bytes", ingest->bytes}, {"malformed", ingest->malformed},
                            {"future_timestamp", ingest->future_timestamp}, {"future_clock", ingest->future_clock},
                            {"dead_sent", ingest->dead_sent}, {"dead_failed", ingest->dead_failed},
                            {"dead_without_value", ingest->dead_without_value}));
    if (ingest->connected)
        fr_json_i64(json, "lag_ms", ingest->lag_ms);
    else
        fr_json_null(json, "lag_ms"); /* the lag is unknown */
    fr_json_bool(json, "at_end", ingest->at_end);
    fr_json_bool(json, "connected", ingest->connected);
    fr_json_text(json, "problem", ingest->problem);
    put_malformed(json, ingest);
    fr_json_end(json);
}

/* Writes name -> how often this process met it. "" stands for all names beyond the first few. */
static void put_unknown(struct fr_json *json, const char *what, const struct fr_unknown_names *names)
{
    fr_json_object(json, what);
    for (uint32_t i = 0; i < names->n; i++)
        fr_json_u64(json, names->names[i], names->counts[i]);
    if (names->counts[FR_UNKNOWN_OTHERS] > 0)
        fr_json_u64(json, "", names->counts[FR_UNKNOWN_OTHERS]);
    fr_json_end(json);
}

static void put_ignored(struct fr_json *json, const struct fr_unknown *unknown,
                        const struct fr_trainer_history *history)
{
    fr_json_object(json, "ignored");
    fr_json_array(json, "unknown_names");
    for (uint32_t i = 0; i < unknown->slots.n; i++)
        fr_json_text(json, NULL, unknown->slots.names[i]);
    fr_json_end(json);
    put_unknown(json, "slots", &unknown->slots);
    put_unknown(json, "keys", &unknown->keys);
    put_counts(json, COUNTS({"unknown_slots", history->unknown_slots}, {"unknown_keys", history->unknown_keys},
                            {"excess_ids", history->excess_ids}));
    fr_json_end(json);
}

static void put_outbox(struct fr_json *json, const struct fr_service_status *s)
{
    const struct fr_publisher_status *p = &s->publisher;
    fr_json_object(json, "outbox");
    put_counts(json, COUNTS({"epochs", s->durable.epoch > p->acked ? s->durable.epoch - p->acked : 0},
                            {"in_flight_bytes", p->in_flight_bytes}, {"records", p->records}, {"bytes", p->bytes},
                            {"errors", p->errors}, {"resent_epochs", p->resent_epochs}, {"saturated", p->saturated},
                            {"lost_partitions", p->lost_partitions}, {"strays", p->strays},
                            {"waiting_bytes", s->waiting_bytes}));
    put_object(json, "backlog",
               COUNTS({"merges", p->backlog.merges}, {"merged_epochs", p->backlog.merged_epochs},
                      {"abandoned", p->backlog.abandoned}));
    put_object(json, "topic",
               COUNTS({"begin", p->topic.begin}, {"looks", p->topic.looks}, {"looked_ms", p->topic.looked_ms}));
    fr_json_text(json, "problem", p->problem);
    fr_json_end(json);
}

static void put_times(struct fr_json *json, const struct fr_trainer_run *run, const struct fr_shared_durable *durable)
{
    fr_json_number(json, "step_seconds", (double)run->step_ns / 1e9);
    fr_json_number(json, "plan_seconds", (double)run->plan_ns / 1e9);
    fr_json_number(json, "cut_seconds", (double)run->cut_ns / 1e9);
    fr_json_object(json, "journaled");
    put_counts(json,
               COUNTS({"epochs", atomic_load(&durable->appends)}, {"image_bytes", atomic_load(&durable->image_bytes)}));
    fr_json_number(json, "seconds", (double)atomic_load(&durable->append_ns) / 1e9);
    fr_json_number(json, "last_cut_to_durable_seconds", (double)atomic_load(&durable->cut_to_durable_ns) / 1e9);
    fr_json_end(json);
}

static void put_snapshots(struct fr_json *json, struct fr_shared_snapshots *snapshots)
{
    char current[FR_MANIFEST_NAME_MAX], problem[FR_SNAPSHOT_PROBLEM_MAX];
    struct fr_announced_snapshot announced;
    fr_shared_snapshots_get_texts(snapshots, current, problem);
    fr_shared_snapshots_announced(snapshots, &announced);
    fr_json_object(json, "snapshot");
    fr_json_text(json, "current", current);
    fr_json_text(json, "announced", announced.name);
    put_counts(json, COUNTS({"kept", atomic_load(&snapshots->kept)}, {"taken", atomic_load(&snapshots->taken)},
                            {"failures", atomic_load(&snapshots->failures)},
                            {"hook_failures", atomic_load(&snapshots->hook_failures)}));
    fr_json_end(json);
}

static void put_process(struct fr_json *json, struct fr_service *service)
{
    static const char *const phases[] = {"recovering", "running", "draining"};
    fr_json_text(json, "version", FR_VERSION);
    fr_json_text(json, "model", service->conf->model);
    fr_json_text(json, "phase", phases[atomic_load(&service->life.phase)]);
    fr_json_text(json, "kernel", service->trainer ? fr_trainer_kernel(service->trainer) : "");
    fr_json_object(json, "device");
    fr_json_text(json, "name", service->device.name);
    fr_json_text(json, "card", service->device.card);
    fr_json_text(json, "reason", service->device.reason);
    fr_json_end(json);
}

/* by_line: each problem begins a line, for readers that use grep. */
static void put_problems(struct fr_json *json, const struct fr_readiness *readiness, bool by_line)
{
    fr_json_array(json, "problems");
    for (size_t i = 0; i < readiness->n; i++) {
        if (by_line)
            fr_json_break(json);
        fr_json_object(json, NULL);
        fr_json_text(json, "where", readiness->problems[i].where);
        fr_json_text(json, "text", readiness->problems[i].text);
        fr_json_i64(json, "since_ms", readiness->problems[i].since_ms);
        fr_json_end(json);
    }
    fr_json_end(json);
}

static void put_epochs(struct fr_json *json, const struct fr_service_status *s)
{
    const struct fr_durable_status *durable = &s->durable;
    put_counts(json, COUNTS({"timeline", durable->timeline}, {"epoch", s->trainer.epoch}, {"durable", durable->epoch},
                            {"folded", durable->folded}));
    fr_json_bool(json, "folding", durable->folding);
    put_counts(json, COUNTS({"sent", s->publisher.sent}, {"acked", s->publisher.acked}));
    put_object(json, "journal",
               COUNTS({"bytes", durable->journal_bytes}, {"unfolded_bytes", durable->unfolded_bytes},
                      {"first", durable->journal_first}));
}

static void put_samples(struct fr_json *json, const struct fr_trainer_history *history)
{
    put_watermark(json, "watermark_ms", history->watermark_ms);
    fr_json_u64(json, "batches", history->batches);
    put_object(json, "samples",
               COUNTS({"trained", history->samples}, {"metrics_only", history->metrics_only},
                      {"masked", history->masked}, {"quarantined", history->quarantined_samples}));
}

/* Writes what stops or holds the service: memory, pauses, the quarantine. */
static void put_holds(struct fr_json *json, const struct fr_conf *conf, const struct fr_trainer_status *trainer)
{
    static const char held[] =
        "publishing is held after batches in a row of which nothing could train; it continues after as many good "
        "batches (see /healthz)";
    const struct fr_trainer_history *history = &trainer->history;
    put_object(json, "memory",
               COUNTS({"store_bytes", trainer->store_bytes}, {"dirty_bytes", trainer->dirty_bytes},
                      {"limit", conf->memory_limit}));
    fr_json_text(json, "paused", trainer->paused);
    fr_json_text(json, "held", history->held ? held : "");
    fr_json_u64(json, "publishable", history->publishable);
    put_object(json, "quarantine",
               COUNTS({"batches", history->quarantined_batches}, {"samples", history->quarantined_samples},
                      {"singly", history->quarantined_singly}, {"letters", trainer->run.quarantined_records}));
}

static void document_status(struct fr_service *service, const struct fr_service_status *s, struct fr_json *json)
{
    const struct fr_trainer_status *trainer = &s->trainer;
    uint64_t unsaid;
    fr_json_object(json, NULL);
    put_process(json, service);
    put_problems(json, &service->documents->readiness, false);
    put_epochs(json, s);
    put_samples(json, &trainer->history);
    put_ingest(json, &s->ingest);
    put_ignored(json, &s->ingest.unknown, &trainer->history);
    put_outbox(json, s);
    put_snapshots(json, &service->loops.snapshot.shared);
    fr_documents_replicas(service, s, json);
    put_holds(json, service->conf, trainer);
    put_freshness(json, service->freshness);
    put_object(json, "log", COUNTS({"lines_lost", fr_log_lost(&unsaid)}));
    put_times(json, &trainer->run, &service->loops.durable.shared);
    fr_json_number(json, "loss", trainer->run.last_loss);
    put_tasks(json, trainer);
    fr_json_object(json, "tables");
    for (uint32_t i = 0; i < trainer->n_tables; i++)
        put_table(json, &trainer->tables[i]);
    fr_json_end(json);
    put_partitions(json, service, &s->ingest);
    fr_json_end(json);
}

/* ---- /readyz ---- */

static void document_ready(const struct fr_service *service, const struct fr_service_status *s, struct fr_json *json)
{
    const struct fr_readiness *readiness = &service->documents->readiness;
    uint64_t total = atomic_load(&service->recovery.total_bytes), done = atomic_load(&service->recovery.done_bytes);
    fr_json_object(json, NULL);
    fr_json_bool(json, "ready", s->ready);
    /* A service is ready while only a part of the stream waits; the text then names that part. */
    fr_json_text(json, "reason", s->ready ? s->ingest.problem : readiness->reason);
    fr_json_number(json, "progress", total ? (double)done / (double)total : s->recovered ? 1 : 0);
    put_problems(json, readiness, true);
    fr_json_end(json);
}

/* ---- /healthz ---- */

/* Whether the watermark is ahead of the clock. It may be if the history began before records
 * were checked against the clock, if it was made in lockstep, or if the clock was set back. */
static bool watermark_ahead(const struct fr_service *service, const struct fr_service_status *s, char *reason,
                            size_t size)
{
    int64_t watermark_ms = s->trainer.history.watermark_ms, now_ms = fr_wall_ms(service->clock);
    if (s->ingest.pause == FR_INGEST_PAUSED_CLOCK) /* a more specific problem is reported then */
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

/* Reports to /healthz what follows from the statuses. The loops report the rest themselves. */
static void report_reasons(struct fr_service *service, const struct fr_service_status *s)
{
    char ahead[320];
    fr_http_reason(service->http, "trainer", s->trainer.paused);
    fr_http_reason(service->http, "watermark", watermark_ahead(service, s, ahead, sizeof(ahead)) ? ahead : NULL);
    /* Before reading has started, the start reports why it waits. */
    fr_http_reason(service->http, "stream",
                   atomic_load(&service->loops.ingest.shared.started) ? s->ingest.problem : NULL);
}

/* ---- publishing ---- */

/* Publishes the document that `json` has written, and clears it. */
static void publish(struct fr_service *service, const char *path, bool good, struct fr_json *json)
{
    struct fr_buffer *body = json->out;
    fr_put_u8(body, '\n');
    fr_http_publish(service->http, path, good ? 200 : 503, "application/json", body->data, body->size);
    fr_buffer_clear(body);
    json->follows = false;
}

void fr_documents_publish(struct fr_service *service)
{
    struct fr_service_status *s = fr_alloc(1, sizeof(*s));
    struct fr_buffer body = {0};
    struct fr_json json = {.out = &body};
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
    struct fr_replicas_status *replicas = service->replicas ? fr_alloc(1, sizeof(*replicas)) : NULL;
    if (replicas)
        fr_replicas_get_status(service->replicas, replicas);
    s->replicas = replicas;
    report_reasons(service, s);
    fr_readiness_update(&service->documents->readiness, service, s);
    s->ready = service->documents->readiness.reason[0] == '\0';
    document_auc(service, &s->trainer, s->durable.timeline ? s->durable.timeline : 1, &json);
    publish(service, "/auc", true, &json);
    document_status(service, s, &json);
    publish(service, "/status", true, &json);
    document_ready(service, s, &json);
    publish(service, "/readyz", s->ready, &json);
    fr_documents_series(service, s);
    fr_documents_page(service, s);
    fr_ingest_status_release(&s->ingest);
    fr_buffer_release(&body);
    free(replicas);
    free(s);
}
